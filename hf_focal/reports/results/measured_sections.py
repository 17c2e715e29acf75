"""What a result holds of a test set: its classes and labels, the risk-coverage curve, and metrics of decisions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...calibration import Correction, Temperature
from ...calibration.threshold_search import probability_below
from ...metrics import CalibrationMetrics, ConfusionMatrix, LabelMetrics
from ...metrics.ranking import auroc
from ...validation import Array
from ..figures.reliability_marks import Z, wilson_interval
from .result_sections import (
    ClassBalance,
    ClassBins,
    ClassChanges,
    ConfusedPair,
    Confusion,
    CrossFit,
    Curve,
    FilledBins,
    Labels,
    RiskCoverage,
)

_NUM_WORST = 5  # labels whose reliability diagrams are kept
_MOST_CLASSES, _NUM_PAIRS = 12, 12  # with more classes, only the most confused pairs are kept, not the matrix
_NUM_POINTS = 100  # of a risk-coverage curve
_MOST_KEPT = 1000  # classes whose bins are kept
_RARE = 0.9  # a share of the probabilities in the first bin, above which a label's bins are on a logarithmic scale
_NUM_NEVER = 5  # classes without predictions that are named


def measured_subsets(
    label_names: Sequence[str],
    before: CalibrationMetrics,
    after: CalibrationMetrics | None,
    temperature: Temperature | None,
    cross_fit: CrossFit | None,
    num_samples: float | None,
) -> dict[str, Any]:
    """Return the fields of a `SubsetSection` that the metrics before and after a correction hold.

    `num_samples` is the metric of that name, which pixels and tokens do not have.
    """
    counts = before.label_counts
    subsets: dict[str, Any] = {}
    if len(counts):
        subsets["class_balance"] = _balance(label_names, counts, (after or before).confusion)
    if isinstance(before, LabelMetrics) and isinstance(after, LabelMetrics | None):
        correction = None if cross_fit is None else cross_fit.correction
        subsets["labels"] = _label_results(label_names, temperature, correction, before, after or before)
        subsets["classes"] = _class_bins(subsets["labels"].name, before, after)
    elif num_samples:
        if len(counts) > 1:
            subsets["classes"] = _class_bins(label_names, before, after)
        subsets["risk_coverage"] = RiskCoverage(_points(before), None if after is None else _points(after))
    if len(confusion := (after or before).confusion):
        subsets["confusion"] = _confusion(label_names, confusion)
        if not len(counts):  # of one logit
            subsets["class_balance"] = _balance(subsets["confusion"].names, confusion.sum(1), confusion)
        if after is not None and (before.confusion != after.confusion).any():
            subsets["class_changes"] = _class_changes(label_names, before.confusion, after.confusion)
    return subsets


def _balance(names: Sequence[str], counts: np.ndarray, confusion: np.ndarray) -> ClassBalance:
    """Describe the classes of samples with these counts of labels; `confusion` has them by prediction, or is empty."""
    names = [*names] if len(names) == len(counts) else [str(number) for number in range(len(counts))]
    largest = int(counts.argmax())
    base_nll = float(entropy_terms(counts / max(counts.sum(), 1)).sum())
    balance = ClassBalance(len(counts), int(counts.min()), int(counts[largest]), names[largest], base_nll)
    if not len(confusion):
        return balance
    right, predicted = confusion.diagonal(), confusion.sum(0)
    never = np.flatnonzero((predicted == 0) & (counts > 0))
    return replace(
        balance,
        predicted=int(predicted.max()),
        found=int(right.sum() - right[largest]),
        lost=int(counts[largest] - right[largest]),
        never=[names[number] for number in never[:_NUM_NEVER]],
        num_never=len(never),
        samples_of_never=int(counts[never].sum()),
    )


def _class_changes(names: Sequence[str], before: np.ndarray, after: np.ndarray) -> ClassChanges:
    """Compare the classes before and after a correction, from (K, K) counts by label and prediction."""
    columns = before.sum(1), before.sum(0), after.sum(0), before.diagonal(), after.diagonal()
    return ClassChanges(_class_names(names, len(before)), *(column.astype(int).tolist() for column in columns))


def _class_names(names: Sequence[str], size: int) -> list[str]:
    """Return the names of the classes of a (K, K) confusion matrix; one logit has only the name of its label."""
    if len(names) == size:
        return [*names]
    return [f"not {names[0]}", names[0]] if len(names) == 1 and size == 2 else [str(number) for number in range(size)]


def entropy_terms(shares: np.ndarray) -> np.ndarray:
    """Return -p log p of each share p, which is 0 for p = 0."""
    return torch.special.entr(torch.from_numpy(np.asarray(shares, np.float64))).numpy()


def _label_results(
    names: Sequence[str],
    temperature: Temperature | None,
    platt: dict[str, Any] | None,
    before: LabelMetrics,
    after: LabelMetrics,
) -> Labels:
    uncorrected, corrected = before.per_label(), after.per_label()
    size = len(uncorrected["ece"])
    names = [*names] or [f"label {index}" for index in range(size)]
    values: list[float | None] = [temperature.value if temperature else None] * size
    if temperature and temperature.values:
        values = [*temperature.values]
    worst = np.argsort(-np.nan_to_num(uncorrected["ece"]), kind="stable")[:_NUM_WORST]
    slopes: dict[str, Any] = {}
    if platt:
        numbers = zip(("slope", "intercept"), Correction.from_dict(platt).dense(), strict=True)
        slopes = {name: np.broadcast_to(part, size).tolist() for name, part in numbers}
    bins = {names[index]: [side.bins(index) for side in (before, after)] for index in worst}
    frequency, f1, ece, new_ece = (
        column.tolist() for column in (uncorrected["frequency"], corrected["f1"], uncorrected["ece"], corrected["ece"])
    )
    old_f1 = uncorrected["f1"].tolist()
    f1_before = None if old_f1 == f1 else old_f1
    return Labels(names, frequency, f1, ece, new_ece, values, f1_before=f1_before, worst=bins, **slopes)


def _points(metrics: CalibrationMetrics) -> Curve:
    """Return points of a curve, about equally far apart in coverage, with the first and the last one.

    A point has all samples that reach its confidence as a threshold, also where float32 cannot tell them apart.
    """
    curve = metrics.risk_coverage()
    assert curve.confidence is not None
    places = np.unique(np.searchsorted(curve.coverage, np.linspace(0, 1, _NUM_POINTS)))
    thresholds = probability_below(np.clip(curve.confidence[places], 0, 1))
    points, first = np.unique(np.searchsorted(-curve.confidence, -thresholds, "right") - 1, return_index=True)
    confidence = thresholds[first].tolist()
    return Curve(curve.answered[points].astype(int).tolist(), curve.errors[points].astype(int).tolist(), confidence)


def _class_bins(names: Sequence[str], before: CalibrationMetrics, after: CalibrationMetrics | None) -> ClassBins:
    """Return the bins of the predictions of each class, or of each label.

    Where nearly all probabilities of a label are in the first bin, its bins are finer, and equally wide on a
    logarithmic scale.
    """
    sides = [side.class_sums() for side in (before, after) if side is not None]
    edges = [np.linspace(0, 1, before.num_bins + 1), np.append(0, np.logspace(-5, 0, 16))]
    count, _, ones = sides[0]
    grid = np.zeros(len(count), int)
    if isinstance(before, LabelMetrics):
        num_samples = ones.sum(1)
        if before.has_samples:
            grid = (count[:, 0] > _RARE * count.sum(1)).astype(int)
    else:
        num_samples = before.label_counts
    classes = np.arange(len(count))
    if len(classes) > _MOST_KEPT:
        gaps = np.abs(sides[0][1] - sides[0][2]).sum(1)
        classes = np.sort(np.argsort(-gaps, kind="stable")[:_MOST_KEPT])
    names = [*names] if len(names) == len(count) else [str(number) for number in range(len(count))]
    filled = []
    for side, sums in zip((before, after), sides, strict=False):
        class_sums = sums[:, classes]
        if grid.any():
            assert isinstance(side, LabelMetrics)
            width = max(before.num_bins, len(edges[1]) - 1)
            linear, fine = (
                np.pad(bins, ((0, 0), (0, 0), (0, width - bins.shape[-1])))
                for bins in (sums, side.class_sums(edges[1]))
            )
            class_sums = np.where(grid[:, None] == 1, fine, linear)[:, classes]
        filled.append(FilledBins.from_sums(class_sums))
    return ClassBins(
        [names[index] for index in classes],
        num_samples[classes].astype(int).tolist(),
        [grid_edges.tolist() for grid_edges in edges[: 1 + grid.max(initial=0)]],
        grid[classes].tolist(),
        *filled,
    )


def _confusion(names: Sequence[str], counts: np.ndarray) -> Confusion:
    size = len(counts)
    names = _class_names(names, size)
    if size <= _MOST_CLASSES:
        return Confusion(names, counts.tolist())
    errors, label_counts = counts - np.diag(counts.diagonal()), counts.sum(1)
    largest = [divmod(int(cell), size) for cell in np.argsort(-errors, axis=None, kind="stable")[:_NUM_PAIRS]]
    rows = [(names[i], names[j], int(errors[i, j]), int(label_counts[i])) for i, j in largest if errors[i, j]]
    return Confusion(pairs=[ConfusedPair(*row) for row in rows])


def scaled(logits: Array, temperature: Temperature | float) -> Tensor:
    """Divide logits by T in at least float32, as rounding to half precision would create ties."""
    logits = torch.as_tensor(logits)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return temperature.correction.apply(logits) if isinstance(temperature, Temperature) else logits / temperature


def decision_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return "macro_f1" and, for two classes, "auroc"."""
    confusion = ConfusionMatrix()
    confusion.update(logits, labels)
    values = {"macro_f1": confusion.compute()["macro_f1"]}
    if logits.shape[-1] == 2:
        known = labels != -100
        scores, positive = (logits[..., 1] - logits[..., 0])[known], labels[known] == 1
        values["auroc"] = auroc(scores.cpu().numpy(), positive.cpu().numpy())
    return values


def mean_intervals(logits: Tensor, labels: Tensor) -> dict[str, tuple[float, float]]:
    """Return 95% intervals (low, high) of the "error", after Wilson, and of the "nll", a normal one."""
    known = labels != -100
    logits, labels = logits[known].float(), labels[known]
    error = float((logits.argmax(-1) != labels).double().mean())
    low, high = wilson_interval(np.array(error), np.array(max(len(labels), 1)))
    nll = cross_entropy(logits, labels, reduction="none").double()
    half = Z * float(nll.std(correction=0)) / math.sqrt(max(len(nll), 1))
    return {"error": (float(low), float(high)), "nll": (float(nll.mean()) - half, float(nll.mean()) + half)}
