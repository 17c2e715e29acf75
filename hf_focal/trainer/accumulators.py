"""What a pass over data adds its logits and labels to, on all processes: confidences, sums, or the logits."""

from collections.abc import Sequence
from functools import reduce
from itertools import chain, zip_longest
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from ..calibration import TemperatureStream
from ..calibration.thresholds import ThresholdSamples, threshold_samples
from ..metrics import CalibrationMetrics
from ..scores.meanings import Link
from ..scores.reading.table_batches import MOST_SCORES
from ..scores.sets.scores_in_memory import Scores

# Limit for the collected logits of all processes, in bytes; gathering them briefly takes twice the memory.
MAX_COLLECTED_BYTES = 2**30


class Accumulator(Protocol):
    """What a pass over a dataset adds its logits and labels to."""

    pass_name: str  # of the progress bar

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add the logits (..., K) and labels of a batch of this process."""

    def gather(self) -> Any:
        """Return what was added on all processes, which must all call this, or keep it."""


class TopConfidences:
    """Collects the top-1 confidences (M,) and correctness (M,) of M samples, from which AdaFocal updates γ."""

    pass_name = "updating γ"

    def __init__(self, link: str = "softmax"):
        self.metrics = CalibrationMetrics(1, classwise=False, link=link)

    def update(self, logits: Any, labels: Any) -> None:
        self.metrics.update(logits, labels if self.metrics.link == "sigmoid" else class_indices(logits, labels))

    def gather(self) -> tuple[Tensor, Tensor]:
        return _concatenated(gather_object([self.metrics.samples()]))


class TemperatureSums(TemperatureStream):
    """A `TemperatureStream` of all processes: sums at each temperature of the grid, for a fit without the logits."""

    pass_name = "fitting T"

    def gather(self) -> TemperatureStream:
        return reduce(TemperatureStream.merge, gather_object([self]))


class CollectedLogits:
    """Collects logits (M, K) and labels (M,) on the CPU, for fitting a correction.

    A soft target counts as its most probable class. With ``link="sigmoid"``, the labels are (M, K). If `sums` is given
    and the logits of a process exceed its share of `MAX_COLLECTED_BYTES`, all logits are added to `sums` instead of
    being kept, and `gather` returns the gathered `TemperatureStream`.

    The samples are in the order of the dataset, whatever the number of processes. After `gather`, `rows` (M,) says
    which row of the dataset each is from: a row of a token classifier has several.
    """

    pass_name = "computing logits"

    def __init__(self, sums: TemperatureSums | None = None, link: str = "softmax") -> None:
        self.batches: list[tuple[Tensor, Tensor]] = []
        self.sums: Any = sums
        self.num_bytes, self.link = 0, link
        self.batch_rows: list[tuple[int, np.ndarray]] = []
        self.rows = np.zeros(0, np.int64)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        logits = logits.detach()
        size, rows = len(labels), torch.arange(len(labels))
        if self.link != "sigmoid":
            labels = class_indices(logits, labels)
            if labels.ndim > 1:  # most tokens may be padding
                labeled = labels != -100
                logits, labels = logits[labeled], labels[labeled]
                rows = labeled.cpu().nonzero()[:, 0]
        logits = logits.flatten(0, -2)
        self.batch_rows.append((size, rows.numpy()))
        self.num_bytes += logits.nbytes
        if self._exceeds_limit():
            self._sum_up()
            self.sums.update(logits, labels)
        else:
            self.batches.append((logits.cpu(), labels.cpu()))

    def gather(self) -> tuple[Tensor, Tensor] | TemperatureStream:
        if any(gather_object([self._exceeds_limit()])):  # on any process
            self._sum_up()
            return self.sums.gather()
        self.rows = _dataset_rows(in_order(self.batch_rows))
        return _concatenated(in_order(self.batches))

    def _exceeds_limit(self) -> bool:
        return self.sums is not None and self.num_bytes > MAX_COLLECTED_BYTES // PartialState().num_processes

    def _sum_up(self) -> None:
        for batch in self.batches:
            self.sums.update(*batch)
        self.batches.clear()


class PageScores:
    """Collects the scores of samples, some of which a page shows: no tokens, and at most `MOST_SCORES` numbers.

    After `gather`, `scores` on each process are those of all processes, in the order of the dataset, or None if there
    are tokens, too many numbers, or samples with different numbers of options. `classes` are names, if there are any.
    """

    pass_name = "measuring"

    def __init__(self, link: Link = "softmax", classes: Sequence[str] = ()) -> None:
        self.collected, self.link, self.classes = CollectedLogits(link=link), link, tuple(classes)
        self.scores: Scores | None = None
        self.shapes: set[tuple[int, ...]] = set()
        self.num_scores = 0

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self.shapes.add(tuple(logits.shape[1:]))
        self.num_scores += logits.numel()
        if _are_shown(self.shapes, self.num_scores * PartialState().num_processes):
            self.collected.update(logits, labels)
        else:
            self.collected.batches.clear()

    def gather(self) -> None:
        shapes, numbers = zip(*gather_object([(self.shapes, self.num_scores)]), strict=True)
        if not _are_shown(set().union(*shapes), max(numbers) * len(numbers)):
            return
        logits, labels = score_arrays(self.collected.gather(), self.collected.link)  # type: ignore[arg-type]  # no stream
        width = logits.shape[1]
        has_names = len(self.classes) in (width, width + (width == 1))
        self.scores = Scores(logits, labels, self.link, self.classes if has_names else ())


def _are_shown(shapes: set[tuple[int, ...]], num_scores: int) -> bool:
    """Return whether samples have scores of one shape, (K,), and not too many of them."""
    return len(shapes) == 1 and len(next(iter(shapes))) == 1 and num_scores <= MOST_SCORES


class CombinedAccumulator:
    """Several accumulators that one pass fills."""

    def __init__(self, *parts: Accumulator) -> None:
        self.parts, self.pass_name = parts, parts[0].pass_name

    def update(self, logits: Tensor, labels: Tensor) -> None:
        for part in self.parts:
            part.update(logits, labels)

    def gather(self) -> list[Any]:
        return [part.gather() for part in self.parts]


class LocalLogits(CollectedLogits):
    """Collects the logits and labels that this process computes; `rows` are their rows in the dataset.

    `batch_size` is that of each process, which take the batches in turn.
    """

    def __init__(self, batch_size: int, link: str = "softmax") -> None:
        super().__init__(link=link)
        self.batch_size = batch_size

    def gather(self) -> tuple[Tensor, Tensor]:
        state, numbers = PartialState(), range(len(self.batch_rows))
        starts = [(number * state.num_processes + state.process_index) * self.batch_size for number in numbers]
        rows = [start + rows for start, (_, rows) in zip(starts, self.batch_rows, strict=True)]
        self.rows = np.concatenate([np.zeros(0, np.int64), *rows])
        return _concatenated(self.batches)


class CollectedHits:
    """Collects what thresholds are chosen on: the samples' log-odds and hits, in the order of the dataset.

    `clusters`, (N,), are keys of the clusters of the dataset's rows, if any.
    """

    pass_name = "measuring"

    def __init__(self, link: str, clusters: np.ndarray | None = None, are_independent: bool = True) -> None:
        self.link, self.clusters, self.are_independent = link, clusters, are_independent
        self.batches: list[tuple[int, list[np.ndarray], ThresholdSamples]] = []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        if self.link != "sigmoid":
            labels = class_indices(logits, labels)
        size, per_row = len(labels), int(np.prod(labels.shape[1:])) if self.link != "sigmoid" else 1
        numbers = np.repeat(np.arange(size), per_row)
        samples = threshold_samples(logits.detach(), labels, self.link)
        known = labels.cpu().reshape(len(numbers), -1).T.numpy()
        rows = [numbers[(column != -100) & (column == column)] for column in known]  # NaN is unknown, too
        self.batches.append((size, rows, samples))

    def gather(self) -> ThresholdSamples:
        batches = in_order(self.batches)
        parts = range(len(batches[0][1]))
        scores, hits = (
            [np.concatenate([getattr(samples, name)[i] for *_, samples in batches]) for i in parts]
            for name in ("scores", "hits")
        )
        clusters = None
        if self.clusters is not None:
            clusters = [self.clusters[_dataset_rows([(size, rows[i]) for size, rows, _ in batches])] for i in parts]
        return ThresholdSamples(scores, hits, clusters, self.are_independent)


def in_order(batches: list[Any]) -> list[Any]:
    """Return the batches of all processes in the order of the dataset, whose batches the processes took in turn."""
    process_batches = gather_object([batches])
    return [batch for batch in chain(*zip_longest(*process_batches)) if batch is not None]


def _dataset_rows(batches: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return rows of the dataset from (number of rows, rows of the batch) of each batch."""
    starts = np.cumsum([0, *(size for size, _ in batches)])
    return np.concatenate([start + rows for start, (_, rows) in zip(starts, batches, strict=False)])


def rows_by_process(parts: Sequence[list[tuple[int, np.ndarray]]]) -> np.ndarray:
    """Return rows of the dataset, those of the first process first, from the batches of each process.

    A batch has its number of rows, and those of its rows that are wanted.
    """
    numbers = [process + len(parts) * turn for process, part in enumerate(parts) for turn in range(len(part))]
    flat = [batch for part in parts for batch in part]
    sizes = np.zeros(max(numbers, default=-1) + 2, np.int64)
    sizes[[number + 1 for number in numbers]] = [size for size, _ in flat]
    starts = sizes.cumsum()
    rows = [starts[number] + rows for number, (_, rows) in zip(numbers, flat, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *rows])


def _concatenated(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    first, second = zip(*parts, strict=True)
    return torch.cat(first), torch.cat(second)


def score_arrays(collected: tuple[Tensor, Tensor], link: str) -> tuple[np.ndarray, np.ndarray]:
    """Return collected logits and labels as `Scores` has them: at least float32, and NaN for unknown labels."""
    logits, labels = collected
    if link == "sigmoid":
        labels = labels.double().masked_fill(labels == -100, torch.nan)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).numpy(), labels.numpy()


def class_indices(logits: Tensor, labels: Tensor) -> Tensor:
    """Return class indices: labels unchanged, a soft target's most probable class, or -100 if it is all -100."""
    if labels.is_floating_point() and labels.shape == logits.shape:
        return labels.argmax(-1).masked_fill((labels == -100).all(-1), -100)
    return labels
