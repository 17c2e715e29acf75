"""Results of runs: metrics before and after the correction, read from and written to metrics.json."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from ...calibration import Correction, Temperature
from ...calibration.calibration_fit import scaling_name
from ...losses import LossConfig
from ...losses.loss_config import known_loss
from ...metrics import CalibrationMetrics, ReliabilityBins
from ...utils.json_values import FiniteNumber, Share, from_json, key_of, to_json, write_json
from ...utils.names import normalized
from .measured_sections import decision_metrics, mean_intervals, measured_subsets, scaled
from .result_sections import DataSection, DriftSection, FitSection, PriorSection, SubsetSection, ThresholdSection

# The errors that may be raised by reading a file that no report wrote.
READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

_CORRECT_COLUMNS = ("correct", "iscorrect")  # columns of labels that say whether answers are right

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


def _with_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a result; one of an earlier version had its name in "loss", and no link."""
    if "name" in values:
        return dict(values)
    loss = values["loss"]
    link = "sigmoid" if "num_entries" in values["pre"] else "softmax"
    return {**values, "name": loss, "loss": loss if known_loss(loss) else None, "link": link}


_DETAILS = {"notes", *(key for key, _ in _NESTED.values())}
_DETAILS |= {key_of(part) for kind in _FLAT.values() for part in fields(kind)}


@dataclass(frozen=True, repr=False)
class RunResult:
    """The result of a run on its test set.

    Printed, it is its verdict and a table of its metrics. A notebook shows its reliability diagrams, too.

    Attributes:
        name: the name in tables and figures: that of the model, of a table of scores, or of the loss of a training.
        temperature: the T fitted on the validation set, or `Temperature.unfitted`. If no T was fitted, `post` equals
            `pre` or is measured after another correction than a temperature. With `prior`, a shift follows T.
        pre, post: the metrics of the test set before and after the correction, as `CalibrationMetrics.compute` returns
            them: fractions, and nats for the NLL and the entropy. For a translation model, also "bleu", from 0 to 100.
        pre_bins, post_bins: the bins of the reliability diagrams before and after the correction.
        data, fit, subsets: what was measured, how it was corrected, and its classes, labels, and groups.
        thresholds, prior, drift: None unless thresholds were chosen, the prior shifted, or earlier data compared.
        notes: what a reader should know of the data and the correction, in sentences without their periods.
        details: other JSON values, of experiments.
        loss: the loss of the training, as `str(LossConfig)`; None if it is none of this library, or not known.
        link: what maps logits to probabilities: "sigmoid" for several labels per sample or one logit, else "softmax".
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

    name: str
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
    loss: str | None = None
    link: str = "softmax"

    def __repr__(self) -> str:
        from ..wording.text_summary import summary

        return summary(self)

    @property
    def over_clusters(self) -> str:
        """What texts say after "interval": over how many clusters it is; "" if each sample is a draw of its own."""
        number = self.data.num_clusters
        return "" if number is None else f" over {number:,} clusters"

    def _repr_html_(self) -> str:
        from ..pages.page_parts import notebook_view

        return notebook_view(self)

    @property
    def loss_config(self) -> LossConfig | None:
        """The loss of the training, if it is known."""
        return None if self.loss is None else LossConfig.parse(self.loss)

    @property
    def method(self) -> str | None:
        """The correction of `post`: "temperature", "bias", "vector", "matrix", or "platt"; None without one."""
        fit = self.fit.cross_fit
        if self.temperature.is_fitted and (self.prior is None or fit is None):
            return "temperature"
        return None if fit is None or fit.method == "none" else fit.method

    @property
    def has_own_test_data(self) -> bool:
        """Whether the correction, if there is one, was measured on other data than those it was fitted to."""
        if self.fit.is_in_sample is not None:
            return not self.fit.is_in_sample
        # The names tell in results of a trainer, and in files of earlier versions.
        return self.fit.fitted_on is None or self.fit.fitted_on != self.data.measured_on

    @property
    def lacks_new_prior(self) -> bool:
        """Whether the prior was shifted away from its share in the samples that the result was measured on."""
        return self.prior is not None and (not self.has_own_test_data or self.prior.is_tested_on_old_shares)

    @property
    def is_of_table(self) -> bool:
        """Whether the scores are those of a table, whose name says nothing of the model."""
        return self.data.task == "scores" and self.data.options is not None

    def describe(self) -> str:
        """Return one line: the mean confidence and the accuracy, and what the correction made of the confidence."""
        from ..wording.headlines import description

        return description(self)

    @property
    def is_of_answers(self) -> bool:
        """Whether the labels of a table say whether answers are right."""
        column = normalized(str((self.data.options or {}).get("label_column")))
        return self.data.task == "scores" and column in _CORRECT_COLUMNS

    @property
    def axes(self) -> str:
        """Which `LINK_WORDS` diagrams use: those of the link, but of confidences if labels say what is right."""
        return "softmax" if self.is_of_answers else self.link

    @property
    def outcome(self) -> str:
        """What the probabilities of a sigmoid are about: labels that apply, or answers that are right."""
        return "of the answers are right" if self.is_of_answers else "of the labels apply"

    @property
    def correction(self) -> str:
        """The correction's name in sentences, such as "T" or "vector scaling"; "" without one."""
        if self.prior is not None:
            return "the correction"
        return "T" if self.temperature.is_fitted else self.scaling

    @property
    def scaling(self) -> str:
        """What the correction does, such as "temperature scaling" or "T = 1.23 and a prior shift"; "" without one."""
        return self.correction_title(3) if self.prior is not None else scaling_name(self.method) if self.method else ""

    def correction_title(self, digits: int) -> str:
        """Return "T = 1.23", with T to a number of significant digits, or the name of another correction."""
        title = f"T = {self.temperature:.{digits}g}" if self.temperature.is_fitted else ""
        if self.prior is None:
            return title or self.correction
        fit = self.fit.cross_fit
        if not title and fit is not None and fit.chosen not in (None, "none"):
            title = scaling_name(fit.chosen, fit.strength or 1.0)
        return f"{title} and a prior shift" if title else "a prior shift"

    def save(self, path: str | Path) -> None:
        """Write the result as JSON in one atomic write; undefined metrics (NaN) become null."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        flat = [values.pop(name) for name in _FLAT]
        nested = {key: section for name, (key, _) in _NESTED.items() if (section := values.pop(name)) is not None}
        notes = {"notes": notes} if (notes := values.pop("notes")) or self.data.model else {}
        details = [to_json(section) for section in (*flat, nested, notes, self.details)]
        values["details"] = {key: value for section in details for key, value in section.items()}
        temperature = {name: value for name, value in to_json(self.temperature).items() if value not in ([], "")}
        write_json(path, values | {"temperature": temperature})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result that `save` wrote; raise one of `READ_ERRORS` if the file holds anything else."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or not isinstance(values.get("pre"), dict):
            raise ValueError("it must hold a mapping with the metrics of a result, pre and post")
        values = _with_name(values)
        names = [part for part in fields(cls) if part.name in values and part.name != "details"]
        result = cls(
            **{part.name: from_json(part.type, values[part.name], part.name) for part in names},
            **sections_of(values["details"]),
        )
        for bins in (result.pre_bins, result.post_bins):
            bins.check()
        if result.link not in ("softmax", "sigmoid"):
            raise ValueError(f"link must be 'softmax' or 'sigmoid', got {result.link!r}")
        if result.loss is not None:
            LossConfig.parse(result.loss)
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
        name: str,
        fit: Temperature | Correction,
        logits: Tensor,
        labels: Tensor,
        num_bins: int = 15,
        **options: Any,
    ) -> "RunResult":
        """Make a result from a test set's logits (..., K) and labels (...) by applying a correction to the logits.

        Samples with the label -100 are ignored. `name` and `options` are arguments of `from_metrics`.
        """
        temperature = fit if isinstance(fit, Temperature) else None
        corrected = fit.apply(logits.float()) if isinstance(fit, Correction) else scaled(logits, fit.value)
        before, after = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins)
        before.update(logits, labels)
        after.update(corrected, labels)
        result = cls.from_metrics(name, temperature, before, after, **options)
        decisions = decision_metrics(logits, labels)
        return replace(
            result,
            pre=result.pre | decisions,
            post=result.post | (decisions if temperature else decision_metrics(corrected, labels)),
            pre_intervals=result.pre_intervals | mean_intervals(logits, labels),
            post_intervals=result.post_intervals | mean_intervals(corrected, labels),
        )

    @classmethod
    def from_metrics(
        cls,
        name: str,
        temperature: Temperature | None,
        before: CalibrationMetrics,
        after: CalibrationMetrics | None,
        true_calibration_error: tuple[float, float] | None = None,
        details: dict[str, Any] | None = None,
        intervals: bool = True,
        label_names: Sequence[str] = (),
        *,
        loss: str | None = None,
        data: DataSection | None = None,
        fit: FitSection | None = None,
        subsets: SubsetSection | None = None,
        thresholds: ThresholdSection | None = None,
        prior: PriorSection | None = None,
        drift: DriftSection | None = None,
        notes: list[str] | None = None,
    ) -> "RunResult":
        """Make a result from a test set's metrics before and after a correction.

        `after` is None without a correction. `temperature` is None unless the correction is a temperature. Pass
        ``intervals=False`` for pixels and tokens, which are not independent samples. Several labels whose samples are
        not kept have no intervals either. `label_names` are the names of a multi-label model's labels, in the order of
        its logits. The others are fields of the result: `loss` is `name` by default, if this is a loss, and `details`
        may have the sections, too, in their JSON form.
        """
        pre, bins, pre_intervals = before.compute(), before.bins(), _intervals(before) if intervals else {}
        num_clusters = before.num_clusters if pre_intervals else None
        named: dict[str, Any] = {"data": data, "fit": fit, "subsets": subsets, "notes": notes}
        named |= {"thresholds": thresholds, "prior": prior, "drift": drift}
        sections = sections_of(details or {}) | {name: value for name, value in named.items() if value is not None}
        recorded, cross_fit = sections.pop("data"), sections["fit"].cross_fit
        own_temperature = None if sections.get("prior") is not None else temperature  # T is not all of the correction
        measured = measured_subsets(label_names, before, after, own_temperature, cross_fit, pre.get("num_samples"))
        return cls(
            name=name,
            loss=name if loss is None and known_loss(name) else loss,
            link=before.link,
            temperature=temperature or Temperature.unfitted(pre, before.num_bins),
            pre=pre,
            post=pre if after is None else after.compute(),
            pre_intervals=pre_intervals,
            post_intervals=_intervals(after) if intervals and after is not None else pre_intervals,
            pre_bins=bins,
            post_bins=bins if after is None else after.bins(),
            true_calibration_error=true_calibration_error,
            data=replace(recorded, date=recorded.date or datetime.date.today().isoformat(), num_clusters=num_clusters),
            **sections | {"subsets": replace(sections["subsets"], **measured)},
        )


def _intervals(metrics: CalibrationMetrics) -> dict[str, tuple[float, float]]:
    """Return the bootstrap intervals of metrics; {} if none can be drawn, such as for a single cluster."""
    can_draw = metrics.has_samples or metrics.has_independent_sums
    return metrics.bootstrap() if can_draw and metrics.num_clusters != 1 else {}


def shared_axes(runs: Sequence[RunResult]) -> str:
    """Return the axes of all runs; if they differ, those of a softmax, which are about predictions of any kind."""
    axes = {run.axes for run in runs}
    return axes.pop() if len(axes) == 1 else "softmax"
