import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from papers.models import GPCNNConfig
from transformers import BertConfig, Wav2Vec2FeatureExtractor

from hf_focal import InputError
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.labeled_inputs import column_order, labels_of, multi_hot_labels, select_inputs, tags_of
from hf_focal.tasks.task import TASKS

CONFIG = GPCNNConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, label2id={"cat": 0, "dog": 1, "fox": 2})
UNNAMED = GPCNNConfig(num_labels=3)
SENTIMENT = BertConfig(id2label=dict(enumerate(("NEGATIVE", "NEUTRAL", "POSITIVE"))))


def labeled(values, feature, name="label") -> Dataset:
    return Dataset.from_dict({name: values}, Features({name: feature}))


def test_names_are_numbered_as_the_model_numbers_them():
    split = labeled([0, 1, 2, -1], ClassLabel(names=["fox", "cat", "dog"]))
    assert labels_of(CONFIG, "test", split).tolist() == [2, 0, 1, -100]
    assert labels_of(UNNAMED, "test", split).tolist() == [0, 1, 2, -100]
    assert labels_of(CONFIG, "test", labeled(["dog", "fox", "dog"], Value("string"))).tolist() == [1, 2, 1]
    numbers = labels_of(CONFIG, "test", labeled([2, 0], Value("int32")))
    assert numbers.tolist() == [2, 0] and numbers.dtype == torch.int64


@pytest.mark.parametrize("label2id", [{}, {"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}}])
def test_names_without_a_table_back(label2id):
    config = BertConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, **label2id)
    assert labels_of(config, "test", labeled(["fox", "Cat"], Value("string"))).tolist() == [2, 0]
    with pytest.raises(ValueError, match="the model has, 'cat', 'dog', 'fox', got 'cow'"):
        labels_of(config, "test", labeled(["cow"], Value("string")))


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
        labels_of(CONFIG, "test", labeled(labels, feature))


def test_names_are_found_in_another_case_and_by_the_map():
    split = labeled([0, 1, -1, 1], ClassLabel(names=["positive", "neutral"]))
    assert labels_of(SENTIMENT, "test", split).tolist() == [2, 1, -100, 1]
    assert labels_of(
        SENTIMENT, "test", labeled(["neg", "neg"], Value("string")), InputOptions(label_map={"neg": "NEGATIVE"})
    ).tolist() == [0, 0]
    with pytest.raises(ValueError, match="got 'neg' in 'label' of test: map them with label_map, such as neg="):
        labels_of(SENTIMENT, "test", labeled(["neg", "positive"], Value("string")))
    unnamed = BertConfig(num_labels=2)
    switched = {"yes": "LABEL_0", "no": "LABEL_1"}
    split = labeled([0, 1], ClassLabel(names=["no", "yes"]))
    assert labels_of(unnamed, "test", split).tolist() == [0, 1]
    assert labels_of(unnamed, "test", split, InputOptions(label_map=switched)).tolist() == [1, 0]


def test_names_are_found_without_the_spaces_around_them():
    split = labeled(["POSITIVE ", " pos"], Value("string"))
    assert labels_of(SENTIMENT, "test", split, InputOptions(label_map={"pos": "POSITIVE"})).tolist() == [2, 2]


def test_names_that_differ_in_case_alone_are_taken_to_the_letter():
    config = BertConfig(id2label={0: "b", 1: "B"}, label2id={"b": 0, "B": 1})
    assert labels_of(config, "test", labeled(["B", "b"], Value("string"))).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("names", "label_map", "expected"),
    [
        (("1", "2", "3"), None, [1, -100, 0]),
        (("2", "1", "0"), None, [0, -100, 1]),
        (("0", "1", "2"), None, [2, -100, 1]),
        (("cat", "2", "dog"), None, [2, -100, 1]),
        (("cat", "dog", "fox"), {"1": "cat", "2": "dog"}, [1, -100, 0]),
        (("cat", "dog", "fox"), {"c": "cat"}, [2, -100, 1]),
    ],
)
def test_integers_are_names_where_the_names_are_other_integers_or_are_mapped(names, label_map, expected):
    config, split = BertConfig(id2label=dict(enumerate(names))), labeled([2, -100, 1], Value("int64"))
    assert labels_of(config, "test", split, InputOptions(label_map=label_map)).tolist() == expected


def test_an_integer_that_no_label_is_called():
    config = BertConfig(id2label=dict(enumerate(("1", "2", "3"))))
    with pytest.raises(ValueError, match="labels that the model has, '1', '2', '3', got '0' in"):
        labels_of(config, "test", labeled([0, 1], Value("int64")))


def test_a_class_that_no_sample_has_may_be_one_that_the_model_has_not():
    split = labeled([2, 0, -1], ClassLabel(names=["positive", "mixed", "NEGATIVE"]))
    assert labels_of(SENTIMENT, "test", split).tolist() == [0, 2, -100]


COLUMNS = {"NEGATIVE": [1, 0], "neutral": [0, 0], "Positive ": [0, 1], "neg": [1, 0], "x": [0, 1], "y": [1, 1]}


@pytest.mark.parametrize(
    ("label_column", "label_map", "expected"),
    [
        ("Positive ,NEGATIVE,neutral", None, [[1, 0, 0], [0, 0, 1]]),
        ("neutral,Positive ,neg", {"neg": "negative"}, [[1, 0, 0], [0, 0, 1]]),
        ("x,neg,y", None, [[0, 1, 1], [1, 0, 1]]),
    ],
)
def test_columns_are_matched_with_the_labels_in_any_case(label_column, label_map, expected):
    options = InputOptions(label_column=label_column, label_map=label_map)
    assert multi_hot_labels(SENTIMENT, "test", Dataset.from_dict(COLUMNS), options) == expected
    assert (column_order(SENTIMENT, options) is None) == (label_column == "x,neg,y")


@pytest.mark.parametrize("label_column", ["x,neutral,Positive ", "x,y,x", "neutral,neutral,NEGATIVE", "x,neg,neg"])
def test_columns_of_some_labels_and_columns_named_twice_are_refused(label_column):
    message = f"label_column must name each label of the model once, 'NEGATIVE', .*, got '{label_column}'"
    with pytest.raises(ValueError, match=message):
        multi_hot_labels(SENTIMENT, "test", Dataset.from_dict(COLUMNS), InputOptions(label_column=label_column))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["pos", "neg"], "label_column must hold 0 and 1, got other values in 'label' of test"),
        ([["x"]], "label_column must hold labels that the model has, 'pos', got 'x' in 'label' of test"),
    ],
)
def test_what_is_no_set_of_labels(values, message):
    with pytest.raises(ValueError, match=message):
        multi_hot_labels(BertConfig(id2label={0: "pos"}), "test", Dataset.from_dict({"label": values}), InputOptions())


def test_integers_of_no_label():
    assert labels_of(SENTIMENT, "test", labeled([2, -100, 0], Value("int64"))).tolist() == [2, -100, 0]


def test_rows_that_were_selected_have_their_own_labels():
    split = labeled(["POSITIVE", "neutral", None], Value("string")).select([1, 0])
    assert labels_of(SENTIMENT, "test", split).tolist() == [1, 2]
    lists = labeled([["NEUTRAL"], None, ["POSITIVE", "negative"]], List(Value("string")), "tags").select([2, 0])
    assert tags_of(SENTIMENT, "test", lists) == [[2, 0], [1]]


def test_the_column_may_be_called_labels():
    def selected(**columns):
        data = Dataset.from_dict({"text": ["a", "b"]} | columns)
        return select_inputs(TASKS["text-classification"], "test", data, UNNAMED, InputOptions())["labels"][:]

    assert selected(labels=[0, 2]) == [0, 2] and selected(labels=[0, 2], label=[1, 1]) == [1, 1]
    with pytest.raises(InputError, match="label_column must be one of"):
        selected(classes=[0, 2])


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([[0, -100], [], [1]], List(Value("int64")), [[0, -100], [], [1]]),
        ([[0, 1], [1]], List(ClassLabel(names=["neutral", "negative"])), [[1, 0], [0]]),
        ([["POSITIVE"], []], List(Value("string")), [[2], []]),
    ],
)
def test_tags(values, feature, expected):
    assert tags_of(SENTIMENT, "test", labeled(values, feature, "tags")) == expected


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
        tags_of(SENTIMENT, "test", labeled(values, feature, "tags"))


def test_sounds_are_lists_of_numbers():
    split = Dataset.from_dict({"audio": ["a.wav"], "label": [0]})
    with pytest.raises(
        ValueError, match=r"audio_column must hold lists of numbers, got .*string.* in 'audio' of test"
    ):
        select_inputs(TASKS["audio-classification"], "test", split, CONFIG, InputOptions())
    with pytest.raises(InputError, match="audio_column must hold lists of numbers, got an empty one in row 7"):
        TASKS["audio-classification"].collator(Wav2Vec2FeatureExtractor(), None)(
            [{"audio": [], "labels": 0, "row": 7}]
        )


@pytest.mark.parametrize("choices", [[["a", "b"], ["a", "b", "c"]], [["a"], ["b"]]])
def test_a_head_of_multiple_choice_has_as_many_options_in_each_row(choices):
    split = Dataset.from_dict({"q": ["one", "two"], "choices": choices, "answer": [0, 0]})
    with pytest.raises(
        ValueError, match=r"choices_column must hold the same number of options in every row, at least 2, got .* in"
    ):
        select_inputs(TASKS["multiple-choice-head"], "test", split, CONFIG, InputOptions(question_column="q"))


def test_texts_of_several_labels():
    split = labeled(["cat|fox", "", None, "hound"], Value("string"))
    hot = multi_hot_labels(CONFIG, "test", split, InputOptions(label_map={"hound": "dog"}))
    assert hot == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    split = labeled(["cat|cow"], Value("string"))
    with pytest.raises(InputError, match=r"got values such as 'cat\|cow' .* with \| between them, as 'cat\|dog'"):
        multi_hot_labels(CONFIG, "test", split, InputOptions())


def test_default_names_are_found_whatever_their_case_spaces_and_punctuation():
    split = Dataset.from_dict({" TEXT": ["a", "b"], "Label:": ["cat", "dog"]})
    selected = select_inputs(TASKS["text-classification"], "test", split, CONFIG, InputOptions())
    assert selected["text"][:] == ["a", "b"] and selected["labels"][:] == [0, 1]
    two = Dataset.from_dict({"Text": ["a"], "TEXT": ["b"], "label": ["cat"]})
    with pytest.raises(InputError, match=r"text_column must name one of .* called alike: give --text_column Text$"):
        select_inputs(TASKS["text-classification"], "test", two, CONFIG, InputOptions())


def test_the_error_for_another_name_has_the_option():
    split = Dataset.from_dict({"Customer's Review": ["a"], "label": ["cat"]})
    with pytest.raises(InputError) as refused:
        select_inputs(TASKS["text-classification"], "test", split, CONFIG, InputOptions())
    assert str(refused.value).endswith("""; give --text_column 'Customer'"'"'s Review'""")
    split = split.add_column("Topic", ["cat|dog"]).remove_columns("label")
    with pytest.raises(InputError) as refused:
        select_inputs(TASKS["text-classification"], "test", split, CONFIG, InputOptions())
    assert str(refused.value).endswith("""'s Review' or --text_column Topic""")
    several = GPCNNConfig(id2label=CONFIG.id2label, problem_type="multi_label_classification")
    with pytest.raises(InputError) as refused:
        options = InputOptions(text_column="Customer's Review")
        select_inputs(TASKS["text-classification"], "test", split, several, options)
    assert str(refused.value).endswith(": give --label_column Topic")
