"""Answers as indices, letters, and texts of options."""

import pytest

from hf_focal import InputError
from hf_focal.tasks.answer_numbers import answer_numbers

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
