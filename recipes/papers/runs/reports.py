"""Report folders of runs: what `hf_focal.reports` writes, and figures and tables of the papers' own experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_focal.reports import RunResult, write_comparison, write_report
from hf_focal.trainer.recipe_arguments import loss_folder
from papers.data.image_batches import ImageDataset
from papers.figures.class_weight_figures import class_weights_figure, training_loss_figure
from papers.figures.dynamics_figures import write_dynamics, write_dynamics_comparison
from papers.figures.prediction_examples import Predictions, choose_examples, confidence_table, examples_figure
from papers.metrics.shot_recall import has_long_tail, shots_table


def write_experiment_report(folder: str | Path, result: RunResult) -> None:
    """Write one run's report: the files of `hf_focal.reports.write_report`, and more.

    For long-tailed training data (`has_long_tail`), shots.md holds the `shots_table`. If
    `result.details["class_weights"]` holds records of class weights, class_weights.png is their
    `class_weights_figure`. If training dynamics were recorded, there are also the figures of `write_dynamics`.
    metrics.json is written last: if it exists, the report is complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_shots(folder, [result])
    if history := result.details.get("class_weights"):
        counts = result.details["class_counts"]
        class_weights_figure(history, counts, title=result.loss, path=folder / "class_weights.png")
    if dynamics := result.details.get("dynamics_history"):
        write_dynamics(folder, dynamics, title=result.loss)
    write_report(folder, result)


def write_classifier_comparison(folder: str | Path, results: Sequence[RunResult]) -> None:
    """Write the comparison of several runs: the files of `hf_focal.reports.write_comparison`, and more.

    For long-tailed training data (`has_long_tail`), shots.md holds the `shots_table`. If there are at least two runs
    of recall loss with a moving average (`recall:ema=...`), training_loss.png is their `training_loss_figure`. If all
    runs recorded their training dynamics, there are also the figures of `write_dynamics_comparison`.
    """
    folder = Path(folder)
    write_comparison(folder, results)
    _write_shots(folder, results)
    averaged = [run for run in results if run.loss.startswith("recall:ema")]
    curves = {run.loss: run.details["training_losses"] for run in averaged if run.details.get("training_losses")}
    if len(curves) > 1:
        training_loss_figure(curves, path=folder / "training_loss.png")
    histories: dict[str, Any] = {result.loss: result.details.get("dynamics_history") for result in results}
    if all(histories.values()):
        write_dynamics_comparison(folder, histories)


def _write_shots(folder: Path, results: Sequence[RunResult]) -> None:
    if all(has_long_tail(result.details) for result in results):
        (folder / "shots.md").write_text(shots_table(results), encoding="utf-8")


def write_image_report(folder: Path, result: RunResult) -> None:
    """Write the report of an image classifier, which also has confidence.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "confidence.md").write_text(confidence_table([result]), encoding="utf-8")
    write_experiment_report(folder, result)  # last: it marks the run as finished


def write_image_comparison(
    folder: Path, results: Sequence[RunResult], images: ImageDataset, class_names: Sequence[str], seed: int
) -> None:
    """Write the comparison of image classifiers, which also has confidence.md and examples.png.

    The examples are test `images` that all runs classify correctly, and others that all misclassify. The folders of
    the runs, with logits.npz, are beside `folder`.
    """
    write_classifier_comparison(folder, results)
    (folder / "confidence.md").write_text(confidence_table(results), encoding="utf-8")
    predictions = {}
    for result in results:
        with np.load(loss_folder(folder.parent, result.loss) / "logits.npz") as arrays:
            logits, labels = arrays["test_logits"], arrays["test_labels"]
        predictions[result.loss] = Predictions.of(logits, labels, result.temperature)
    chosen = [index for indices in choose_examples(predictions, seed=seed) for index in indices]
    if chosen:
        pictures = images.__getitems__(chosen)["pixel_values"]
        examples_figure(pictures, class_names, predictions, chosen, path=folder / "examples.png")
