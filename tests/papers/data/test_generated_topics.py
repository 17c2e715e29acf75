"""Generated topics, their true posterior, and calibration errors against it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.data.generated_topics import generate_topics, label_posterior, true_calibration_error

SMALL = {"num_topics": 4, "vocab_size": 200, "min_words": 5, "max_words": 30, "topic_share": 0.4}


@pytest.fixture(scope="module")
def sample():
    corpus = generate_topics(20_000, **SMALL, label_noise=0.1)
    return np.array(corpus["label"]), np.array(corpus["posterior"])


def test_posterior_is_calibrated(sample):
    labels, posterior = sample
    hit = labels[:, None] == np.arange(4)
    bins = np.digitize(posterior, np.linspace(0, 1, 11))
    for b in np.unique(bins):
        p, h = posterior[bins == b], hit[bins == b]
        # Five deviations of the mean of independent draws.
        assert abs(p.mean() - h.mean()) < 5 * np.sqrt((p * (1 - p)).sum()) / p.size


@given(
    text=st.lists(st.integers(0, 1), min_size=1, max_size=8),
    p=st.floats(0.01, 0.99),
    q=st.floats(0.01, 0.99),
    noise=st.floats(0, 1),
)
def test_posterior_of_two_words_and_two_topics(text, p, q, noise):
    """Closed form: with a = p^m (1-p)^n and b likewise for q, the first topic has a / (a + b)."""
    words = np.array([0, *text, 1])
    ends = np.array([1, 1 + len(text), len(words)])
    result = label_posterior(words, ends, np.array([[p, 1 - p], [q, 1 - q]]), noise)
    m, n = text.count(0), text.count(1)
    a, b = p**m * (1 - p) ** n, q**m * (1 - q) ** n
    np.testing.assert_allclose(
        result[1], (1 - noise) * np.array([a, b]) / (a + b) + noise * np.array([b, a]) / (a + b)
    )


def test_posterior_of_a_long_text_does_not_underflow():
    words = np.arange(50_000) % 3
    result = label_posterior(words, np.array([50_000]), np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), 0.2)
    # 16,667 of the first word and 16,667 of the second: a draw.
    np.testing.assert_allclose(result, [[0.5, 0.5]])


def test_seeds():
    first = generate_topics(30, **SMALL, seed=1)
    assert first[:] == generate_topics(30, **SMALL, seed=1)[:]
    assert first["text"][:] != generate_topics(30, **SMALL, seed=2)["text"][:]

    def favorites(seed, language_seed):
        corpus = generate_topics(4000, **SMALL, seed=seed, language_seed=language_seed, label_noise=0)
        texts = [text for text, label in zip(corpus["text"], corpus["label"], strict=True) if label == 0]
        words, counts = np.unique(" ".join(texts).split(), return_counts=True)
        return set(words[np.argsort(-counts)[:4]])

    assert favorites(0, 5) == favorites(1, 5) != favorites(0, 6)


def test_true_calibration_error_by_hand():
    probabilities = np.array([[0.9, 0.1], [0.95, 0.05], [0.4, 0.6]])
    posteriors = np.array([[0.8, 0.2], [1.0, 0.0], [0.5, 0.5]])
    # The first two share the bin (14/15, 1] or (13/15, 14/15]: with 5 bins both are in (0.8, 1].
    assert true_calibration_error(probabilities, posteriors, num_bins=5) == pytest.approx((0.1 - 0.05 + 0.1) / 3)
    # The upper edge belongs to the bin: 0.6 and 0.9 are apart with 5 bins, together with one.
    assert true_calibration_error(probabilities, posteriors, num_bins=1) == pytest.approx(0.15 / 3)


def test_ece_on_labels_tends_to_the_true_error(sample):
    labels, posterior = sample
    sharp = posterior**2 / (posterior**2).sum(axis=1, keepdims=True)
    onehot = np.eye(4)[labels]
    assert true_calibration_error(sharp, onehot) == pytest.approx(true_calibration_error(sharp, posterior), abs=0.01)
    assert true_calibration_error(sharp, posterior) > 0.05
