"""Words in their place after a prompt, such as labels and options, as the tokens of a causal language model."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# After white space, an opening bracket, or a quotation mark that follows a space, a word begins without a space.
_OPEN = re.compile(r"""(\s|[(\[{<«“‘「『]|(?<!\S)["'`])$""")


class WordsInPlace(NamedTuple):
    """Words after a prompt.

    Attributes:
        gap: " " if a space is before each word, or else "".
        ids: the tokens of each word, which follow those of the prompt.
    """

    gap: str
    ids: list[list[int]]


class ContinuationTokenizer:
    """What a tokenizer makes of prompts, and of words after them.

    Args:
        tokenizer: that of the language model.
        chat: pass prompts through the tokenizer's chat template, as the user's message; the words then begin the
            answer.
        system: the text of the system's message before it.

    Attributes:
        ends: the tokens that the tokenizer's default call adds after each text, such as its EOS or SEP, or []. They
            are left out.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", chat: bool = False, system: str | None = None) -> None:
        self.tokenizer, self.chat, self.system = tokenizer, chat, system
        self.ends = _ends(tokenizer)

    def prompt_text(self, text: str) -> str:
        """Return the text that a model goes on after: the prompt or, in a chat, all up to where the answer begins.

        Raises:
            InputError: the chat template raises an error.
        """
        if not self.chat:
            return text
        turns = [] if self.system is None else [{"role": "system", "content": self.system}]
        turns += [{"role": "user", "content": text}]
        try:
            return self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template raises errors of any type, for example about a system's message
            raise InputError("chat", f"must fit the tokenizer's chat template, which raises: {error}") from error

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text that a model goes on after, without `ends`."""
        # The chat template has already added the special tokens.
        encoded = self.tokenizer([*texts], add_special_tokens=not self.chat)["input_ids"]
        size = 0 if self.chat else len(self.ends)
        return [ids[: len(ids) - size] for ids in encoded]

    def gaps(self, text: str) -> tuple[str, ...]:
        """Return what may be between a text and a word after it, the likelier first: " " or ""."""
        return ("",) if _OPEN.search(text) else (" ", "")

    def in_place(self, text: str, words: Sequence[str]) -> WordsInPlace | None:
        """Return words after a text whose tokens begin those of the text with each word.

        If they do with a space and without one, it is the way with fewer tokens, or else the likelier of `gaps`. None
        if they do in neither way.
        """
        (before,) = self.encode([text])
        ways = []
        for gap in self.gaps(text):
            whole = self.encode([text + gap + word for word in words])
            if all(ids[: len(before)] == before and len(ids) > len(before) for ids in whole):
                ways.append(WordsInPlace(gap, [ids[len(before) :] for ids in whole]))
        if not before or not ways:
            return None
        return min(ways, key=lambda way: sum(map(len, way.ids)))


def _ends(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the tokens that a tokenizer adds after a text."""
    plain, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[start + len(plain) :]
    return []
