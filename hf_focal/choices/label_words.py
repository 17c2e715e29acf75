"""Label words after a prompt, as the tokens of a causal language model."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .continuation_tokens import ContinuationTokenizer, WordsInPlace
from .prompts import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class LabelWords:
    """A prompt and its labels as the tokens of one tokenizer.

    Args:
        tokenizer: that of the language model.
        labels: two or more different texts, which may follow the prompt.
        prompt: see `Prompt`.
        chat: pass the prompt through the tokenizer's chat template, as the user's message; the label then begins the
            answer.
        system: the text of the system's message before it.
        max_length: the most tokens of an input. Longer ones get shorter columns; the prompt's own text stays whole.
        one_logit: score two labels, such as no and yes, by one logit, the second one's score minus the first one's.

    Attributes:
        label_ids: the tokens of each label, in the place where it stands: after the prompt.
        gap: " " if a space is before each label, or else ""; see `ContinuationTokenizer.in_place`.
        ends: the tokens that the tokenizer's default call adds after each text; they are left out.
        first_tokens: the first token of each label if these all differ, so that they stand for the labels; or None.

    Raises:
        InputError: labels are missing, empty, or the same, or are not two with `one_logit`; the prompt is wrong, or
            does not fit into `max_length`; the tokenizer has no chat template; no way of adding the labels keeps the
            prompt's tokens.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        labels: Sequence[str],
        prompt: str,
        *,
        chat: bool = False,
        system: str | None = None,
        max_length: int | None = None,
        one_logit: bool = False,
    ) -> None:
        self.tokenizer, self.labels, self.chat, self.system = tokenizer, tuple(labels), chat, system
        self.prompt, self.max_length, self.one_logit = Prompt(prompt), max_length, one_logit
        if len({*self.labels}) < max(2, len(self.labels)) or not all(label.strip() for label in self.labels):
            raise InputError("labels", f"must be two or more different words, got {[*self.labels]}")
        if one_logit and len(self.labels) != 2:
            raise InputError("labels", f"must be two for one logit, such as no and yes, got {[*self.labels]}")
        if chat and not getattr(tokenizer, "chat_template", None):
            raise InputError("chat", "must not be given for a tokenizer without a chat template, got True")
        self._continuations = ContinuationTokenizer(tokenizer, chat, system)
        self.ends = self._continuations.ends
        self.gap, self.label_ids = self._in_place()
        firsts = [ids[0] for ids in self.label_ids]
        self.first_tokens = firsts if len({*firsts}) == len(firsts) else None
        if len({*map(tuple, self.label_ids)}) < len(self.label_ids):
            raise InputError("labels", f"must have different tokens, got {[*self.labels]} with {self.label_ids}")
        # The last token of a label is not an input.
        longest = 1 if self.first_tokens else max(map(len, self.label_ids))
        self.limit = None if max_length is None else max_length - longest + 1
        empty = len(self._tokens([[""] * len(self.prompt.fields)])[0])
        if self.limit is not None and empty > self.limit:
            raise InputError(
                "prompt", f"must fit into {self.limit:,} tokens without the columns' texts, got one of {empty:,}"
            )

    def fill(self, values: Sequence[str]) -> str:
        """Return the text before the label, with the chat template if there is one."""
        return self._continuations.prompt_text(self.prompt.fill(values))

    def _tokens(self, rows: Sequence[Sequence[str]]) -> list[list[int]]:
        return self._continuations.encode([self.fill(values) for values in rows])

    def _in_place(self) -> WordsInPlace:
        """Return the labels' tokens after the prompt. Raise `InputError` if its own depend on the label."""
        text = self.fill(["a"] * len(self.prompt.fields))
        in_place = self._continuations.in_place(text, self.labels)
        if in_place is None:
            raise InputError(
                "prompt",
                f"must end where the tokenizer begins a token, got one that ends in {text[-20:]!r}, whose last token "
                "changes with the label after it: leave out a space at the end",
            )
        return in_place

    def encode(self, rows: Sequence[Sequence[str]]) -> tuple[list[list[int]], int]:
        """Return the tokens of the prompt with each row's values, and how many rows had to be shortened.

        The values of a row that does not fit are cut after the same number of characters, the largest that fits.
        """
        encoded = self._tokens(rows)
        if self.limit is None:
            return encoded, 0
        cut = [row for row, ids in enumerate(encoded) if len(ids) > self.limit]
        fits = dict.fromkeys(cut, 0)  # with so many characters
        fails = {row: max(map(len, rows[row])) for row in cut}
        while tried := [row for row in cut if fails[row] - fits[row] > 1]:
            sizes = [(fits[row] + fails[row]) // 2 for row in tried]
            shorter = self._tokens(
                [[value[:size] for value in rows[row]] for row, size in zip(tried, sizes, strict=True)]
            )
            for row, size, ids in zip(tried, sizes, shorter, strict=True):
                if len(ids) <= self.limit:
                    fits[row] = size
                else:
                    fails[row] = size
        for row in cut:
            (encoded[row],) = self._tokens([[value[: fits[row]] for value in rows[row]]])
        return encoded, len(cut)

    def special_tokens_note(self, rows: Sequence[Sequence[str]], data_name: str) -> str:
        """Say which of the rows, named `data_name`, have special tokens in their values; "" if none has.

        They are kept, as a server keeps them, so that its scores are the measured ones.
        """
        added = self.tokenizer.added_tokens_decoder.values()
        tokens = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        special = re.compile("|".join(map(re.escape, tokens)) or "(?!)")
        found = [match for values in rows if (match := special.search("\0".join(values)))]
        if not found:
            return ""
        return (
            f"the texts of {len(found):,} of the {len(rows):,} prompts of {data_name} have special tokens, such as "
            f"{found[0].group()!r}, which the tokenizer reads as its own, so a text can end its turn: remove them "
            "from texts that others wrote, also where the model is served"
        )

    def note(self) -> str:
        """Say which tokens are scored."""
        shown = ", ".join(
            f"{self.gap + label!r} ({' '.join(self.tokenizer.convert_ids_to_tokens(ids))})"
            for label, ids in zip(self.labels[:5], self.label_ids, strict=False)
        )
        more = f", ... ({len(self.labels)} labels)" if len(self.labels) > 5 else ""
        several = any(len(ids) > 1 for ids in self.label_ids)
        how = "their tokens' logits"
        if several:
            how = "the logits of their first tokens, which differ"
        if self.first_tokens is None:
            how = "the sums of their tokens' log-probabilities, because some have the same first token"
        difference = "; the logit is the second score minus the first" if self.one_logit else ""
        return f"after the prompt, the labels are {shown}{more}; the scores are {how}{difference}"

    def record(self) -> dict[str, Any]:
        """Return what another program needs to get the same scores, as JSON values."""
        return {
            "prompt": self.prompt.template,
            "labels": [*self.labels],
            "gap": self.gap,
            "token_ids": self.label_ids,
            "chat": self.chat,
            "system": self.system,
            "one_logit": self.one_logit,
        }

    def plain_prompt(self) -> str:
        """Return the prompt with the chat template, if any, as one text for `str.format`.

        It is for a tokenizer's default call, which adds the token that begins a text, so the template's is left out.
        """
        if not self.chat:
            return self.prompt.template
        marks = [f"\ue000{number}\ue001" for number in range(len(self.prompt.fields))]
        text = self.fill(marks)
        start = self.tokenizer.bos_token
        if start and text.startswith(start) and self.tokenizer("a")["input_ids"][:1] == [self.tokenizer.bos_token_id]:
            text = text.removeprefix(start)
        text = text.replace("{", "{{").replace("}", "}}")
        for mark, field in zip(marks, self.prompt.fields, strict=True):
            text = text.replace(mark, f"{{{field}}}")
        return text
