"""Accumulator of calibration metrics over batches and processes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from .bootstrap_intervals import basic_interval, resample_classwise_error, resample_top_label_errors
from .classwise_bins import CellSums, classwise_error
from .equal_mass_bins import (
    NUM_CELLS,
    SampleBuffer,
    adaptive_error,
    adaptive_error_of_cells,
    cell_index,
    gaps,
    pack,
    unpack,
)
from .equal_width_bins import EQUAL_WIDTH_ERRORS, BinSums
from .input_checks import Array, ProbabilityEvidence, check_count
from .sample_scores import SampleBlock, read_samples
from .selective_prediction import (
    RiskCoverageCurve,
    Threshold,
    risk_coverage_curve,
    threshold_for_coverage,
    threshold_for_precision,
)
from .smooth_calibration_error import SmoothReliability, smooth_error, smooth_reliability

# The columns of `_scores`, which are summed separately over incorrect (row 0) and correct (row 1) samples.
_COUNT, _NLL, _ENTROPY, _BRIER, _CONFIDENCE, _S99, _TOP5 = range(7)


@dataclass(frozen=True)
class ReliabilityBins:
    """The equal-width bins of a reliability diagram.

    `edges` `(M + 1,)` are confidences from 0 to 1; bin i holds the samples in (edges[i], edges[i + 1]]. `count` is
    `(M,)`, int64. `confidence` and `accuracy`, `(M,)`, are the bins' means, NaN for empty bins.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


class CalibrationMetrics:
    """Calibration errors and scores, summed over batches and processes.

    Sums are float64. For the equal-mass bins and the bootstrap, the float32 confidence and the hit of each sample are
    kept too: four bytes (eight for float64 scores). The result depends neither on the order of the samples nor on
    their batches. Objects pickle to little more than those bytes: gather them over ranks and `merge` them.

    Args:
        num_bins: M, for equal-width, equal-mass and classwise bins.
        ignore_index: samples with this label are left out.
        classwise: also sum the K·M cells of classwise ECE, 16 bytes each; worth switching off for large vocabularies.
        keep_samples: False for constant memory, such as for pixels: a fine histogram (600 kB) replaces the samples for
            AdaECE, and `compute` returns how far it can be off. There are no `samples` and no `bootstrap` then.

    A batch that raises leaves the object as it was.
    """

    def __init__(
        self, num_bins: int = 15, *, ignore_index: int = -100, classwise: bool = True, keep_samples: bool = True
    ) -> None:
        check_count("num_bins", num_bins)
        self.num_bins = num_bins
        self.ignore_index = ignore_index
        self.classwise = classwise
        self.keep_samples = keep_samples
        self.reset()

    def reset(self) -> None:
        """Forget all samples, and the number of classes."""
        self.num_classes: int | None = None
        self._scores = np.zeros((2, 7))
        self._bins = BinSums.zeros(self.num_bins)
        self._cells: CellSums | None = None
        self._samples = SampleBuffer()
        self._evidence = ProbabilityEvidence()
        self._histogram = None if self.keep_samples else BinSums.zeros(NUM_CELLS)

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., K), of any floating dtype, and integer labels (...), on any device."""
        self._update("logits", logits, labels)

    def update_from_probabilities(self, probabilities: Array, labels: Array) -> None:
        """Add probabilities (..., K), in [0, 1] and summing to 1 up to their dtype's rounding, and labels (...)."""
        self._update("probabilities", probabilities, labels)

    def _update(self, inputs: str, scores: Array, labels: Array) -> None:
        # The batch gets its own object, so one that raises halfway leaves nothing behind.
        batch = CalibrationMetrics(
            self.num_bins,
            ignore_index=self.ignore_index,
            classwise=self.classwise,
            keep_samples=self.keep_samples,
        )
        batch._evidence.nats = min(0.0, self._evidence.nats)  # once known to be logits, it need not be checked again
        num_classes, blocks = read_samples(inputs, scores, labels, self.ignore_index, batch._evidence)
        batch._add(blocks, num_classes)
        (self._evidence + batch._evidence).refuse("use update_from_probabilities")
        self.merge(batch)

    def _add(self, blocks: Iterator[SampleBlock], num_classes: int) -> None:
        self.num_classes = num_classes
        for block in blocks:
            confidence, correct = block.confidence, block.correct
            columns = [
                torch.ones_like(block.nll),
                block.nll,
                block.entropy,
                block.brier,
                confidence,
                confidence >= 0.99,
            ]
            columns.append(block.in_top5 if num_classes > 5 else torch.ones_like(correct))
            table = torch.stack([column.double() for column in columns])
            self._scores += torch.stack([table[:, ~correct].sum(1), table[:, correct].sum(1)]).cpu().numpy()
            if self.classwise:
                if self._cells is None:
                    self._cells = CellSums.zeros(num_classes, self.num_bins, confidence.device)
                self._cells.add(block)
            self._add_confidences(confidence.cpu(), correct.cpu())
        if self._cells is not None:
            self._cells = self._cells.cpu()

    def _add_confidences(self, confidence: torch.Tensor, correct: torch.Tensor) -> None:
        self._bins += BinSums.of(confidence, correct, self.num_bins)
        if self._histogram is None:
            self._samples.extend(pack(confidence, correct))
        else:
            self._histogram += BinSums.at(cell_index(confidence), confidence, correct, NUM_CELLS)

    def merge(self, other: "CalibrationMetrics") -> "CalibrationMetrics":
        """Add the other's samples to this object's, and return this object.

        Raises TypeError for another type and ValueError where num_bins, ignore_index, classwise, keep_samples or the
        number of classes differ.
        """
        if not isinstance(other, CalibrationMetrics):
            raise TypeError(f"other must be CalibrationMetrics, got {type(other).__name__}")
        for name in ("num_bins", "ignore_index", "classwise", "keep_samples", "num_classes"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others and None not in (mine, others):
                raise ValueError(f"{name} must be the same to add samples, got {others} for {mine}")
        if self.num_classes is None:
            self.num_classes = other.num_classes
        self._scores = self._scores + other._scores
        self._bins = self._bins + other._bins
        if other._cells is not None:
            if self._cells is None:
                self._cells = CellSums.zeros(*other._cells.gap.shape)
            self._cells.merge(other._cells)
        self._samples.extend(other._samples.keys)
        self._evidence += other._evidence
        if self._histogram is not None and other._histogram is not None:
            self._histogram = self._histogram + other._histogram
        return self

    def compute(self) -> dict[str, float]:
        """Return all metrics of the samples so far, fractions (nats for NLL and entropy); NaN for what has no samples.

        ece, adaece, smooth_ece, classwise_ece (unless switched off), mce, ace, rmsce, nll, brier, and with the samples
        aurc, e_aurc, augrc: see the functions of this package. accuracy, error, top5_accuracy (with more than 5
        classes), confidence, entropy: means. nll_correct, nll_incorrect, entropy_correct, entropy_incorrect,
        confidence_correct, confidence_incorrect: means over the correctly and incorrectly predicted samples. s99,
        s99_accuracy: the share of samples with confidence of at least 0.99, and their accuracy. num_samples. With
        ``keep_samples=False`` also adaece_error, the bound of adaece's error.
        """
        total = self._scores.sum(0)
        incorrect, correct = self._scores
        size = total[_COUNT]
        metrics = self._calibration_errors()
        if self._histogram is None:
            keys = self._samples.keys
            metrics["smooth_ece"] = smooth_error(unpack(keys)[0].astype(np.float64), gaps(keys), len(keys))
            curve = self.risk_coverage()
            metrics["aurc"], metrics["e_aurc"], metrics["augrc"] = curve.aurc, curve.e_aurc, curve.augrc
        else:
            cells = self._histogram
            metrics["adaece_error"] = adaptive_error_of_cells(cells, self.num_bins)[1]
            metrics["smooth_ece"] = smooth_error(cells.confidence / np.maximum(cells.count, 1), cells.gap, size)
        metrics["nll"] = _ratio(total[_NLL], size)
        metrics["brier"] = _ratio(total[_BRIER], size)
        metrics["accuracy"] = _ratio(correct[_COUNT], size)
        metrics["error"] = _ratio(incorrect[_COUNT], size)
        if self.num_classes is not None and self.num_classes > 5:
            metrics["top5_accuracy"] = _ratio(total[_TOP5], size)
        metrics["confidence"] = _ratio(total[_CONFIDENCE], size)
        metrics["entropy"] = _ratio(total[_ENTROPY], size)
        for name, part in (("correct", correct), ("incorrect", incorrect)):
            metrics[f"nll_{name}"] = _ratio(part[_NLL], part[_COUNT])
            metrics[f"entropy_{name}"] = _ratio(part[_ENTROPY], part[_COUNT])
            metrics[f"confidence_{name}"] = _ratio(part[_CONFIDENCE], part[_COUNT])
        metrics["s99"] = _ratio(total[_S99], size)
        metrics["s99_accuracy"] = _ratio(correct[_S99], total[_S99])
        metrics["num_samples"] = float(size)
        return metrics

    def _calibration_errors(self) -> dict[str, float]:
        sums = self._bins
        errors = {name: float(error(sums.count, sums.gap)) for name, error in EQUAL_WIDTH_ERRORS.items()}
        if self._histogram is None:
            errors["adaece"] = adaptive_error(self._samples.keys, self.num_bins)
        else:
            errors["adaece"], _ = adaptive_error_of_cells(self._histogram, self.num_bins)
        if self.classwise:
            size = int(sums.count.sum())
            errors["classwise_ece"] = classwise_error(self._cells.gap.numpy(), size) if self._cells else float("nan")
        return errors

    def samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the top-1 confidences (N,) so far, float32 or float64, and hits (N,), bool.

        Raises ValueError if they are not kept.
        """
        self._check_kept("samples")
        confidence, correct = unpack(self._samples.keys)
        return torch.from_numpy(confidence.copy()), torch.from_numpy(correct)

    def bins(self) -> ReliabilityBins:
        """Return the equal-width bins of the samples so far, for a reliability diagram."""
        sums, empty = self._bins, self._bins.count == 0
        count = np.where(empty, 1, sums.count)
        return ReliabilityBins(
            edges=np.arange(self.num_bins + 1) / self.num_bins,
            count=sums.count.astype(np.int64),
            confidence=np.where(empty, np.nan, sums.confidence / count),
            accuracy=np.where(empty, np.nan, sums.hits / count),
        )

    def risk_coverage(self) -> RiskCoverageCurve:
        """Return the risk at each coverage; raise ValueError if samples are not kept."""
        self._check_kept("risk_coverage")
        return risk_coverage_curve(*unpack(np.sort(self._samples.keys)[::-1]))

    def smooth_reliability(self, num_resamples: int = 200, level: float = 0.95) -> SmoothReliability:
        """Return the smooth reliability curve with its band; raise ValueError if samples are not kept."""
        self._check_kept("smooth_reliability")
        return smooth_reliability(*unpack(self._samples.keys), num_resamples, level)

    def threshold_for(
        self, *, precision: float | None = None, coverage: float | None = None, level: float = 0.95
    ) -> Threshold:
        """Return the confidence from which on to answer, so that precision or coverage is at least what is given.

        For a precision (the accuracy of the answers), the threshold that answers most; for a coverage (the share that
        gets an answer), the one with the highest precision. Over draws of these samples, which must not be the test
        set, the promise holds with probability `level`, by the bound of Clopper and Pearson.

        Raises ValueError unless exactly one of the two is given, in (0, 1); if these samples cannot show it; and if
        samples are not kept.
        """
        self._check_kept("threshold_for")
        if (precision is None) == (coverage is None):
            raise ValueError(f"one of precision and coverage must be given, got {precision} and {coverage}")
        for name, value in (("precision", precision), ("coverage", coverage), ("level", level)):
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        confidence, correct = unpack(self._samples.keys)
        if precision is not None:
            return threshold_for_precision(confidence, correct, precision, level)
        return threshold_for_coverage(confidence, correct, float(coverage), level)  # type: ignore[arg-type]

    def bootstrap(
        self, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Return confidence intervals (low, high) of the calibration errors; NaN without samples.

        Samples are resampled with replacement; time grows as N · num_resamples, memory is bounded. The intervals are
        for the binned error of the population. A binned error is biased upward in small samples (Kumar et al.,
        *Verified Uncertainty Calibration*, NeurIPS 2019), and resampling adds this bias again, so percentile intervals
        would be too high. Basic intervals, [2θ - q_high, 2θ - q_low] clipped to [0, 1], mirror the bias back (Davison
        and Hinkley, *Bootstrap Methods and their Application*, 1997, section 5.2). If an estimate is mostly noise
        (nearly perfect calibration, few samples per bin or cell), they are still too high. MCE is a maximum of noisy
        bins, for which no bootstrap is reliable.

        For classwise ECE, resampling changes a cell's sum of gaps by noise of mean 0 and variance Σ d² - (Σ d)²/N, d =
        p - hit, which is drawn from the normal distribution. The correlation of the classes, -1/(K-1) on average, is
        left out (two classes are drawn as one).

        Raises TypeError for a num_resamples that is not an int; ValueError for one below 1, a level outside (0, 1) or
        if samples are not kept.
        """
        self._check_kept("bootstrap")
        check_count("num_resamples", num_resamples)
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level}")
        estimates = self._calibration_errors()
        keys = self._samples.keys
        if not len(keys):
            return dict.fromkeys(estimates, (float("nan"), float("nan")))
        generator = np.random.default_rng(seed)
        resampled = resample_top_label_errors(keys, self.num_bins, num_resamples, generator)
        if self._cells is not None and self._cells.squares is not None:
            gap, squares = self._cells.gap.numpy(), self._cells.squares.numpy()
            resampled["classwise_ece"] = resample_classwise_error(gap, squares, len(keys), num_resamples, generator)
        return {name: basic_interval(estimates[name], resampled[name], level) for name in estimates}

    def _check_kept(self, name: str) -> None:
        if not self.keep_samples:
            raise ValueError(f"keep_samples must be True for {name}, got False")


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")
