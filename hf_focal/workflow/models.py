"""`evaluate` and `calibrate` for a trained model: a Hub id or a folder, and names of datasets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import DEFAULT_CONFIDENCE, TARGETS
from ..errors import InputError
from ..reports import RunResult
from ..sources.source import Data
from .evaluate_calibrate import calibrate, evaluate
from .keyword_arguments import ModelCalibrationArguments, ModelEvaluationArguments, check_keywords


def evaluate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    threshold_dataset: str | None = None,
    threshold_split: str | None = None,
    **arguments: Unpack[ModelEvaluationArguments],
) -> RunResult:
    """Measure the calibration of a trained model, and return the result. With several processes, each must call this.

    Args:
        model: a Hub id or a folder.
        dataset: a file, a folder, or a Hub dataset, named as for `load_one_split`.
        split: the split of a dataset; "test" by default.
        threshold_dataset, threshold_split: the data to choose the threshold on, by default `dataset` and "validation".
        reference: earlier data, named as `dataset`; otherwise as for `evaluate`.
        onnx: an ONNX file that `model` was exported to. Its logits are measured, as ONNX Runtime computes them on the
            CPU, with the config and the tokenizer or other processor of `model`; needs ``pip install hf_focal[onnx]``.
        task: one of `TASKS`; needed only if the model's config does not determine the task.
        batch_size: samples per batch on each device; 16 by default.
        precision, coverage, recall, f1, cost, confidence, simultaneous: as for `evaluate`.
        num_bins, output, save_scores, no_examples, on_result: as for `evaluate`.
        **arguments: those above from `reference` on, and the fields of `InputOptions`.

    Raises:
        GoalNotReachedError: no threshold reaches `precision` or `coverage`; the error's `result` holds the
            measurements, as that of the next error does.
        NotPublishedError: the report could not be written.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import evaluate_model
        >>> evaluate_model("model", "test.csv").pre["num_samples"]
        60.0
    """
    check_keywords("evaluate_model", arguments, ModelEvaluationArguments)
    data = Data("dataset", dataset, split, "test")
    threshold_data = Data("threshold_dataset", None)
    if _has_goal(arguments):
        threshold_data = Data("threshold_dataset", threshold_dataset or dataset, threshold_split, "validation")
        if _is_same(threshold_data, data):
            raise InputError("threshold_dataset", "must hold different samples from dataset, got the same ones")
    elif alone := threshold_dataset or threshold_split:
        argument = "threshold_dataset" if threshold_dataset else "threshold_split"
        raise InputError(argument, f"needs precision, recall, coverage, f1, or cost, got {alone!r} without them")
    # As text: evaluate takes an object for a source of its own.
    return evaluate(str(model), data, threshold_data=threshold_data, **arguments)


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    **arguments: Unpack[ModelCalibrationArguments],
) -> RunResult:
    """Fit a correction to data that a model was not trained on, save the corrected model, and return the result.

    With several processes, each must call this; only the main process writes files.

    Args:
        model: a Hub id or a folder.
        dataset, split: the data to fit the correction to; `split` is "validation" by default.
        test_dataset, test_split: the data to measure on. By default, `test_dataset` is `dataset`, and `test_split` is
            "test". But if neither is given, the correction is measured on the data that it is fitted to, so the
            results are optimistic.
        task, batch_size: as in `evaluate_model`.
        onnx: an ONNX file, as in `evaluate_model`, for example a quantized one. The correction is fitted to its
            logits, and `output` gets a ``model.onnx`` that computes corrected logits, in place of the model's weights
            and the model card.
        output: a new or empty folder for the model with the correction folded in, its tokenizer or other processor,
            the model card, ``temperature.json`` (if T was fitted), ``report``, and its page ``report.html``. If T
            cannot be folded into a language model, T is stored in the model's config, where
            `apply_calibrated_generation` finds it. A T that is fitted to the options of questions is stored in
            `config.option_calibration`, where `score_choices` and `evaluate_model` find it; the weights do not change.
        objective, method, per_label, new_prior: as for `calibrate`.
        precision, recall, f1, cost, confidence, simultaneous: as for `calibrate`.
        num_bins, push_to_hub, private, save_scores, no_examples, publish_examples, on_result: as for `calibrate`.
        **arguments: those above from `task` on, and the fields of `InputOptions`.

    Raises:
        NotPublishedError: the model could not be corrected, saved, or published. Files that were already written are
            kept, and the error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import calibrate_model
        >>> result = calibrate_model("model", "held_out.csv", test_dataset="test.csv", method="temperature")
        >>> result.temperature.num_samples
        60
    """
    check_keywords("calibrate_model", arguments, ModelCalibrationArguments)
    if arguments.get("onnx") is not None and (repository := arguments.get("push_to_hub")) is not None:
        raise InputError("push_to_hub", f"must not be given if onnx is given, got {repository!r}: upload the folder")
    data, test = Data("dataset", dataset, split, "validation"), Data("test_dataset", None)
    if test_dataset is not None or test_split is not None:
        test = Data("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
        if _is_same(data, test):
            raise InputError(
                "test_dataset", f"must hold different samples from dataset, got the same ones of {dataset!r}"
            )
    # As text: calibrate takes an object for a source of its own.
    return calibrate(str(model), data, test=test, **arguments)


def _has_goal(arguments: Mapping[str, Any]) -> bool:
    """Return whether thresholds are asked for; raise `InputError` for what is wrong with their goal."""
    confidence, simultaneous = arguments.get("confidence", DEFAULT_CONFIDENCE), arguments.get("simultaneous", False)
    targets = {name: arguments.get(name) for name in TARGETS}
    return ThresholdGoal.checked(confidence, simultaneous, **targets) is not None


def _is_same(first: Data, second: Data) -> bool:
    """Return whether two names of datasets stand for the same samples."""
    from ..tasks.dataset_loading import dataset_location
    from ..tasks.input_errors import as_input_errors

    def place(data: Data) -> Any:
        name = str(data.value)
        with as_input_errors("dataset", name):
            return dataset_location(data.argument, name, data.split, data.default_split)

    return place(first) == place(second)
