"""Accumulator of calibration metrics over batches and processes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from ..errors import InputError
from ..validation import (
    Array,
    ProbabilityEvidence,
    check_confidences,
    check_count,
    check_fraction,
    check_ignore_index_of_hits,
    check_shapes,
)
from .batch_buffer import BatchBuffer
from .bins import add_classwise_gaps, bin_index, bin_sums, binned_error
from .bootstrap_intervals import error_intervals, error_intervals_of_sums
from .calibration_errors import adaptive_error_bound, classwise_error
from .kernel_smoothing import SmoothReliability, smooth_error, smooth_reliability
from .metric_table import binned_errors, ranked_errors
from .packed_samples import concatenate, histogram_sums, pack, sum_ties, tie_starts, unpack, unpack_confidences
from .ranking import auroc
from .sample_scores import ConfidenceBlock, SampleBlock, sample_blocks
from .selective_prediction import RiskCoverageCurve, log_odds

# What is summed over the samples, separately over incorrect and correct ones.
_SUMMED = ("count", "nll", "brier", "confidence", "entropy", "s99", "top5_accuracy")
_SETTINGS = ("num_bins", "ignore_index", "classwise", "keep_samples")
_MOST_CLASSES = 256  # with more classes, errors are not counted by label and prediction: K² counts for each batch


@dataclass(frozen=True)
class ReliabilityBins:
    """The equal-width bins of a reliability diagram.

    `edges`, `(M + 1,)`, are confidences from 0 to 1; bin i is for confidences in (edges[i], edges[i + 1]].
    `count`, `(M,)`, int64, is the number of samples in each bin. `confidence` and `accuracy`, `(M,)`, are the mean
    confidence and the accuracy of these samples, NaN for empty bins.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    def check(self) -> None:
        """Raise InputError unless the bins are in order, and means from 0 to 1 are known where there are samples."""
        sides, edges = np.stack([self.confidence, self.accuracy]), self.edges
        if self.count.dtype != np.int64 or not len(self.count) or len(edges) != len(self.count) + 1:
            raise InputError("bins", "must have counts, and one edge more")
        if not (np.diff(edges) > 0).all() or edges[0] < 0 or edges[-1] > 1 or (self.count < 0).any():
            raise InputError("bins", "must have edges from 0 to 1, in order, and counts that are not negative")
        if not ((sides >= 0) & (sides <= 1))[:, self.count > 0].all() or ((sides < 0) | (sides > 1)).any():
            expected = "must have the mean confidence and the accuracy, from 0 to 1, of each with samples"
            raise InputError("bins", expected)

    def ece(self) -> float:
        return float(binned_error(np.nan_to_num(self.count * (self.confidence - self.accuracy)), self.count.sum()))

    def means(self) -> tuple[float, float]:
        """Return the mean confidence and the accuracy of all samples, NaN without samples."""
        total = float(self.count.sum()) or np.nan
        confidence, accuracy = (float(np.nansum(self.count * side)) for side in (self.confidence, self.accuracy))
        return confidence / total, accuracy / total


@dataclass
class _Measured:
    """What is known of the samples that were measured."""

    are_kept: bool
    num_classes: int | None = None
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    packed: list[np.ndarray] = field(default_factory=list)
    is_second_class: list[np.ndarray] = field(default_factory=list)  # of each sample; only with two classes
    clusters: np.ndarray | None = None  # of the samples, in the order in which they were added
    evidence: ProbabilityEvidence = field(default_factory=ProbabilityEvidence)

    def accumulate(self, sums: dict[str, np.ndarray]) -> None:
        for name, values in sums.items():
            self.sums[name] = self.sums[name] + values if name in self.sums else values


class CalibrationMetrics(BatchBuffer):
    """Calibration errors and scores of all samples added so far, in any number of batches and processes.

    Sums are float64. For equal-mass bins, selective prediction, and the bootstrap, 1 - confidence (float32) and the
    hit of each sample are also kept, packed into four bytes (eight for float64 logits and for probabilities). Samples
    are ranked by this number, which tells confidences apart that are all 1.0 in float32. The results depend neither on
    the order of the samples nor on how they are batched. A pickled object takes little more than those bytes: gather
    the objects from all ranks and `merge` them.

    Args:
        num_bins: M, the number of equal-width, equal-mass, and classwise bins.
        ignore_index: samples with this label are left out; with a sigmoid, it is neither 0 nor 1.
        classwise: whether to compute classwise ECE, from K · M sums of 8 bytes; turn this off for large vocabularies.
        keep_samples: whether to keep the samples. False needs only constant memory, even for pixels: a fine histogram
            (1.6 MB) replaces the samples, and `compute` also returns how far AdaECE can be off. `bootstrap` then takes
            the cells of the histogram for ties, and `samples`, `smooth_reliability`, and `log_odds_and_hits` raise
            InputError. A number is the most samples that are kept, or with a sigmoid the most entries: with more, the
            histogram replaces all of them.
        link: "sigmoid" for several labels per sample or a single logit; the object is then a `LabelMetrics`.

    Small batches of logits are copied and measured together, at the latest when a result is read. If a batch is wrong,
    an InputError leaves it out: at once on the CPU, but on an accelerator, for which the host does not wait at each
    batch, only when the batches are measured.

    `label_counts`, `(K,)`, int64, is the number of samples of each class; it is empty before the first batch and with
    ``classwise=False``. `confusion`, `(K, K)`, int64, counts the samples by label (row) and prediction (column); it is
    `(0, 0)` where `label_counts` is empty, and with more than 256 classes.

    Examples:
        >>> import torch
        >>> from hf_focal import CalibrationMetrics
        >>> metrics = CalibrationMetrics()
        >>> for batch in (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.0]])):
        ...     metrics.update(batch, torch.tensor([0, 1]))
        >>> found = metrics.compute()
        >>> round(found["accuracy"], 3), round(found["ece"], 3)
        (0.75, 0.32)
    """

    link = "softmax"

    def __new__(cls, *_: Any, link: str | None = None, **__: Any) -> "CalibrationMetrics":
        """Create the accumulator of the link, a `LabelMetrics` for a sigmoid; a subclass has one link only."""
        classes = ACCUMULATOR_OF_LINK if cls is CalibrationMetrics else {cls.link: cls}
        if link not in (None, *classes):
            raise InputError("link", f"must be {' or '.join(map(repr, classes))}, got {link!r}")
        return super().__new__(classes.get(link or cls.link, cls))

    def __init__(
        self,
        num_bins: int = 15,
        *,
        ignore_index: int = -100,
        classwise: bool = True,
        keep_samples: bool | int = True,
        link: str = "softmax",
    ) -> None:
        super().__init__()
        check_count("num_bins", num_bins)  # `__new__` has already handled the link
        if self.link == "sigmoid":
            check_ignore_index_of_hits(ignore_index)
        self.num_bins = num_bins
        self.ignore_index = ignore_index
        self.classwise = classwise
        self.keep_samples = keep_samples
        self.reset()

    def reset(self) -> None:
        """Forget all samples and the number of classes."""
        self._waiting, self._num_waiting = [], 0
        self._measured = _Measured(bool(self.keep_samples))

    @property
    def _state(self) -> _Measured:
        """What is known of all samples so far."""
        self._flush()
        return self._measured

    @property
    def num_classes(self) -> int | None:
        """The number of classes, or of labels; None before the first batch."""
        return self._state.num_classes

    @property
    def has_samples(self) -> bool:
        """Whether all samples so far are kept, rather than replaced by a histogram."""
        return self._state.are_kept

    @property
    def label_counts(self) -> np.ndarray:
        return self._state.sums.get("labels", np.zeros(0, np.int64))

    @property
    def confusion(self) -> np.ndarray:
        errors = self._state.sums.get("errors", np.zeros((0, 0), np.int64))
        return errors + np.diag(self.label_counts - errors.sum(1)) if len(errors) else errors

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device."""
        scores, numbers = check_shapes("logits", logits, labels)
        self._check_num_classes(scores.shape[1])
        self._add_logits(scores, numbers, self._measured.evidence, self.ignore_index)

    def _check_num_classes(self, num_classes: int) -> None:
        known = self._waiting_classes or self._measured.num_classes
        if known not in (None, num_classes):
            raise InputError("num_classes", f"must be the same to add samples, got {num_classes} for {known}")

    def _add_now(self, scores: torch.Tensor, labels: torch.Tensor) -> None:
        self._update("logits", scores, labels)

    def update_from_probabilities(self, probabilities: Array, labels: Array) -> None:
        """Add probabilities (..., K), in [0, 1] and summing to 1 up to their dtype's rounding, and labels (...)."""
        self._flush()
        self._update("probabilities", probabilities, labels)

    def update_from_confidences(self, confidence: Array, correct: Array) -> None:
        """Add confidences (N,) and whether each prediction is correct (N,), with ``classwise=False``.

        `compute` then returns NaN for what needs the probabilities of all classes: nll, brier, and entropy.
        """
        if self.classwise:
            raise InputError("classwise", "must be False for confidences, which are not scores of classes, got True")
        self._add(iter([ConfidenceBlock(*check_confidences(confidence, correct))]), 0)

    def _update(self, inputs: str, scores: Array, labels: Array) -> None:
        # The batch gets its own object, so a batch that raises halfway leaves nothing behind.
        batch = CalibrationMetrics(**{name: getattr(self, name) for name in _SETTINGS})
        evidence = batch._measured.evidence
        evidence.nats = min(0.0, self._measured.evidence.nats)  # known logits are not checked again
        num_classes, blocks = sample_blocks(inputs, scores, labels, self.ignore_index, evidence)
        batch._measured.num_classes = num_classes
        batch._add(blocks, num_classes)
        (self._measured.evidence + evidence).refuse(
            "use update_from_probabilities, or --kind probabilities on the command line"
        )
        self.merge(batch)

    def _add(self, blocks: Iterator[SampleBlock | ConfidenceBlock], num_classes: int) -> None:
        measured, gaps = self._state, None
        measured.clusters = None
        for block in blocks:
            sums = {"scores": _score_sums(block, num_classes)}
            confidence, correct = block.confidence.cpu(), block.correct.cpu()
            index = bin_index(confidence, self.num_bins).numpy()
            sums["bins"] = bin_sums(index, confidence, correct, self.num_bins)
            if self.classwise and isinstance(block, SampleBlock):
                if gaps is None:
                    gaps = block.confidence.new_zeros(num_classes, self.num_bins, dtype=torch.float64)
                add_classwise_gaps(gaps, block.probabilities, block.labels)
                sums |= self._class_sums(block, index, confidence, correct)
            if measured.are_kept:
                measured.packed.append(pack(block.uncertainty.cpu(), correct))
                if num_classes == 2 and isinstance(block, SampleBlock):
                    measured.is_second_class.append(block.labels.cpu().numpy() == 1)
            else:
                sums["histogram"] = histogram_sums(block.uncertainty.cpu(), confidence, correct)
            measured.accumulate(sums)
        if gaps is not None:
            measured.accumulate({"classwise_gaps": gaps.cpu().numpy()})

    def _class_sums(
        self, block: SampleBlock, index: np.ndarray, confidence: torch.Tensor, correct: torch.Tensor
    ) -> dict[str, np.ndarray]:
        """Return the samples of each class, the errors by label and prediction, and the bins of each predicted class.

        `index`, `confidence`, and `correct`, (N,) on the CPU, are the bins, confidences, and hits of the block.
        """
        num_classes = block.scores.shape[1]
        labels, predictions = block.labels.cpu().numpy(), block.scores.argmax(1).cpu().numpy()
        sums = {"labels": np.bincount(labels, minlength=num_classes)}
        if num_classes <= _MOST_CLASSES:
            is_wrong = ~correct.numpy()
            errors = labels[is_wrong] * num_classes + predictions[is_wrong]
            sums["errors"] = np.bincount(errors, minlength=num_classes**2).reshape(num_classes, num_classes)
        class_bins = predictions * self.num_bins + index
        by_class = bin_sums(class_bins, confidence, correct, num_classes * self.num_bins)
        sums["predicted"] = by_class.reshape(3, num_classes, self.num_bins)
        return sums

    def _sum(self, name: str, *shape: int) -> np.ndarray:
        return self._state.sums.get(name, np.zeros(shape))

    def merge(self, other: "CalibrationMetrics") -> Self:
        """Add the samples of `other` and return this object; raise InputError if arguments or classes differ."""
        for name in ("link", *_SETTINGS, "num_classes"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others and None not in (mine, others):
                raise InputError(name, f"must be the same to add samples, got {others} for {mine}")
        mine, others = self._state, other._state
        mine.clusters = None
        mine.num_classes = others.num_classes if mine.num_classes is None else mine.num_classes
        mine.accumulate(others.sums)
        mine.packed += others.packed
        mine.is_second_class += others.is_second_class
        mine.evidence += others.evidence
        all_kept = mine.are_kept and others.are_kept
        if mine.packed and (not all_kept or (self.keep_samples is not True and self.num_kept > self.keep_samples)):
            self._replace_samples()
        mine.are_kept &= others.are_kept
        return self

    @property
    def num_kept(self) -> int:
        """The number of samples that are kept."""
        return sum(map(len, self._state.packed))

    def limit_samples(self, number: int) -> None:
        """Replace the samples by the histogram if `number`, those of all processes, are too many to keep."""
        if self.keep_samples is not True and self.has_samples and number > self.keep_samples:
            self._replace_samples()

    def _replace_samples(self) -> None:
        """Count the samples in the cells of the histogram, and forget them."""
        measured = self._state
        for packed in measured.packed:
            uncertainty, correct = map(torch.from_numpy, unpack(packed))
            measured.accumulate({"histogram": histogram_sums(uncertainty, 1 - uncertainty, correct)})
        measured.packed, measured.is_second_class, measured.are_kept, measured.clusters = [], [], False, None

    def __getstate__(self) -> dict:
        measured = self._state
        packed, is_second_class = [concatenate(measured.packed)], [self._are_second_class()]
        return self.__dict__ | {"_measured": replace(measured, packed=packed, is_second_class=is_second_class)}

    def _are_second_class(self) -> np.ndarray:
        """Return which kept samples are of the second of two classes; of none, if some came as confidences."""
        is_second = np.concatenate([np.zeros(0, bool), *self._state.is_second_class])
        return is_second if len(is_second) == self.num_kept else is_second[:0]

    def compute(self) -> dict[str, float]:
        """Return all metrics of the samples so far, as fractions (nats for NLL and entropy); NaN without samples.

        ece, adaece, classwise_ece (with ``classwise=True``), mce, ace, rmsce, smooth_ece, nll, brier, aurc, e_aurc,
        augrc: see the functions of this package. accuracy, error, top5_accuracy (with more than 5 classes),
        confidence, entropy: means over the samples. nll, entropy, and confidence with the suffix _correct or
        _incorrect: means over the samples that are predicted correctly or incorrectly. s99: the share of samples with
        a confidence of at least 0.99; s99_accuracy: the accuracy of these samples. num_samples: the number of samples.
        adaece_error (only with ``keep_samples=False``): a bound on the error of adaece. macro_recall (only where there
        is a `confusion`): the mean recall of the classes that occur, also called balanced accuracy. auroc (only with
        two classes and ``keep_samples=True``): how often a sample of the second class ranks above one of the first.
        """
        incorrect, correct = self._sum("scores", 2, len(_SUMMED))
        total = incorrect + correct
        ties = self._tie_sums()
        metrics = self._binned_errors() | _means(total)
        if self.classwise:
            metrics["classwise_ece"] = classwise_error(self._sum("classwise_gaps", 1, 1), int(total[0]))
        if not self.has_samples:
            metrics["adaece_error"] = adaptive_error_bound(ties, self.num_bins)
        metrics |= {"smooth_ece": smooth_error(ties), **RiskCoverageCurve.from_ties(ties).areas()}
        if (self.num_classes or 0) <= 5:
            del metrics["top5_accuracy"]
        metrics |= {"accuracy": _ratio(correct[0], total[0]), "error": _ratio(incorrect[0], total[0])}
        for side, means in (("correct", _means(correct)), ("incorrect", _means(incorrect))):
            metrics |= {f"{name}_{side}": means[name] for name in ("nll", "entropy", "confidence")}
        if len(confusion := self.confusion):
            metrics["macro_recall"] = macro_recall(confusion)
        if self.has_samples and self.num_classes == 2:
            [(odds, hits)], is_second = self.log_odds_and_hits(), self._are_second_class()
            if len(is_second) < len(hits):
                metrics["auroc"] = np.nan
            else:
                metrics["auroc"] = auroc(np.where(is_second == hits, odds, -odds), is_second)
        s99 = _SUMMED.index("s99")
        return metrics | {"s99_accuracy": _ratio(correct[s99], total[s99]), "num_samples": float(total[0])}

    def scores(self) -> dict[str, float]:
        """Return "nll", "brier", and "ece" of `compute` alone, which need no sorted samples."""
        means = _means(self._sum("scores", 2, len(_SUMMED)).sum(0))
        count, confidence, hits = self._bin_sums()
        error = binned_errors(count, confidence - hits)["ece"]
        return {"nll": means["nll"], "brier": means["brier"], "ece": float(error)}

    def _binned_errors(self) -> dict[str, float]:
        """Compute the errors that follow from the bins and the order of the samples, which `bootstrap` resamples."""
        count, confidence, hits = self._bin_sums()
        errors = {name: float(error) for name, error in binned_errors(count, confidence - hits).items()}
        return errors | ranked_errors(self._tie_sums(), self.num_bins)

    def _bin_sums(self) -> np.ndarray:
        return self._sum("bins", 3, self.num_bins)

    def samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return confidences (N,), float32 or float64, and hits (N,), bool. Raises InputError without kept samples."""
        confidence, correct = unpack_confidences(self._packed("samples"))
        return torch.from_numpy(confidence), torch.from_numpy(correct)

    def bins(self) -> ReliabilityBins:
        """Return the equal-width bins of the samples so far, for a reliability diagram."""
        return self._reliability(self._bin_sums())

    def class_sums(self) -> np.ndarray:
        """Return the number of samples, and the sums of confidences and of hits, in each bin of each class: (3, K, M).

        A sample counts for the class that is predicted. With a sigmoid, the sums are over the entries of each label,
        of P(label) and of ones. (3, 0, M) with ``classwise=False``.
        """
        return self._sum("predicted", 3, 0, self.num_bins)

    def _reliability(self, sums: np.ndarray) -> ReliabilityBins:
        count, confidence, hits = sums
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            means = {"confidence": confidence / count, "accuracy": hits / count}
        return ReliabilityBins(np.arange(self.num_bins + 1) / self.num_bins, count.astype(np.int64), **means)

    def risk_coverage(self) -> RiskCoverageCurve:
        """Return coverage and risk at each distinct confidence, or at each histogram cell if samples are not kept."""
        return RiskCoverageCurve.from_ties(self._tie_sums())

    def _tie_sums(self) -> np.ndarray:
        """Return the sums of `sum_ties`, (3, G); a cell of the histogram counts as a group of ties."""
        if self.has_samples:
            return sum_ties(concatenate(self._state.packed))
        histogram = self._sum("histogram", 3, 0)
        return histogram[:, histogram[0] > 0]

    def smooth_reliability(self, num_resamples: int = 200, level: float = 0.95) -> SmoothReliability:
        """Return the smooth reliability curve with a bootstrap band; raise InputError if samples are not kept."""
        return smooth_reliability(*unpack_confidences(self._packed("smooth_reliability")), num_resamples, level)

    def log_odds_and_hits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return a list with one pair: the log-odds of the predictions, float64 (N,), and whether they are right.

        With a sigmoid, there is a pair for each label: the log-odds of its entries, and whether these are ones.
        """
        uncertainty, correct = unpack(self._packed("log_odds_and_hits"))
        return [(log_odds(uncertainty.astype(np.float64)), correct)]

    def bootstrap(
        self, num_resamples: int = 1000, level: float = 0.95, seed: int = 0, clusters: np.ndarray | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return confidence intervals (low, high) for the top label's calibration errors; NaN without samples.

        An interval holds the errors that a bootstrap test does not reject, and always the estimate: resamples are
        drawn from models with different true errors, and a true error is rejected if at most (1 - level) / 2 of its
        resamples have an error as small, or as large, as the observed one (Carpenter, *Test inversion bootstrap
        confidence intervals*, Journal of the Royal Statistical Society B 61, 1999). This allows for the fact that
        chance adds to a binned error (Kumar et al., *Verified Uncertainty Calibration*, NeurIPS 2019): `low` is 0 if
        a calibrated model, whose hits come with the probability of its confidences, could have an error this large
        (Bröcker and Smith, *Increasing the Reliability of Reliability Diagrams*, 2007). For `high`, an estimate below
        the lower quartile of those of calibrated models counts as that quartile, so that luck does not make an
        interval short (Cowan et al., *Power-Constrained Limits*, 2011). The module `bootstrap_intervals` has the
        details. The true error is that of the same bins with endless samples. MCE is a maximum over noisy bins, for
        which no bootstrap is reliable.

        Args:
            num_resamples: the number of resamples of each test. The time hardly depends on the number of samples.
            level: the probability, over draws of the samples, with which an interval contains the true error.
            seed: the seed of the resamples.
            clusters: (N,), integers or strings that are equal for samples that depend on each other, such as the
                answers to one question; by default, those of `set_clusters`. Whole clusters are then drawn. Samples
                are in the order in which they were added, without those with `ignore_index`; with a sigmoid, each is a
                row of labels. A single cluster shows no variance, so the intervals are NaN.

        Raises InputError if `num_resamples` is not an int of at least 1, if `level` is outside (0, 1), if `clusters`
        does not have one value for each sample, or, where samples are not kept, if they come in clusters: if
        `clusters` is given or, with a sigmoid, for several labels.
        """
        check_count("num_resamples", num_resamples)
        check_fraction("level", level)
        estimates = self._binned_errors()
        if not self._bin_sums()[0].sum():
            return dict.fromkeys(estimates, (float("nan"), float("nan")))
        options: Any = self.num_bins, num_resamples, level, np.random.default_rng(seed)
        clusters = self._state.clusters if clusters is None else np.asarray(clusters)
        if self.has_independent_sums and clusters is None:
            intervals = error_intervals_of_sums(self._bin_sums(), self._histogram_cells(), *options)
        else:
            entries = self._sorted_entries(clusters)
            intervals = error_intervals(*entries, *options)
        return {
            name: (min(intervals[name][0], estimate), max(intervals[name][1], estimate))
            for name, estimate in estimates.items()
        }

    def set_clusters(self, clusters: np.ndarray | None) -> None:
        """Say which samples depend on each other, as `bootstrap` takes it; if samples are added, this is forgotten.

        Raises InputError if `clusters` does not have one value for each sample, or if samples are not kept.
        """
        if clusters is not None:
            clusters = np.asarray(clusters)
            check_clusters(clusters, len(self._packed("clusters")) // self._entries_per_sample)
        self._state.clusters = clusters

    @property
    def num_clusters(self) -> int | None:
        """The number of the clusters that `set_clusters` gave; None without them."""
        return None if self._state.clusters is None else len(np.unique(self._state.clusters))

    @property
    def _entries_per_sample(self) -> int:
        return 1

    @property
    def has_independent_sums(self) -> bool:
        """Whether `bootstrap` draws from sums, because samples are not kept and their entries are independent."""
        return not self.has_samples

    def _histogram_cells(self) -> np.ndarray | None:
        return self._tie_sums()

    def _sorted_entries(
        self, clusters: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return what `error_intervals` resamples: confidences, hits, where ties start, and clusters, None without."""
        packed = self._packed("bootstrap")
        if clusters is None:
            packed = np.sort(packed)[::-1]
        else:
            check_clusters(clusters, len(packed))
            order = np.argsort(packed)[::-1]
            packed, clusters = packed[order], clusters[order]
        return *unpack_confidences(packed), tie_starts(packed), clusters

    def _packed(self, name: str) -> np.ndarray:
        """Return the packed samples for the method `name`; raise InputError if they are not kept."""
        if not self.has_samples:
            raise InputError("keep_samples", f"must be True for {name}, got {self.keep_samples}")
        return concatenate(self._state.packed)


# What `CalibrationMetrics(link=...)` creates; the module of `LabelMetrics`, which derives from it, adds that class.
ACCUMULATOR_OF_LINK = {"softmax": CalibrationMetrics}


def macro_recall(confusion: np.ndarray) -> float:
    """Return the mean recall of the classes that occur, from counts (K, K) by label (row) and prediction; else NaN."""
    size = confusion.sum(1)
    return float((confusion.diagonal()[size > 0] / size[size > 0]).mean()) if size.any() else float("nan")


def check_clusters(clusters: np.ndarray, size: int) -> None:
    if clusters.shape != (size,):
        raise InputError("clusters", f"must have the shape ({size},), one value a sample, got {clusters.shape}")


def _score_sums(block: SampleBlock | ConfidenceBlock, num_classes: int) -> np.ndarray:
    """Return the sums of the scores `_SUMMED` over the incorrect and over the correct samples: (2, S)."""
    confidence, correct = block.confidence, block.correct
    columns = [torch.ones_like(block.nll), block.nll, block.brier, confidence, block.entropy]
    columns += [confidence >= 0.99, block.in_top5 if num_classes > 5 else correct]
    table = torch.stack([column.double() for column in columns])
    return torch.stack([table.masked_fill(other_side, 0).sum(1) for other_side in (correct, ~correct)]).cpu().numpy()


def _means(sums: np.ndarray) -> dict[str, float]:
    return {name: _ratio(value, sums[0]) for name, value in zip(_SUMMED[1:], sums[1:], strict=True)}


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")
