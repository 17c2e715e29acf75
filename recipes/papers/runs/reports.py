"""Report folders of runs: what `hf_focal.reports` writes, and figures and tables of the papers' own experiments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_focal.cli.recipe_arguments import loss_folder
from hf_focal.reports import RunResult, write_comparison, write_report

from ..data.image_batches import ImageDataset
from ..figures.class_weight_figures import class_weights_figure, training_loss_figure
from ..figures.dynamics_figures import write_dynamics_comparison
from ..figures.prediction_examples import Predictions, choose_examples, confidence_table, examples_figure
from ..metrics.shot_recall import has_long_tail, shots_table


def write_experiment_report(folder: str | Path, result: RunResult) -> None:
    """Write one run's report: the files of `hf_focal.reports.write_report`, and up to two more.

    For long-tailed training data (`has_long_tail`), shots.md holds the `shots_table`. If
    `result.details["class_weights"]` holds records of class weights, class_weights.png is their
    `class_weights_figure`. metrics.json is written last: if it exists, the report is complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_shots(folder, [result])
    if history := result.details.get("class_weights"):
        counts = result.details["class_counts"]
        class_weights_figure(history, counts, title=result.loss, path=folder / "class_weights.png")
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


class ImageReports:
    """Writes reports of image classifiers, which also have confidence.md and examples.png of the test set `images`."""

    def __init__(self, images: ImageDataset, class_names: Sequence[str], seed: int) -> None:
        self.images, self.class_names, self.seed = images, class_names, seed

    def write_report(self, folder: Path, result: RunResult) -> None:
        """Write the report of the run whose logits.npz is beside `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._write_examples(folder, {folder.parent: result})
        write_experiment_report(folder, result)  # last: it marks the run as finished

    def write_comparison(self, folder: Path, results: Sequence[RunResult]) -> None:
        """Write the comparison of runs, whose folders are beside `folder`."""
        write_classifier_comparison(folder, results)
        self._write_examples(folder, {loss_folder(folder.parent, result.loss): result for result in results})

    def _write_examples(self, folder: Path, runs: Mapping[Path, RunResult]) -> None:
        """Write confidence.md and examples.png, of pictures that all runs classify correctly or all misclassify."""
        (folder / "confidence.md").write_text(confidence_table(list(runs.values())), encoding="utf-8")
        predictions = {}
        for run, result in runs.items():
            with np.load(run / "logits.npz") as arrays:
                logits, labels = arrays["test_logits"], arrays["test_labels"]
            predictions[result.loss] = Predictions.of(logits, labels, result.temperature)
        chosen = [index for indices in choose_examples(predictions, seed=self.seed) for index in indices]
        if chosen:
            pictures = self.images.__getitems__(chosen)["pixel_values"]
            examples_figure(pictures, self.class_names, predictions, chosen, path=folder / "examples.png")
