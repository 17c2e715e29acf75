"""A causal language model as a classifier: the scores that it gives to label words after a prompt."""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..calibration import Correction
from ..errors import InputError
from ..utils.constants import MULTI_LABEL
from .continuations import after_prompts, goes_on_from_its_cache, next_token_logits

# After white space, an opening bracket, or a quotation mark that follows a space, a label begins without a space.
_OPEN = re.compile(r"""(\s|[(\[{<«“‘「『]|(?<!\S)["'`])$""")


class Prompt:
    """A text with the names of columns in braces, as for `str.format`: ``{{`` and ``}}`` are braces themselves.

    Attributes:
        fields: the names of the columns, each once, in the order of the text.

    Raises:
        InputError: a brace is not closed, there is no name in braces, or a name has a conversion or a format.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        try:
            self._parts = [*string.Formatter().parse(template)]
        except ValueError as error:
            raise InputError("prompt", f"must have names of columns in braces, got {template!r}: {error}") from error
        for _, field, form, conversion in self._parts:
            if field == "" or form or conversion:
                written = f"{{{field}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
                raise InputError("prompt", f"must have only names of columns in braces, got {written!r}")
        self.fields = tuple(dict.fromkeys(field for _, field, *_ in self._parts if field is not None))
        if not self.fields:
            raise InputError("prompt", f"must have the name of a column in braces, such as {{text}}, got {template!r}")

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with a value in place of each of `fields`. Braces in the values stay as they are."""
        value_of_field = dict(zip(self.fields, values, strict=True))
        return "".join(text + ("" if field is None else value_of_field[field]) for text, field, *_ in self._parts)


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
        gap: " " if a space is before each label, or else "". The tokens of the prompt alone must begin those of the
            prompt with each label. If both ways do, it is the one with fewer tokens, or else the space, unless the
            prompt ends in white space or opens a bracket or quotation.
        ends: the tokens that the tokenizer's default call adds after each text, such as its EOS, or []. They are left
            out.
        first_tokens: the first token of each label if these all differ, so that they stand for the labels; or None.

    Raises:
        InputError: labels are missing, empty, or the same, or are not two with `one_logit`; the prompt is wrong, or
            does not fit into `max_length`; the tokenizer has no chat template; no way of adding the labels keeps the
            prompt's tokens.
    """

    def __init__(
        self,
        tokenizer: Any,
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
        self.ends = _ends(tokenizer)
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
        text = self.prompt.fill(values)
        if not self.chat:
            return text
        turns = [] if self.system is None else [{"role": "system", "content": self.system}]
        turns += [{"role": "user", "content": text}]
        try:
            return self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template raises errors of any type, for example about a system's message
            raise InputError("chat", f"must fit the tokenizer's chat template, which raises: {error}") from error

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        # The chat template has already added the special tokens.
        return self.tokenizer([*texts], add_special_tokens=not self.chat)["input_ids"]

    def _without_end(self, texts: Sequence[str]) -> list[list[int]]:
        size = 0 if self.chat else len(self.ends)
        return [ids[: len(ids) - size] for ids in self._ids(texts)]

    def _tokens(self, rows: Sequence[Sequence[str]]) -> list[list[int]]:
        return self._without_end([self.fill(values) for values in rows])

    def _in_place(self) -> tuple[str, list[list[int]]]:
        """Return what is before each label, and the labels' tokens after the prompt."""
        text = self.fill(["a"] * len(self.prompt.fields))
        (before,) = self._without_end([text])
        ways = []
        for gap in ("",) if _OPEN.search(text) else (" ", ""):
            whole = self._without_end([text + gap + label for label in self.labels])
            if all(ids[: len(before)] == before and len(ids) > len(before) for ids in whole):
                ways.append((gap, [ids[len(before) :] for ids in whole]))
        if not before or not ways:
            raise InputError(
                "prompt",
                f"must end where the tokenizer begins a token, got one that ends in {text[-20:]!r}, whose last token "
                "changes with the label after it: leave out a space at the end",
            )
        return min(ways, key=lambda way: sum(map(len, way[1])))

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
                (fits if len(ids) <= self.limit else fails)[row] = size
        for row in cut:
            (encoded[row],) = self._tokens([[value[: fits[row]] for value in rows[row]]])
        return encoded, len(cut)

    def special_tokens_note(self, rows: Sequence[Sequence[str]], source: str) -> str:
        """Say which of the rows, named `source`, have special tokens in their values; "" if none has.

        They are kept, as a server keeps them, so that its scores are the measured ones.
        """
        added = self.tokenizer.added_tokens_decoder.values()
        tokens = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        special = re.compile("|".join(map(re.escape, tokens)) or "(?!)")
        found = [match for values in rows if (match := special.search("\0".join(values)))]
        if not found:
            return ""
        return (
            f"the texts of {len(found):,} of the {len(rows):,} prompts of {source} have special tokens, such as "
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


def _ends(tokenizer: Any) -> list[int]:
    """Return the tokens that a tokenizer adds after a text."""
    plain, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[start + len(plain) :]
    return []


def set_labels(config: Any, labels: Sequence[str], one_logit: bool) -> None:
    """Give a config the labels of a classifier: one class each or, with `one_logit`, a sigmoid for the second one."""
    names = [*labels[1:]] if one_logit else [*labels]
    config.num_labels = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {label: number for number, label in enumerate(names)}
    config.problem_type = MULTI_LABEL if one_logit else None


class LabelWordsModel(nn.Module):
    """A causal language model whose logits are the scores of `words` after a prompt.

    With different first tokens, these are the language model's logits of the first tokens, of one forward pass; or
    else the sums of the log-probabilities of the labels' tokens, for which the labels share one pass of the prompt if
    the model's cache allows it. With `words.one_logit`, it is one score, that of the
    second label minus that of the first. The padding may be on either side.
    """

    def __init__(self, language_model: Any, words: LabelWords, config: Any = None) -> None:
        super().__init__()
        self.language_model, self.words = language_model, words
        self.config = language_model.config if config is None else config
        self._shares_prompts: bool | None = None  # tried on the first batch

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the scores (N, K), at least float32, of prompts (N, L) with a mask that is 1 at their tokens."""
        scores = self._scores(input_ids, attention_mask)
        return scores[:, 1:] - scores[:, :1] if self.words.one_logit else scores

    def _scores(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # With the padding on the right, models of any family count the positions from the first token.
        order = attention_mask.argsort(dim=1, descending=True, stable=True)
        prompts, mask = input_ids.gather(1, order), attention_mask.gather(1, order)
        rows, sizes = torch.arange(len(prompts), device=prompts.device), mask.sum(1)
        if self.words.first_tokens is not None:
            logits = next_token_logits(self.language_model, prompts, mask, rows, sizes - 1)
            return logits[:, torch.tensor(self.words.first_tokens, device=logits.device)]
        return self._sums([prompt[:size].tolist() for prompt, size in zip(prompts, sizes, strict=True)])

    def _sums(self, prompts: list[list[int]]) -> Tensor:
        """Return the sums of the log-probabilities of the labels' tokens, (N, K)."""
        labels = [tuple(ids) for ids in self.words.label_ids]
        if self._shares_prompts is None:
            longest = max(labels, key=len)
            self._shares_prompts = goes_on_from_its_cache(self.language_model, prompts[0], longest)
        shared = self._shares_prompts and not torch.is_grad_enabled()  # no gradient flows through a copy of a cache
        log_p_after = after_prompts(self.language_model, prompts, shared)
        # A pass is for all labels whose tokens before the last one begin its inputs.
        passes: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for ids in sorted(labels, key=len, reverse=True):
            start = ids[:-1]
            passes.setdefault(next((inputs for inputs in passes if inputs[: len(start)] == start), start), []).append(
                ids
            )
        scores: dict[tuple[int, ...], Tensor] = {}
        for inputs, started in passes.items():
            log_p = log_p_after([inputs] * len(prompts))
            for ids in started:
                tokens = torch.tensor(ids, device=log_p.device)
                scores[ids] = log_p[:, torch.arange(len(ids), device=log_p.device), tokens].sum(1)
        return torch.stack([scores[ids] for ids in labels], 1)

    def num_parameters(self) -> int:
        return self.language_model.num_parameters()


@torch.inference_mode()
def label_scores(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, str]],
    labels: Sequence[str],
    prompt: str,
    *,
    chat: bool = False,
    system: str | None = None,
    batch_size: int = 16,
    max_length: int | None = None,
    one_logit: bool = False,
) -> Tensor:
    """Score label words after a prompt; the softmax of the scores gives the probabilities of the labels.

    The scores are those that ``hf-focal calibrate --labels --prompt`` corrects:
    ``Correction.load("correction.json").apply(scores)``.

    Args:
        model: a causal language model of Transformers, on any device.
        tokenizer, labels, prompt, chat, system, max_length, one_logit: as for `LabelWords`.
        rows: a text for each name in braces in the prompt.
        batch_size: rows per forward pass.

    Returns:
        (N, K), on the CPU, at least float32: the model's logits of the labels' first tokens or, if some labels share
        their first one, the sums of the log-probabilities of the labels' tokens. With `one_logit`, (N, 1), the second
        label's score minus the first one's, whose sigmoid is the probability of the second label.

    Raises:
        InputError: as `LabelWords`; or a row lacks a text.
    """
    words = LabelWords(tokenizer, labels, prompt, chat=chat, system=system, max_length=max_length, one_logit=one_logit)
    if missing := sorted({field for row in rows for field in words.prompt.fields if field not in row}):
        raise InputError("rows", f"must have {', '.join(words.prompt.fields)}, got one without {', '.join(missing)}")
    encoded, _ = words.encode([[row[field] for field in words.prompt.fields] for row in rows])
    scorer, scores, training = LabelWordsModel(model, words), [], model.training
    model.eval()
    try:
        for start in range(0, len(encoded), batch_size):
            batch = [torch.tensor(ids) for ids in encoded[start : start + batch_size]]
            mask = pad_sequence([torch.ones_like(ids) for ids in batch], batch_first=True).to(model.device)
            scores.append(scorer(pad_sequence(batch, batch_first=True).to(model.device), mask).cpu())
    finally:
        model.train(training)
    return torch.cat(scores)


def rank(
    model: Any,
    tokenizer: Any,
    query: str,
    documents: Sequence[str],
    prompt: str,
    labels: Sequence[str] = ("no", "yes"),
    *,
    correction: Correction | None = None,
    top_k: int | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Rank documents by the probability of the second label, as `CrossEncoder.rank` of sentence-transformers does.

    Args:
        model, tokenizer: as for `label_scores`.
        query: the text for {query} in the prompt.
        documents: the texts for {document}.
        prompt: has {query} and {document}, and no other fields.
        labels: the word for a wrong document, and that for a right one.
        correction: that of the logits, such as ``Correction.load("correction.json")``; None for the model's own.
        top_k: the most documents to return.
        **options: `chat`, `system`, `batch_size`, and `max_length` of `label_scores`.

    Returns:
        For each document, {"corpus_id": its index, "score": its probability}, the most probable first.

    Raises:
        InputError: as `label_scores`; or the prompt has other fields.
    """
    if {*Prompt(prompt).fields} != {"query", "document"}:
        raise InputError("prompt", f"must have {{query}} and {{document}}, got fields {Prompt(prompt).fields}")
    if not documents:
        return []
    rows = [{"query": query, "document": document} for document in documents]
    logits = label_scores(model, tokenizer, rows, labels, prompt, one_logit=True, **options)
    scores = (correction or Correction()).apply(logits.double())[:, 0].sigmoid()
    order = scores.argsort(descending=True, stable=True)[:top_k]
    return [{"corpus_id": int(number), "score": float(scores[number])} for number in order]
