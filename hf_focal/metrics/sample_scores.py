"""Scores of each sample: confidence, hit, NLL, Brier score, and entropy.

Samples are read in blocks that stay in cache, so nothing of the input's size is allocated. A block computes each
score when it is first used.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from ..errors import InputError
from ..validation import (
    Array,
    ProbabilityEvidence,
    check_largest,
    check_probability_range,
    check_scores,
    check_sums,
    probability_tolerance,
)

# Number of elements in a block: 1 MiB of float32 for a CPU's cache, more for accelerators, where launches cost time.
_CPU_BLOCK = 2**18
_DEVICE_BLOCK = 2**24


class ConfidenceBlock:
    """A block of N samples of which only the confidence (N,) and the hit (N,) are known; the other scores are NaN."""

    def __init__(self, confidence: Tensor, correct: Tensor) -> None:
        self.confidence, self.correct, self.uncertainty = confidence, correct, 1 - confidence
        self.nll = self.brier = self.entropy = self.in_top5 = torch.full_like(confidence, math.nan)


class SampleBlock:
    """A block of N samples with scores (N, K) and labels (N,). The properties are computed when they are first used.

    A class with logit -inf has probability 0; each sample needs a finite logit. Given probabilities are not
    renormalized.
    """

    def __init__(self, inputs: str, scores: Tensor, labels: Tensor, tolerance: float) -> None:
        self.has_logits = inputs == "logits"
        if not self.has_logits:
            check_probability_range("probabilities", scores, tolerance)
            scores = scores.clamp(0, 1)
        self.scores, self.labels = scores, labels
        self.top = scores.amax(1, keepdim=True)
        self.label_score = scores.gather(1, labels[:, None])
        # A float32 sum over very many classes is split over threads or blocks, so its rounding depends on how many
        # samples are summed along with it; in float64, that difference is far below anything reported.
        short = scores.device.type == "cpu" and scores.shape[1] < 2**15
        self._sum_dtype = scores.dtype if short else torch.float64
        if self.has_logits:
            check_largest(self.top)
        else:
            check_sums(self._sum(scores), tolerance)

    def _sum(self, values: Tensor) -> Tensor:
        return values.sum(1, dtype=self._sum_dtype).double()

    def _shifted(self) -> Tensor:
        # Not kept, so that a block stays in cache. exp is slow where it underflows; -inf · 0 is NaN in the entropy.
        # Probabilities below the smallest normal number (1e-38 in float32) are replaced by it, which is too little to
        # change any sum.
        floor = math.log(torch.finfo(self.scores.dtype).tiny)
        return (self.scores - self.top).clamp_(min=floor)

    @cached_property
    def weights(self) -> Tensor:
        """The probabilities times a factor that is constant within each sample: (N, K), in the dtype of the scores."""
        return self._shifted().exp_() if self.has_logits else self.scores

    @cached_property
    def total(self) -> Tensor:
        """The sum of each sample's weights: (N,), float64."""
        if not self.has_logits:
            return torch.ones_like(self.labels, dtype=torch.float64)
        return self.weights.sum(1, dtype=torch.float64)

    @cached_property
    def probabilities(self) -> Tensor:
        return self.weights / self.total[:, None].to(self.weights.dtype) if self.has_logits else self.weights

    @cached_property
    def confidence(self) -> Tensor:
        """The largest probability of each sample: (N,), in the dtype of the scores."""
        return 1 - self.uncertainty if self.has_logits else self.top.squeeze(1)

    @cached_property
    def uncertainty(self) -> Tensor:
        """1 - confidence, without cancellation for logits: (N,), in the scores' dtype; float64 for probabilities."""
        if not self.has_logits:
            return 1 - self.top.squeeze(1).double()
        others = self.total - 1  # the weight of the prediction is 1
        if len(sure := (others < 1e-7).nonzero().squeeze(1)):
            weights = self.weights[sure]
            others[sure] = self._sum(weights.masked_fill_(weights == 1, 0))
        return (others / self.total).to(self.scores.dtype)

    @cached_property
    def nll(self) -> Tensor:
        """-log p of each sample's label, in nats: (N,)."""
        if self.has_logits:
            return self.total.log() + (self.top - self.label_score).squeeze(1)
        return -self.label_score.squeeze(1).double().log()

    @cached_property
    def entropy(self) -> Tensor:
        """The entropy of each sample's probabilities, in nats: (N,)."""
        if self.has_logits:
            return (self.total.log() - self._sum(self._shifted().mul_(self.weights)) / self.total).clamp_(min=0)
        return self._sum(torch.special.entr(self.weights))

    @cached_property
    def brier(self) -> Tensor:
        label = self.weights.gather(1, self.labels[:, None]).squeeze(1).double() / self.total
        return (self._sum(self.weights.square()) / self.total.square() - 2 * label + 1).clamp_(min=0)

    @cached_property
    def correct(self) -> Tensor:
        """Whether the label is the prediction, which is the first class with the largest score."""
        correct = (self.label_score == self.top).squeeze(1)
        # If two classes share the largest score, each has a probability of at most ½. Only then can a class before the
        # label have the same score as the label.
        samples = (correct & (self.confidence < 0.55)).nonzero().squeeze(1)
        if len(samples):
            tied = (self.scores[samples] == self.top[samples]).sum(1, dtype=torch.int32) > 1
            self._decide(correct, samples[tied], 1)
        return correct

    @cached_property
    def in_top5(self) -> Tensor:
        """Whether the label has one of the five largest scores; ties are broken in favor of lower class indices."""
        inside = (self.scores >= self.label_score).sum(1, dtype=torch.int32) <= 5
        possible = (self.scores > self.label_score).sum(1, dtype=torch.int32) < 5
        self._decide(inside, (possible & ~inside).nonzero().squeeze(1), 5)
        return inside

    def _decide(self, inside: Tensor, samples: Tensor, rank: int) -> None:
        """Set `inside[samples]`: whether fewer than `rank` classes beat the label by score or, in a tie, by index."""
        if len(samples):
            scores, label_score, labels = self.scores[samples], self.label_score[samples], self.labels[samples]
            earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
            inside[samples] = ((scores > label_score) | ((scores == label_score) & earlier)).sum(1) < rank


def sample_blocks(
    inputs: str, scores: Array, labels: Array, ignore_index: int, evidence: ProbabilityEvidence | None = None
) -> tuple[int, Iterator[SampleBlock]]:
    """Return the number of classes and the samples in blocks, without the samples with label `ignore_index`.

    `inputs` is "logits" or "probabilities"; scores are (..., K), and labels are (...). Values are checked as the
    blocks are read. Signs that logits are really probabilities are added to `evidence` for the caller to judge. If
    `evidence` is None, such logits raise InputError after the last block.
    """
    if inputs not in ("logits", "probabilities"):
        expected = 'must be "logits" or "probabilities", or "confidences" for metrics of the predicted label alone'
        raise InputError("inputs", f"{expected}, got {inputs!r}")
    scores, labels = check_scores(inputs, scores, labels, ignore_index)
    return scores.shape[1], _blocks(inputs, scores, labels, ignore_index, evidence)


def _blocks(
    inputs: str, scores: Tensor, labels: Tensor, ignore_index: int, evidence: ProbabilityEvidence | None
) -> Iterator[SampleBlock]:
    checked = evidence or ProbabilityEvidence()
    tolerance = probability_tolerance(scores.dtype)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    size = max(1, (_CPU_BLOCK if scores.device.type == "cpu" else _DEVICE_BLOCK) // scores.shape[1])
    for part, part_labels in zip(scores.split(size), labels.split(size), strict=True):
        labeled = part_labels != ignore_index
        if not labeled.all():
            part, part_labels = part[labeled], part_labels[labeled]
        if not len(part_labels):
            continue
        part = part.to(dtype).contiguous()  # the order of summation follows the memory layout
        block = SampleBlock(inputs, part, part_labels, tolerance)
        if inputs == "logits":
            checked.add(part, block.top, tolerance)
        yield block
    if evidence is None:
        checked.refuse('use inputs="probabilities"')
