"""Report folder of a run, and of the comparison of several runs."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from .gamma_figure import gamma_heatmap
from .markdown_tables import results_table
from .reliability_figures import comparison_figure, reliability_diagram
from .run_results import MeasuredRun, RunResult, known_loss


def write_report(folder: str | Path, result: RunResult) -> list[Path]:
    """Write the report of one run: metrics.json, table.md, loss.yaml and reliability diagrams before and after T.

    gamma.png shows `result.details["gamma_history"]`, if it holds updates of γ. Without a fitted temperature there is
    no diagram after T; if `LossConfig.parse` does not know the loss there is no loss.yaml.

    Returns:
        The files. metrics.json is written last: if it exists, the report is complete.
    """
    folder, metrics = Path(folder), Path(folder, "metrics.json")
    paths = write_run_files(folder, result, results_table([result]))
    result.save(metrics)
    return [*paths, metrics]


def write_comparison(folder: str | Path, results: Sequence[RunResult]) -> list[Path]:
    """Write the comparison of several runs: table.md and comparison.png."""
    return write_comparison_files(Path(folder), results, results_table(results))


def write_run_files(folder: Path, result: MeasuredRun, markdown: str) -> list[Path]:
    """Write the files common to the reports of all runs: the table, reliability diagrams, the loss and γ."""
    folder.mkdir(parents=True, exist_ok=True)
    table, loss = folder / "table.md", folder / "loss.yaml"
    before, after = folder / "reliability_before.png", folder / "reliability_after.png"
    table.write_text(markdown, encoding="utf-8")
    reliability_diagram(metrics=result.pre_bins, title=result.loss, path=before)
    paths = [table, before]
    for path in (after, loss, folder / "gamma.png"):
        path.unlink(missing_ok=True)  # from an earlier report
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


def write_comparison_files(folder: Path, results: Sequence[MeasuredRun], markdown: str) -> list[Path]:
    """Write the files common to all comparisons: the table and the reliability diagrams side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    table, figure = folder / "table.md", folder / "comparison.png"
    table.write_text(markdown, encoding="utf-8")
    comparison_figure({result.loss: (result.pre_bins, result.post_bins) for result in results}, path=figure)
    return [table, figure]
