"""Generated translations and their exact probabilities."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from papers.data.generated_translations import END, Grammar, generate_translations
from scipy.stats import chisquare


@pytest.fixture(scope="module")
def grammar():
    return Grammar()


@pytest.fixture(scope="module")
def corpus():
    return generate_translations(1500)


def sources(grammar, count, max_words=11, seed=0):
    rng, actual = np.random.default_rng(seed), []
    while len(actual) < count:
        source = grammar.sample_source(rng)
        if len(source.split()) <= max_words:
            actual.append(source)
    return actual


def walk(grammar, source, prefix=""):
    """All targets that begin with `prefix`, with their probabilities given it."""
    for word, probability in grammar.next_word_distributions(source, prefix)[-1].items():
        if word == END:
            yield prefix, probability
        else:
            for target, rest in walk(grammar, source, f"{prefix} {word}".strip()):
                yield target, probability * rest


def by_definition(grammar, source, target):
    """P(target | source): the sum over both registers of the product over the words."""
    total, options = 0, grammar._options(source)
    for register, probability in enumerate((0.6, 0.4)):
        for word, shares in zip((target + " ").split(" "), options, strict=False):
            probability *= shares[word][register]
        total += probability
    return total


def test_next_words_give_each_target_its_probability(grammar):
    for source in sources(grammar, 6, max_words=6):
        tree = dict(walk(grammar, source))
        assert abs(sum(tree.values()) - 1) < 1e-12
        assert len(tree) == math.prod(map(len, grammar._options(source)))
        expected = [by_definition(grammar, source, target) for target in tree]
        np.testing.assert_allclose(list(tree.values()), expected, rtol=1e-10)


def test_verbs_come_last_and_adjectives_after_nouns(grammar):
    kinds = {word: grammar._kind[source] for source, words in grammar._translations.items() for word in words}
    pairs = generate_translations(300, seed=3)
    orders = {"".join(kinds.get(word, "!") for word in target.split()) for target in pairs["target"]}
    assert all(re.fullmatch("t?dna?(dnp)?dna?v!?", order) for order in orders) and len(orders) > 20


def test_samples_follow_the_distribution(grammar):
    rng = np.random.default_rng(0)
    for source in sources(grammar, 4, max_words=6):
        counts = Counter(grammar.sample_target(source, rng) for _ in range(3000))
        tree = dict(walk(grammar, source))
        assert counts.keys() <= tree.keys()
        observed = np.array([counts[target] for target in tree])
        expected = 3000 * np.array(list(tree.values()))
        rare = expected < 5
        if rare.any():
            observed, expected = (np.append(values[~rare], values[rare].sum()) for values in (observed, expected))
        assert len(observed) > 1 and chisquare(observed, expected).pvalue > 1e-3


def test_next_words_are_calibrated(grammar, corpus):
    probability, hit = [], []
    for row in corpus:
        words, _ = grammar.token_probabilities(row["source"], row["target"])
        distributions = grammar.next_word_distributions(row["source"], row["target"])
        for word, distribution in zip(words, distributions, strict=True):
            probability += distribution.values()
            hit += [word == candidate for candidate in distribution]
    probability, hit = np.array(probability), np.array(hit)
    bins = np.digitize(probability, np.linspace(0, 1, 11))
    for b in range(1, 11):
        p, h = probability[bins == b], hit[bins == b]
        # Five deviations of the mean of independent draws; those of one position exclude each other.
        assert abs(p.mean() - h.mean()) < 5 * np.sqrt((p * (1 - p)).sum()) / p.size


def test_the_log_probability_is_that_of_the_words(grammar, corpus):
    for row in corpus:
        words, probabilities = grammar.token_probabilities(row["source"], row["target"])
        assert " ".join(words[:-1]) == row["target"] and words[-1] == END
        assert math.isclose(row["target_log_probability"], np.log(probabilities).sum(), rel_tol=1e-12, abs_tol=1e-15)
    for column, longest in (("source", 11), ("target", 12)):
        lengths = {len(text.split()) for text in corpus[column]}
        assert min(lengths) == 5 and max(lengths) == longest


def test_seeds(corpus):
    first = generate_translations(100, seed=1)
    assert first[:] == generate_translations(100, seed=1)[:]
    assert not set(first["source"]) & set(corpus["source"])


def test_sentences_of_another_language_are_refused(grammar, corpus):
    source, target = corpus["source"][0], corpus["target"][0]
    for wrong in ("", f"{source} hello", " ".join(reversed(source.split()))):
        with pytest.raises(ValueError, match=f"^source must be a sentence .* got {wrong!r}$"):
            grammar.next_word_distributions(wrong, "")
    for wrong in ("hello", f"{target} {target}"):
        with pytest.raises(ValueError, match=f"^prefix must begin a translation of {source!r}, got {wrong!r}$"):
            grammar.next_word_distributions(source, wrong)
    wrong = " ".join(target.split()[:-2])
    with pytest.raises(ValueError, match=f"^target must be a whole translation of {source!r}, got {wrong!r}$"):
        grammar.token_probabilities(source, wrong)
