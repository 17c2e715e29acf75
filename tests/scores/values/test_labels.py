"""Labels in lists and mappings: of names, numbers, or a 0 or 1 for each class, also as NumPy writes them."""

import numpy as np
import pytest

from hf_focal import InputError, read_scores

SCORES = np.random.default_rng(0).random((6, 2)).tolist()


def test_lists_that_may_hold_the_numbers_of_both_labels_are_refused():
    table = {"probabilities": SCORES, "label": [[0, 1], [1, 0]] * 3}
    with pytest.raises(InputError, match=r"^label_column must show what its lists hold: all in 'label' of scores are"):
        read_scores(table, link="sigmoid")
    read = read_scores(table | {"label": [[False, True], [True, False]] * 3}, link="sigmoid")
    np.testing.assert_array_equal(read.labels, [[0, 1], [1, 0]] * 3)
    read = read_scores(table | {"label": [["a", "b"], ["b"]] * 3}, link="sigmoid", classes="ab")
    np.testing.assert_array_equal(read.labels, [[1, 1], [0, 1]] * 3)


def test_the_first_table_decides_what_lists_hold():
    hot = {"probabilities": SCORES, "label": [[0, 1], [1, 1]] * 3}
    schema = read_scores(hot, link="sigmoid").schema
    other = {"probabilities": SCORES, "label": [[0, 1], [1, 0]] * 3}
    np.testing.assert_array_equal(read_scores(other, schema=schema).labels, [[0, 1], [1, 0]] * 3)
    numbers = read_scores(hot | {"label": [[0, 1], [1]] * 3}, link="sigmoid").schema
    with pytest.raises(InputError, match=r"^label_column must show what its lists hold"):
        read_scores(other, schema=numbers)


@pytest.mark.parametrize(
    "text", ["['a' 'b']", "['a', 'b']", '["a" "b"]', "[np.str_('a'), np.str_('b')]", "['a'\n 'b']", "[a b]"]
)
def test_texts_in_lists_of_numpy_are_not_joined(text):
    table = {f"prob_{name}": [0.5, 0.25] for name in ("a", "b", "ab")}
    read = read_scores(table | {"label": [text, "['ab']"]}, link="sigmoid")
    np.testing.assert_array_equal(read.labels, [[1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("texts", [("[1. 0. 1.]", "[0. 0. 0.]"), ("[ True False  True]", "[False False False]")])
def test_zeros_and_ones_as_numpy_writes_them(texts):
    table = {"probabilities": [[0.5, 0.25, 0.125]] * 2, "label": texts}
    np.testing.assert_array_equal(read_scores(table, link="sigmoid").labels, [[1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("text", ["[1. 0. x", "[a, b]", "[0 0 ... 1]", "[[1 0 1]]", "[" * 300])
def test_texts_that_only_begin_as_lists_are_refused(text):
    table = {"probabilities": [[0.5, 0.25, 0.125]] * 2, "label": ["[0 0 0]", text]}
    with pytest.raises(InputError, match=r"label_column must hold lists of labels"):
        read_scores(table, link="sigmoid")
