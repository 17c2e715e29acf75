"""Inputs for each kind of model: their columns, whatever the case of their names, and errors that name the column."""

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from papers.models import GPCNNConfig
from transformers import Wav2Vec2FeatureExtractor

from hf_focal import InputError
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.input_selection import select_inputs
from hf_focal.tasks.named_split import NamedSplit
from hf_focal.tasks.task import TASKS

CONFIG = GPCNNConfig(id2label={0: "cat", 1: "dog", 2: "fox"}, label2id={"cat": 0, "dog": 1, "fox": 2})
UNNAMED = GPCNNConfig(num_labels=3)


def test_the_column_may_be_called_labels():
    def selected(**columns):
        data = Dataset.from_dict({"text": ["a", "b"]} | columns)
        split = NamedSplit("test", data)
        return select_inputs(TASKS["text-classification"], split, UNNAMED, InputOptions()).samples["labels"][:]

    assert selected(labels=[0, 2]) == [0, 2] and selected(labels=[0, 2], label=[1, 1]) == [1, 1]
    with pytest.raises(InputError, match="label_column must be one of"):
        selected(classes=[0, 2])


def test_second_texts_without_an_option_are_noted():
    split = NamedSplit("test", Dataset.from_dict({"premise": ["a"], "hypothesis": ["b"], "label": [0]}))
    task = TASKS["text-classification"]
    _, (note,) = select_inputs(task, split, UNNAMED, InputOptions(text_column="premise"))
    assert note.endswith("give --text_pair_column hypothesis")
    for options in (
        InputOptions(text_column="premise", text_pair_column="hypothesis"),
        InputOptions(text_column="hypothesis"),
    ):
        assert select_inputs(task, split, UNNAMED, options).notes == []
    other = InputOptions(text_column="premise", group="hypothesis")
    assert select_inputs(task, split, UNNAMED, other).notes == []


def test_sounds_are_lists_of_numbers():
    split = Dataset.from_dict({"audio": ["a.wav"], "label": [0]})
    with pytest.raises(
        ValueError, match=r"audio_column must hold lists of numbers, got .*string.* in 'audio' of test"
    ):
        select_inputs(TASKS["audio-classification"], NamedSplit("test", split), CONFIG, InputOptions())
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
        select_inputs(
            TASKS["multiple-choice-head"], NamedSplit("test", split), CONFIG, InputOptions(question_column="q")
        )


def test_default_names_are_found_whatever_their_case_spaces_and_punctuation():
    split = Dataset.from_dict({" TEXT": ["a", "b"], "Label:": ["cat", "dog"]})
    selected, _ = select_inputs(TASKS["text-classification"], NamedSplit("test", split), CONFIG, InputOptions())
    assert selected["text"][:] == ["a", "b"] and selected["labels"][:] == [0, 1]
    two = Dataset.from_dict({"Text": ["a"], "TEXT": ["b"], "label": ["cat"]})
    with pytest.raises(InputError, match=r"text_column must name one of .* called alike: give --text_column Text$"):
        select_inputs(TASKS["text-classification"], NamedSplit("test", two), CONFIG, InputOptions())


def test_the_error_for_another_name_has_the_option():
    split = Dataset.from_dict({"Customer's Review": ["a"], "label": ["cat"]})
    with pytest.raises(InputError) as refused:
        select_inputs(TASKS["text-classification"], NamedSplit("test", split), CONFIG, InputOptions())
    assert str(refused.value).endswith("""; give --text_column 'Customer'"'"'s Review'""")
    split = split.add_column("Topic", ["cat|dog"]).remove_columns("label")
    with pytest.raises(InputError) as refused:
        select_inputs(TASKS["text-classification"], NamedSplit("test", split), CONFIG, InputOptions())
    assert str(refused.value).endswith("""'s Review' or --text_column Topic, and for pairs also --text_pair_column""")
    several = GPCNNConfig(id2label=CONFIG.id2label, problem_type="multi_label_classification")
    with pytest.raises(InputError) as refused:
        options = InputOptions(text_column="Customer's Review")
        select_inputs(TASKS["text-classification"], NamedSplit("test", split), several, options)
    assert str(refused.value).endswith(": give --label_column Topic")


def test_a_note_says_in_which_order_columns_without_the_names_of_labels_are_taken():
    several = GPCNNConfig(id2label=CONFIG.id2label, problem_type="multi_label_classification")
    data = {"text": ["a", "b"], "x": [0, 1], "y": [1, 1], "z": [0, 0], "dog": [1, 0], "fox": [1, 1], "cat": [0, 0]}
    split = NamedSplit("test", Dataset.from_dict(data))

    def selected(label_column):
        return select_inputs(TASKS["text-classification"], split, several, InputOptions(label_column=label_column))

    named, unnamed = selected("fox,cat,dog"), selected("x,y,z")
    assert named.samples["labels"][:] == [[0, 1, 1], [0, 0, 1]] and named.notes == []
    assert unnamed.samples["labels"][:] == [[0, 1, 0], [1, 1, 0]]
    order = "they are taken in the order 'cat', 'dog', 'fox'"
    assert unnamed.notes == [f"no column of test has a label's name: {order}"]


@pytest.mark.parametrize(
    ("labels", "feature", "notes"),
    [
        ([-1, 0, 1, -1, 2], ClassLabel(names=["cat", "dog", "fox"]), ["2 of the 5 samples of test have no label"]),
        ([-100, 0, 1, 1, 2], Value("int64"), ["1 of the 5 samples of test have no label"]),
        ([2, 0, 1, 1, 2], ClassLabel(names=["cat", "dog", "fox"]), []),
    ],
)
def test_samples_without_a_label_are_noted(labels, feature, notes):
    rows = {"text": [*"abcde"], "label": labels}
    split = NamedSplit("test", Dataset.from_dict(rows, Features(text=Value("string"), label=feature)))
    samples, found = select_inputs(TASKS["text-classification"], split, CONFIG, InputOptions(max_samples=2))
    assert len(samples) == 2 and [note.split(" (")[0] for note in found] == notes
