"""Corpus of generated texts with several topics each, with the true probability of each topic."""

import numpy as np
from datasets import Dataset, Features, List, Value
from scipy.special import expit, logit

from papers.data.generated_topics import draw_words, pseudo_word, topic_distributions

# The frequency of the first topic, and that of the last one as a share of it.
_MOST_FREQUENT, _IMBALANCE = 0.5, 0.02
# The weight of the Zipf distributions that tell texts with a topic from others.
_TOPIC_SHARE = 0.2


def generate_topic_sets(
    num_samples: int,
    *,
    num_topics: int = 8,
    words_per_topic: int = 250,
    min_words: int = 60,
    max_words: int = 120,
    seed: int = 0,
) -> Dataset:
    """Draw texts with any number of the L topics, and the exact probability of each topic.

    A text has topic k with probability π_k, independently of its other topics; π_k falls exponentially from 0.5 for
    the first topic to 0.01 for the last. For each word, a topic is drawn uniformly, and the word is drawn from this
    topic's vocabulary. Each vocabulary has two distributions, one for texts that have the topic and one for texts that
    do not. Both are mixtures of two Zipf distributions: one is the same in both mixtures; the other, with weight 0.2,
    ranks the words in a different order in each. So the log odds of topic k given a text are the log odds of π_k plus
    the log-likelihood ratios of the text's words from the vocabulary of topic k. Splits of one corpus differ in
    `seed`.

    The columns are "text" (string), "label" (L values of 0.0 or 1.0), and "posterior" (L values P(topic | text),
    float64).
    """
    frequency = _MOST_FREQUENT * _IMBALANCE ** (np.arange(num_topics) / max(num_topics - 1, 1))
    # Axes: topic; without or with the topic; word.
    distributions = np.stack([topic_distributions(2, words_per_topic, _TOPIC_SHARE, k) for k in range(num_topics)])
    rng = np.random.default_rng(seed)
    labels = (rng.random((num_samples, num_topics)) < frequency).astype(np.int64)
    ends = rng.integers(min_words, max_words + 1, size=num_samples).cumsum()
    texts = np.repeat(np.arange(num_samples), np.diff(ends, prepend=0))
    topics = rng.integers(num_topics, size=len(texts))
    rows = 2 * topics + labels[texts, topics]
    words = draw_words(distributions.reshape(-1, words_per_topic), rows, rng)
    names = np.array([pseudo_word(i) for i in range(num_topics * words_per_topic)])
    spelled = np.split(names[topics * words_per_topic + words], ends[:-1])
    return Dataset.from_dict(
        {
            "text": [" ".join(text) for text in spelled],
            "label": labels,
            "posterior": topic_posterior(words, topics, texts, distributions, frequency),
        },
        features=Features(
            text=Value("string"),
            label=List(Value("float32"), length=num_topics),
            posterior=List(Value("float64"), length=num_topics),
        ),
    )


def topic_posterior(
    words: np.ndarray, topics: np.ndarray, texts: np.ndarray, distributions: np.ndarray, frequency: np.ndarray
) -> np.ndarray:
    """Compute P(topic | text) under the model of `generate_topic_sets` by Bayes' rule, float64 (N, L).

    The arguments are integers (M,) for the words of all texts: each one's number within its topic's vocabulary, the
    topic, and the text (from 0 to N - 1; the last text must have words); `distributions`, (L, 2, V), positive: P(word)
    in texts without and with the topic; and `frequency`, (L,), the probabilities π of the topics.
    """
    num_topics = len(distributions)
    ratio = np.log(distributions[:, 1] / distributions[:, 0])
    evidence = np.bincount(texts * num_topics + topics, ratio[topics, words], (texts[-1] + 1) * num_topics)
    return expit(logit(frequency) + evidence.reshape(-1, num_topics))


def true_label_errors(probabilities: np.ndarray, posteriors: np.ndarray) -> dict[str, float]:
    """Compute the ECE and the macro ECE of P(label), (N, L), from 0 to 1, against the true posterior, (N, L).

    "ece" is the error over all N · L probabilities, and "macro_ece" the mean over the labels of the error over each
    label's N probabilities. Bins have equal width, as in `CalibrationMetrics`.
    """
    p, q = np.asarray(probabilities, np.float64), np.asarray(posteriors, np.float64)
    if p.shape != q.shape or p.ndim != 2:
        raise ValueError(f"probabilities and posteriors must both be (N, L), got {p.shape} and {q.shape}")
    num_labels, num_bins = p.shape[1], 15
    cells = num_bins * np.arange(num_labels) + np.searchsorted(np.arange(1, num_bins) / num_bins, p)
    gaps = np.bincount(cells.ravel(), (p - q).ravel(), num_labels * num_bins).reshape(num_labels, num_bins)
    return {"ece": float(np.abs(gaps.sum(0)).sum() / p.size), "macro_ece": float(np.abs(gaps).sum() / p.size)}
