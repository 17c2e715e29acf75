"""Reports of image classifiers, with example pictures and a table of confidences."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.trainer_utils import PredictionOutput

from hf_focal.cli.recipe_arguments import loss_folder
from hf_focal.reports import RunResult, results_table
from hf_focal.reports.markdown_tables import RESULTS_LEGEND

from ..data.image_batches import ImageDataset
from ..figures.experiment_report import write_experiment_report
from ..figures.prediction_examples import Predictions, choose_examples, confidence_table, examples_figure
from .classifier_results import sample_tables
from .loss_comparison import write_classifier_comparison

_FILE = "predictions.npz"


def write_image_report(
    report: Path,
    result: RunResult,
    predictions: PredictionOutput,
    images: ImageDataset,
    class_names: Sequence[str],
    seed: int,
) -> None:
    """Write a run's report and, if each image has one label, its predictions, confidence.md, and examples.png.

    Args:
        report: folder of the report.
        result: result of the run.
        predictions: what the trainer's `predict` returned for the test set.
        images: the test set.
        class_names: names of the K classes.
        seed: seed of the random choice of example pictures.
    """
    report.mkdir(parents=True, exist_ok=True)
    if not _several_labels(result):
        logits, labels = torch.from_numpy(predictions.predictions), torch.from_numpy(predictions.label_ids)
        own = Predictions.of(logits, labels, result.temperature)
        own.save(report / _FILE)
        _write_examples(report, [result], {result.loss: own}, images, class_names, seed)
    write_experiment_report(report, result)  # last: it marks the run as finished


def write_image_comparison(
    report: Path, results: Sequence[RunResult], images: ImageDataset, class_names: Sequence[str], seed: int
) -> None:
    """Write the comparison of runs and, if each image has one label, confidence.md and examples.png.

    The folders of the runs are beside `report`. The other arguments are as in `write_image_report`.
    """
    write_classifier_comparison(report, results)
    if _several_labels(results[0]):
        return
    folders = {result.loss: loss_folder(report.parent, result.loss) for result in results}
    predictions = {loss: Predictions.load(folder / "report" / _FILE) for loss, folder in folders.items()}
    _write_examples(report, results, predictions, images, class_names, seed)


def image_tables(results: Sequence[RunResult]) -> str:
    """Format tables of results and confidences, with a legend; for several labels, the tables of `sample_tables`."""
    if _several_labels(results[0]):
        return sample_tables(results)
    return "\n".join(
        [
            f"{results_table(results)}\n{confidence_table(results)}",
            RESULTS_LEGEND,
            "S99: the images with a confidence of at least 99%.",
        ]
    )


def _several_labels(result: RunResult) -> bool:
    return "one_temperature" in result.details


def _write_examples(
    report: Path,
    results: Sequence[RunResult],
    predictions: dict[str, Predictions],
    images: ImageDataset,
    class_names: Sequence[str],
    seed: int,
) -> None:
    """Write confidence.md and examples.png, with pictures that all runs classify correctly or all runs misclassify."""
    (report / "confidence.md").write_text(confidence_table(results), encoding="utf-8")
    chosen = [index for indices in choose_examples(predictions, seed=seed) for index in indices]
    if chosen:
        pictures = images.__getitems__(chosen)["pixel_values"]
        examples_figure(pictures, class_names, predictions, chosen, path=report / "examples.png")
