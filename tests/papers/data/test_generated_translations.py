"""Generated translations and their distribution."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest
from papers.data.generated_translations import Grammar, generate_translations
from scipy.stats import chisquare


@pytest.fixture(scope="module")
def grammar():
    return Grammar()


def probabilities(grammar, source):
    """Each target with P(target | source): the sum over both registers of the product over the words."""
    options = grammar._options(source)
    for words in itertools.product(*options):
        shares = np.prod([shares[word] for shares, word in zip(options, words, strict=True)], axis=0)
        yield " ".join(words).rstrip(), float(np.array([0.6, 0.4]) @ shares)


def test_verbs_come_last_and_adjectives_after_nouns(grammar):
    kinds = {word: grammar._kind[source] for source, words in grammar._translations.items() for word in words}
    pairs = generate_translations(300, seed=3)
    orders = {"".join(kinds.get(word, "!") for word in target.split()) for target in pairs["target"]}
    assert all(re.fullmatch("t?dna?(dnp)?dna?v!?", order) for order in orders) and len(orders) > 20
    for column, longest in (("source", 11), ("target", 12)):
        lengths = {len(text.split()) for text in pairs[column]}
        assert min(lengths) == 5 and max(lengths) == longest


def test_samples_follow_the_distribution(grammar):
    rng = np.random.default_rng(0)
    sources = [source for _ in range(40) if len((source := grammar.sample_source(rng)).split()) <= 6][:4]
    for source in sources:
        counts = Counter(grammar.sample_target(source, rng) for _ in range(3000))
        expected = dict(probabilities(grammar, source))
        assert counts.keys() <= expected.keys() and sum(expected.values()) == pytest.approx(1)
        observed = np.array([counts[target] for target in expected])
        expected = 3000 * np.array(list(expected.values()))
        rare = expected < 5
        if rare.any():
            observed, expected = (np.append(values[~rare], values[rare].sum()) for values in (observed, expected))
        assert len(observed) > 1 and chisquare(observed, expected).pvalue > 1e-3


def test_seeds():
    first = generate_translations(100, seed=1)
    assert first[:] == generate_translations(100, seed=1)[:]
    assert not set(first["source"]) & set(generate_translations(100, seed=2)["source"])


def test_sentences_of_another_language_are_refused(grammar):
    source = grammar.sample_source(np.random.default_rng(0))
    for wrong in ("", f"{source} hello", " ".join(reversed(source.split()))):
        with pytest.raises(ValueError, match=f"^source must be a sentence .* got {wrong!r}$"):
            grammar.sample_target(wrong, np.random.default_rng(0))
