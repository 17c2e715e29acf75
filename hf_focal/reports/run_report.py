"""A run's report folder: its result as JSON, a Markdown table and figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from ..calibration.temperature import Temperature
from ..losses import LossConfig
from ..metrics import CalibrationMetrics, ConfusionMatrix, ReliabilityBins
from .comparison_table import markdown_table
from .gamma_figure import gamma_heatmap
from .reliability_figures import comparison_figure, reliability_diagram
from .result_json import mapping, numbers, read_fields, write_fields
from .scaled_logits import scaled


@dataclass(frozen=True)
class RunResult:
    """What a run is compared by: metrics on the test set before and after temperature scaling.

    Attributes:
        loss: the loss, as `str(LossConfig)`; of a model that was trained elsewhere any name.
        temperature: fitted on the validation set, or `Temperature.unfitted`: then nothing differs after it.
        pre, post: `CalibrationMetrics.compute()` before and after it, fractions.
        pre_intervals, post_intervals: 95 % bootstrap intervals of the calibration errors, metric -> (low, high); empty
            for pixels and tokens, which are no independent samples.
        pre_bins, post_bins: the bins of the reliability diagrams.
        true_calibration_error: (pre, post) against the true posterior, where the data's is known.
        details: anything else worth keeping, JSON values.
    """

    loss: str
    temperature: Temperature
    pre: dict[str, float]
    post: dict[str, float]
    pre_intervals: dict[str, tuple[float, float]]
    post_intervals: dict[str, tuple[float, float]]
    pre_bins: ReliabilityBins
    post_bins: ReliabilityBins
    true_calibration_error: tuple[float, float] | None
    details: dict[str, Any]

    @classmethod
    def measure(
        cls,
        loss: str,
        temperature: Temperature,
        logits: Tensor,
        labels: Tensor,
        num_bins: int = 15,
        true_calibration_error: tuple[float, float] | None = None,
        details: dict[str, Any] | None = None,
    ) -> "RunResult":
        """The result of test logits (..., K), of any floating dtype, and labels (...), -100 where one is left out."""
        before, after = CalibrationMetrics(num_bins), CalibrationMetrics(num_bins)
        before.update(logits, labels)
        after.update(scaled(logits, temperature.value), labels)
        return cls.of(loss, temperature, before, after, true_calibration_error, details)

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
    ) -> "RunResult":
        """The result of what a trainer's `measure` returns; temperature and `after` are None where none was fitted.

        No `intervals` are for pixels and tokens, which are no independent samples.
        """
        pre, bins = before.compute(), before.bins()
        pre_intervals = before.bootstrap() if intervals else {}
        post_intervals = after.bootstrap() if intervals and after is not None else pre_intervals
        if after is None or temperature is None:
            temperature = Temperature.unfitted(pre, len(bins.count))
        return cls(
            loss=loss,
            temperature=temperature,
            pre=pre,
            post=pre if after is None else after.compute(),
            pre_intervals=pre_intervals,
            post_intervals=post_intervals,
            pre_bins=bins,
            post_bins=bins if after is None else after.bins(),
            true_calibration_error=true_calibration_error,
            details=details or {},
        )

    @classmethod
    def of_classes(
        cls,
        loss: str,
        temperature: Temperature,
        before: CalibrationMetrics,
        after: CalibrationMetrics,
        confusion: ConfusionMatrix,
        class_names: Sequence[str],
        details: dict[str, Any] | None = None,
    ) -> "RunResult":
        """The result of what a trainer's `measure` returns, and of its `confusion`, for pixels or tokens.

        `pre` and `post` have the `confusion.compute()` besides, and `details["classes"]` lists "name", "count",
        "accuracy" and "iou" of each class.
        """
        by_class = {name: values.tolist() for name, values in confusion.by_class().items()}
        details = {**(details or {}), "classes": {"name": list(class_names), **by_class}}
        result = cls.of(loss, temperature, before, after, details=details, intervals=False)
        means = confusion.compute()
        return replace(result, pre=result.pre | means, post=result.post | means)

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; undefined metrics (NaN) become null."""
        write_fields(path, self)

    @classmethod
    def load(cls, path: str | Path) -> "RunResult":
        """Read what `save` wrote."""
        fields = read_fields(path)
        for name in ("pre_intervals", "post_intervals"):
            fields[name] = {key: _pair(key, bounds) for key, bounds in mapping(name, fields[name]).items()}
        if fields["true_calibration_error"] is not None:
            fields["true_calibration_error"] = _pair("true_calibration_error", fields["true_calibration_error"])
        return cls(**fields)


def _pair(name: str, value: Any) -> tuple[float, float]:
    low, high = numbers(name, dict(enumerate(value))).values()
    return low, high


def write_report(folder: str | Path, result: RunResult) -> list[Path]:
    """Write one run's report: metrics.json, table.md, loss.yaml and a reliability diagram before and after T.

    If `result.details["gamma_history"]` holds updates of γ, their `gamma_heatmap` is written as gamma.png. Without a
    fitted temperature there is no diagram after T, and without a loss that `LossConfig.parse` reads no loss.yaml.

    Returns:
        The files, the JSON last: where it exists, the report is complete.
    """
    folder, metrics = Path(folder), Path(folder, "metrics.json")
    paths = write_run_files(folder, result, results_table([result]))
    result.save(metrics)
    return [*paths, metrics]


def write_comparison(folder: str | Path, results: Sequence[RunResult]) -> list[Path]:
    """Write the comparison of several runs: table.md and comparison.png."""
    return write_comparison_files(Path(folder), results, results_table(results))


def write_run_files(folder: Path, result: Any, markdown: str) -> list[Path]:
    """Write what the report of any one run has: the table, the diagrams before and after scaling, the loss, and γ."""
    folder.mkdir(parents=True, exist_ok=True)
    table, loss = folder / "table.md", folder / "loss.yaml"
    before, after = folder / "reliability_before.png", folder / "reliability_after.png"
    table.write_text(markdown, encoding="utf-8")
    reliability_diagram(metrics=result.pre_bins, title=result.loss, path=before)
    paths = [table, before]
    for path in (after, loss, folder / "gamma.png"):
        path.unlink(missing_ok=True)  # of an earlier report that had it
    if result.temperature.is_fitted:
        title = f"{result.loss}, T = {result.temperature.value:g}"
        reliability_diagram(metrics=result.post_bins, title=title, path=after)
        paths.append(after)
    if (config := known_loss(result.loss)) is not None:
        loss.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False), encoding="utf-8")
        paths.append(loss)
    if history := result.details.get("gamma_history"):
        paths.append(folder / "gamma.png")
        gamma_heatmap(history, title=result.loss, path=paths[-1])
    return paths


def write_comparison_files(folder: Path, results: Sequence[Any], markdown: str) -> list[Path]:
    """Write what the comparison of any runs has: the table and the diagrams side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    table, figure = folder / "table.md", folder / "comparison.png"
    table.write_text(markdown, encoding="utf-8")
    comparison_figure({result.loss: (result.pre_bins, result.post_bins) for result in results}, path=figure)
    return [table, figure]


def results_table(results: Sequence[RunResult]) -> str:
    """The Markdown table of the results, a row each (`markdown_table`)."""
    rows = []
    for result in results:
        ece = {"ece": result.pre_intervals.get("ece")}
        row: dict[str, Any] = {"loss": result.loss, "pre": result.pre, "intervals": ece}
        if result.temperature.is_fitted:
            row |= {"post": result.post, "post_intervals": {"ece": result.post_intervals.get("ece")}}
            row["temperature"] = result.temperature.value
        if result.true_calibration_error is not None:
            row["true_calibration_error"] = result.true_calibration_error
        rows.append(row)
    return markdown_table(rows)


def known_loss(name: str) -> LossConfig | None:
    """The loss that a result names, None where that is no loss: the model was trained elsewhere."""
    try:
        return None if name.endswith((".yaml", ".yml")) else LossConfig.parse(name)
    except (TypeError, ValueError):  # "[name]" is YAML
        return None
