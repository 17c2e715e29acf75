"""The side on which a model's texts are padded, so that their logits do not depend on the other texts of a batch."""

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

from ..errors import InputError
from ..trainer import FocalTrainer
from ..trainer.padding_effect import LARGE_CHANGE, relative_change

_ROUNDING = 1e-3  # largest relative change of logits in float32


def set_padding_side(name: str, tokenizer: Any, trainer: FocalTrainer, samples: Dataset) -> str | None:
    """Let the tokenizer pad on the other side if its own changes the logits, and return a note on this.

    Learned positions count padding on the left, rotary ones do not. A head may read the last token, whether it is
    padding or not. So the logits of a short text are compared with and without the padding that a long one brings.

    Args:
        name: the model, in errors.
        tokenizer: what `trainer.data_collator` pads with.
        samples: the encoded samples, of which those with the most tokens come first.

    Raises:
        InputError: padding on either side changes the logits.
    """
    batch_size, own = trainer.args.per_device_eval_batch_size, tokenizer.padding_side
    has_options = isinstance(samples[0]["input_ids"][0], list)
    long, short = _options(samples) if has_options else (samples[0], samples[-1])
    is_padded = has_options or batch_size > 1
    if tokenizer.pad_token is None or not is_padded or _length(long) == _length(short):
        return None
    changes = {}
    for side in (own, "left" if own == "right" else "right"):
        tokenizer.padding_side = side
        # First a batch of two: from the first, `OnnxClassifier` tells probabilities.
        padded, of_batch = _short_logits(trainer, [long, short])
        unpadded, _ = _short_logits(trainer, [short])
        changes[side] = relative_change(padded, of_batch, unpadded)
        tolerance = _ROUNDING if unpadded.dtype in (torch.float32, torch.float64) else LARGE_CHANGE
        if not changes[side] > tolerance:  # NaN is refused where the logits are measured
            break
    else:  # rounding of a lower precision, such as int8, or an effect of padding
        side = min(changes, key=changes.__getitem__)
        side = side if changes[own] > 3 * changes[side] else own
        tokenizer.padding_side = side
        if changes[side] > LARGE_CHANGE:
            problem = f"{name!r}, whose logits change with the padding on either side"
            if has_options:
                raise InputError("model", f"must have logits that do not depend on padding, got {problem}")
            raise InputError("batch_size", f"must be 1 for {problem}, got {batch_size}")
    if side == own:
        return None
    return (
        f"the tokenizer pads on the {own}, which changes the model's logits, so texts are padded on the {side}: set "
        f"the tokenizer's padding_side to {side!r} wherever the model is used; a saved tokenizer has it"
    )


def _options(questions: Dataset) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the longest and the shortest option of all questions, as questions with one option."""
    lengths = {
        (row, option): len(ids)
        for row, options in enumerate(questions["input_ids"])
        for option, ids in enumerate(options)
    }
    ends = (max(lengths, key=lengths.__getitem__), min(lengths, key=lengths.__getitem__))
    long, short = (
        {name: 0 if name == "labels" else [values[option]] for name, values in questions[row].items()}
        for row, option in ends
    )
    return long, short


def _length(sample: Mapping[str, Any]) -> int:
    ids = sample["input_ids"]
    return len(ids[0]) if isinstance(ids[0], list) else len(ids)


def _short_logits(trainer: FocalTrainer, samples: Sequence[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
    """Return the logits of the last sample, without those of padding, and the logits of the batch."""
    model, args = trainer.model.eval(), trainer.args
    if args.remove_unused_columns:  # as Trainer does
        taken = {*signature(model.forward).parameters, "labels"}
        samples = [{name: value for name, value in sample.items() if name in taken} for sample in samples]
    batch = trainer.data_collator([dict(sample) for sample in samples])
    labels = batch.pop("labels")
    with torch.no_grad():
        outputs = model(**{name: value.to(args.device) for name, value in batch.items()})
    logits = trainer.compute_loss_func.logits_of(outputs)
    last = logits[-1]
    return (last[labels[-1] != -100] if last.ndim > 1 else last), logits
