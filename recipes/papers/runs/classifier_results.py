"""Train a recipe's classifier, correct it, and measure it on the test set: the result, its tables, and its reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from transformers.trainer_utils import PredictionOutput, TrainOutput

from hf_focal.calibration import Temperature
from hf_focal.losses import hits_and_counts
from hf_focal.metrics import CalibrationMetrics, ConfusionMatrix
from hf_focal.reports import RunResult, results_table
from hf_focal.reports.markdown_tables import RESULTS_LEGEND
from hf_focal.tasks.heads import Head, label_names_of
from hf_focal.trainer import FocalTrainer, gamma_history

from ..data.generated_topic_sets import true_label_errors
from ..data.generated_topics import true_errors
from ..figures.class_tables import class_table, per_class_table
from ..figures.experiment_report import write_experiment_comparison, write_experiment_report
from ..figures.label_tables import label_correction_table
from .class_weights_callback import class_weight_history
from .recipe_arguments import ClassifierArguments, SampleClassifierArguments
from .training_dynamics import dynamics_history


def save_logits(path: Path, predictions: Mapping[str, PredictionOutput]) -> None:
    """Save the logits and labels of each split, so that other metrics and temperatures can be computed later."""
    arrays: dict[str, Any] = {}
    for name, output in predictions.items():
        arrays |= {f"{name}_logits": output.predictions, f"{name}_labels": output.label_ids}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def run_classifier(
    trainer: FocalTrainer,
    checkpoint: str | None,
    recipe_args: SampleClassifierArguments,
    test_dataset: Any,
    splits: DatasetDict,
    card_names: Mapping[str, str | None],
    *,
    keep_logits: bool = False,
    write_report: Callable[[Path, RunResult, PredictionOutput], None] | None = None,
) -> RunResult:
    """Train a classifier of whole samples, correct it, measure it, and save it with its card and report.

    Args:
        trainer: the trainer, whose validation set the correction is fitted on.
        checkpoint: the checkpoint to resume from, if any.
        recipe_args: the correction, and what to record.
        test_dataset: the test set in the trainer's format.
        splits: as in `measure_classifier`.
        card_names: names of the data, from `DatasetArguments.card_names`.
        keep_logits: save the logits of the validation and test sets to logits.npz.
        write_report: writes the report, given its folder, the result, and the predictions of the test set.
    """
    trained = _train_and_correct(trainer, checkpoint, recipe_args, test_dataset)
    of_validation = trainer.predict(trainer.eval_dataset) if keep_logits else None
    predictions = trainer.predict(test_dataset)
    if of_validation is not None and trainer.args.process_index == 0:
        path = Path(trainer.args.output_dir) / "logits.npz"
        save_logits(path, {"validation": of_validation, "test": predictions})
    result = measure_classifier(trainer, trained, predictions, splits, recipe_args.calibration)
    report = _save_with_card(trainer, result, card_names)
    if trainer.args.process_index == 0:
        if write_report is None:
            write_experiment_report(report, result)  # last: it marks the run as finished
        else:
            write_report(report, result, predictions)
    return result


def run_dense_classifier(
    trainer: FocalTrainer,
    checkpoint: str | None,
    recipe_args: ClassifierArguments,
    test_dataset: Any,
    class_names: Sequence[str],
    class_counts: Sequence[int],
    card_names: Mapping[str, str | None],
) -> RunResult:
    """Do what `run_classifier` does for pixels or tokens, with the names and counts of `measure_dense`."""
    trained = _train_and_correct(trainer, checkpoint, recipe_args, test_dataset)
    result = measure_dense(trainer, trained, test_dataset, class_names, class_counts)
    report = _save_with_card(trainer, result, card_names)
    if trainer.args.process_index == 0:
        write_class_report(report, result)
    return result


def _train_and_correct(
    trainer: FocalTrainer, checkpoint: str | None, recipe_args: ClassifierArguments, test_dataset: Any
) -> TrainOutput:
    recipe_args.add_callbacks(trainer, test_dataset)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    if hasattr(trainer.model, "merge_and_unload"):  # LoRA adapters
        trainer.model = trainer.model_wrapped = trainer.model.merge_and_unload()
    recipe_args.fit_correction(trainer)
    return trained


def _save_with_card(trainer: FocalTrainer, result: RunResult, card_names: Mapping[str, str | None]) -> Path:
    """Save the corrected model and its card. Return the folder for its report."""
    trainer.save_calibrated()
    trainer.create_model_card(result=result, **card_names)
    return Path(trainer.args.output_dir) / "report"


def measure_classifier(
    trainer: FocalTrainer, trained: TrainOutput, predictions: PredictionOutput, splits: DatasetDict, calibration: str
) -> RunResult:
    """Return the result of a classifier of whole samples.

    For several labels per sample, `details["one_temperature"]` of the result has the metrics after one shared T.

    Args:
        trainer: the trainer after training, with a correction that was fitted on the validation set.
        trained: what the trainer's `train` returned.
        predictions: what the trainer's `predict` returned for the test set.
        splits: "train" with the column "label", and "test", which may have the true probabilities as "posterior".
        calibration: the method of correction that the user requested, such as "temperature" or "auto".
    """
    logits, labels = torch.from_numpy(predictions.predictions), torch.from_numpy(predictions.label_ids)
    correction, temperature = trainer.correction, trainer.temperature
    assert correction is not None
    if temperature is not None and trainer.head is Head.LABELS:
        return _measure_labels(trainer, temperature, logits, labels, splits["test"], _details(trainer, trained))
    hits, counts = hits_and_counts(logits, labels)
    train_labels = torch.tensor(splits["train"]["label"][:])
    details = {
        "class_counts": torch.bincount(train_labels, minlength=len(counts)).tolist(),
        "class_recall": (hits.double() / counts).tolist(),
    }
    if trainer.calibration_fit is not None:
        details["calibration"] = trainer.calibration_fit.to_dict() | {"wanted": calibration}
    return RunResult.measure(
        str(trainer.loss_config),
        temperature or correction,
        logits,
        labels,
        num_bins=trainer.args.calibration_bins,
        true_calibration_error=true_errors(logits, correction, splits["test"]),
        details=_details(trainer, trained) | details,
    )


def _measure_labels(
    trainer: FocalTrainer,
    temperature: Temperature,
    logits: torch.Tensor,
    labels: torch.Tensor,
    test: Dataset,
    details: dict[str, Any],
) -> RunResult:
    """Return the result of a classifier with several labels per sample.

    `details["one_temperature"]` has the metrics after one T that all labels share. If `test` has the column
    "posterior" of true probabilities, `details["true_errors"]` has the `true_label_errors` before T, after the shared
    T, and after one T per label.
    """
    corrected = [logits.float(), logits.float() / temperature.value, temperature.correction.apply(logits.float())]
    measured = []
    for scores in corrected:
        measured.append(CalibrationMetrics(trainer.args.calibration_bins, link="sigmoid"))
        measured[-1].update(scores, labels)
    details["one_temperature"] = measured[1].compute()
    true = None
    if "posterior" in test.column_names:
        errors = [true_label_errors(scores.double().sigmoid().numpy(), test["posterior"][:]) for scores in corrected]
        details["true_errors"], true = errors, (errors[0]["ece"], errors[2]["ece"])
    before, _, after = measured
    options: dict[str, Any] = {"details": details, "label_names": label_names_of(trainer.model)}
    return RunResult.of(str(trainer.loss_config), temperature, before, after, true, **options)


def measure_dense(
    trainer: FocalTrainer, trained: TrainOutput, dataset: Any, class_names: Sequence[str], class_counts: Sequence[int]
) -> RunResult:
    """Return the result of a classifier of pixels or tokens, whose logits are not kept. All processes must call this.

    Args:
        trainer, trained: as in `measure_classifier`.
        dataset: the test set in the trainer's format.
        class_names: names of the K classes.
        class_counts: number of training pixels or tokens of each class.
    """
    before, after = trainer.measure(dataset)
    temperature, confusion = trainer.temperature, trainer.confusion
    assert temperature is not None and after is not None and confusion is not None  # each sample has several labels
    loss, details = str(trainer.loss_config), _details(trainer, trained)
    details["class_counts"] = list(map(int, class_counts))
    details["class_recall"] = confusion.by_class()["accuracy"].tolist()
    return result_of_classes(loss, temperature, before, after, confusion, class_names, details)


def result_of_classes(
    loss: str,
    temperature: Temperature,
    before: CalibrationMetrics,
    after: CalibrationMetrics,
    confusion: ConfusionMatrix,
    class_names: Sequence[str],
    details: dict[str, Any],
) -> RunResult:
    """Return the result of a classifier of pixels or tokens, with its confusion matrix.

    The values of `confusion.compute()` are added to the result's `pre` and `post`. `details["classes"]` of the result
    has lists of the "name", "count", "accuracy", and "iou" of the classes.
    """
    by_class = {name: values.tolist() for name, values in confusion.by_class().items()}
    details = {**details, "classes": {"name": list(class_names), **by_class}}
    result = RunResult.of(loss, temperature, before, after, details=details, intervals=False)
    means = confusion.compute()
    return replace(result, pre=result.pre | means, post=result.post | means)


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


def sample_tables(results: Sequence[RunResult]) -> str:
    """Format the tables of classifiers of whole samples, with a legend.

    For several labels per sample, another table compares one shared T with one T per label.
    """
    lines = [results_table(results), RESULTS_LEGEND]
    if results[0].true_calibration_error is not None:
        lines.append("true ECE: against the posterior that generated the labels, instead of the labels.")
    if "one_temperature" in results[0].details:
        lines += ["\nBefore → after one T → after one T per label:\n", label_correction_table(results)]
    return "\n".join(lines)


def class_tables(results: Sequence[RunResult]) -> str:
    """Format the tables of results, of means over classes, and of the accuracy of each class."""
    tables = f"{results_table(results)}\n{class_table(results)}"
    return f"{tables}\nAccuracy of each class (recall), %:\n\n{per_class_table(results)}"


def write_class_report(report: Path, result: RunResult) -> None:
    """Write the report of a classifier of pixels or tokens, including classes.md with the tables of the classes."""
    _write_classes(report, [result])
    write_experiment_report(report, result)  # last: it marks the run as finished


def write_class_comparison(report: Path, results: Sequence[RunResult]) -> None:
    """Write the comparison of classifiers of pixels or tokens, including classes.md with the tables of the classes."""
    write_experiment_comparison(report, results)
    _write_classes(report, results)


def _write_classes(report: Path, results: Sequence[RunResult]) -> None:
    report.mkdir(parents=True, exist_ok=True)
    text = f"{class_table(results)}\nAccuracy of each class, %\n\n{per_class_table(results)}"
    (report / "classes.md").write_text(f"{text}\nIoU of each class, %\n\n{per_class_table(results, 'iou')}", "utf-8")
