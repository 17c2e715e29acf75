"""`evaluate` and `calibrate` for a trained model: a Hub id or a folder, and names of datasets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError
from ..reports import RunResult
from ..sources.source import Data
from .run_calibration import run_calibration
from .run_evaluation import run_evaluation
from .settings import CalibrationSettings, EvaluationSettings
from .source_arguments import MODEL_OPTIONS, ModelArguments, check_keywords


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
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_dataset: str | None = None,
    threshold_split: str | None = None,
    reference: str | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
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
        f1, cost: for the same models, choose the thresholds with the largest F1, or with the smallest cost of errors,
            given that of a false positive and that of a false negative. Nothing is guaranteed for other data.
        confidence: the probability, over draws of the data for the threshold, with which the goal holds. Tokens of
            texts depend on each other and get no such guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        threshold_dataset, threshold_split: the data to choose the threshold on, by default `dataset` and "validation".
        reference: earlier data, named as `dataset`; the result then says whether the calibration has changed since,
            and the page shows both in one diagram.
        save_scores, no_examples: as for `evaluate`.
        on_result: a function that every process calls with the result before anything is written.
        **options: the fields of `InputOptions`.

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
    check_keywords("evaluate_model", options, MODEL_OPTIONS)
    goal = ThresholdGoal.checked(
        confidence, simultaneous, precision=precision, recall=recall, coverage=coverage, f1=f1, cost=cost
    )
    data, threshold_data = Data("dataset", dataset, split, "test"), Data("threshold_dataset", None)
    if goal is not None:
        threshold_data = Data("threshold_dataset", threshold_dataset or dataset, threshold_split, "validation")
        if _is_same(threshold_data, data):
            raise InputError("threshold_dataset", "must hold different samples from dataset, got the same ones")
    elif alone := threshold_dataset or threshold_split:
        argument = "threshold_dataset" if threshold_dataset else "threshold_split"
        raise InputError(argument, f"needs precision, recall, coverage, f1, or cost, got {alone!r} without them")
    settings = EvaluationSettings(
        reference=Data("reference", reference, None, "test"),
        goal=goal,
        threshold_data=threshold_data,
        num_bins=num_bins,
        output=output,
        save_scores=save_scores,
        no_examples=no_examples,
        on_result=on_result,
    )
    arguments = ModelArguments(model=model, data=data, onnx=onnx, task=task, batch_size=batch_size, options=options)
    return run_evaluation(arguments, settings)


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    objective: str = "nll",
    method: str | None = None,
    per_label: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    new_prior: float | Sequence[float] | None = None,
    onnx: str | Path | None = None,
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    push_to_hub: str | None = None,
    private: bool | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    publish_examples: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Fit a correction to data that a model was not trained on, save the corrected model, and return the result.

    With several processes, each must call this; only the main process writes files.

    Args:
        model, task, batch_size, num_bins, on_result, **options: as in `evaluate_model`.
        dataset, split: the data to fit the correction to; `split` is "validation" by default.
        test_dataset, test_split: the data to measure on. By default, `test_dataset` is `dataset`, and `test_split` is
            "test". But if neither is given, the correction is measured on the data that it is fitted to, so the
            results are optimistic.
        objective: what a temperature minimizes, "nll" or "ece".
        method: the correction: "none"; "temperature"; or, for classifiers, "auto", "bias", "vector", or "matrix"
            or, with a sigmoid for each label or for the only logit, "platt", which are fitted by NLL (see
            `fit_correction`). By default "auto" for a classifier of samples or words with one softmax and at least
            10 samples in `dataset`, if `objective` is "nll"; otherwise "temperature".
        per_label: for a multi-label model, fit the temperature, or the slope and the intercept, of each label, by NLL.
        precision, recall, confidence: give a precision or, with a sigmoid for each label, a recall to choose
            thresholds, which hold with this confidence (see `fit_thresholds`), on the data that the correction is
            fitted to, with the cross-fitted scores: each fold is corrected by a fit on the others. They are saved in
            the model's config, for `apply_thresholds`. Words of texts depend on each other and get no guarantee.
        f1, cost: as in `evaluate_model`; chosen and saved as those for a precision.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        new_prior: the share of positives, or of each label or class, in the data in which the model will be used, if
            it differs from that in `dataset`. The fitted correction is shifted to it (see `shift_prior`). A recall
            holds there, too; the other goals of thresholds do not, and must not be given.
        onnx: an ONNX file, as in `evaluate_model`, for example a quantized one. The correction is fitted to its
            logits, and `output` gets a ``model.onnx`` that computes corrected logits, in place of the model's weights
            and the model card.
        output: a new or empty folder for the model with the correction folded in, its tokenizer or other processor,
            the model card, ``temperature.json`` (if T was fitted), ``report``, and its page ``report.html``. If T
            cannot be folded into a language model, T is stored in the model's config, where
            `apply_calibrated_generation` finds it. A T that is fitted to the options of questions is stored in
            `config.option_calibration`, where `score_choices` and `evaluate_model` find it; the weights do not change.
        push_to_hub: the id of a Hub repository for these files, except for ``report.html``; it is created before
            anything is measured.
        private: whether a new repository is private; by default, the account's settings decide.
        save_scores, no_examples, publish_examples: as for `calibrate`.

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
    check_keywords("calibrate_model", options, MODEL_OPTIONS)
    if onnx is not None and push_to_hub is not None:
        raise InputError("push_to_hub", f"must not be given if onnx is given, got {push_to_hub!r}: upload the folder")
    data, test = Data("dataset", dataset, split, "validation"), Data("test_dataset", None)
    if test_dataset is not None or test_split is not None:
        test = Data("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
        if _is_same(data, test):
            raise InputError(
                "test_dataset", f"must hold different samples from dataset, got the same ones of {dataset!r}"
            )
    settings = CalibrationSettings(
        test=test,
        objective=objective,
        method=method,
        per_label=per_label,
        goal=ThresholdGoal.checked(confidence, simultaneous, precision=precision, recall=recall, f1=f1, cost=cost),
        new_prior=new_prior,
        num_bins=num_bins,
        output=output,
        push_to_hub=push_to_hub,
        private=private,
        save_scores=save_scores,
        no_examples=no_examples,
        publish_examples=publish_examples,
        on_result=on_result,
    )
    arguments = ModelArguments(model=model, data=data, onnx=onnx, task=task, batch_size=batch_size, options=options)
    return run_calibration(arguments, settings)


def _is_same(first: Data, second: Data) -> bool:
    """Return whether two names of datasets stand for the same samples."""
    from ..tasks.dataset_loading import dataset_location
    from ..tasks.input_errors import as_input_errors

    def place(data: Data) -> Any:
        name = str(data.value)
        with as_input_errors("dataset", name):
            return dataset_location(data.argument, name, data.split, data.default_split)

    return place(first) == place(second)
