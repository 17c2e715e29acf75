"""`evaluate` and `calibrate`, for whatever gives scores: a model, a table, or an object of the user's own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..calibration.threshold_goal import ThresholdGoal
from ..reports import RunResult
from ..sources.source import Data
from .run_calibration import run_calibration
from .run_evaluation import run_evaluation
from .settings import CalibrationSettings, EvaluationSettings
from .source_arguments import source_arguments


def evaluate(
    source: Any = None,
    data: Any = None,
    *,
    scores: Any = None,
    reference: Any = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_data: Any = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Measure the calibration of a source of scores, and return the result.

    Args:
        source: a model (its Hub id or folder), or an object with `link`, `classes`, and `scores(data)`, which returns
            `Scores`, such as a `Source`.
        data: labeled data that the source takes: for a model, what `evaluate_model` takes as `dataset`, of which the
            split "test" is measured.
        scores: a table of scores, in place of `source` and `data`, as for `evaluate_scores`.
        reference: earlier data; the result then says whether the calibration has changed since, and the page shows
            both in one diagram. The subfolder ``reference`` of `output` has the earlier one's report.
        precision, coverage: give one of them to find the confidence threshold at which the answers have at least this
            precision or cover at least this share of the samples. With a sigmoid for each label, or for the only
            logit, `precision` or `recall` chooses a threshold of each label. See `fit_thresholds`, whose clusters are
            those of `cluster_column` or, without one, of a model's samples with the same (first) text or other input.
        f1, cost: with sigmoids, choose the thresholds with the largest F1, or with the smallest cost of errors, given
            that of a false positive and that of a false negative. Nothing is guaranteed for other data.
        confidence: the probability, over draws of `threshold_data`, with which the goal holds. Tokens of texts depend
            on each other and get no such guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        threshold_data: the data to choose thresholds on.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        save_scores: a new parquet file for the scores, labels, and names of classes, which `scores` takes: all that
            follows the forward pass can then be repeated without it. Of a model, it may be a folder, to which every
            process writes shards while the model runs: if the evaluation is killed, the same call goes on from these.
        no_examples: leave the most confident mistakes, and the least confident right answers, out of ``report.html``.
        on_result: a function that every process calls with the result before anything is written.
        **options: of a model, `onnx`, `task`, and `batch_size`, as for `evaluate_model`, and the fields of
            `InputOptions`; of a table, `text_column`, as for `evaluate_scores`, and the options of `read_scores`.

    Raises:
        GoalNotReachedError: no threshold reaches `precision` or `coverage`; the error's `result` holds the
            measurements, as that of the next error does.
        NotPublishedError: the report could not be written.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import evaluate
        >>> result = evaluate(scores="test_scores.csv")
        >>> round(result.pre["accuracy"], 2), result.pre["ece"] > 0.05
        (0.81, True)
    """
    settings = EvaluationSettings(
        reference=Data.named("reference", reference),
        goal=ThresholdGoal.checked(
            confidence, simultaneous, precision=precision, recall=recall, coverage=coverage, f1=f1, cost=cost
        ),
        threshold_data=Data.named("threshold_data", threshold_data, "validation"),
        num_bins=num_bins,
        output=output,
        save_scores=save_scores,
        no_examples=no_examples,
        on_result=on_result,
    )
    arguments = source_arguments("evaluate", source, data, scores, options, "test")
    return run_evaluation(arguments, settings)


def calibrate(
    source: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    scores: Any = None,
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
    """Fit a correction to the scores that a source gives for labeled data, measure it, save it, and return the result.

    Args:
        source, scores, num_bins, on_result, **options: as for `evaluate`.
        data: the labeled data to fit the correction to, which the source was not trained on: for a model, what
            `calibrate_model` takes as `dataset`, of which the split "validation" is taken.
        test: the data to measure on; by default `data`, so the results are optimistic.
        objective: what a temperature minimizes, "nll" or "ece".
        method: the correction: "none"; "temperature"; or, for classifiers, "auto", "bias", "vector", or "matrix"
            or, with a sigmoid for each label or for the only logit, "platt", which are fitted by NLL (see
            `fit_correction`). By default "auto" for a classifier of samples or words with one softmax and at least
            10 samples in `data`, if `objective` is "nll"; otherwise "temperature".
        per_label: with a sigmoid for each label, fit its own temperature, or slope and intercept, by NLL.
        precision, recall, confidence: give a precision or, with a sigmoid for each label, a recall to choose
            thresholds, which hold with this confidence (see `fit_thresholds`), on the data that the correction is
            fitted to, with the cross-fitted scores: each fold is corrected by a fit on the others. They are saved in
            ``correction.json`` or in the model's config, for `apply_thresholds`. Words of texts depend on each other
            and get no guarantee.
        f1, cost: as for `evaluate`; chosen and saved as those for a precision.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        new_prior: the share of positives, or of each label or class, in the data in which the scores will be used, if
            it differs from that in `data`. The fitted correction is shifted to it (see `shift_prior`). A recall holds
            there, too; the other goals of thresholds do not, and must not be given.
        output: a new or empty folder for ``correction.json``, which `Correction.load` and `correct_file` read, the
            report, its page ``report.html``, the card, ``README.md``, and the model, if it is one, with the correction
            folded in.
        push_to_hub: of a model, the id of a Hub repository for these files, except for ``report.html``; it is created
            before anything is measured.
        private: whether a new repository is private; by default, the account's settings decide.
        save_scores: a new parquet file, or a folder, for the scores of `data`, as for `evaluate`.
        no_examples: as for `evaluate`.
        publish_examples: write the page with its examples to ``report/examples.html``, too, which is published.

    Raises:
        NotPublishedError: the source could not be corrected, saved, or published. Files that were already written are
            kept, and the error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import calibrate
        >>> result = calibrate(scores="scores.csv", test="test_scores.csv", method="temperature")
        >>> result.post["ece"] < result.pre["ece"]
        True
    """
    settings = CalibrationSettings(
        test=Data.named("test", test),
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
    arguments = source_arguments("calibrate", source, data, scores, options, "validation")
    return run_calibration(arguments, settings)
