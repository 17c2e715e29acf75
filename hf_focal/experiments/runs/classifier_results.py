"""Results of classifiers: test metrics and training details."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import DatasetDict
from transformers.trainer_utils import PredictionOutput, TrainOutput

from ...calibration.fitted_temperature import Temperature
from ...losses import hits_and_counts
from ...reports import RunResult, results_table
from ...trainer import FocalTrainer, gamma_history
from ..callbacks.class_weights_callback import class_weight_history
from ..callbacks.training_dynamics import dynamics_history
from ..data.generated_topics import true_errors
from ..reports.class_tables import class_table, per_class_table
from ..reports.experiment_report import write_experiment_comparison, write_experiment_report


def save_logits(path: Path, predictions: Mapping[str, PredictionOutput]) -> None:
    """Save the logits and labels of each split, with which other metrics and temperatures can be computed later."""
    arrays: dict[str, Any] = {}
    for name, output in predictions.items():
        arrays |= {f"{name}_logits": output.predictions, f"{name}_labels": output.label_ids}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def measure_classifier(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    predictions: PredictionOutput,
    splits: DatasetDict,
) -> RunResult:
    """The result of a classifier of whole samples.

    Args:
        trainer: the trainer after training.
        trained: what its `train` returned.
        temperature: fitted on the validation set.
        predictions: what its `predict` returned for the test set.
        splits: "train" with the column "label", and "test", which may have the true "posterior".
    """
    logits, labels = torch.from_numpy(predictions.predictions), torch.from_numpy(predictions.label_ids)
    hits, counts = hits_and_counts(logits, labels)
    train_labels = torch.tensor(splits["train"]["label"][:])
    details = {
        "class_counts": torch.bincount(train_labels, minlength=len(counts)).tolist(),
        "class_recall": (hits.double() / counts).tolist(),
    }
    return RunResult.measure(
        str(trainer.loss_config),
        temperature,
        logits,
        labels,
        num_bins=trainer.args.calibration_bins,
        true_calibration_error=true_errors(logits, temperature, splits["test"]),
        details=_details(trainer, trained) | details,
    )


def measure_dense(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    dataset: Any,
    class_names: Sequence[str],
    class_counts: Sequence[int],
) -> RunResult:
    """The result of a classifier of pixels or tokens, whose logits are not kept. All processes must call.

    Args:
        trainer, trained, temperature: as in `measure_classifier`; the temperature is the trainer's own.
        dataset: the test set, as the trainer takes it.
        class_names: of the K classes.
        class_counts: how many training pixels or tokens each class has.
    """
    before, after = trainer.measure(dataset)
    confusion = trainer.confusion
    assert after is not None and confusion is not None  # a temperature is fitted, and a sample has several labels
    loss, details = str(trainer.loss_config), _details(trainer, trained)
    details["class_counts"] = list(map(int, class_counts))
    details["class_recall"] = confusion.by_class()["accuracy"].tolist()
    return RunResult.of_classes(loss, temperature, before, after, confusion, class_names, details)


def _details(trainer: FocalTrainer, trained: TrainOutput) -> dict[str, Any]:
    return {
        "train_metrics": trained.metrics,
        "best_validation_metric": trainer.state.best_metric,
        "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": trainer.args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
        "dynamics_history": dynamics_history(trainer.state.log_history),
        "class_weights": class_weight_history(trainer.state.log_history),
        "training_losses": [(entry["epoch"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry],
    }


def class_tables(results: Sequence[RunResult]) -> str:
    """The tables of results, of class means, and of each class's accuracy."""
    tables = f"{results_table(results)}\n{class_table(results)}"
    return f"{tables}\nAccuracy of each class (recall), %:\n\n{per_class_table(results)}"


def write_class_report(report: Path, result: RunResult) -> None:
    """Write the report of a classifier of pixels or tokens, with classes.md."""
    _write_classes(report, [result])
    write_experiment_report(report, result)  # last: it marks the run as finished


def write_class_comparison(report: Path, results: Sequence[RunResult]) -> None:
    """Write the comparison of classifiers of pixels or tokens, with classes.md."""
    write_experiment_comparison(report, results)
    _write_classes(report, results)


def _write_classes(report: Path, results: Sequence[RunResult]) -> None:
    report.mkdir(parents=True, exist_ok=True)
    text = f"{class_table(results)}\nAccuracy of each class, %\n\n{per_class_table(results)}"
    (report / "classes.md").write_text(f"{text}\nIoU of each class, %\n\n{per_class_table(results, 'iou')}", "utf-8")
