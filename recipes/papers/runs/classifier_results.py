"""Train a recipe's classifier, correct it, and measure it on the test set: the result and its tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers.trainer_utils import PredictionOutput, TrainOutput

from hf_focal.calibration import Temperature
from hf_focal.losses import hits_and_counts
from hf_focal.metrics import CalibrationMetrics
from hf_focal.reports import RunResult, results_table
from hf_focal.reports.wording.markdown_tables import RESULTS_LEGEND
from hf_focal.tasks.heads import Head, label_names_of
from hf_focal.trainer import FocalTrainer, gamma_history
from papers.data.generated_topic_sets import true_label_errors
from papers.runs.arguments import SampleClassifierArguments
from papers.runs.class_weights_callback import class_weight_history
from papers.runs.reports import write_experiment_report
from papers.runs.training_dynamics import dynamics_history


def run_classifier(
    trainer: FocalTrainer,
    checkpoint: str | None,
    recipe_args: SampleClassifierArguments,
    test_dataset: Any,
    splits: DatasetDict,
    write_report: Callable[[Path, RunResult], None] = write_experiment_report,
) -> RunResult:
    """Train a classifier of whole samples, fit T, measure it, and save it with its report.

    For one label per sample, the logits and labels of the validation and test sets are kept in logits.npz. T is fitted
    on the trainer's validation set. `write_report`, given the report's folder and the result,
    writes as its last file what marks the run as finished. `checkpoint` is the one to resume from, if any;
    `test_dataset` is in the trainer's format, and `splits` are as in `measure_classifier`.
    """
    recipe_args.add_callbacks(trainer, test_dataset)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    recipe_args.fit_temperature(trainer)
    folder, validation_predictions = Path(trainer.args.output_dir), None
    if trainer.head is not Head.LABELS:
        validation_predictions = trainer.predict(trainer.eval_dataset)
    predictions = trainer.predict(test_dataset)
    result = measure_classifier(trainer, trained, predictions, splits)
    trainer.save_calibrated()
    if trainer.args.process_index == 0:
        if validation_predictions is not None:
            arrays: dict[str, Any] = {}
            for name, output in (("validation", validation_predictions), ("test", predictions)):
                arrays |= {f"{name}_logits": output.predictions, f"{name}_labels": output.label_ids}
            np.savez_compressed(folder / "logits.npz", **arrays)
        write_report(folder / "report", result)
    return result


def measure_classifier(
    trainer: FocalTrainer, trained: TrainOutput, predictions: PredictionOutput, splits: DatasetDict
) -> RunResult:
    """Return the result of a classifier of whole samples, whose T was fitted on the validation set.

    `predictions` are those of the test set. "train" has the column "labels", and "test" may have the true
    probabilities of several labels as "posterior". For several labels per sample, `details["one_temperature"]` of the
    result has the metrics after one shared T.
    """
    logits, labels = torch.from_numpy(predictions.predictions), torch.from_numpy(predictions.label_ids)
    assert trainer.fit is not None and trainer.fit.temperature is not None
    temperature, details = trainer.fit.temperature, _details(trainer, trained)
    if trainer.head is Head.LABELS:
        return _measure_labels(trainer, temperature, logits, labels, splits["test"], details)
    hits, counts = hits_and_counts(logits, labels)
    train_labels = torch.tensor(splits["train"]["labels"][:])
    details |= {
        "class_counts": torch.bincount(train_labels, minlength=len(counts)).tolist(),
        "class_recall": (hits.double() / counts).tolist(),
    }
    num_bins = trainer.args.calibration_bins
    return RunResult.measure(str(trainer.loss_config), temperature, logits, labels, num_bins=num_bins, details=details)


def _measure_labels(
    trainer: FocalTrainer, temperature: Temperature, logits: Tensor, labels: Tensor, test: Dataset, details: dict
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
    return RunResult.from_metrics(str(trainer.loss_config), temperature, before, after, true, **options)


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
    """Format the table of classifiers of whole samples, with a legend."""
    lines = [results_table(results), RESULTS_LEGEND]
    if results[0].true_calibration_error is not None:
        lines.append("true ECE: against the posterior that generated the labels, instead of the labels.")
    return "\n".join(lines)
