"""Results of runs: metrics before and after the correction, read from and written to metrics.json."""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..calibration import Correction, Temperature
from ..calibration.calibration_fit import scaling_name, score_trade
from ..losses import LossConfig
from ..metrics import CalibrationMetrics, ConfusionMatrix, LabelMetrics, ReliabilityBins
from ..metrics.ranking import auroc
from ..utils.column_names import normalized
from ..utils.json_values import FiniteNumber, Share, from_json, key_of, to_json, write_json
from ..validation import Array
from .result_sections import (
    ClassBalance,
    ClassBins,
    ConfusedPair,
    Confusion,
    Curve,
    DataSection,
    DriftSection,
    FilledBins,
    FitSection,
    Labels,
    PriorSection,
    RiskCoverage,
    SubsetSection,
    ThresholdSection,
)

# The errors that may be raised by reading a file that no report wrote.
READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

_NUM_WORST = 5  # labels whose reliability diagrams are kept
_MOST_CLASSES, _NUM_PAIRS = 12, 12  # with more classes, only the most confused pairs are kept, not the matrix
_NUM_POINTS = 100  # of a risk-coverage curve
_MOST_KEPT = 1000  # classes whose bins are kept
_RARE = 0.9  # a share of the probabilities in the first bin, above which a label's bins are on a logarithmic scale
_SMALL_ECE = 0.02  # probabilities with a larger ECE are not called right, even if they are right on average
_CORRECT_COLUMNS = ("correct", "iscorrect")  # columns of labels that say whether answers are right
_NUM_NEVER = 5  # classes without predictions that are named

# Sections whose fields are entries of "details" in JSON, and sections that are entries themselves, under a key.
_FLAT: dict[str, Any] = {"data": DataSection, "fit": FitSection, "subsets": SubsetSection}
_NESTED: dict[str, tuple[str, Any]] = {
    "thresholds": ("thresholds", ThresholdSection),
    "prior": ("prior_shift", PriorSection),
    "drift": ("drift", DriftSection),
}


def sections_of(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `RunResult` that its "details" in JSON hold; raise ValueError if they are wrong."""
    known = {key: to_json(details[key]) for key in _DETAILS & details.keys()}
    sections = {name: from_json(kind, known, "details") for name, kind in _FLAT.items()}
    sections |= {name: from_json(kind, known[key], key) for name, (key, kind) in _NESTED.items() if key in known}
    sections["notes"] = from_json(list[str], known.get("notes", []), "notes")
    return sections | {"details": {key: value for key, value in details.items() if key not in _DETAILS}}


_DETAILS = {"notes", *(key for key, _ in _NESTED.values())}
_DETAILS |= {key_of(part) for kind in _FLAT.values() for part in fields(kind)}


@dataclass(frozen=True, repr=False)
class RunResult:
    """The result of a run on its test set.

    Printed, it is its verdict and a table of its metrics. A notebook shows its reliability diagrams, too.

    Attributes:
        loss: the loss, as `str(LossConfig)`, or any name if the model was trained elsewhere.
        temperature: the T fitted on the validation set, or `Temperature.unfitted`. If no T was fitted, `post` equals
            `pre` or is measured after another correction than a temperature.
        pre, post: the metrics of the test set before and after the correction, as `CalibrationMetrics.compute` returns
            them: fractions, and nats for the NLL and the entropy. For a translation model, also "bleu", from 0 to 100.
        pre_bins, post_bins: the bins of the reliability diagrams before and after the correction.
        data, fit, subsets: what was measured, how it was corrected, and its classes, labels, and groups.
        thresholds, prior, drift: None unless thresholds were chosen, the prior shifted, or earlier data compared.
        notes: what a reader should know of the data and the correction, in sentences without their periods.
        details: other JSON values, of experiments.
        pre_intervals, post_intervals: metric -> its 95% interval (low, high). Intervals of calibration errors are
            bootstrap intervals, and those of the error and the NLL are normal. Both mappings are empty for pixels and
            tokens, which are not independent samples.
        true_calibration_error: the ECE before and after the correction against the true posterior, or None if it is
            unknown.

    Examples:
        >>> from hf_focal import RunResult, evaluate_scores
        >>> result = evaluate_scores({"logits": [[2.0, 0.0], [0.0, 1.0]] * 20, "label": [0, 1, 1, 1] * 10})
        >>> isinstance(result, RunResult), round(result.pre["accuracy"], 2), round(result.pre["ece"], 3)
        (True, 0.75, 0.325)
    """

    loss: str
    temperature: Temperature
    pre: dict[str, float]
    post: dict[str, float]
    pre_bins: ReliabilityBins
    post_bins: ReliabilityBins
    data: DataSection = field(default_factory=DataSection)
    fit: FitSection = field(default_factory=FitSection)
    subsets: SubsetSection = field(default_factory=SubsetSection)
    thresholds: ThresholdSection | None = None
    prior: PriorSection | None = None
    drift: DriftSection | None = None
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    pre_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    post_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    true_calibration_error: tuple[float, float] | None = None

    def __repr__(self) -> str:
        from .text_summary import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from .page_parts import notebook_view

        return notebook_view(self)

    @property
    def link(self) -> str:
        """What maps logits to probabilities: "sigmoid" for several labels per sample or one logit, else "softmax"."""
        return "sigmoid" if "num_entries" in self.pre else "softmax"

    @property
    def method(self) -> str | None:
        """The correction of `post`: "temperature", "bias", "vector", "matrix", or "platt"; None without one."""
        if self.temperature.is_fitted:
            return "temperature"
        fit = self.fit.cross_fit
        return None if fit is None or fit.method == "none" else fit.method

    @property
    def has_own_test_data(self) -> bool:
        """Whether the correction, if there is one, was measured on other data than those it was fitted to."""
        return self.fit.fitted_on is None or self.fit.fitted_on != self.data.measured_on

    def describe(self) -> str:
        """Return one line: the mean confidence and the accuracy, and what the correction made of the confidence."""
        corrected = f"T = {self.temperature:.3g}" if self.temperature.is_fitted else self.correction
        if self.link == "sigmoid":
            (mean, share), (mean_after, _) = self.pre_bins.means(), self.post_bins.means()
            gap = gap_beyond_noise(mean, share, self.pre_bins.count.sum())
            verdict = "too high" if gap > 0 else "too low"
            if not gap:
                verdict = "right on average"
                verdict += ", but not for each score" if is_miscalibrated(self.pre_intervals) else ""
            text = f"probabilities {verdict}: {100 * mean:.1f}% on average, and {100 * share:.1f}% {self.outcome}"
            text = f"{self.loss}: {text}" + (f"; after {corrected}: {100 * mean_after:.1f}%" if self.method else "")
            return text + self._trade()
        if "confidence" not in self.pre or "accuracy" not in self.pre:
            ece = [f"{100 * side.get('ece', math.nan):.1f}%" for side in (self.pre, self.post)]
            return (
                f"{self.loss}: ECE {ece[0]}"
                + (f"; after {corrected}: {ece[1]}" if self.method else "")
                + self._trade()
            )
        confidence, accuracy = self.pre["confidence"], self.pre["accuracy"]
        gap = gap_beyond_noise(confidence, accuracy, self.pre.get("num_samples", 1))
        verdict = "overconfident" if gap > 0 else "underconfident"
        if not gap:
            verdict = "neither over- nor underconfident on average"
            verdict += ", but not calibrated for each score" if is_miscalibrated(self.pre_intervals) else ""
        text = f"{self.loss}: {verdict}: says {100 * confidence:.0f}%, right {100 * accuracy:.0f}%"
        if self.method is None:
            return text
        corrected_confidence, corrected_accuracy = (
            self.post.get(name, math.nan) for name in ("confidence", "accuracy")
        )
        changed = f", right {100 * corrected_accuracy:.0f}%" if corrected_accuracy != accuracy else ""
        return f"{text}; after {corrected}: says {100 * corrected_confidence:.0f}%{changed}{self._trade()}"

    @property
    def outcome(self) -> str:
        """What the probabilities of a sigmoid are about: labels that apply, or answers that are right."""
        column = normalized(str((self.data.options or {}).get("label_column")))
        is_correctness = self.data.task == "scores" and column in _CORRECT_COLUMNS
        return "of the answers are right" if is_correctness else "of the labels apply"

    def _trade(self) -> str:
        """Return what the correction gains and loses if it improves only one of NLL and ECE, or else ""."""
        if self.method is None:
            return ""
        if self.fit.cross_fit and not self.has_own_test_data:  # where `post` is optimistic
            text = score_trade(self.fit.cross_fit.before, self.fit.cross_fit.after)
            return f"; cross-fitted, {text}" if text else ""
        text = score_trade(self.pre, self.post)
        return f"; {text}" if text else ""

    @property
    def correction(self) -> str:
        """The correction's name in sentences, such as "T" or "vector scaling"; "" without one."""
        return "T" if self.temperature.is_fitted else scaling_name(self.method) if self.method else ""

    def save(self, path: str | Path) -> None:
        """Write the result as JSON in one atomic write; undefined metrics (NaN) become null."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        flat = [values.pop(name) for name in _FLAT]
        nested = {key: section for name, (key, _) in _NESTED.items() if (section := values.pop(name)) is not None}
        notes = {"notes": notes} if (notes := values.pop("notes")) or self.data.model else {}
        details = [to_json(section) for section in (*flat, nested, notes, self.details)]
        values["details"] = {key: value for section in details for key, value in section.items()}
        temperature = {name: value for name, value in to_json(self.temperature).items() if value != []}
        write_json(path, values | {"temperature": temperature})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result that `save` wrote; raise one of `READ_ERRORS` if the file holds anything else."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        names = [part for part in fields(cls) if part.name in values and part.name != "details"]
        result = cls(
            **{part.name: from_json(part.type, values[part.name], part.name) for part in names},
            **sections_of(values["details"]),
        )
        for bins in (result.pre_bins, result.post_bins):
            bins.check()
        for side, metrics in (("pre", result.pre), ("post", result.post)):
            for name in {"error", "accuracy", "confidence"} & metrics.keys():
                from_json(Share, metrics[name], f"{side}.{name}")
            from_json(FiniteNumber, metrics.get("num_samples", 0), f"{side}.num_samples")
        size, balance = result.pre.get("num_samples"), result.subsets.class_balance
        if size is not None and (size < 0 or (balance and balance.largest > size)):
            raise ValueError(f"pre.num_samples must be that of all classes, got {size}")
        return result

    @classmethod
    def measure(
        cls,
        loss: str,
        fit: Temperature | Correction,
        logits: Tensor,
        labels: Tensor,
        num_bins: int = 15,
        **options: Any,
    ) -> "RunResult":
        """Make a result from a test set's logits (..., K) and labels (...) by applying a correction to the logits.

        Samples with the label -100 are ignored. `options` are keyword arguments of `from_metrics`.
        """
        temperature = fit if isinstance(fit, Temperature) else None
        corrected = fit.apply(logits.float()) if isinstance(fit, Correction) else scaled(logits, fit.value)
        before, after = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins)
        before.update(logits, labels)
        after.update(corrected, labels)
        result = cls.from_metrics(loss, temperature, before, after, **options)
        decisions = _decisions(logits, labels)
        return replace(
            result,
            pre=result.pre | decisions,
            post=result.post | (decisions if temperature else _decisions(corrected, labels)),
            pre_intervals=result.pre_intervals | _mean_intervals(logits, labels),
            post_intervals=result.post_intervals | _mean_intervals(corrected, labels),
        )

    @classmethod
    def from_metrics(
        cls,
        loss: str,
        temperature: Temperature | None,
        before: CalibrationMetrics,
        after: CalibrationMetrics | None,
        true_calibration_error: tuple[float, float] | None = None,
        details: dict[str, Any] | None = None,
        intervals: bool = True,
        label_names: Sequence[str] = (),
        **sections: Any,
    ) -> "RunResult":
        """Make a result from a test set's metrics before and after a correction.

        `after` is None without a correction. `temperature` is None unless the correction is a temperature. Pass
        ``intervals=False`` for pixels and tokens, which are not independent samples. `label_names` are the names of a
        multi-label model's labels, in the order of its logits. `sections` are fields of the result; `details` may have
        them, too, in their JSON form.
        """
        pre, bins, pre_intervals = before.compute(), before.bins(), before.bootstrap() if intervals else {}
        sections = sections_of(details or {}) | sections
        data, fit, counts = sections.pop("data"), sections["fit"], before.label_counts
        subsets: dict[str, Any] = {}
        if len(counts):
            subsets["class_balance"] = _balance(label_names, counts, (after or before).confusion)
        if isinstance(before, LabelMetrics) and isinstance(after, LabelMetrics | None):
            correction = fit.cross_fit and fit.cross_fit.correction
            subsets["labels"] = _label_results(label_names, temperature, correction, before, after or before)
            subsets["classes"] = _class_bins(subsets["labels"].name, before, after)
        elif pre.get("num_samples"):
            if len(counts) > 1:
                subsets["classes"] = _class_bins(label_names, before, after)
            subsets["risk_coverage"] = RiskCoverage(_points(before), None if after is None else _points(after))
        if len(confusion := (after or before).confusion):
            subsets["confusion"] = _confusion(label_names, confusion)
            if not len(counts):  # of one logit
                subsets["class_balance"] = _balance(subsets["confusion"].names, confusion.sum(1), confusion)
        return cls(
            loss=loss,
            temperature=temperature or Temperature.unfitted(pre, before.num_bins),
            pre=pre,
            post=pre if after is None else after.compute(),
            pre_intervals=pre_intervals,
            post_intervals=after.bootstrap() if intervals and after is not None else pre_intervals,
            pre_bins=bins,
            post_bins=bins if after is None else after.bins(),
            true_calibration_error=true_calibration_error,
            data=replace(data, date=data.date or datetime.date.today().isoformat()),
            **sections | {"subsets": replace(sections["subsets"], **subsets)},
        )


def gap_beyond_noise(mean: float, share: float, size: float) -> float:
    """Return the mean probability minus the share of ones among `size` samples, or 0 if chance may explain it."""
    error = 1.96 * math.sqrt(max(share * (1 - share), 0) / max(size, 1))
    return 0.0 if abs(mean - share) <= error else mean - share


def is_miscalibrated(intervals: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether the interval of the ECE shows that the ECE is larger than one that hardly matters."""
    return intervals.get("ece", (0.0, 1.0))[0] > _SMALL_ECE


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
    return Labels(names, frequency, f1, ece, new_ece, values, worst=bins, **slopes)


def _points(metrics: CalibrationMetrics) -> Curve:
    """Return points of a curve, about equally far apart in coverage, with the first and the last one."""
    curve = metrics.risk_coverage()
    points = np.unique(np.searchsorted(curve.coverage, np.linspace(0, 1, _NUM_POINTS)))
    assert curve.confidence is not None
    confidence = np.clip(curve.confidence[points], 0, 1).tolist()
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
        if before.keep_samples:
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
    if len(names) != size:  # for one logit, there is only the name of its label
        names = [f"not {names[0]}", names[0]] if len(names) == 1 and size == 2 else [str(k) for k in range(size)]
    if size <= _MOST_CLASSES:
        return Confusion([*names], counts.tolist())
    errors, label_counts = counts - np.diag(counts.diagonal()), counts.sum(1)
    largest = [divmod(int(cell), size) for cell in np.argsort(-errors, axis=None, kind="stable")[:_NUM_PAIRS]]
    rows = [(names[i], names[j], int(errors[i, j]), int(label_counts[i])) for i, j in largest if errors[i, j]]
    return Confusion(pairs=[ConfusedPair(*row) for row in rows])


def known_loss(name: str) -> LossConfig | None:
    """Parse the `loss` of a result. Return None if it names no loss, as for a model that was trained elsewhere."""
    try:
        return None if name.endswith((".yaml", ".yml")) else LossConfig.parse(name)
    except (TypeError, ValueError):
        return None


def scaled(logits: Array, temperature: Temperature | float) -> Tensor:
    """Divide logits by T in at least float32, as rounding to half precision would create ties."""
    logits = torch.as_tensor(logits)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return temperature.correction.apply(logits) if isinstance(temperature, Temperature) else logits / temperature


def _decisions(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return "macro_f1" and, for two classes, "auroc"."""
    confusion = ConfusionMatrix()
    confusion.update(logits, labels)
    values = {"macro_f1": confusion.compute()["macro_f1"]}
    if logits.shape[-1] == 2:
        known = labels != -100
        scores, positive = (logits[..., 1] - logits[..., 0])[known], labels[known] == 1
        values["auroc"] = auroc(scores.cpu().numpy(), positive.cpu().numpy())
    return values


def _mean_intervals(logits: Tensor, labels: Tensor) -> dict[str, tuple[float, float]]:
    """Return normal 95% intervals (low, high) of the "error" and the "nll", which are both means over samples."""
    known = labels != -100
    logits, labels = logits[known].float(), labels[known]
    samples = {"error": (logits.argmax(-1) != labels).double(), "nll": cross_entropy(logits, labels, reduction="none")}
    intervals = {}
    for name, values in samples.items():
        half = 1.96 * float(values.double().std(correction=0)) / math.sqrt(max(len(values), 1))
        intervals[name] = (float(values.mean()) - half, float(values.mean()) + half)
    return intervals
