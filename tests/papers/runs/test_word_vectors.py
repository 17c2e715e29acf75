"""Word vectors from GloVe's text format."""

import pytest
import torch
from papers.data.tokenizer_training import train_word_tokenizer
from papers.runs.word_vectors import WordVectorArguments, load_word_vectors


def load(path, tokenizer, **options):
    arguments = WordVectorArguments(embeddings_file=str(path), embedding_size=3)
    return load_word_vectors(arguments, tokenizer, seed=0, **options)


@pytest.fixture
def tokenizer():
    return train_word_tokenizer(["cat cat cat dog dog naïve naïve bird"])


def test_words_get_their_vectors(tokenizer, tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("cat 1 2.5 -3e-1\nunused 9 9 9\nnaïve 0.5 0.25 0\n[PAD] 1 1 1\n", encoding="utf-8")
    matrix = load(path, tokenizer)
    ids = tokenizer.get_vocab()
    assert matrix.shape == (len(tokenizer), 3) and matrix.dtype == torch.float32
    assert torch.equal(matrix[ids["cat"]], torch.tensor([1, 2.5, -0.3]))
    assert torch.equal(matrix[ids["naïve"]], torch.tensor([0.5, 0.25, 0]))
    assert torch.equal(matrix[0], torch.zeros(3))
    assert not torch.equal(matrix[ids["dog"]], matrix[ids["bird"]])
    assert load(path, tokenizer, zero_unknown=True)[ids["dog"]].tolist() == [0, 0, 0]


def test_words_with_spaces_are_passed_over(tokenizer, tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("dog 1 2 3\n. . . 4 5 6\ncat 7 8 9\n")
    matrix = load(path, tokenizer)
    assert matrix[tokenizer.get_vocab()["cat"]].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2 3\ndog 1 2\n", "line 2 must hold embedding_size 3 values, got 2"),
        ("400000 3\n", "line 1 must hold embedding_size 3 values, got 1"),
        ("fish 1 2 3\n", "must contain words of the tokenizer, got none of its 6"),
    ],
)
def test_files_of_other_vectors_are_refused(text, message, tokenizer, tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(path, tokenizer)
