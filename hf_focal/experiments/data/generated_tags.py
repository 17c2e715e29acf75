"""Generated sentences with a tag for each word, of which some are a hundred times rarer than others."""

import numpy as np
from datasets import ClassLabel, Dataset, Features, List, Value

from ...cli.demo_corpus import pseudo_word

# Kinds of names, from the most to the least frequent, with the probability that one begins at a word's place.
_KINDS = {"PER": 0.06, "LOC": 0.03, "ORG": 0.015, "PROD": 0.004, "EVENT": 0.0015}
TAG_NAMES = ("O", *(f"{place}-{kind}" for kind in _KINDS for place in "BI"))

# Words by their numbers: those of no name, those that announce each kind, and names.
_NUM_PLAIN, _NUM_ANNOUNCING, _NUM_NAMES = 300, 4, 60
_FIRST_NAME = _NUM_PLAIN + len(_KINDS) * _NUM_ANNOUNCING
_ANNOUNCED = 0.6  # share of the names before which a word of their kind stands
_BORROWED = 0.5  # share of the words in other kinds' names that are words of persons' names
_LENGTHS = (0.5, 0.35, 0.15)  # of names of one word, two and three


def generate_tags(num_samples: int, *, min_words: int = 8, max_words: int = 24, seed: int = 0) -> Dataset:
    """Draw sentences of invented words, with names of five kinds tagged as in CoNLL-2003 (B- where one begins).

    Words of other kinds' names are often those of persons' names, and not every name is announced by a word before
    it: what a name is of is then a matter of odds, by which the rare kinds lose. Of the words of ten thousand
    sentences 85 % have no name, 5 % begin one of a person, and 0.12 % that of an event.

    Args:
        num_samples: sentences to draw, at least 1.
        min_words, max_words: bounds of their length, both included.
        seed: the same one draws the same sentences.

    Returns:
        `Dataset` with the columns "tokens" (strings) and "tags" (`ClassLabel` of `TAG_NAMES`), a list each.

    Raises:
        ValueError: an argument is out of its range.
    """
    for name, value in (("num_samples", num_samples), ("min_words", min_words)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if max_words < min_words:
        raise ValueError(f"max_words must be at least min_words {min_words}, got {max_words}")
    rng = np.random.default_rng(seed)
    lengths = rng.integers(min_words, max_words + 1, size=num_samples)
    tokens, tags = zip(*(_sentence(length, rng) for length in lengths), strict=True)
    features = Features(tokens=List(Value("string")), tags=List(ClassLabel(names=list(TAG_NAMES))))
    return Dataset.from_dict({"tokens": tokens, "tags": tags}, features)


def _sentence(length: int, rng: np.random.Generator) -> tuple[list[str], list[int]]:
    words: list[int] = []
    tags: list[int] = []
    chances = np.cumsum(list(_KINDS.values()))
    while len(words) < length:
        kind = int(np.searchsorted(chances, rng.random(), side="right"))
        if kind == len(_KINDS):
            words.append(_plain(rng))
            tags.append(0)
            continue
        if rng.random() < _ANNOUNCED:
            words.append(_NUM_PLAIN + kind * _NUM_ANNOUNCING + int(rng.integers(_NUM_ANNOUNCING)))
            tags.append(0)
        for place in range(1 + int(rng.choice(len(_LENGTHS), p=_LENGTHS))):
            owner = 0 if rng.random() < _BORROWED else kind
            words.append(_FIRST_NAME + owner * _NUM_NAMES + int(rng.integers(_NUM_NAMES)))
            tags.append(1 + 2 * kind + min(place, 1))
    return [pseudo_word(number) for number in words[:length]], tags[:length]


def _plain(rng: np.random.Generator) -> int:
    """A word of no name, the first ones more often (Zipf's law, about)."""
    return int(_NUM_PLAIN ** rng.random()) - 1
