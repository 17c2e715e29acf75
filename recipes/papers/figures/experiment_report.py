"""Report folders of the papers' experiments, with class weights, recall of rare classes, and training losses."""

from collections.abc import Sequence
from pathlib import Path

from hf_focal.reports import RunResult, write_comparison, write_report

from .class_weight_figures import class_weights_figure, training_loss_figure
from .shot_recall import has_long_tail, shots_table


def write_experiment_report(folder: str | Path, result: RunResult) -> list[Path]:
    """Write one run's report: the files of `hf_focal.reports.write_report`, and up to two more.

    For long-tailed training data (`has_long_tail`), shots.md holds the `shots_table`. If
    `result.details["class_weights"]` holds records of class weights, class_weights.png is their
    `class_weights_figure`.

    Returns:
        The paths of the files. metrics.json is written last: if it exists, the report is complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = _write_shots(folder, [result])
    if history := result.details.get("class_weights"):
        paths.append(folder / "class_weights.png")
        class_weights_figure(history, result.details["class_counts"], title=result.loss, path=paths[-1])
    *files, metrics = write_report(folder, result)
    return [*files, *paths, metrics]


def write_experiment_comparison(folder: str | Path, results: Sequence[RunResult]) -> list[Path]:
    """Write the comparison of several runs: the files of `hf_focal.reports.write_comparison`, and up to two more.

    For long-tailed training data (`has_long_tail`), shots.md holds the `shots_table`. If there are at least two runs
    of recall loss with a moving average (`recall:ema=...`), training_loss.png is their `training_loss_figure`.

    Returns:
        The paths of the files.
    """
    folder = Path(folder)
    paths = [*write_comparison(folder, results), *_write_shots(folder, results)]
    averaged = [run for run in results if run.loss.startswith("recall:ema")]
    curves = {run.loss: run.details["training_losses"] for run in averaged if run.details.get("training_losses")}
    if len(curves) > 1:
        paths.append(folder / "training_loss.png")
        training_loss_figure(curves, path=paths[-1])
    return paths


def _write_shots(folder: Path, results: Sequence[RunResult]) -> list[Path]:
    if not all(has_long_tail(result.details) for result in results):
        return []
    path = folder / "shots.md"
    path.write_text(shots_table(results), encoding="utf-8")
    return [path]
