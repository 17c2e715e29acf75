"""Generated sentences with a tag for each word."""

from collections import Counter

import pytest
from papers.data.generated_tags import TAG_NAMES, generate_tags


def test_tags_are_as_frequent_as_documented():
    rows = generate_tags(4000, seed=3)
    counts = Counter(TAG_NAMES[tag] for tags in rows["tags"] for tag in tags)
    total = counts.total()
    assert counts["O"] / total == pytest.approx(0.85, abs=0.01)
    assert counts["B-PER"] / total == pytest.approx(0.05, abs=0.005)
    assert counts["B-EVENT"] / total == pytest.approx(0.0012, abs=0.0006)
    assert set(counts) == set(TAG_NAMES)


def test_sentences_are_well_formed():
    rows = generate_tags(300, min_words=5, max_words=9)
    assert {len(words) for words in rows["tokens"]} == set(range(5, 10))
    for words, tags in zip(rows["tokens"], rows["tags"], strict=True):
        assert len(words) == len(tags)
        for before, tag in zip([0, *tags], tags, strict=False):
            if TAG_NAMES[tag].startswith("I-"):  # goes on with what has begun
                assert TAG_NAMES[before][2:] == TAG_NAMES[tag][2:]


def test_names_of_rare_kinds_are_often_those_of_persons():
    rows = generate_tags(6000)
    kinds = {}
    for words, tags in zip(rows["tokens"], rows["tags"], strict=True):
        for word, tag in zip(words, tags, strict=True):
            if tag:
                kinds.setdefault(word, Counter())[TAG_NAMES[tag][2:]] += 1
    of_persons = {word for word, counts in kinds.items() if counts["PER"]}
    events = Counter()
    for word, counts in kinds.items():
        events[word in of_persons] += counts["EVENT"]
    assert 0.3 < events[True] / events.total() < 0.7


def test_the_same_seed_draws_the_same_sentences():
    assert generate_tags(5, seed=1)[:] == generate_tags(5, seed=1)[:] != generate_tags(5, seed=2)[:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"num_samples": 1, "min_words": 0}, "min_words must be at least 1, got 0"),
        ({"num_samples": 1, "max_words": 7}, "max_words must be at least min_words 8, got 7"),
    ],
)
def test_sentences_that_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        generate_tags(**options)
