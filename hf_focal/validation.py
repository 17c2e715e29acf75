"""Checks of scores, labels, and numbers."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import InputError, require

Array = Tensor | np.ndarray


def check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value`, a finite number within [low, high], as a float."""
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    require(number, name, f"must be a finite number, got {value!r}")
    expected = f"at least {low:g}" if high == math.inf else f"within [{low:g}, {high:g}]"
    require(low <= value <= high, name, f"must be {expected}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(name, f"must be an integer of at least 1, got {value!r}")


def check_positive(name: str, value: Any) -> float:
    """Return `value`, a number or a tensor with one element, as a float that is finite and positive."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(name, f"must be a number, got {value!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise InputError(name, f"must be finite and positive, got {number!r}")
    return number


def check_fraction(name: str, value: Any) -> None:
    if not (isinstance(value, Real) and 0 < float(value) < 1):
        raise InputError(name, f"must be between 0 and 1, got {value!r}")


def as_tensor(name: str, value: Array) -> Tensor:
    """Return a tensor, array, or list of numbers as a tensor without gradient."""
    if isinstance(value, np.ndarray) and min(value.strides, default=0) < 0:
        value = value.copy()  # PyTorch has no negative strides
    try:
        return torch.as_tensor(value).detach()
    except (RuntimeError, TypeError, ValueError):
        items = f" of {type(value[0]).__name__}" if isinstance(value, list) and value else ""
        raise InputError(name, f"must be a tensor or an array of numbers, got {type(value).__name__}{items}") from None


def check_floating(name: str, tensor: Tensor) -> None:
    """Refuse integers, which are labels or predictions, and 8-bit floats, with which PyTorch cannot compute."""
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        hint = ": give at least 16 bits" if tensor.is_floating_point() else ""
        raise InputError(name, f"must be floating point, got {tensor.dtype}{hint}")


def as_scores(name: str, value: Array) -> Tensor:
    """Return scores, which must be floating point, as a tensor; on the CPU if their device has no float64."""
    scores = as_tensor(name, value)
    check_floating(name, scores)
    return scores.cpu() if scores.device.type == "mps" else scores


def check_shapes(name: str, scores: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Check types and shapes of scores (..., K) and labels (...); return tensors (N, K) and (N,) on one device."""
    scores, labels = as_scores(name, scores), as_tensor("labels", labels)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError("labels", f"must be integers, got {labels.dtype}")
    if scores.ndim < 1 or scores.shape[:-1] != labels.shape:
        expected = f"must have the shape of {name} without its last dimension, the classes"
        shapes = f"labels of shape {tuple(labels.shape)} for {name} of shape {tuple(scores.shape)}"
        raise InputError("labels", f"{expected}: got {shapes}")
    num_classes = scores.shape[-1]
    if num_classes < 2:
        raise InputError(name, f"must have at least 2 classes in the last dimension, got {num_classes}")
    return scores.reshape(-1, num_classes), labels.reshape(-1).to(device=scores.device, dtype=torch.int64)


def check_scores(name: str, scores: Array, labels: Array, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Check logits or probabilities (..., K) and labels (...); return tensors (N, K) and (N,) on one device."""
    scores, labels = check_shapes(name, scores, labels)
    num_classes = scores.shape[1]
    lowest, highest = torch.stack(torch.aminmax(labels)).tolist() if labels.numel() else (0, 0)
    if lowest < 0 or highest >= num_classes:  # much faster than the comparisons, which are then rarely needed
        wrong = ((labels < 0) | (labels >= num_classes)) & (labels != ignore_index)
        if wrong.any():
            seen = int(labels[wrong][0])
            expected = f"must be in [0, {num_classes}) or equal to ignore_index {ignore_index}"
            raise InputError("labels", f"{expected}, got {seen}")
    return scores, labels


def check_sigmoid_shapes(name: str, scores: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Check types and shapes of scores (..., L) and labels (..., L); return tensors (N, L)."""
    values, y = as_scores(name, scores), as_tensor("labels", labels)
    if y.shape != values.shape or not y.ndim:
        raise InputError("labels", f"must have the shape of the {name}, {tuple(values.shape)}, got {tuple(y.shape)}")
    if not values.shape[-1]:
        raise InputError(name, "must have at least 1 label in the last dimension, got 0")
    return values.reshape(-1, values.shape[-1]), y.reshape(-1, y.shape[-1])


def check_ignore_index_of_hits(ignore_index: int) -> None:
    """Refuse 0 and 1 where labels are 0 or 1: without the labels of one kind, nothing can be measured."""
    if ignore_index in (0, 1):
        raise InputError("ignore_index", f"must not be 0 or 1, which labels here stand for, got {ignore_index!r}")


def check_sigmoid_scores(name: str, scores: Array, labels: Array, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Check scores (..., L) and labels (..., L), each 0 or 1, or `ignore_index` or NaN where it is unknown.

    Returns, on the CPU, the scores in float64 and whether each label is 1 and is known, all (N, L).
    """
    check_ignore_index_of_hits(ignore_index)
    values, y = check_sigmoid_shapes(name, scores, labels)
    values, y = values.cpu().double(), y.cpu()
    y = y if y.is_floating_point() else y.long()
    known = (y == 0) | (y == 1)
    if not (known | (y == ignore_index) | y.isnan()).all():
        raise InputError("labels", f"must be 0 or 1, or {ignore_index} or NaN where unknown, got other values")
    if values[known].isnan().any():
        raise InputError(name, "must be finite for known labels, got NaN")
    return values, y == 1, known


def check_largest(largest: Tensor) -> None:
    """Check that the largest logit of each sample is finite; a NaN among the logits makes it NaN."""
    if largest.numel() and not torch.stack(torch.aminmax(largest)).isfinite().all():
        expected = "a finite largest value for every sample (no NaN, no inf, not -inf everywhere)"
        raise InputError("logits", f"must have {expected}, got {float(largest[~largest.isfinite()][0])}")


def probability_tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance for probabilities and their sums: at least the rounding error of a float32 softmax."""
    return max(1e-5, 4 * torch.finfo(dtype).eps)


@dataclass
class ProbabilityEvidence:
    """Evidence, in nats, that logits are really probabilities; -inf once some values are certainly logits.

    The probability that a sample's logits lie in [0, 1] and sum to 1 by chance is about the tolerance of the sum. For
    several samples, these chances multiply, so two samples in float32 are conclusive. A single sample that does not
    look like probabilities proves that the values are logits.
    """

    nats: float = 0.0

    def add(self, logits: Tensor, largest: Tensor, slack: float) -> None:
        """Add the evidence of logits (N, K); `largest` has the largest of each sample, `slack` is the tolerance."""
        if self.nats == -math.inf or not len(logits):
            return
        alike = float(largest.amax()) <= 1 + slack and float(logits.amin()) >= -slack  # usually the first test decides
        alike = alike and bool(((logits.sum(1, dtype=torch.float64) - 1).abs() <= slack).all())
        self.nats = self.nats - len(logits) * math.log(slack) if alike else -math.inf

    def __add__(self, other: "ProbabilityEvidence") -> "ProbabilityEvidence":
        return ProbabilityEvidence(self.nats + other.nats)

    def refuse(self, advice: str) -> None:
        """Raise InputError, ending with `advice`, if the probability of a coincidence is below 1 in 10^8."""
        if self.nats > math.log(1e8):
            seen = "samples that all lie in [0, 1] and sum to 1"
            raise InputError("logits", f"must not be probabilities, got {seen}: {advice}")


def check_probability_range(name: str, values: Tensor, slack: float) -> None:
    """Check that all values are in [0, 1] up to `slack`, and that none is NaN."""
    low, high = (float(bound) for bound in torch.aminmax(values)) if values.numel() else (0.0, 1.0)
    if not (low >= -slack and high <= 1 + slack):
        seen = "NaN" if low != low or high != high else f"values from {low:g} to {high:g}"
        hint = ': for logits, use inputs="logits" or CalibrationMetrics.update' if name == "probabilities" else ""
        raise InputError(name, f"must be in [0, 1], got {seen}{hint}")


def check_sums(sums: Tensor, slack: float) -> None:
    """Check that the probabilities of every sample sum to 1 up to `slack`."""
    off = (sums - 1).abs()
    if (off > slack).any():
        expected = f"must sum to 1 for every sample (within {slack:.1g})"
        raise InputError("probabilities", f"{expected}, got a sum of {float(sums[off.argmax()]):g}")


def check_confidences(
    confidence: Array,
    correct: Array,
    ignore_index: int | None = None,
    names: tuple[str, str] = ("confidence", "correct"),
) -> tuple[Tensor, Tensor]:
    """Check confidences (N,) and hits (N,), whose `names` appear in errors, and drop hits of `ignore_index`.

    Returns confidences clipped to [0, 1], in float32 (or float64 if given so), and hits as bools, on the CPU.
    """
    p_name, hits_name = names
    confidence, correct = as_scores(p_name, confidence).cpu(), as_tensor(hits_name, correct).cpu()
    if confidence.ndim != 1 or confidence.shape != correct.shape:
        shapes = f"{tuple(correct.shape)} and {tuple(confidence.shape)}"
        raise InputError(hits_name, f"and {p_name} must be one-dimensional and equally long, got shapes {shapes}")
    if ignore_index is not None:
        check_ignore_index_of_hits(ignore_index)
        labeled = correct != ignore_index
        confidence, correct = confidence[labeled], correct[labeled]
    check_probability_range(p_name, confidence, probability_tolerance(confidence.dtype))
    wrong = (correct != 0) & (correct != 1)
    if wrong.any():
        raise InputError(hits_name, f"must be 0 or 1, got {correct[wrong][0].item()}")
    return confidence.to(torch.promote_types(confidence.dtype, torch.float32)).clamp(0, 1), correct == 1
