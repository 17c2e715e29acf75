"""Labels in the data as the numbers of a model's labels."""

from dataclasses import replace

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import BertConfig

from hf_focal import InputError
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.label_numbers import ModelLabels, add_classes, answer_numbers, class_numbers, list_numbers
from hf_focal.tasks.named_split import NamedSplit

ANIMALS = ModelLabels.named(["cat", "dog", "fox"])
UNNAMED = ModelLabels.named(["LABEL_0", "LABEL_1", "LABEL_2"])
SENTIMENT = ModelLabels.named(["NEGATIVE", "NEUTRAL", "POSITIVE"])


def labeled(values, feature, name="label") -> Dataset:
    return Dataset.from_dict({name: values}, Features({name: feature}))


def numbers_of(labels, split) -> list[int]:
    return class_numbers(labels, NamedSplit("test", split), "label").tolist()


def tag_numbers(labels, split) -> list[list[int]]:
    return list_numbers(labels, NamedSplit("test", split), "tag_column", "tags")


def test_names_are_numbered_as_the_model_numbers_them():
    split = labeled([0, 1, 2, -1], ClassLabel(names=["fox", "cat", "dog"]))
    assert numbers_of(ANIMALS, split) == [2, 0, 1, -100]
    assert numbers_of(UNNAMED, split) == [0, 1, 2, -100]
    assert numbers_of(ANIMALS, labeled(["dog", "fox", "dog"], Value("string"))) == [1, 2, 1]
    numbers = class_numbers(ANIMALS, NamedSplit("test", labeled([2, 0], Value("int32"))), "label")
    assert numbers.tolist() == [2, 0] and numbers.dtype == np.int64


@pytest.mark.parametrize("label2id", [{}, {"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}}])
def test_names_without_a_table_back(label2id):
    labels = ModelLabels.of(BertConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, **label2id), InputOptions())
    assert numbers_of(labels, labeled(["fox", "Cat"], Value("string"))) == [2, 0]
    with pytest.raises(ValueError, match="the model has, 'cat', 'dog', 'fox', got 'cow'"):
        numbers_of(labels, labeled(["cow"], Value("string")))


@pytest.mark.parametrize(
    ("labels", "feature", "message"),
    [
        (
            [0],
            ClassLabel(names=["cow"]),
            "label_column must hold labels that the model has, 'cat', 'dog', 'fox', got 'co",
        ),
        ([3], Value("int64"), r"label_column must hold 0 to 2, got \[3\] in 'label' of test"),
        ([-1], Value("int64"), r"label_column must hold 0 to 2, got \[-1\]"),
        ([0.5], Value("float64"), "label_column must hold ClassLabel, integers or strings"),
        ([[1], [2]], List(Value("int64")), "label_column must hold ClassLabel, integers or strings"),
        ([None], Value("string"), "label_column must have no missing values, got 1 of 1"),
    ],
)
def test_labels_that_the_model_has_not(labels, feature, message):
    with pytest.raises(ValueError, match=message):
        numbers_of(ANIMALS, labeled(labels, feature))


def test_names_are_found_in_another_case_and_by_the_map():
    split = labeled([0, 1, -1, 1], ClassLabel(names=["positive", "neutral"]))
    assert numbers_of(SENTIMENT, split) == [2, 1, -100, 1]
    mapped = replace(SENTIMENT, label_map={"neg": "NEGATIVE"})
    assert numbers_of(mapped, labeled(["neg", "neg"], Value("string"))) == [0, 0]
    with pytest.raises(ValueError, match="got 'neg' in 'label' of test: map them with label_map, such as neg="):
        numbers_of(SENTIMENT, labeled(["neg", "positive"], Value("string")))
    split = labeled([0, 1], ClassLabel(names=["no", "yes"]))
    assert numbers_of(UNNAMED, split) == [0, 1]
    assert numbers_of(replace(UNNAMED, label_map={"yes": "LABEL_0", "no": "LABEL_1"}), split) == [1, 0]


@pytest.mark.parametrize("feature", [Value("string"), ClassLabel(names=["crane", "dog"])], ids=["text", "class label"])
def test_a_name_of_several_labels_says_not_which_is_meant(feature):
    cranes = ModelLabels.named(["crane", "dog", "crane"])  # as two classes of ImageNet
    values = ["crane", "dog"] if feature == Value("string") else [0, 1]
    message = "must hold numbers of labels, since the model calls 2 labels 'crane', those with the numbers 0, 2, got"
    with pytest.raises(InputError, match=message):
        numbers_of(cranes, labeled(values, feature))
    assert numbers_of(cranes, labeled(values[1:], feature)) == [1]
    assert numbers_of(cranes, labeled([0, 2, 1], Value("int64"))) == [0, 2, 1]


def test_names_are_found_without_the_spaces_around_them():
    split = labeled(["POSITIVE ", " pos"], Value("string"))
    assert numbers_of(replace(SENTIMENT, label_map={"pos": "POSITIVE"}), split) == [2, 2]


def test_names_that_differ_in_case_alone_are_taken_to_the_letter():
    assert numbers_of(ModelLabels.named(["b", "B"]), labeled(["B", "b"], Value("string"))) == [1, 0]


@pytest.mark.parametrize(
    ("names", "label_map", "expected"),
    [
        (("1", "2", "3"), None, [1, -100, 0]),
        (("2", "1", "0"), None, [0, -100, 1]),
        (("0", "1", "2"), None, [2, -100, 1]),
        (("0", "cat", "2", "1"), None, [2, -100, 3]),
        (("2", "cat", "1"), None, [0, -100, 2]),
        (("1.0", "2.0", "n/a"), None, [1, -100, 0]),
        (("-1.0", "1.0", "2e0"), None, [2, -100, 1]),
        (("1 star", "2 stars", "3 stars"), None, [2, -100, 1]),
        (("inf", "nan", "1_"), None, [2, -100, 1]),
        (("cat", "dog", "fox"), {"1": "cat", "2": "dog"}, [1, -100, 0]),
        (("cat", "dog", "fox"), {"c": "cat"}, [2, -100, 1]),
    ],
)
def test_integers_are_names_where_the_names_are_other_integers_or_are_mapped(names, label_map, expected):
    labels = ModelLabels(dict(enumerate(names)), label_map or {})
    assert numbers_of(labels, labeled([2, -100, 1], Value("int64"))) == expected


@pytest.mark.parametrize("names", [("1", "2", "3"), ("n/a", "2", "1"), ("0.5", "1.0", "a"), ("1", "0", "0.0")])
def test_an_integer_that_no_label_is_called(names):
    missing = "0" if "0" not in names else "2"
    with pytest.raises(ValueError, match=f"labels that the model has, '{names[0]}', .*, got '{missing}' in"):
        numbers_of(ModelLabels.named(names), labeled([int(missing), 1], Value("int64")))


@pytest.mark.parametrize(
    ("names", "swap", "values", "expected"),
    [
        (("neg", "pos"), {"neg": "pos", "pos": "neg"}, ["Neg", "POS ", "neg"], [1, 0, 1]),
        (("Neg", "Pos"), {"neg": "pos", "pos": "neg"}, ["Neg", "Pos", "pos"], [1, 0, 0]),
        (("b", "B"), {"b": "B", "B": "b"}, ["b", " B", "b "], [1, 0, 1]),
        (("neg", "pos"), {"n": "neg", "N": "pos", "p": "pos", "P": "pos"}, ["n", "N", " p "], [0, 1, 1]),
    ],
)
def test_the_map_takes_names_in_any_case_as_the_model_does(names, swap, values, expected):
    labels = ModelLabels(dict(enumerate(names)), swap)
    assert numbers_of(labels, labeled(values, Value("string"))) == expected
    classes = ClassLabel(names=values)
    assert numbers_of(labels, labeled([*range(len(values))], classes)) == expected


def test_a_name_that_the_map_has_in_two_other_cases_is_refused():
    labels = ModelLabels({0: "neg", 1: "pos"}, {"neg": "pos", "Neg": "neg"})
    with pytest.raises(ValueError, match="got 'NEG' in"):
        numbers_of(labels, labeled(["NEG"], Value("string")))


def test_a_class_that_no_sample_has_may_be_one_that_the_model_has_not():
    split = labeled([2, 0, -1], ClassLabel(names=["positive", "mixed", "NEGATIVE"]))
    assert numbers_of(SENTIMENT, split) == [0, 2, -100]


def test_integers_of_no_label():
    assert numbers_of(SENTIMENT, labeled([2, -100, 0], Value("int64"))) == [2, -100, 0]


def test_rows_that_were_selected_have_their_own_labels():
    split = labeled(["POSITIVE", "neutral", None], Value("string")).select([1, 0])
    assert numbers_of(SENTIMENT, split) == [1, 2]
    lists = labeled([["NEUTRAL"], None, ["POSITIVE", "negative"]], List(Value("string")), "tags").select([2, 0])
    assert tag_numbers(SENTIMENT, lists) == [[2, 0], [1]]


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([[0, -100], [], [1]], List(Value("int64")), [[0, -100], [], [1]]),
        ([[0, 1], [1]], List(ClassLabel(names=["neutral", "negative"])), [[1, 0], [0]]),
        ([["POSITIVE"], []], List(Value("string")), [[2], []]),
    ],
)
def test_tags(values, feature, expected):
    assert tag_numbers(SENTIMENT, labeled(values, feature, "tags")) == expected


@pytest.mark.parametrize(
    ("values", "feature", "message"),
    [
        ([[3]], List(Value("int64")), r"tag_column must hold 0 to 2, got \[3\] in 'tags' of test"),
        ([["B-X"]], List(Value("string")), "tag_column must hold labels that the model has, .*, got 'B-X'"),
        ([0], Value("int64"), "tag_column must hold lists, got .*int64"),
        ([[0], None], List(Value("int64")), "tag_column must have no missing values"),
        ([["POSITIVE", None]], List(Value("string")), "tag_column must have no missing values"),
        ([[0.5]], List(Value("float32")), "tag_column must hold ClassLabel, integers or strings"),
    ],
)
def test_tags_that_the_model_has_not(values, feature, message):
    with pytest.raises(ValueError, match=message):
        tag_numbers(SENTIMENT, labeled(values, feature, "tags"))


def test_samples_without_a_label_are_dropped():
    split = labeled([-100, 0, 2], Value("int64"))
    samples = Dataset.from_dict({"text": ["a", "b", "c"]})
    assert add_classes(ANIMALS, samples, NamedSplit("test", split), "label")[:] == {
        "text": ["b", "c"],
        "labels": [0, 2],
    }
    with pytest.raises(ValueError, match="label_column must hold labels, got none in 'label' of test"):
        add_classes(ANIMALS, samples.select([0]), NamedSplit("test", split.select([0])), "label")


OPTIONS = [["fish", "fox"], ["B", "A"], ["1", "7", "9"]]


@pytest.mark.parametrize(
    ("answers", "expected"), [([1, 0, 2], [1, 0, 2]), (["fox", 1, "7"], [1, 1, 1]), (["B", 0, "C"], [1, 0, 2])]
)
def test_answers_are_indices_letters_or_texts(answers, expected):
    assert answer_numbers(answers, OPTIONS) == expected


def test_letters_may_be_others():
    assert answer_numbers(["2", "9"], [["fish", "fox"], ["x", "y"]], ["2", "9"]) == [0, 1]


@pytest.mark.parametrize("wrong", [2, -1, "C", "cat", 0.7, True])
def test_what_is_no_answer(wrong):
    with pytest.raises(InputError, match=f"got {wrong!r} for question 0$"):
        answer_numbers([wrong], OPTIONS[:1])


def test_a_text_that_is_the_letter_of_another_option():
    with pytest.raises(InputError, match="got 'A' for question 0, which fits two of these"):
        answer_numbers(["A"], OPTIONS[1:2])
