"""Corpus of generated texts about topics, with the true probability of each label."""

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, List, Value

from hf_focal.calibration import Correction

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]


def generate_topics(
    num_samples: int,
    *,
    num_topics: int = 10,
    vocab_size: int = 2000,
    min_words: int = 30,
    max_words: int = 80,
    topic_share: float = 0.13,
    label_noise: float = 0.1,
    seed: int = 0,
    language_seed: int = 0,
) -> Dataset:
    """Draw texts about K topics, with noisy labels and the exact probability of each label.

    For each text, a topic and a length are drawn uniformly. The words are drawn independently from the topic's
    distribution, a mixture of two Zipf distributions over the vocabulary: one ranks the words in the same order for
    all topics; the other, with weight `topic_share`, ranks the words in the topic's own order. The label is the topic
    or, with probability `label_noise`, one of the other topics. With the defaults, the best possible classifier has an
    error rate of 17%. Splits of one corpus share `language_seed` and differ in `seed`.

    The columns are "text" (string), "label" (`ClassLabel`), and "posterior" (K values P(label | text), float64;
    `np.array(dataset["posterior"])` keeps float64, but not the "numpy" format of `datasets`).
    """
    distributions = topic_distributions(num_topics, vocab_size, topic_share, language_seed)
    rng = np.random.default_rng(seed)
    topics = rng.integers(num_topics, size=num_samples)
    ends = rng.integers(min_words, max_words + 1, size=num_samples).cumsum()
    words = draw_words(distributions, np.repeat(topics, np.diff(ends, prepend=0)), rng)
    other_topics = (topics + rng.integers(1, num_topics, size=num_samples)) % num_topics
    labels = np.where(rng.random(num_samples) < label_noise, other_topics, topics)
    names = np.array([pseudo_word(i) for i in range(vocab_size)])
    return Dataset.from_dict(
        {
            "text": [" ".join(text) for text in np.split(names[words], ends[:-1])],
            "label": labels,
            "posterior": label_posterior(words, ends, distributions, label_noise),
        },
        features=Features(
            text=Value("string"),
            label=ClassLabel(names=[f"topic {k}" for k in range(num_topics)]),
            posterior=List(Value("float64"), length=num_topics),
        ),
    )


def label_posterior(words: np.ndarray, ends: np.ndarray, distributions: np.ndarray, label_noise: float) -> np.ndarray:
    """Compute P(label | text) under the model of `generate_topics`, by Bayes' rule in log space, float64 (N, K).

    `words` are the numbers of the words of all texts, one text after the other, `ends` (N,) the end of each text in it
    (no text is empty), and `distributions` (K, vocab_size) positive, each row with the sum 1.
    """
    starts = np.concatenate([[0], ends[:-1]])
    likelihood = np.add.reduceat(np.log(distributions).T[words], starts)
    topic = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    topic /= topic.sum(axis=1, keepdims=True)
    return (1 - label_noise) * topic + label_noise * (1 - topic) / (len(distributions) - 1)


def true_calibration_error(probabilities: np.ndarray, posteriors: np.ndarray, num_bins: int = 15) -> float:
    """Compute the ECE (Naeini et al., AAAI 2015), from 0 to 1, with the true posterior instead of sampled labels.

    Both arguments are (N, K). Bins of the confidence have equal width, ((i-1)/num_bins, i/num_bins]. The result is the
    mean over samples of |mean confidence - mean true posterior of the predicted class|, where both means are over the
    sample's bin. As N grows, the ECE on sampled labels converges to this error. A model that predicts the true
    posterior has an error of 0.
    """
    probabilities, posteriors = np.asarray(probabilities, np.float64), np.asarray(posteriors, np.float64)
    if probabilities.shape != posteriors.shape or probabilities.ndim != 2:
        raise ValueError(
            f"probabilities and posteriors must both be (N, K), got {probabilities.shape} and {posteriors.shape}"
        )
    rows, prediction = np.arange(len(probabilities)), probabilities.argmax(axis=1)
    confidence, expected = probabilities[rows, prediction], posteriors[rows, prediction]
    bins = np.searchsorted(np.arange(1, num_bins) / num_bins, confidence)
    return float(np.abs(np.bincount(bins, weights=confidence - expected)).sum() / len(confidence))


def true_errors(logits: torch.Tensor, correction: Correction, test: Dataset) -> tuple[float, float] | None:
    """Compute the `true_calibration_error` of logits before and after correction; None if `test` has no posterior."""
    if "posterior" not in test.column_names:
        return None
    before, after = (
        true_calibration_error(scores.double().softmax(dim=-1).numpy(), np.asarray(test["posterior"]))
        for scores in (logits, correction.apply(logits))
    )
    return before, after


def topic_distributions(num_topics: int, vocab_size: int, topic_share: float, language_seed: int) -> np.ndarray:
    """Compute P(word | topic) for the texts of `generate_topics`, as a float64 array (num_topics, vocab_size)."""
    zipf = 1 / np.arange(1, vocab_size + 1)
    zipf /= zipf.sum()
    rng = np.random.default_rng(language_seed)
    by_topic = np.stack([rng.permutation(zipf) for _ in range(num_topics)])
    return (1 - topic_share) * zipf + topic_share * by_topic


def draw_words(distributions: np.ndarray, topics: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a word (its number) for each entry of `topics`, by inverting the topic's cumulative distribution."""
    uniform, words = rng.random(len(topics)), np.empty(len(topics), np.int64)
    for topic, distribution in enumerate(distributions):
        cumulative = distribution.cumsum()
        mine = topics == topic
        # The division makes the last value exactly 1, above every draw.
        words[mine] = np.searchsorted(cumulative / cumulative[-1], uniform[mine], side="right")
    return words


def pseudo_word(number: int) -> str:
    """Return a pronounceable word of at least two syllables. Different numbers give different words."""
    number += len(_SYLLABLES)
    word = ""
    while number:
        number, syllable = divmod(number, len(_SYLLABLES))
        word += _SYLLABLES[syllable]
    return word
