"""Multiple-choice questions as token ids: their prompts, and the letters or the texts of their options."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from .continuation_tokens import ContinuationTokenizer
from .option_scoring import OptionScoring

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class OptionText(NamedTuple):
    """The token ids after a question's prompt, of which those from `start` on are scored: an option's text."""

    ids: list[int]
    start: int


class Question(NamedTuple):
    """A question as token ids. It has texts of options if these are scored, rather than letters."""

    prompt: list[int]
    texts: list[OptionText]
    num_options: int

    @property
    def num_inputs(self) -> int:
        """The tokens of the longest input: the last one of a text is not an input."""
        return len(self.prompt) + max((len(text.ids) - 1 for text in self.texts), default=0)


class EncodedQuestions(NamedTuple):
    """Questions as token ids, and the token ids of the options' letters (empty if the options' texts are scored)."""

    asked: list[Question]
    letter_ids: list[int]


def encode_choices(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[str],
    choices: Sequence[Sequence[str]],
    scoring: OptionScoring,
) -> EncodedQuestions:
    """Convert questions to token ids. Arguments and errors are those of `score_choices`, which calls this first."""
    _check_sizes(questions, choices, scoring.letters)
    continuations = ContinuationTokenizer(tokenizer, scoring.chat)
    texts = [
        continuations.prompt_text(scoring.fill(question, options))
        for question, options in zip(questions, choices, strict=True)
    ]
    prompts, letter_ids = continuations.encode(texts), []
    if scoring.score == "text":
        asked = _questions_with_texts(continuations, texts, prompts, choices)
    else:
        sizes = [len(options) for options in choices]
        letter_ids = _letter_ids(continuations, texts, prompts, list(scoring.letters)[: max(sizes)])
        asked = [Question(prompt, [], size) for prompt, size in zip(prompts, sizes, strict=True)]
    _check_lengths(model, asked)
    return EncodedQuestions(asked, letter_ids)


def _check_sizes(questions: Sequence[str], choices: Sequence[Sequence[str]], letters: Sequence[str]) -> None:
    """Raise InputError unless each question has two or more options, and there are letters for these."""
    if len(questions) != len(choices) or not len(questions):
        raise InputError(
            "choices", f"must have one list per question, got {len(choices)} for {len(questions)} questions"
        )
    sizes = [len(options) for options in choices]
    if min(sizes) < 2 or max(sizes) > len(letters):
        size = min(sizes) if min(sizes) < 2 else max(sizes)
        expected = f"2 to {len(letters)} options, as there are letters"
        raise InputError("choices", f"must have {expected}, got {size} for question {sizes.index(size)}")


def _questions_with_texts(
    continuations: ContinuationTokenizer, texts: list[str], prompts: list[list[int]], choices: Sequence[Sequence[str]]
) -> list[Question]:
    """Return the questions with the token ids of their options, which follow the `texts`, whose ids are `prompts`.

    A tokenizer may merge the end of the prompt with the option's start; then the merged token is scored too.
    """
    before = [text + continuations.gaps(text)[0] for text in texts]
    pairs = zip(before, choices, strict=True)
    whole = iter(continuations.encode([text + option for text, options in pairs for option in options]))
    asked = []
    for row, (prompt, options) in enumerate(zip(prompts, choices, strict=True)):
        sequences = [next(whole) for _ in options]
        starts = [_num_shared(prompt, ids) for ids in sequences]
        if any(not 0 < start < len(ids) for start, ids in zip(starts, sequences, strict=True)):
            raise InputError("questions and choices", f"must have tokens of their own, got none for question {row}")
        shared = min(starts)
        scored = [OptionText(ids[shared:], start - shared) for ids, start in zip(sequences, starts, strict=True)]
        asked.append(Question(prompt[:shared], scored, len(options)))
    return asked


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many token ids two sequences share at their start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _letter_ids(
    continuations: ContinuationTokenizer, texts: list[str], prompts: list[list[int]], letters: list[str]
) -> list[int]:
    """Return the token id of each letter; raise InputError unless a letter is one token, the same after all prompts.

    `prompts` are the token ids of the `texts`.
    """
    in_place = continuations.in_place(texts[0], letters)
    letter_ids: list[int] = []
    for letter, ids in zip(letters, [[]] * len(letters) if in_place is None else in_place.ids, strict=True):
        if len(ids) != 1 or ids[0] in letter_ids:
            raise InputError(
                "letters",
                f"must each be one token of their own after the prompt, got {letter!r}, with the prompt's "
                f"end {texts[0][-20:]!r}: the template must not end in a space, or use score='text'",
            )
        letter_ids += ids
    assert in_place is not None  # or the first letter was refused
    with_first_letter = continuations.encode([text + in_place.gap + letters[0] for text in texts])
    for row, (ids, prompt) in enumerate(zip(with_first_letter, prompts, strict=True)):
        if ids != [*prompt, letter_ids[0]]:
            raise InputError(
                "template",
                f"must end in the same text for all questions, got {texts[row][-20:]!r} for question "
                f"{row}, after which {letters[0]!r} is another token",
            )
    return letter_ids


def _check_lengths(model: Any, asked: Sequence[Question]) -> None:
    """Raise InputError for questions that are longer than the model's positions."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    lengths = [question.num_inputs for question in asked]
    if positions is not None and max(lengths) > positions:
        row = lengths.index(max(lengths))
        raise InputError(
            "questions",
            f"must fit into the model's {positions:,} positions, got {lengths[row]:,} tokens for question "
            f"{row}, the longest of {sum(length > positions for length in lengths):,} that do not fit",
        )
