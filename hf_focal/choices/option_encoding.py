"""Multiple-choice questions as token ids: their prompts, and the letters or the texts of their options."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from ..errors import InputError
from .prompts import chat_text

SCORES = ("letters", "text")
TEMPLATES = {"letters": "{question}\n{options}\nAnswer:", "text": "{question}\nAnswer:"}

Encode = Callable[[list[str]], list[list[int]]]  # texts -> the token ids of each


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
    tokenizer: Any,
    questions: Sequence[str],
    choices: Sequence[Sequence[str]],
    score: str,
    letters: Sequence[str],
    template: str | None,
    chat: bool,
) -> EncodedQuestions:
    """Convert questions to token ids. Arguments and errors are those of `score_choices`, which calls this first."""
    if score not in SCORES:
        raise InputError("score", f"must be {' or '.join(map(repr, SCORES))}, got {score!r}")
    _check_sizes(questions, choices, letters)
    template = TEMPLATES[score] if template is None else template
    texts = [
        _prompt_text(tokenizer, question, options, letters, template, chat)
        for question, options in zip(questions, choices, strict=True)
    ]
    prefixes = [text if text[-1:].isspace() else f"{text} " for text in texts]  # what a letter or a text follows
    encode = partial(_token_ids, tokenizer, chat)
    prompts, letter_ids = encode(texts), []
    if score == "text":
        asked = _questions_with_texts(encode, prompts, prefixes, choices)
    else:
        sizes = [len(options) for options in choices]
        letter_ids = _letter_ids(encode, prompts, prefixes, texts, list(letters)[: max(sizes)])
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


def _prompt_text(
    tokenizer: Any, question: str, options: Sequence[str], letters: Sequence[str], template: str, chat: bool
) -> str:
    """Return the prompt of a question, in the tokenizer's chat template if `chat`."""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, options, strict=False))
    try:
        text = template.format(question=question, options=lines)
    except (LookupError, ValueError, AttributeError) as error:
        expected = "no fields but {question} and {options}"
        raise InputError("template", f"must have {expected}, got {template!r}") from error
    return chat_text(tokenizer, text) if chat else text


def _token_ids(tokenizer: Any, chat: bool, texts: list[str]) -> list[list[int]]:
    if chat:  # the chat template has already added the special tokens
        return tokenizer(texts, add_special_tokens=False)["input_ids"]
    ends = [tokenizer.eos_token_id]  # which some tokenizers add to each text
    return [ids[:-1] if ids[-1:] == ends else ids for ids in tokenizer(texts)["input_ids"]]


def _questions_with_texts(
    encode: Encode, prompts: list[list[int]], prefixes: list[str], choices: Sequence[Sequence[str]]
) -> list[Question]:
    """Return the questions with the token ids of their options' texts, which follow the prefixes.

    A tokenizer may merge the end of the prompt with the option's start; then the merged token is scored too.
    """
    pairs = zip(prefixes, choices, strict=True)
    whole = iter(encode([prefix + option for prefix, options in pairs for option in options]))
    asked = []
    for row, (prompt, options) in enumerate(zip(prompts, choices, strict=True)):
        sequences = [next(whole) for _ in options]
        starts = [_num_shared(prompt, ids) for ids in sequences]
        if any(not 0 < start < len(ids) for start, ids in zip(starts, sequences, strict=True)):
            raise InputError("questions and choices", f"must have tokens of their own, got none for question {row}")
        shared = min(starts)
        texts = [OptionText(ids[shared:], start - shared) for ids, start in zip(sequences, starts, strict=True)]
        asked.append(Question(prompt[:shared], texts, len(options)))
    return asked


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many token ids two sequences share at their start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _letter_ids(
    encode: Encode, prompts: list[list[int]], prefixes: list[str], texts: list[str], letters: list[str]
) -> list[int]:
    """Return the token id of each letter; raise InputError unless a letter is one token, the same after all prompts.

    `prompts` are the token ids of the `texts`, and the letters follow the `prefixes`.
    """
    letter_ids: list[int] = []
    for letter, ids in zip(letters, encode([prefixes[0] + letter for letter in letters]), strict=True):
        if ids[:-1] != prompts[0] or ids[-1] in letter_ids:
            raise InputError(
                "letters",
                f"must each be one token of their own after the prompt, got {letter!r}, with the prompt's "
                f"end {texts[0][-20:]!r}: the template must not end in a space, or use score='text'",
            )
        letter_ids.append(ids[-1])
    with_first_letter = encode([prefix + letters[0] for prefix in prefixes])
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
