"""Results of runs: metrics before and after T, read from and written to metrics.json."""

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_origin

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..calibration import Correction, Temperature
from ..calibration.cross_fitting import scaling_name, score_trade
from ..losses import LossConfig
from ..metrics import CalibrationMetrics, ConfusionMatrix, LabelMetrics, ReliabilityBins, RiskCoverageCurve
from ..metrics.ranking import auroc
from ..utils.atomic_write import write_whole
from ..validation import Array
from .result_schema import check_result

# The errors that may be raised by reading a file that no report wrote.
READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

_NUM_WORST = 5  # labels whose reliability diagrams are kept
_MOST_CLASSES, _NUM_PAIRS = 12, 12  # with more classes, only the most confused pairs are kept, not the matrix
_NUM_POINTS = 100  # of a risk-coverage curve
_NUM_NEVER = 5  # classes without predictions that are named


@dataclass(frozen=True)
class RunResult:
    """The result of a run on its test set.

    Attributes:
        loss: the loss, as `str(LossConfig)`, or any name if the model was trained elsewhere.
        temperature: the T fitted on the validation set, or `Temperature.unfitted`. If no T was fitted, `post` equals
            `pre` or is measured after vector or matrix scaling.
        pre, post: the metrics of the test set, before and after T, that `CalibrationMetrics.compute` returned:
            fractions, and nats for the NLL and the entropy. For a translation model, also "bleu", from 0 to 100.
        pre_bins, post_bins: the bins of the reliability diagrams before and after T.
        details: additional JSON values. "date" is the day of the measurement. "class_balance", if known, has the
            number of "classes", the "smallest" and "largest" number of test samples in a class, the name of the
            "majority" class, and "base_nll", the NLL of always giving the classes' frequencies. Of the predictions
            after the correction, it has "predicted", the number of samples in the most frequently predicted class;
            "found", how many samples of other classes than the majority class are right, and "lost", how many of the
            majority class are wrong; and the names of classes that are "never" predicted (the first ones), how many
            these are ("num_never"), and how many samples they have ("samples_of_never"). For multi-label models,
            "labels" has lists of the labels' "name", "frequency", "temperature", ECE "before" and "after" the
            correction, "f1" after it, and after Platt scaling also "slope" and "intercept". In "labels", "worst" maps
            the names of the five labels with the largest ECE before the correction to their bins before and after it.
        pre_intervals, post_intervals: metric -> its 95% interval (low, high). Intervals of calibration errors are
            bootstrap intervals, and those of the error and the NLL are normal. Both mappings are empty for pixels and
            tokens, which are not independent samples.
        true_calibration_error: the ECE (before T, after T) against the true posterior, or None if the posterior
            is unknown.
    """

    loss: str
    temperature: Temperature
    pre: dict[str, float]
    post: dict[str, float]
    pre_bins: ReliabilityBins
    post_bins: ReliabilityBins
    details: dict[str, Any]
    pre_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    post_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    true_calibration_error: tuple[float, float] | None = None

    @property
    def link(self) -> str:
        """What maps logits to probabilities: "sigmoid" for several labels per sample or one logit, else "softmax"."""
        return "sigmoid" if "num_entries" in self.pre else "softmax"

    @property
    def method(self) -> str | None:
        """The kind of correction before `post`: "temperature", "vector", "matrix", or "platt"; None without one."""
        method = "temperature" if self.temperature.is_fitted else self.details.get("calibration", {}).get("method")
        return None if method == "none" else method

    def describe(self) -> str:
        """Return one line: the mean confidence and the accuracy, and what the correction made of the confidence."""
        corrected = f"T = {self.temperature:.3g}" if self.temperature.is_fitted else self.correction
        if self.link == "sigmoid":
            (mean, share), (mean_after, _) = self.pre_bins.means(), self.post_bins.means()
            error = 1.96 * math.sqrt(share * (1 - share) / max(self.pre_bins.count.sum(), 1))
            verdict = "right on average" if abs(mean - share) <= error else "too high" if mean > share else "too low"
            text = f"probabilities {verdict}: {100 * mean:.1f}% on average, and {100 * share:.1f}% of the labels apply"
            text = f"{self.loss}: {text}" + (f"; after {corrected}: {100 * mean_after:.1f}%" if self.method else "")
            return text + self._trade()
        if "confidence" not in self.pre or "accuracy" not in self.pre:
            ece = [f"{100 * side.get('ece', math.nan):.1f}%" for side in (self.pre, self.post)]
            return (
                f"{self.loss}: ECE {ece[0]}"
                + (f"; after {corrected}: {ece[1]}" if self.method else "")
                + self._trade()
            )
        says, right = self.pre["confidence"], self.pre["accuracy"]
        error = 1.96 * math.sqrt(max(right * (1 - right), 0) / max(self.pre.get("num_samples", 1), 1))
        verdict = "neither over- nor underconfident on average"
        if abs(says - right) > error:
            verdict = "overconfident" if says > right else "underconfident"
        text = f"{self.loss}: {verdict}: says {100 * says:.0f}%, right {100 * right:.0f}%"
        if self.method is None:
            return text
        says, after = (self.post.get(name, math.nan) for name in ("confidence", "accuracy"))
        changed = f", right {100 * after:.0f}%" if after != right else ""
        return f"{text}; after {corrected}: says {100 * says:.0f}%{changed}{self._trade()}"

    def _trade(self) -> str:
        """Return what the correction gains and loses if it improves only one of NLL and ECE, or else ""."""
        fit, source = self.details.get("calibration"), self.details.get("fitted_on")
        if self.method is None:
            return ""
        if fit and source is not None and source == self.details.get("measured_on"):  # where `post` is optimistic
            text = score_trade(fit["before"], fit["after"])
            return f"; cross-fitted, {text}" if text else ""
        text = score_trade(self.pre, self.post)
        return f"; {text}" if text else ""

    @property
    def correction(self) -> str:
        """The correction's name in sentences, such as "T" or "vector scaling"; "" without one."""
        return "T" if self.temperature.is_fitted else scaling_name(self.method) if self.method else ""

    def save(self, path: str | Path) -> None:
        """Write the result as JSON in one atomic write; undefined metrics (NaN) become null."""
        values = asdict(self)
        values["temperature"] = {name: value for name, value in values["temperature"].items() if value != ()}
        write_json(path, values)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result that `save` wrote; raise one of `READ_ERRORS` if the file holds anything else."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        result = _read(cls, values)
        check_result(values)
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

        Samples with the label -100 are ignored. `options` are keyword arguments of `of`.
        """
        temperature = fit if isinstance(fit, Temperature) else None
        corrected = fit.apply(logits.float()) if isinstance(fit, Correction) else scaled(logits, fit.value)
        before, after = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins)
        before.update(logits, labels)
        after.update(corrected, labels)
        result = cls.of(loss, temperature, before, after, **options)
        decisions = _decisions(logits, labels)
        return replace(
            result,
            pre=result.pre | decisions,
            post=result.post | (decisions if temperature else _decisions(corrected, labels)),
            pre_intervals=result.pre_intervals | _mean_intervals(logits, labels),
            post_intervals=result.post_intervals | _mean_intervals(corrected, labels),
        )

    @classmethod
    def of(
        cls,
        loss: str,
        temperature: Temperature | None,
        before: CalibrationMetrics,
        after: CalibrationMetrics | None,
        true_calibration_error: tuple[float, float] | None = None,
        details: dict[str, Any] | None = None,
        intervals: bool = True,
        label_names: Sequence[str] = (),
    ) -> "RunResult":
        """Make a result from a test set's metrics before and after a correction.

        `after` is None without a correction. `temperature` is None unless the correction is a temperature. Pass
        ``intervals=False`` for pixels and tokens, which are not independent samples. `label_names` are the names of a
        multi-label model's labels, in the order of its logits.
        """
        pre, bins, pre_intervals = before.compute(), before.bins(), before.bootstrap() if intervals else {}
        details, counts = {"date": datetime.date.today().isoformat(), **(details or {})}, before.label_counts
        if len(counts):
            details["class_balance"] = _balance(label_names, counts, (after or before).confusion)
        if isinstance(before, LabelMetrics) and isinstance(after, LabelMetrics | None):
            correction = details.get("calibration", {}).get("correction")
            details["labels"] = _of_labels(label_names, temperature, correction, before, after or before)
        elif pre.get("num_samples"):
            sides = {"before": before} | ({} if after is None else {"after": after})
            details["risk_coverage"] = {name: _points(side.risk_coverage()) for name, side in sides.items()}
        if len(confusion := (after or before).confusion):
            details["confusion"] = _of_classes(label_names, confusion)
            if not len(counts):  # of one logit
                details["class_balance"] = _balance(details["confusion"]["names"], confusion.sum(1), confusion)
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
            details=details,
        )


def _balance(names: Sequence[str], counts: np.ndarray, confusion: np.ndarray) -> dict[str, Any]:
    """Describe the classes of samples with these counts of labels; `confusion` has them by prediction, or is empty."""
    names = [*names] if len(names) == len(counts) else [str(number) for number in range(len(counts))]
    largest = int(counts.argmax())
    frequencies = counts / max(counts.sum(), 1)
    balance: dict[str, Any] = {"classes": len(counts), "smallest": int(counts.min()), "largest": int(counts[largest])}
    balance |= {"majority": names[largest], "base_nll": float(entr(frequencies).sum())}
    if len(confusion):
        right, predicted = confusion.diagonal(), confusion.sum(0)
        never = np.flatnonzero((predicted == 0) & (counts > 0))
        balance |= {
            "predicted": int(predicted.max()),
            "found": int(right.sum() - right[largest]),
            "lost": int(counts[largest] - right[largest]),
            "never": [names[number] for number in never[:_NUM_NEVER]],
            "num_never": len(never),
            "samples_of_never": int(counts[never].sum()),
        }
    return balance


def _of_labels(
    names: Sequence[str],
    temperature: Temperature | None,
    platt: dict[str, Any] | None,
    before: LabelMetrics,
    after: LabelMetrics,
) -> dict[str, Any]:
    own, corrected = before.per_label(), after.per_label()
    ece = corrected["ece"]
    names = [*names] or [f"label {index}" for index in range(len(ece))]
    values: Any = (temperature and temperature.values) or [temperature and temperature.value] * len(ece)
    worst = np.argsort(-np.nan_to_num(own["ece"]), kind="stable")[:_NUM_WORST]
    bins = {names[index]: [asdict(side.bins(index)) for side in (before, after)] for index in worst}
    columns: dict[str, Any] = {
        "frequency": own["frequency"],
        "f1": corrected["f1"],
        "before": own["ece"],
        "after": ece,
    }
    if platt:
        numbers = zip(("slope", "intercept"), Correction.from_dict(platt).dense(), strict=True)
        columns |= {name: np.broadcast_to(part, len(ece)).tolist() for name, part in numbers}
    return {"name": names, **columns, "temperature": values, "worst": bins}


def _points(curve: RiskCoverageCurve) -> dict[str, list[int]]:
    """Return points of a curve, about equally far apart in coverage, with the first and the last one."""
    kept = np.unique(np.searchsorted(curve.coverage, np.linspace(0, 1, _NUM_POINTS)))
    return {"answered": curve.answered[kept].astype(int).tolist(), "errors": curve.errors[kept].astype(int).tolist()}


def _of_classes(names: Sequence[str], counts: np.ndarray) -> dict[str, Any]:
    size = len(counts)
    if len(names) != size:  # for one logit, there is only the name of its label
        names = [f"not {names[0]}", names[0]] if len(names) == 1 and size == 2 else [str(k) for k in range(size)]
    if size <= _MOST_CLASSES:
        return {"names": [*names], "counts": counts.tolist()}
    errors, of_label = counts - np.diag(counts.diagonal()), counts.sum(1)
    largest = [divmod(int(cell), size) for cell in np.argsort(-errors, axis=None, kind="stable")[:_NUM_PAIRS]]
    columns = ("label", "prediction", "count", "samples")
    rows = [(names[i], names[j], int(errors[i, j]), int(of_label[i])) for i, j in largest if errors[i, j]]
    return {"pairs": [dict(zip(columns, row, strict=True)) for row in rows]}


def worst_labels(result: RunResult) -> dict[str, list[ReliabilityBins]]:
    """Return label name -> bins before and after T of a multi-label model's labels with the largest ECE; else {}."""
    kept = result.details.get("labels", {}).get("worst", {})
    return {name: [_read(ReliabilityBins, side) for side in sides] for name, sides in kept.items()}


def reference_bins(result: RunResult) -> ReliabilityBins | None:
    """Return the bins of the earlier scores that a result was compared with, or None."""
    bins = result.details.get("drift", {}).get("bins")
    return None if bins is None else _read(ReliabilityBins, bins)


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
        kept = labels != -100
        scores, positive = (logits[..., 1] - logits[..., 0])[kept], labels[kept] == 1
        values["auroc"] = auroc(scores.cpu().numpy(), positive.cpu().numpy())
    return values


def _mean_intervals(logits: Tensor, labels: Tensor) -> dict[str, tuple[float, float]]:
    """Return normal 95% intervals (low, high) of the "error" and the "nll", which are both means over samples."""
    kept = labels != -100
    logits, labels = logits[kept].float(), labels[kept]
    samples = {"error": (logits.argmax(-1) != labels).double(), "nll": cross_entropy(logits, labels, reduction="none")}
    intervals = {}
    for name, values in samples.items():
        half = 1.96 * float(values.double().std(correction=0)) / math.sqrt(max(len(values), 1))
        intervals[name] = (float(values.mean()) - half, float(values.mean()) + half)
    return intervals


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON in one atomic write. Arrays become lists, and NaN becomes null."""
    write_whole(path, json.dumps(_plain(value), indent=2) + "\n")


def nan_for_null(value: float | None) -> float:
    """Return a number that was read from JSON, or NaN if it was null."""
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _read(kind: Any, value: Any) -> Any:
    """Convert a JSON value to `kind`, the type of a dataclass field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(kind, "__dataclass_fields__"):
        return kind(**{part.name: _read(part.type, value[part.name]) for part in fields(kind) if part.name in value})
    if origin is dict:
        return {arguments[0](key): _read(arguments[1], item) for key, item in value.items()}
    if origin is tuple and arguments[1] is ...:
        return tuple(_read(arguments[0], item) for item in value)
    if origin is tuple:
        return tuple(_read(item_kind, item) for item_kind, item in zip(arguments, value, strict=True))
    if origin is UnionType:
        return None if value is None else _read(arguments[0], value)
    if kind is np.ndarray:
        array = np.array([nan_for_null(item) for item in value])
        return array if array.dtype == np.int64 else array.astype(float)
    if kind is float:
        return float(nan_for_null(value))
    if kind is not Any and not isinstance(value, kind):
        raise ValueError(f"a field must be of type {kind.__name__}, got {value!r}")
    return value
