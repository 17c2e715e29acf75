"""Conversion of the answers in data, which are indices, letters, or texts of options, to the numbers of options."""

import string
from collections.abc import Sequence

from ..errors import InputError


def answer_numbers(
    answers: Sequence[int | str], choices: Sequence[Sequence[str]], letters: Sequence[str] = string.ascii_uppercase
) -> list[int]:
    """Return the index of each question's correct option, counted from 0.

    An answer is the correct option's index, letter, or text.

    Raises:
        InputError: an answer is none of these, or is a text that is also the letter of a different option.
    """
    numbers = []
    for row, (answer, options) in enumerate(zip(answers, choices, strict=True)):
        used_letters = list(letters)[: len(options)]
        if isinstance(answer, str):
            matches = {list(names).index(answer) for names in (used_letters, options) if answer in names}
        else:
            matches = {i for i in range(len(options)) if not isinstance(answer, bool) and answer == i}
        if len(matches) != 1:
            raise InputError(
                "answers",
                f"must be an index from 0 to {len(options) - 1}, one of the letters {', '.join(used_letters)} or an "
                f"option's text, got {answer!r} for question {row}" + ", which fits two of these" * (len(matches) > 1),
            )
        numbers.append(matches.pop())
    return numbers
