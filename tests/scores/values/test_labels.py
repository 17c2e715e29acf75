"""Labels in lists and mappings: of names, numbers, or a 0 or 1 for each class, also as NumPy writes them."""

import shlex

import numpy as np
import pytest

from hf_focal import InputError, read_scores
from hf_focal.scores.reading.large_tables import in_batches
from hf_focal.scores.sets.streamed_scores import StreamedScores
from hf_focal.scores.table_options import TableOptions

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


@pytest.mark.parametrize("kind", [int, float, bool])
def test_mappings_of_each_class_to_zero_or_one(kind):
    scores = {"prob_a": [0.9, 0.2, 0.6], "prob_b": [0.7, 0.4, 0.1]}
    mappings = [{"b": kind(b), "a": kind(a)} for a, b in ((1, 1), (0, 0), (1, 0))]
    table = scores | {"label": mappings}
    np.testing.assert_array_equal(read_scores(table).labels, [[1, 1], [0, 0], [1, 0]])
    streamed = StreamedScores(in_batches("scores", table), options=TableOptions(link="sigmoid"))
    np.testing.assert_array_equal(streamed.collected().labels.sum(0), [2, 1])
    one_hot = [{"a": kind(i == 0), "b": kind(i == 1)} for i in (0, 1, 0)]
    shares = {"prob_a": [0.9, 0.2, 0.6], "prob_b": [0.1, 0.8, 0.4], "label": one_hot}
    np.testing.assert_array_equal(read_scores(shares, link="softmax").labels, [0, 1, 0])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([{"a": 1}, {"a": 0}], r"must map the classes \['a', 'b'\] to 0 or 1, got \['a'\] in 'label'"),
        ([{"a": 1, "b": 0, "c": 0}] * 2, r"must map the classes \['a', 'b'\] to 0 or 1, got \['a', 'b', 'c'\]"),
        ([{"a": 1, "b": 0}, {"a": 1}], r"mapping of each class to 0 or 1, got None for 'b' in 'label' in row 1"),
        ([{"a": 1, "b": 0.5}] * 2, r"mapping of each class to 0 or 1, got 0.5 for 'b' in 'label' in row 0"),
        ([{"name": "a", "confidence": 1}] * 2, r"mapping of each class to 0 or 1, got 'a' for 'name' in 'label'"),
        ([[{"label": "a"}]] * 2, r"must hold labels, or lists of labels, got list<.*> in 'label'"),
        ([[["a"]]] * 2, r"must hold labels, or lists of labels, got list<.*> in 'label'"),
    ],
)
def test_other_mappings_are_refused(labels, message):
    with pytest.raises(InputError, match=f"^label_column .*{message}"):
        read_scores({"prob_a": [0.9, 0.2], "prob_b": [0.7, 0.4], "label": labels})


def test_nested_values_in_the_place_of_zero_and_one_are_refused():
    nested = [{"a": 1}, {"a": 0}]
    with pytest.raises(InputError, match=r"^correct_column must hold true or false, or 1 or 0, got struct<.*> in"):
        read_scores({"confidence": [0.9, 0.2], "correct": nested})
    with pytest.raises(InputError, match=r"^label_column must hold 0 or 1 for each label, got struct<.*> in"):
        read_scores({"prob_a": [0.9, 0.2], "prob_b": [0.7, 0.4], "label_a": [1, 0], "label_b": nested})


def test_mappings_beside_scores_without_names_need_the_classes():
    table = {"probabilities": [[0.9, 0.7], [0.2, 0.4]], "label": [{"a": 1, "b": 1}, {"a": 0, "b": 1}]}
    with pytest.raises(InputError, match=r"must map the classes, which must be given, to 0 or 1, got \['a', 'b'\]"):
        read_scores(table, link="sigmoid")
    np.testing.assert_array_equal(read_scores(table, classes="ba").labels, [[1, 1], [1, 0]])


@pytest.mark.parametrize(("low", "high"), [("0", "1"), ("<=50K", ">50K")])
def test_the_error_for_the_class_of_a_single_score_shows_the_option(low, high):
    table = {"churn_probability": [0.9, 0.2, 0.4], "label": [high, low, high]}
    with pytest.raises(InputError) as refused:
        read_scores(table)
    option = f"--classes {shlex.quote(f'{low},{high}')}"
    assert f"give both classes, the positive one last, as in {option} if it is {high!r}" in str(refused.value)
    assert read_scores(table, classes=(low, high)).labels.ravel().tolist() == [1, 0, 1]


def test_predictions_of_azure_show_which_class_the_score_is_of():
    table = {"income": ["b", "a", "b"], "Scored Labels": ["b", "a", "a"], "Scored Probabilities": [0.9, 0.2, 0.4]}
    read = read_scores(table, label_column="income")
    assert read.classes == ("a", "b") and read.labels.ravel().tolist() == [1, 0, 1]
    with pytest.raises(InputError, match=r"name another with --label_column income$"):
        read_scores(table)
