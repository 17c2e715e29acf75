"""What one row of logits or probabilities says: confidence, hit, NLL, Brier score, entropy.

Rows are read in blocks that stay in cache, so that nothing of the input's size is ever allocated; a block computes
each statistic when it is first asked for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from .input_checks import Array, Evidence, check_largest, check_probability_range, check_scores, probability_tolerance

# Elements of a block: 1 MiB of float32 for a CPU's cache; larger on accelerators, where launches are what costs.
_CPU_BLOCK = 2**18
_DEVICE_BLOCK = 2**24


class Rows(ABC):
    """A block of n rows. `weights` (n, K) are the probabilities up to the row's factor `total` (n, 1)."""

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self.scores = scores
        self.labels = labels
        self.top = scores.amax(1, keepdim=True)
        self.label_score = scores.gather(1, labels[:, None])
        # A float32 sum of one very long row is split over threads or blocks and so depends on the number of rows
        # beside it; in float64 that is far below what anything reports.
        short = scores.device.type == "cpu" and scores.shape[1] < 2**15
        self._sum_dtype = scores.dtype if short else torch.float64

    def _sum(self, values: Tensor) -> Tensor:
        return values.sum(1, dtype=self._sum_dtype).double()

    # What depends on what the scores are: logits or probabilities.

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """(n, K), in the dtype of the scores: the probabilities, up to a factor a row."""

    @property
    @abstractmethod
    def total(self) -> Tensor:
        """(n, 1), float64: that factor, the sum of the weights."""

    @property
    @abstractmethod
    def confidence(self) -> Tensor:
        """(n,), in the dtype of the scores: the largest probability."""

    @property
    @abstractmethod
    def nll(self) -> Tensor:
        """(n,): -log p of the label, in nats."""

    @property
    @abstractmethod
    def entropy(self) -> Tensor:
        """(n,): of the probabilities, in nats."""

    @cached_property
    def probabilities(self) -> Tensor:
        return self.weights / self.total.to(self.weights.dtype)

    @cached_property
    def correct(self) -> Tensor:
        """Whether the label is the prediction, the first class with the largest score."""
        correct = (self.label_score == self.top).squeeze(1)
        # Two largest scores leave at most half the probability to each: only there can an earlier class be as large.
        doubtful = (correct & (self.confidence < 0.55)).nonzero().squeeze(1)
        if len(doubtful):
            correct[doubtful] = self._classes_before(doubtful) == 0
        return correct

    @cached_property
    def in_top5(self) -> Tensor:
        """Whether the label is among the five largest scores; of equal scores, the lower class counts as larger."""
        inside = (self.scores >= self.label_score).sum(1, dtype=torch.int32) <= 5
        doubtful = (~inside).nonzero().squeeze(1)
        if len(doubtful):
            inside[doubtful] = self._classes_before(doubtful) < 5
        return inside

    def _classes_before(self, rows: Tensor) -> Tensor:
        """How many classes the given rows order before the label, by score and then by class number."""
        scores, label_score, labels = self.scores[rows], self.label_score[rows], self.labels[rows]
        earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
        return ((scores > label_score) | ((scores == label_score) & earlier)).sum(1)

    @cached_property
    def brier(self) -> Tensor:
        total = self.total.squeeze(1)
        label = self.weights.gather(1, self.labels[:, None]).squeeze(1).double() / total
        return (self._sum(self.weights.square()) / total.square() - 2 * label + 1).clamp_(min=0)


class LogitRows(Rows):
    """Rows of logits. A class with logit -inf has probability 0, as long as the row has a finite logit."""

    def __init__(self, logits: Tensor, labels: Tensor) -> None:
        super().__init__(logits, labels)
        check_largest(self.top)

    @cached_property
    def _shifted(self) -> Tensor:
        # exp is slow where it underflows, and -inf · 0 is NaN in the entropy. Probabilities below the smallest normal
        # number (1e-38 in float32) are taken for that number: nothing that is summed can tell.
        floor = math.log(torch.finfo(self.scores.dtype).tiny)
        return (self.scores - self.top).clamp_(min=floor)

    @cached_property
    def weights(self) -> Tensor:
        return self._shifted.exp()

    @cached_property
    def total(self) -> Tensor:
        return self._sum(self.weights).unsqueeze(1)

    @cached_property
    def confidence(self) -> Tensor:
        return self.total.squeeze(1).reciprocal().to(self.scores.dtype)

    @cached_property
    def nll(self) -> Tensor:
        return (self.total.log() + (self.top - self.label_score)).squeeze(1)

    @cached_property
    def entropy(self) -> Tensor:
        total = self.total.squeeze(1)
        return (total.log() - self._sum(self.weights * self._shifted) / total).clamp_(min=0)


class ProbabilityRows(Rows):
    """Rows of probabilities, taken as they are: not normalised again."""

    def __init__(self, probabilities: Tensor, labels: Tensor, tolerance: float) -> None:
        super().__init__(probabilities.clamp(0, 1), labels)
        off = (self._sum(self.weights) - 1).abs()
        if (off > tolerance).any():
            seen = float(self._sum(self.weights)[off.argmax()])
            raise ValueError(
                f"probabilities must sum to 1 in every row (within {tolerance:.1g}), got a sum of {seen:g}"
            )

    @property
    def weights(self) -> Tensor:
        return self.scores

    @cached_property
    def total(self) -> Tensor:
        return torch.ones(len(self.labels), 1, dtype=torch.float64, device=self.labels.device)

    @property
    def probabilities(self) -> Tensor:
        return self.weights

    @cached_property
    def confidence(self) -> Tensor:
        return self.top.squeeze(1)

    @cached_property
    def nll(self) -> Tensor:
        return -self.label_score.squeeze(1).double().log()

    @cached_property
    def entropy(self) -> Tensor:
        return self._sum(torch.special.entr(self.weights))


def read_rows(
    inputs: str, scores: Array, labels: Array, ignore_index: int, evidence: Evidence | None = None
) -> tuple[int, Iterator[Rows]]:
    """The number of classes, and the rows in blocks.

    inputs: "logits" or "probabilities"; scores (..., K), labels (...). Shapes and labels are checked here, values as
    the blocks are read. Rows labelled `ignore_index` are left out, unread. `evidence` that logits are probabilities
    is left to the caller to judge; without it, they are refused after the last block.
    """
    if inputs not in ("logits", "probabilities"):
        raise ValueError(f'inputs must be "logits" or "probabilities", got {inputs!r}')
    scores, labels = check_scores(inputs, scores, labels, ignore_index)
    return scores.shape[1], _blocks(inputs, scores, labels, ignore_index, evidence)


def _blocks(
    inputs: str, scores: Tensor, labels: Tensor, ignore_index: int, evidence: Evidence | None
) -> Iterator[Rows]:
    found = Evidence() if evidence is None else evidence
    tolerance = probability_tolerance(scores.dtype)
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    size = max(1, (_CPU_BLOCK if scores.device.type == "cpu" else _DEVICE_BLOCK) // scores.shape[1])
    for block, block_labels in zip(scores.split(size), labels.split(size), strict=True):
        kept = block_labels != ignore_index
        if not kept.all():
            block, block_labels = block[kept], block_labels[kept]
        if not len(block_labels):
            continue
        block = block.to(dtype).contiguous()  # the order of a sum follows the layout
        if inputs == "logits":
            rows = LogitRows(block, block_labels)
            found.add(block, rows.top, tolerance)
            yield rows
        else:
            check_probability_range("probabilities", block, tolerance)
            yield ProbabilityRows(block, block_labels, tolerance)
    if evidence is None:
        found.refuse('use inputs="probabilities"')
