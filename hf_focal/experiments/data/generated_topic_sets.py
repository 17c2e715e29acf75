"""Corpus of generated texts with several topics each, with the true probability of each topic."""

import numpy as np
from datasets import Dataset, Features, List, Value
from scipy.special import expit, logit

from .generated_topics import draw_words, pseudo_word, topic_distributions


def generate_topic_sets(
    num_samples: int,
    *,
    num_topics: int = 8,
    most_frequent: float = 0.5,
    imbalance: float = 0.02,
    words_per_topic: int = 250,
    min_words: int = 60,
    max_words: int = 120,
    topic_share: float = 0.2,
    seed: int = 0,
    language_seed: int = 0,
) -> Dataset:
    """Draw texts with any number of topics, and the exact probability of each topic.

    A text has topic k with probability π_k, independently of its other topics; π_k falls exponentially from
    `most_frequent` to `imbalance` times that. Each word belongs to the vocabulary of a topic, drawn uniformly, and
    follows one of two distributions of that vocabulary: one for texts that have the topic, one for texts that do not.
    Both are mixtures of the same Zipf distribution and, with weight `topic_share`, one in an order of their own. So
    the log odds of a topic are those of π_k plus the words' log-likelihood ratios.

    Args:
        num_samples: number of texts.
        num_topics: L, at least 1.
        most_frequent: π of the first topic, in (0, 1).
        imbalance: in (0, 1], π of the last topic as a share of that of the first.
        words_per_topic: size of each topic's vocabulary.
        min_words, max_words: range of the number of words in a text.
        topic_share: from 0 (nothing to learn) to below 1.
        seed: seed of the samples.
        language_seed: seed of the distributions. Splits of one corpus share it and differ in `seed`.

    Returns:
        `Dataset` with the columns "text" (string), "label" (a struct with 0 or 1 for each topic, by its name) and
        "posterior" (L float64, P(topic | text)).
    """
    frequency = most_frequent * imbalance ** (np.arange(num_topics) / max(num_topics - 1, 1))
    # (topic, without or with it, word)
    seeds = range(language_seed, language_seed + num_topics)
    distributions = np.stack([topic_distributions(2, words_per_topic, topic_share, own) for own in seeds])
    rng = np.random.default_rng(seed)
    labels = (rng.random((num_samples, num_topics)) < frequency).astype(np.int64)
    ends = rng.integers(min_words, max_words + 1, size=num_samples).cumsum()
    texts = np.repeat(np.arange(num_samples), np.diff(ends, prepend=0))
    topics = rng.integers(num_topics, size=len(texts))
    rows = 2 * topics + labels[texts, topics]
    words = draw_words(distributions.reshape(-1, words_per_topic), rows, rng)
    names = np.array([pseudo_word(i) for i in range(num_topics * words_per_topic)])
    spelled = np.split(names[topics * words_per_topic + words], ends[:-1])
    topic_names = [f"topic {k}" for k in range(num_topics)]
    return Dataset.from_dict(
        {
            "text": [" ".join(text) for text in spelled],
            "label": [dict(zip(topic_names, row, strict=True)) for row in labels.tolist()],
            "posterior": topic_posterior(words, topics, texts, distributions, frequency),
        },
        features=Features(
            text=Value("string"),
            label={name: Value("float32") for name in topic_names},
            posterior=List(Value("float64"), length=num_topics),
        ),
    )


def topic_posterior(
    words: np.ndarray, topics: np.ndarray, texts: np.ndarray, distributions: np.ndarray, frequency: np.ndarray
) -> np.ndarray:
    """P(topic | text) under the model of `generate_topic_sets`, by Bayes' rule.

    Args:
        words: integers, (M,), the words of all texts, each within its topic's vocabulary.
        topics: integers, (M,), the topic whose vocabulary each word belongs to.
        texts: integers, (M,), the text of each word, from 0 to N - 1, the last of which has words.
        distributions: float64, (L, 2, V), positive: P(word) without and with the topic.
        frequency: float64, (L,), π.

    Returns:
        float64, (N, L).
    """
    num_topics = len(distributions)
    ratio = np.log(distributions[:, 1] / distributions[:, 0])
    evidence = np.bincount(texts * num_topics + topics, ratio[topics, words], (texts[-1] + 1) * num_topics)
    return expit(logit(frequency) + evidence.reshape(-1, num_topics))


def true_label_errors(probabilities: np.ndarray, posteriors: np.ndarray, num_bins: int = 15) -> dict[str, float]:
    """The calibration errors of P(label) with the true posterior in the place of the labels, from 0 to 1.

    Args:
        probabilities: (N, L), the model's.
        posteriors: (N, L), the true ones.
        num_bins: of equal width, as for `CalibrationMetrics`.

    Returns:
        "ece", of all entries, and "macro_ece", the mean over the labels.
    """
    p, q = np.asarray(probabilities, np.float64), np.asarray(posteriors, np.float64)
    if p.shape != q.shape or p.ndim != 2:
        raise ValueError(f"probabilities and posteriors must both be (N, L), got {p.shape} and {q.shape}")
    num_labels = p.shape[1]
    cells = num_bins * np.arange(num_labels) + np.searchsorted(np.arange(1, num_bins) / num_bins, p)
    gaps = np.bincount(cells.ravel(), (p - q).ravel(), num_labels * num_bins).reshape(num_labels, num_bins)
    return {"ece": float(np.abs(gaps.sum(0)).sum() / p.size), "macro_ece": float(np.abs(gaps).sum() / p.size)}
