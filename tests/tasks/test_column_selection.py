"""Selected columns, and what they must not hold."""

import pytest
from datasets import Dataset, Features, Image, LargeList, List, Value

from hf_focal.tasks.column_selection import (
    Column,
    flatten_translations,
    input_columns,
    sample_keys,
    second_text_column,
    select_columns,
)
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.named_split import NamedSplit
from hf_focal.tasks.task import TASKS, ColumnType

TOKENS = Column("token_column", "words", "tokens", ColumnType.LISTS_OF_STRINGS)
TEXT = Column("text_column", "text", "text", ColumnType.STRINGS)


@pytest.mark.parametrize("feature", [LargeList(Value("large_string")), List(Value("string"))])
def test_lists_get_the_same_type_whatever_the_format(feature):
    split = Dataset.from_dict({"words": [["a", "b"], []], "id": [1, 2]}, Features(words=feature, id=Value("int8")))
    selected = select_columns(
        NamedSplit("test", split), TOKENS, Column("label_column", "id", "label", ColumnType.LABELS)
    )
    assert selected.features == Features(tokens=List(Value("string")), label=Value("int64"))
    assert selected[:] == {"tokens": [["a", "b"], []], "label": [1, 2]}


def test_nulls_are_found_within_lists_and_outside_of_them():
    for words, message in (([["a", None]], "got 1 of 2 in 'words' of test"), ([["a"], None], "got 1 of 2 in 'words'")):
        with pytest.raises(ValueError, match=f"token_column must have no missing values, {message}"):
            select_columns(NamedSplit("test", Dataset.from_dict({"words": words})), TOKENS)


def test_a_column_is_named_once():
    split = Dataset.from_dict({"text": ["a"]})
    with pytest.raises(ValueError, match="label_column must be a different column from text_column, got"):
        select_columns(NamedSplit("test", split), TEXT, Column("label_column", "text", "label", ColumnType.LABELS))


def test_the_error_names_the_option_for_second_texts():
    split = NamedSplit("test", Dataset.from_dict({"premise": ["a"], "hypothesis": ["b"], "label": [0]}))
    hint = "; give --text_column premise or --text_column hypothesis"
    for task, also in (("text-classification", ", and for pairs also --text_pair_column$"), ("causal-lm", "$")):
        with pytest.raises(ValueError, match=f"{hint}{also}"):
            select_columns(split, *input_columns(TASKS[task], InputOptions().column))


@pytest.mark.parametrize(
    ("first", "columns", "second"),
    [
        ("premise", {"hypothesis": "b"}, "hypothesis"),
        ("question1", {"question2": "b"}, "question2"),
        ("sentence_A", {"sentence_B": "b"}, "sentence_B"),
        ("text", {"title": "b", "id": "7"}, None),
        ("text1", {"text2": 7}, None),
    ],
)
def test_names_tell_second_texts(first, columns, second):
    rows = Dataset.from_dict({name: [value] for name, value in {first: "a", **columns, "label": "x"}.items()})
    assert second_text_column(rows, first) == second


def test_keys_are_equal_for_equal_samples():
    images = [{"bytes": b"x", "path": "a"}, {"bytes": None, "path": "b"}, {"bytes": b"x", "path": None}]
    split = Dataset.from_dict({"image": images, "words": [["a"], ["b"], ["a"]]}).cast_column(
        "image", Image(decode=False)
    )
    assert sample_keys(split, "image", "words") == [(b"x", ("a",)), (b"b", ("b",)), (b"x", ("a",))]
    frames = Dataset.from_dict({"frames": [images[:2], images[2:]]}, Features({"frames": List(Image(decode=False))}))
    assert sample_keys(frames, "frames") == [((b"x", b"b"),), ((b"x",),)]


def test_mappings_become_columns_unless_the_column_is_there():
    split = Dataset.from_list([{"en": "x", "translation": {"en": "a", "de": "b"}}])
    assert flatten_translations(split, "de")[:] == {"en": ["a"], "de": ["b"]}
    assert flatten_translations(split, "en") is split
