"""Corpus of generated texts about topics."""

import numpy as np
from datasets import ClassLabel, Dataset, Features, Value

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
    """Draw texts about K topics, with noisy labels.

    For each text, a topic and a length are drawn uniformly. The words are drawn independently from the topic's
    distribution, a mixture of two Zipf distributions over the vocabulary: one ranks the words in the same order for
    all topics; the other, with weight `topic_share`, ranks the words in the topic's own order. The label is the topic
    or, with probability `label_noise`, one of the other topics. With the defaults, the best possible classifier has an
    error rate of 17%. Splits of one corpus share `language_seed` and differ in `seed`.

    The columns are "text" (string) and "label" (`ClassLabel`).
    """
    distributions = topic_distributions(num_topics, vocab_size, topic_share, language_seed)
    rng = np.random.default_rng(seed)
    topics = rng.integers(num_topics, size=num_samples)
    ends = rng.integers(min_words, max_words + 1, size=num_samples).cumsum()
    words = draw_words(distributions, np.repeat(topics, np.diff(ends, prepend=0)), rng)
    other_topics = (topics + rng.integers(1, num_topics, size=num_samples)) % num_topics
    labels = np.where(rng.random(num_samples) < label_noise, other_topics, topics)
    names = np.array([pseudo_word(i) for i in range(vocab_size)])
    texts = [" ".join(text) for text in np.split(names[words], ends[:-1])]
    features = Features(text=Value("string"), label=ClassLabel(names=[f"topic {k}" for k in range(num_topics)]))
    return Dataset.from_dict({"text": texts, "label": labels}, features)


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
