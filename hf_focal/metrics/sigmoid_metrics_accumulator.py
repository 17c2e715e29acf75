"""Accumulator of metrics of sigmoid heads: the probability of each label is compared with the label's frequency."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import InputError
from ..validation import (
    Array,
    as_scores,
    check_probability_range,
    check_sigmoid_scores,
    check_sigmoid_shapes,
    probability_tolerance,
)
from .batch_buffer import is_on_host
from .bins import bin_index, bin_sums
from .kernel_smoothing import SmoothReliability
from .metric_table import binned_errors, ranked_errors
from .metrics_accumulator import ACCUMULATOR_OF_LINK, CalibrationMetrics, ReliabilityBins, check_clusters
from .packed_samples import pack, sum_ties, tie_starts, unpack
from .ranking import auroc, average_precision
from .selective_prediction import RiskCoverageCurve

_UNKNOWN = -1  # in place of the packed probability and label of an entry whose label is unknown


class LabelMetrics(CalibrationMetrics):
    """Metrics of logits (..., L) with labels (..., L), 0 or 1; created by ``CalibrationMetrics(link="sigmoid")``.

    An entry is a logit z with its label. Calibration errors compare the σ(z) of the entries with their labels. Labels
    of -100 or NaN are unknown and left out. Binned errors are computed over all entries; with the prefix ``macro_``,
    they are means over the L labels. ``nll``, ``brier``, and ``accuracy`` (with 1 predicted where σ(z) >= ½) are means
    over entries; ``macro_recall``, ``auroc``, and ``map`` are means over labels.
    ``num_samples`` counts the rows with a known label, and ``num_entries`` counts the known labels.

    With ``keep_samples=False``, memory is constant, but metrics that need sorted probabilities (AdaECE, F1 at the best
    threshold, mean average precision, and AUROC) are not available, nor are bootstrap intervals of several labels.

    `confusion` is for one logit only: `(2, 2)`, of the classes 0 and 1, where 1 is predicted if σ(z) >= ½.
    """

    link = "sigmoid"

    @property
    def confusion(self) -> np.ndarray:
        if self.num_classes != 1:
            return np.zeros((0, 0), np.int64)
        hits, false, missed = self._label_scores()[2:, 0]
        rejected = self._bin_sums()[0].sum() - hits - false - missed
        return np.array([[rejected, false], [missed, hits]], np.int64)

    def update(self, logits: Array, labels: Array) -> None:
        """Add logits (..., L) and labels (..., L), each 0, 1, or unknown; (N, 1) for a single logit per sample."""
        z, y = check_sigmoid_shapes("logits", logits, labels)
        self._check_num_classes(z.shape[1])
        if is_on_host(z) and is_on_host(y):
            check_sigmoid_scores("logits", z, y, self.ignore_index)
        self._add_later(z, y)

    def _add_now(self, scores: torch.Tensor, labels: torch.Tensor) -> None:
        # In float64, because in float32 all logits above 17 would be tied, with a probability of 1.
        z, one, known = check_sigmoid_scores("logits", scores, labels, self.ignore_index)
        self._add_rows(torch.sigmoid(z), z, one, known)

    def _check_num_classes(self, num_classes: int) -> None:
        known = self._waiting_classes or self._measured.num_classes
        if known not in (None, num_classes):
            raise InputError("logits", f"must have {known} labels as before, got {num_classes}")

    def update_from_probabilities(self, probabilities: Array, labels: Array) -> None:
        """Add labels (..., L) and the probabilities (..., L), in [0, 1] up to rounding, that the labels are 1."""
        self._flush()
        tolerance = probability_tolerance(as_scores("probabilities", probabilities).dtype)
        p, one, known = check_sigmoid_scores("probabilities", probabilities, labels, self.ignore_index)
        check_probability_range("probabilities", p[known], tolerance)
        p = p.clamp(0, 1)
        self._add_rows(p, torch.logit(p), one, known)

    def _add_rows(self, p: torch.Tensor, z: torch.Tensor, one: torch.Tensor, known: torch.Tensor) -> None:
        num_labels, measured = p.shape[1], self._state
        self._check_num_classes(num_labels)
        measured.num_classes, measured.clusters = num_labels, None
        nll = F.softplus(torch.where(one, -z, z))
        predicted = p >= 0.5
        sums = [nll, (p - one.double()).square(), predicted & one, predicted & ~one, ~predicted & one]
        known_sums = torch.stack([values.double().masked_fill(~known, 0) for values in sums])
        cells = bin_index(p, self.num_bins) + self.num_bins * torch.arange(num_labels)
        bins = bin_sums(cells[known].numpy(), p[known], one[known], num_labels * self.num_bins)
        bins = bins.reshape(3, num_labels, self.num_bins)
        measured.accumulate({"scores": known_sums.sum(1).numpy(), "bins": bins, "rows": known.any(-1).sum().numpy()})
        if measured.are_kept:
            packed = pack(p.flatten(), one.flatten())  # P(label) in place of the uncertainty
            measured.packed.append(np.where(known.flatten().numpy(), packed, _UNKNOWN))
            self.limit_samples(self.num_kept)

    def compute(self, threshold: float | None = None) -> dict[str, float]:
        """Return all metrics; see the class.

        With a `threshold`, which should be the `best_threshold` of other data, the metrics include ``micro_f1_best``
        and ``macro_f1_best``, the F1 scores at this threshold.
        """
        labels = self.per_label()
        metrics: dict[str, Any] = self._binned_errors()
        metrics |= {f"macro_{name}": _mean(labels[name]) for name in metrics}
        count = self._bin_sums()[0].sum()
        nll, brier, hits, false, missed = self._label_scores().sum(1)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            accuracy = 1 - (false + missed) / count
            metrics |= {"nll": nll / count, "brier": brier / count, "accuracy": accuracy, "error": 1 - accuracy}
        micro_f1 = 2 * hits / max(2 * hits + false + missed, 1) if count else np.nan
        metrics |= {"micro_f1": micro_f1, "macro_f1": _mean(labels["f1"]), "macro_recall": _mean(labels["recall"])}
        if threshold is not None:
            metrics |= {f"{name}_best": value for name, value in self.f1(threshold).items()}
        for name, label_metric in (("map", "average_precision"), ("auroc", "auroc")):
            if label_metric in labels:
                metrics[name] = _mean(labels[label_metric])
        metrics |= {"num_samples": self._sum("rows"), "num_entries": count}
        return {name: float(value) for name, value in metrics.items()}

    def scores(self) -> dict[str, float]:
        nll, brier = self._label_scores()[:2].sum(1)
        count, confidence, ones = self._bin_sums()
        total = count.sum() or np.nan
        error = binned_errors(count, confidence - ones)["ece"]
        return {"nll": float(nll / total), "brier": float(brier / total), "ece": float(error)}

    def per_label(self) -> dict[str, np.ndarray]:
        """Return the metrics of the L labels, each metric as an array (L,) with NaN where it is undefined.

        These are count, frequency (of ones), confidence (the mean probability), ece, mce, ace, rmsce, nll, brier, and
        f1 and recall (at the threshold ½). If samples are kept, there are also adaece, auroc, and
        average_precision.
        """
        count, confidence, ones = self._label_bins()
        size = count.sum(-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = {"count": size, "frequency": ones.sum(-1) / size, "confidence": confidence.sum(-1) / size}
            values |= binned_errors(count, confidence - ones)
            nll, brier, hits, false, missed = self._label_scores()
            values |= {"nll": nll / size, "brier": brier / size, "f1": 2 * hits / (2 * hits + false + missed)}
            values["recall"] = hits / (hits + missed)
        if not self.has_samples:
            return values
        columns = [column[column != _UNKNOWN] for column in self._packed_rows().T]
        ranked = [_ranked_errors(column, self.num_bins) for column in columns]
        values |= {name: np.array([errors[name] for errors in ranked]) for name in ranked[0]}
        pairs = [unpack(column) for column in columns]
        values["auroc"] = np.array([auroc(p, one) for p, one in pairs])
        values["average_precision"] = np.array([average_precision(p, one) for p, one in pairs])
        return values

    def best_threshold(self) -> float:
        """Return the probability threshold with the largest micro F1; raise InputError if there are no samples."""
        p, hit = unpack(np.sort(self._known()))
        if not len(p):
            raise InputError("samples", "must be added before best_threshold, got none")
        true_positives = hit[::-1].cumsum()  # ones among the k most probable entries
        scores = 2 * true_positives / (np.arange(1, len(p) + 1) + max(int(hit.sum()), 1))
        last = np.append(p[::-1][:-1] != p[::-1][1:], True)  # a threshold cannot split ties
        return float(p[::-1][np.where(last, scores, -1).argmax()])

    def f1(self, threshold: float) -> dict[str, float]:
        """Return ``micro_f1`` and ``macro_f1`` if 1 is predicted where the probability is at least `threshold`."""
        packed = self._packed_rows()
        known = packed != _UNKNOWN
        p, one = unpack(np.where(known, packed, 0))
        predicted = (p >= threshold) & known
        hits, total = (predicted & one).sum(0), predicted.sum(0) + (one & known).sum(0)
        label_f1 = np.divide(2 * hits, total, out=np.full(len(hits), np.nan), where=total > 0)
        return {"micro_f1": float(2 * hits.sum() / max(total.sum(), 1)), "macro_f1": _mean(label_f1)}

    def samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return max(p, 1 - p) of each entry with a known label, and whether predicting 1 if p >= ½ is right."""
        p, one = unpack(self._known())
        return torch.from_numpy(np.maximum(p, 1 - p)), torch.from_numpy((p >= 0.5) == one)

    def log_odds_and_hits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        pairs = []
        for column in self._packed_rows().T:
            p, one = unpack(column[column != _UNKNOWN])
            pairs.append((torch.logit(torch.from_numpy(p).double()).numpy(), one))
        return pairs

    def bins(self, label: int | None = None) -> ReliabilityBins:
        """Return the bins of P(label), whose `accuracy` is the label's frequency, for all entries or for one label."""
        return self._reliability(self._bin_sums() if label is None else self._label_bins()[:, label])

    def class_sums(self, edges: np.ndarray | None = None) -> np.ndarray:
        if edges is None:
            return self._label_bins()
        return np.stack([_sums_between(column[column != _UNKNOWN], edges) for column in self._packed_rows().T], 1)

    def _binned_errors(self) -> dict[str, float]:
        count, p, ones = self._bin_sums()
        errors = {name: float(error) for name, error in binned_errors(count, p - ones).items()}
        return errors | (_ranked_errors(self._known(), self.num_bins) if self.has_samples else {})

    def _label_bins(self) -> np.ndarray:
        """Return the number of entries, and the sums of P(label) and of ones, in each bin of each label: (3, L, M)."""
        return self._sum("bins", 3, self.num_classes or 1, self.num_bins)

    def _bin_sums(self) -> np.ndarray:
        return self._label_bins().sum(1)

    def _label_scores(self) -> np.ndarray:
        """Return sums of NLL, Brier score, and true positives, false positives, and false negatives at ½: (5, L)."""
        return self._sum("scores", 5, self.num_classes or 1)

    @property
    def _entries_per_sample(self) -> int:
        return self.num_classes or 1

    @property
    def has_independent_sums(self) -> bool:
        return not self.has_samples and self.num_classes == 1

    def _histogram_cells(self) -> None:
        return None

    def _replace_samples(self) -> None:
        self._state.packed, self._state.are_kept, self._state.clusters = [], False, None

    def _sorted_entries(
        self, clusters: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        # Whole rows are resampled, because the labels of one sample depend on each other.
        rows = self._packed("bootstrap").reshape(-1, self.num_classes or 1)
        row, label = np.nonzero(rows != _UNKNOWN)
        packed = rows[row, label]
        order = np.argsort(packed)
        packed, row = packed[order], row[order]
        if clusters is not None:
            check_clusters(clusters, len(rows))
            clusters = clusters[row]
        elif rows.shape[1] > 1:
            clusters = row
        return *unpack(packed), tie_starts(packed), clusters

    def update_from_confidences(self, confidence: Array, correct: Array) -> None:
        raise InputError("link", "must be 'softmax' for confidences, got 'sigmoid'")

    def risk_coverage(self) -> RiskCoverageCurve:
        raise _no_single_confidence()

    def smooth_reliability(self, num_resamples: int = 200, level: float = 0.95) -> SmoothReliability:
        raise _no_single_confidence()

    def _packed_rows(self) -> np.ndarray:
        """Return the packed probabilities and labels of the kept entries, (N, L)."""
        return self._packed("this metric").reshape(-1, self.num_classes or 1)

    def _known(self) -> np.ndarray:
        packed = self._packed_rows().ravel()
        return packed[packed != _UNKNOWN]


def _no_single_confidence() -> InputError:
    return InputError("link", "must be 'softmax' for curves over one confidence per sample, got 'sigmoid'")


def _ranked_errors(packed: np.ndarray, num_bins: int) -> dict[str, float]:
    """Compute the errors of entries from their packed probabilities and labels."""
    p, one = (torch.from_numpy(values) for values in unpack(packed))
    return ranked_errors(sum_ties(pack(1 - p.double(), one)), num_bins)


def _sums_between(packed: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the number, the sum of P(label), and the ones of entries in each bin (edges[i], edges[i + 1]]: (3, M)."""
    p, one = unpack(packed)
    index = np.clip(np.searchsorted(edges, p) - 1, 0, len(edges) - 2)
    return np.stack([np.bincount(index, weights, len(edges) - 1) for weights in (None, p, one)])


def _mean(values: np.ndarray) -> float:
    """Return the mean over the labels for which the value is defined."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


ACCUMULATOR_OF_LINK["sigmoid"] = LabelMetrics
