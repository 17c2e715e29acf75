"""Generated texts with several topics, their true posterior, and calibration errors against it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.data.generated_topic_sets import generate_topic_sets, topic_posterior, true_label_errors

from hf_focal import CalibrationMetrics


@pytest.fixture(scope="module")
def sample():
    corpus = generate_topic_sets(20_000, num_topics=4, words_per_topic=50, min_words=5, max_words=30)
    return np.array(corpus["label"][:]), np.array(corpus["posterior"][:])


def test_the_rarest_topic_is_fifty_times_rarer(sample):
    labels, posterior = sample
    expected = 0.5 * 0.02 ** (np.arange(4) / 3)
    assert expected[0] / expected[-1] == pytest.approx(50)
    for values in (labels, posterior):
        assert np.all(np.abs(values.mean(0) - expected) < 5 * np.sqrt(expected / len(values)))


def test_the_posterior_is_calibrated(sample):
    labels, posterior = sample
    bins = np.digitize(posterior, np.linspace(0, 1, 11))
    for topic in range(4):
        for b in np.unique(bins[:, topic]):
            p, y = (values[bins[:, topic] == b, topic] for values in (posterior, labels))
            # Five deviations of the mean of independent draws.
            assert abs(p.mean() - y.mean()) < 5 * np.sqrt((p * (1 - p)).sum()) / p.size
    assert true_label_errors(posterior, posterior) == {"ece": 0, "macro_ece": 0}


@given(
    words=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=8),
    p=st.floats(0.01, 0.99),
    q=st.floats(0.01, 0.99),
    frequency=st.floats(0.01, 0.99),
)
def test_the_posterior_of_two_topics_with_two_words(words, p, q, frequency):
    """Closed form: with m and n of the first topic's two words, its odds are π/(1-π) · (q/p)^m ((1-q)/(1-p))^n."""
    topics, spelled = np.array(words).T
    distributions = np.array([[[p, 1 - p], [q, 1 - q]], [[0.5, 0.5], [0.5, 0.5]]])
    texts = np.zeros(len(words), dtype=int)
    result = topic_posterior(spelled, topics, texts, distributions, np.array([frequency, 0.25]))
    m, n = words.count((0, 0)), words.count((0, 1))
    odds = frequency / (1 - frequency) * (q / p) ** m * ((1 - q) / (1 - p)) ** n
    np.testing.assert_allclose(result, [[odds / (1 + odds), 0.25]], rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 40))
def test_against_labels_the_true_errors_are_the_measured_ones(seed, rows):
    rng = np.random.default_rng(seed)
    p = rng.random((rows, 3)).round(2)
    y = (rng.random((rows, 3)) < p).astype(np.int64)
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update_from_probabilities(p, y)
    measured = metrics.compute()
    assert true_label_errors(p, y) == pytest.approx({name: measured[name] for name in ("ece", "macro_ece")})


def test_splits_of_one_corpus_share_its_language():
    first, again, other = (generate_topic_sets(20, seed=seed) for seed in (0, 0, 1))
    assert first["text"][:] == again["text"][:] != other["text"][:]
