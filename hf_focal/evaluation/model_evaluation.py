"""Evaluation of trained models, and choice of a confidence threshold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..reports import RunResult
from ..tasks.dataset_loading import dataset_location
from ..tasks.input_errors import explained
from ..tasks.task import MULTI_LABEL
from ..trainer.state_and_saving import label_names_of
from ..validation import InputError
from .choice_model import load_trained
from .chosen_thresholds import check_goals, choose_thresholds, described
from .output_folder import NotPublishedError, arguments_of, new_folder, write_results
from .trained_model import overlap_notes


def evaluate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    onnx: str | Path | None = None,
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_dataset: str | None = None,
    threshold_split: str | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Measure the calibration of a trained model, and return the result. With several processes, each must call this.

    Args:
        model: a Hub id or a folder.
        dataset: a file, a folder, or a Hub dataset, named as for `load_one_split`.
        split: the split of a dataset; "test" by default.
        onnx: an ONNX file that `model` was exported to. Its logits are measured, as ONNX Runtime computes them on the
            CPU, with the config and the tokenizer or other processor of `model`; needs ``pip install hf_focal[onnx]``.
        task: one of `TASKS`; needed only if the model's config does not determine the task.
        batch_size: samples per batch on each device.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        precision, coverage: give one of them to find the confidence threshold at which the model's answers have at
            least this precision or cover at least this share of the samples. For a model with a sigmoid for each
            label, or for the only logit, `precision` or `recall` chooses a threshold of each label. See
            `fit_thresholds`, whose clusters are those of `cluster_column` or, without one, of samples with the same
            (first) text or other input.
        confidence: the probability, over draws of the data for the threshold, with which the goal holds. Tokens of
            texts depend on each other and get no such guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        threshold_dataset, threshold_split: the data to choose the threshold on, by default `dataset` and "validation".
        on_result: a function that every process calls with the result before anything is written.
        **options: the fields of `InputOptions`.

    Raises:
        NotPublishedError: no threshold reaches `precision` or `coverage`, or the report could not be written; the
            error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.
    """
    arguments = arguments_of(evaluate_model, locals())
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall, coverage=coverage)
    threshold_data = ("threshold_dataset", threshold_dataset or dataset, threshold_split, "validation")
    if goal:
        with explained():
            if dataset_location(*threshold_data) == dataset_location("dataset", dataset, split, "test"):
                raise InputError("threshold_dataset", "must hold different samples from dataset, got the same ones")
    elif given := threshold_dataset or threshold_split:
        argument = "threshold_dataset" if threshold_dataset else "threshold_split"
        raise InputError(argument, f"must come with precision, recall, or coverage, got {given!r} alone")
    with new_folder(output):
        trained = load_trained(model, task, batch_size, num_bins, options, onnx)
        of_labels = trained.config.problem_type == MULTI_LABEL
        if of_labels and coverage is not None:
            raise InputError("coverage", f"must not be given for {trained.name!r}: it has no single confidence")
        if recall is not None and not of_labels:
            raise InputError("recall", f"must not be given for {trained.name!r}, which has no sigmoid for each label")
        source, samples = trained.load("dataset", dataset, split, "test")
        details: dict[str, Any] = {}
        notes = trained.calibration_notes("; it is evaluated as it is", "; it is evaluated without it")
        if goal:
            chosen_on, held_out = trained.load(*threshold_data)
            notes += overlap_notes(trained.task, samples, held_out, "threshold", "test")
        before, _ = trained.measure(trained.encode(source, samples))
        if goal:
            clusters, are_independent, of_clusters = trained.clusters_of(chosen_on, held_out)
            notes += of_clusters
            chosen = trained.hits(trained.encode(chosen_on, held_out), clusters, are_independent)
            thresholds = choose_thresholds(chosen, goal, confidence, simultaneous, trained.link)
            names = label_names_of(trained.model) if trained.task.takes_affine else ["confidence"]
            details["thresholds"] = described(thresholds, names, chosen_on, before)
        notes = [*trained.data_notes, *notes]
        result = trained.result(None, before, None, measured_on=source, notes=notes, **details)
        if on_result is not None:
            on_result(result)
        if output is not None and trained.args.process_index == 0:
            write_results(output, result, arguments=arguments)
        if goal and not of_labels and thresholds.values[0] is None:
            ((name, least),) = goal.items()
            reason = f"must be one that {chosen_on} shows with {100 * confidence:g}% confidence, got {least:g}"
            raise NotPublishedError(f"{name} {reason}: {thresholds.reasons[0]}", result)
    return result
