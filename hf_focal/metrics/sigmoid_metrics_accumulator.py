"""Accumulator of metrics of sigmoid heads: the probability of each label is compared with the label's frequency."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..validation import Array, InputError, check_probability_range, check_sigmoid_scores
from .bootstrap_intervals import debiased_interval, gaps_if_calibrated
from .equal_mass_bins import adaptive_error, equal_mass_error, pack, unpack
from .equal_width_bins import bin_index, bin_sums, equal_width_errors
from .metrics_accumulator import BY_LINK, CalibrationMetrics, ReliabilityBins

_UNKNOWN = -1  # the key of an entry whose label is unknown


class LabelMetrics(CalibrationMetrics):
    """Metrics of logits (..., L) with labels (..., L), 0 or 1; created by ``CalibrationMetrics(link="sigmoid")``.

    An entry is a logit z with its label. Calibration errors compare the σ(z) of the entries with their labels. Labels
    of -100 or NaN are unknown and left out. Binned errors are computed over all entries; with the prefix ``macro_``,
    they are means over the L labels. ``nll``, ``brier``, and ``accuracy`` (with 1 predicted where σ(z) >= ½) are means
    over entries. If scikit-learn is installed, ``map`` and ``auroc`` are means over those of the L labels that have
    both ones and zeros. ``num_samples`` counts the rows with a known label, and ``num_entries`` counts the known
    labels.

    With ``keep_samples=False``, memory is constant, but metrics that need sorted probabilities (AdaECE, F1 at the best
    threshold, mean average precision, AUROC, and bootstrap intervals) are not available.
    """

    link = "sigmoid"

    def reset(self) -> None:
        self.num_classes: int | None = None
        # Sums (3, L, M) of entries, probabilities, and ones in each bin; sums (5, L) of NLL, Brier score, and true
        # positives, false positives, and false negatives at the threshold ½. Before the first batch, L is 1.
        self._label_bins = np.zeros((3, 1, self.num_bins))
        self._label_sums = np.zeros((5, 1))
        self._num_rows = 0
        self.label_counts = np.zeros(0, np.int64)  # stays empty: a sample has no single class
        self._keys: list[np.ndarray] = []  # of rows with L entries each

    def update(self, logits: Array, labels: Array) -> None:
        # In float64, because in float32 all logits above 17 would be tied, with a probability of 1.
        z, one, known = check_sigmoid_scores("logits", logits, labels, self.ignore_index)
        self._add_rows(torch.sigmoid(z), z, one, known)

    def update_from_probabilities(self, probabilities: Array, labels: Array) -> None:
        """Add labels (..., L) and the probabilities (..., L), in [0, 1], that the labels are 1."""
        p, one, known = check_sigmoid_scores("probabilities", probabilities, labels, self.ignore_index)
        check_probability_range("probabilities", p[known], 0)
        self._add_rows(p, torch.logit(p), one, known)

    def _add_rows(self, p: torch.Tensor, z: torch.Tensor, one: torch.Tensor, known: torch.Tensor) -> None:
        num_labels = p.shape[1]
        if self.num_classes not in (None, num_labels):
            raise InputError("logits", f"must have {self.num_classes} labels as before, got {num_labels}")
        self.num_classes = num_labels
        nll = F.softplus(torch.where(one, -z, z))
        predicted = p >= 0.5
        sums = [nll, (p - one.double()).square(), predicted & one, predicted & ~one, ~predicted & one]
        of_known = torch.stack([values.double().masked_fill(~known, 0) for values in sums])
        self._label_sums = self._label_sums + of_known.sum(1).numpy()
        cells = bin_index(p, self.num_bins) + self.num_bins * torch.arange(num_labels)
        bins = bin_sums(cells[known].numpy(), p[known], one[known], num_labels * self.num_bins)
        self._label_bins = self._label_bins + bins.reshape(3, num_labels, self.num_bins)
        self._num_rows += int(known.any(-1).sum())
        if self.keep_samples:
            self._keys.append(np.where(known.flatten().numpy(), pack(p.flatten(), one.flatten()), _UNKNOWN))

    def merge(self, other: CalibrationMetrics) -> "LabelMetrics":
        self._check_mergeable(other)
        assert isinstance(other, LabelMetrics)  # it has the same link
        self._label_bins = self._label_bins + other._label_bins
        self._label_sums = self._label_sums + other._label_sums
        self._num_rows += other._num_rows
        self._keys += other._keys
        return self

    def compute(self, threshold: float | None = None) -> dict[str, float]:
        """Return all metrics; see the class.

        With a `threshold`, which should be the `best_threshold` of other data, the metrics include ``micro_f1_best``
        and ``macro_f1_best``, the F1 scores at this threshold.
        """
        labels = self.per_label()
        pooled = self._label_bins.sum(1)
        metrics = {name: float(value) for name, value in equal_width_errors(pooled[0], pooled[1] - pooled[2]).items()}
        metrics |= {f"macro_{name}": _mean(labels[name]) for name in metrics}
        if self.keep_samples:
            metrics["adaece"] = _adaptive_error(self._known(), self.num_bins)
            metrics["macro_adaece"] = _mean(labels["adaece"])
        count = pooled[0].sum()
        nll, brier, hits, false, missed = self._label_sums.sum(1)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            accuracy = 1 - (false + missed) / count
            metrics |= {"nll": nll / count, "brier": brier / count, "accuracy": accuracy, "error": 1 - accuracy}
        micro_f1 = 2 * hits / max(2 * hits + false + missed, 1) if count else np.nan
        metrics |= {"micro_f1": micro_f1, "macro_f1": _mean(labels["f1"])}
        if threshold is not None:
            metrics |= {f"{name}_best": value for name, value in self.f1(threshold).items()}
        for name, of_label in (("map", "average_precision"), ("auroc", "auroc")):
            if of_label in labels:
                metrics[name] = _mean(labels[of_label])
        metrics |= {"num_samples": self._num_rows, "num_entries": count}
        return {name: float(value) for name, value in metrics.items()}

    def per_label(self) -> dict[str, np.ndarray]:
        """Return the metrics of the L labels, each metric as an array (L,) with NaN where it is undefined.

        These are count, frequency (of ones), confidence (the mean probability), ece, mce, ace, rmsce, nll, brier, and
        f1 (at the threshold ½). If samples are kept, there are also adaece and, if scikit-learn is installed,
        average_precision and auroc.
        """
        count, confidence, ones = self._label_bins
        size = count.sum(-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = {"count": size, "frequency": ones.sum(-1) / size, "confidence": confidence.sum(-1) / size}
            values |= equal_width_errors(count, confidence - ones)
            nll, brier, hits, false, missed = self._label_sums
            values |= {"nll": nll / size, "brier": brier / size, "f1": 2 * hits / (2 * hits + false + missed)}
        if not self.keep_samples:
            return values
        columns = [column[column != _UNKNOWN] for column in self._keys_of_rows().T]
        values["adaece"] = np.array([_adaptive_error(column, self.num_bins) for column in columns])
        try:
            from sklearn.metrics import average_precision_score, roc_auc_score
        except ImportError:
            return values
        for name, score in (("average_precision", average_precision_score), ("auroc", roc_auc_score)):
            values[name] = np.array([_score(score, column) for column in columns])
        return values

    def best_threshold(self) -> float:
        """Return the probability threshold with the largest micro F1; raise ValueError if there are no samples."""
        p, hit = unpack(np.sort(self._known()))
        if not len(p):
            raise ValueError("samples must be added before best_threshold, got none")
        found = hit[::-1].cumsum()  # ones among the k most probable entries
        scores = 2 * found / (np.arange(1, len(p) + 1) + max(int(hit.sum()), 1))
        last = np.append(p[::-1][:-1] != p[::-1][1:], True)  # a threshold cannot split ties
        return float(p[::-1][np.where(last, scores, -1).argmax()])

    def f1(self, threshold: float) -> dict[str, float]:
        """Return ``micro_f1`` and ``macro_f1`` if 1 is predicted where the probability is at least `threshold`."""
        keys = self._keys_of_rows()
        p, one = unpack(np.where(keys == _UNKNOWN, 0, keys))
        known = keys != _UNKNOWN
        predicted = (p >= threshold) & known
        hits, total = (predicted & one).sum(0), predicted.sum(0) + (one & known).sum(0)
        of_labels = np.divide(2 * hits, total, out=np.full(len(hits), np.nan), where=total > 0)
        return {"micro_f1": float(2 * hits.sum() / max(total.sum(), 1)), "macro_f1": _mean(of_labels)}

    def samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return max(p, 1 - p) of each entry with a known label, and whether predicting 1 if p >= ½ is right."""
        p, one = unpack(self._known())
        return torch.from_numpy(np.maximum(p, 1 - p)), torch.from_numpy((p >= 0.5) == one)

    def bins(self, label: int | None = None) -> ReliabilityBins:
        """Return the bins of P(label), whose `accuracy` is the label's frequency, for all entries or for one label."""
        return self._reliability(self._label_bins.sum(1) if label is None else self._label_bins[:, label])

    def bootstrap(
        self, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Return confidence intervals (low, high) for ece and adaece, as `CalibrationMetrics.bootstrap` does.

        Whole rows are resampled, because the labels of one sample depend on each other. The labels that a
        calibrated model would have are drawn independently of each other.
        """
        keys = self._keys_to_resample(num_resamples, level).reshape(-1, self.num_classes or 1)
        if not self._num_rows:
            return dict.fromkeys(("ece", "adaece"), (float("nan"), float("nan")))
        keys = keys[(keys != _UNKNOWN).any(1)]
        row, label = np.nonzero(keys != _UNKNOWN)
        order = np.argsort(keys[row, label])
        row, known = row[order], keys[row, label][order]
        (probability, one), ones = unpack(known), np.ones(len(known), np.int64)
        gap, cell = (
            probability.astype(np.float64) - one,
            bin_index(torch.from_numpy(probability.copy()), self.num_bins).numpy(),
        )
        generator = np.random.default_rng(seed)
        errors: dict[str, list[list[float]]] = {"ece": [], "adaece": []}
        for _ in range(num_resamples):
            weight = generator.multinomial(len(keys), np.full(len(keys), 1 / len(keys)))[row]
            draws = (weight, weight * gap), (ones, gaps_if_calibrated(probability, 1, generator)[0])
            errors["ece"].append([np.abs(np.bincount(cell, g)).sum() / w.sum() for w, g in draws])
            errors["adaece"].append([equal_mass_error(w, g, self.num_bins) for w, g in draws])
        estimates = self.compute()
        columns = {name: np.array(pairs).T for name, pairs in errors.items()}
        return {name: debiased_interval(estimates[name], pair[0], pair[1], level) for name, pair in columns.items()}

    def _groups(self) -> Any:
        raise ValueError("link must be 'softmax' for curves over one confidence per sample, got 'sigmoid'")

    def smooth_reliability(self, *_: Any, **__: Any) -> Any:
        """Raise ValueError; like `risk_coverage` and `threshold_for`, this needs one confidence per sample."""
        return self._groups()

    def threshold_for(self, *_: Any, **__: Any) -> Any:
        return self._groups()

    def _keys_of_rows(self) -> np.ndarray:
        """Return the keys of the kept entries as (N, L)."""
        return self._kept("this metric").reshape(-1, self.num_classes or 1)

    def _known(self) -> np.ndarray:
        keys = self._keys_of_rows().ravel()
        return keys[keys != _UNKNOWN]


def _adaptive_error(keys: np.ndarray, num_bins: int) -> float:
    """Compute AdaECE from keys that hold probabilities."""
    p, one = (torch.from_numpy(values) for values in unpack(keys))
    return adaptive_error(pack(1 - p.double(), one), num_bins)


def _mean(values: np.ndarray) -> float:
    """Return the mean over the labels for which the value is defined."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _score(score: Any, keys: np.ndarray) -> float:
    p, one = unpack(keys)
    return float(score(one, p)) if one.any() and not one.all() else float("nan")


BY_LINK["sigmoid"] = LabelMetrics
