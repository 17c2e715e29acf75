"""A causal language model as a classifier: the scores that it gives to label words after a prompt."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..errors import InputError
from ..utils.constants import MULTI_LABEL
from .continuations import after_prompts, goes_on_from_its_cache, next_token_logits
from .label_words import LabelWords

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


def set_labels(config: "PreTrainedConfig", labels: Sequence[str], one_logit: bool) -> None:
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

    def __init__(self, language_model: Any, words: LabelWords, config: "PreTrainedConfig | None" = None) -> None:
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
    tokenizer: "PreTrainedTokenizerBase",
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
