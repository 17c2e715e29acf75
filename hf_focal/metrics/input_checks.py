"""Checks of scores, labels, and numbers. Every error names the argument, its value, and what was expected."""

import math
import re
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray

# Matches the message about logits that are not finite, which come from diverged training or broken weights.
NOT_FINITE = re.compile(r"logits must .*\bfinite\b")


def check_count(name: str, value: int) -> None:
    """Raise TypeError unless `value` is an int, and ValueError unless it is at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def check_positive(name: str, value: SupportsFloat) -> float:
    """Return `value` as a float; raise ValueError unless it is finite and positive."""
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and positive, got {number!r}")
    return number


def as_tensor(name: str, value: Array) -> Tensor:
    """Return a tensor, array, or list of numbers as a tensor without gradient; raise TypeError for other values."""
    if isinstance(value, np.ndarray) and min(value.strides, default=0) < 0:
        value = value.copy()  # PyTorch has no negative strides
    try:
        return torch.as_tensor(value).detach()
    except (RuntimeError, TypeError, ValueError):
        raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(value).__name__}") from None


def check_floating(name: str, scores: Tensor) -> None:
    """Raise TypeError unless the dtype is floating point of at least 16 bits; PyTorch cannot compute with fewer."""
    if not scores.is_floating_point() or scores.element_size() < 2:
        hint = ": give at least 16 bits" if scores.is_floating_point() else ""
        raise TypeError(f"{name} must be floating point, got {scores.dtype}{hint}")


def check_scores(name: str, scores: Array, labels: Array, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Check logits or probabilities (..., K) and labels (...); return tensors (N, K) and (N,) on one device."""
    scores, labels = as_tensor(name, scores), as_tensor("labels", labels)
    check_floating(name, scores)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    if scores.ndim < 1 or scores.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels must have the shape of {name} without its last dimension, the classes: got labels of shape "
            f"{tuple(labels.shape)} for {name} of shape {tuple(scores.shape)}"
        )
    num_classes = scores.shape[-1]
    if num_classes < 2:
        raise ValueError(f"{name} must have at least 2 classes in the last dimension, got {num_classes}")
    if scores.device.type == "mps":  # has no float64
        scores = scores.cpu()
    labels = labels.reshape(-1).to(device=scores.device, dtype=torch.int64)
    wrong = ((labels < 0) | (labels >= num_classes)) & (labels != ignore_index)
    if wrong.any():
        seen = int(labels[wrong][0])
        raise ValueError(f"labels must be in [0, {num_classes}) or equal to ignore_index {ignore_index}, got {seen}")
    return scores.reshape(-1, num_classes), labels


def check_largest(largest: Tensor) -> None:
    """Raise ValueError unless the largest logit of each sample is finite; a NaN among the logits makes it NaN."""
    wrong = ~largest.isfinite()
    if wrong.any():
        expected = "a finite largest value for every sample (no NaN, no inf, not -inf everywhere)"
        raise ValueError(f"logits must have {expected}, got {float(largest[wrong][0])}")


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
        alike = bool((largest <= 1 + slack).all()) and bool((logits >= -slack).all())  # usually the first test decides
        alike = alike and bool(((logits.sum(1, dtype=torch.float64) - 1).abs() <= slack).all())
        self.nats = self.nats - len(logits) * math.log(slack) if alike else -math.inf

    def __add__(self, other: "ProbabilityEvidence") -> "ProbabilityEvidence":
        return ProbabilityEvidence(self.nats + other.nats)

    def refuse(self, advice: str) -> None:
        """Raise ValueError, ending with `advice`, if the probability of a coincidence is below 1 in 10^8."""
        if self.nats > math.log(1e8):
            seen = "samples that all lie in [0, 1] and sum to 1"
            raise ValueError(f"logits must not be probabilities, got {seen}: {advice}")


def check_probability_range(name: str, values: Tensor, slack: float) -> None:
    """Raise ValueError unless all values are in [0, 1] up to `slack`, or if any of them is NaN."""
    low, high = (float(bound) for bound in torch.aminmax(values)) if values.numel() else (0.0, 1.0)
    if not (low >= -slack and high <= 1 + slack):
        seen = "NaN" if low != low or high != high else f"values from {low:g} to {high:g}"
        hint = ': for logits, use inputs="logits" or CalibrationMetrics.update' if name == "probabilities" else ""
        raise ValueError(f"{name} must be in [0, 1], got {seen}{hint}")


def check_sums(sums: Tensor, slack: float) -> None:
    """Raise ValueError unless the probabilities of every sample sum to 1 up to `slack`."""
    off = (sums - 1).abs()
    if (off > slack).any():
        seen = float(sums[off.argmax()])
        raise ValueError(f"probabilities must sum to 1 for every sample (within {slack:.1g}), got a sum of {seen:g}")


def check_confidences(confidence: Array, correct: Array) -> tuple[Tensor, Tensor]:
    """Check and return confidences (N,), clipped to [0, 1], in float32 (or float64 if given so), and hits as bools."""
    confidence, correct = as_tensor("confidence", confidence).cpu(), as_tensor("correct", correct).cpu()
    check_floating("confidence", confidence)
    if correct.is_floating_point() or correct.is_complex():
        raise TypeError(f"correct must be boolean or integers 0 and 1, got {correct.dtype}")
    if confidence.ndim != 1 or confidence.shape != correct.shape:
        shapes = f"{tuple(confidence.shape)} and {tuple(correct.shape)}"
        raise ValueError(f"confidence and correct must be one-dimensional and equally long, got shapes {shapes}")
    check_probability_range("confidence", confidence, probability_tolerance(confidence.dtype))
    wrong = (correct != 0) & (correct != 1)
    if wrong.any():
        raise ValueError(f"correct must be boolean or integers 0 and 1, got {int(correct[wrong][0])}")
    return confidence.to(torch.promote_types(confidence.dtype, torch.float32)).clamp(0, 1), correct == 1
