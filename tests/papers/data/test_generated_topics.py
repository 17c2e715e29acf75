"""Generated topics."""

import numpy as np
import pytest
from papers.data.generated_topics import generate_topics, topic_distributions

SMALL = {"num_topics": 4, "vocab_size": 200, "min_words": 5, "max_words": 30, "topic_share": 0.4}


def test_words_and_labels_are_as_frequent_as_documented():
    corpus = generate_topics(6000, **SMALL, label_noise=0.3)
    lengths = [len(text.split()) for text in corpus["text"]]
    assert (min(lengths), max(lengths)) == (5, 30)
    expected = np.sort(topic_distributions(4, 200, 0.4, 0).mean(0))[::-1]
    _, counts = np.unique(" ".join(corpus["text"]).split(), return_counts=True)
    shares = np.sort(counts)[::-1] / counts.sum()
    assert shares[:20] == pytest.approx(expected[:20], rel=0.1)
    assert np.bincount(corpus["label"][:]) / 6000 == pytest.approx([0.25] * 4, abs=0.03)


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
