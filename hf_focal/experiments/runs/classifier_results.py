"""What is recorded of a classifier's training, and the result of its run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import TrainOutput

from ...calibration.temperature import Temperature
from ...losses import hits_and_rows
from ...reports import RunResult
from ...trainer import FocalTrainer, gamma_history
from ..callbacks.class_weights_callback import ClassWeights, class_weight_history
from ..callbacks.training_dynamics import Dynamics, dynamics_history
from ..reports.class_tables import class_table, per_class_table
from .recipe_arguments import ClassifierArguments, SampleClassifierArguments


def watch_classes(trainer: FocalTrainer, recipe: ClassifierArguments) -> None:
    """Have the trainer record the weights of the classes, if that is asked for."""
    if recipe.class_weights_steps is not None:
        trainer.add_callback(ClassWeights(trainer, recipe.class_weights_steps))


def watch_samples(trainer: FocalTrainer, recipe: SampleClassifierArguments, test_dataset: Any) -> None:
    """Have the trainer record what is asked for: the weights of the classes, the dynamics of training and test set."""
    watch_classes(trainer, recipe)
    if recipe.dynamics:
        trainer.add_callback(Dynamics(trainer, test_dataset))


def measure_classifier(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    logits: torch.Tensor,
    labels: torch.Tensor,
    true_calibration_error: tuple[float, float] | None = None,
    train_labels: torch.Tensor | None = None,
) -> RunResult:
    """The result of the test set's logits (N, K) and labels (N,), with what is worth knowing of the training.

    Args:
        trainer, trained: which trained, and what its `train` returned.
        temperature: fitted on the validation set.
        logits, labels: of the test set.
        true_calibration_error: before and after the temperature, where the data's posterior is known.
        train_labels: integers in [0, K), for what the report says of large and small classes.
    """
    details = {}
    if train_labels is not None:
        hits, rows = hits_and_rows(logits, labels)
        details["class_counts"] = torch.bincount(train_labels, minlength=len(rows)).tolist()
        details["class_recall"] = (hits.double() / rows).tolist()
    return RunResult.measure(
        str(trainer.loss_config),
        temperature,
        logits,
        labels,
        num_bins=trainer.args.calibration_bins,
        true_calibration_error=true_calibration_error,
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
    """The result of a classifier of pixels or tokens on the test set, whose logits are not kept.

    Args:
        trainer, trained, temperature: as `measure_classifier` takes them; the temperature is the trainer's own.
        dataset: the test set, as the trainer takes it. All processes must call.
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


def show_classes(reports: Sequence[Path], results: Sequence[RunResult]) -> None:
    """Write classes.md into each report of `train_classifiers`, and into that of the comparison: how well each class
    of pixels or tokens is found."""
    for report, some in [*zip(reports, ([run] for run in results), strict=False), (reports[-1], results)]:
        text = f"{class_table(some)}\nAccuracy of each class, %\n\n{per_class_table(some)}"
        (report / "classes.md").write_text(f"{text}\nIoU of each class, %\n\n{per_class_table(some, 'iou')}", "utf-8")
