"""`evaluate` and `calibrate` for tables of scores, in files or in memory; they need no Transformers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..calibration.threshold_goal import ThresholdGoal
from ..reports import RunResult
from ..sources.source import Data
from .run_calibration import run_calibration
from .run_evaluation import run_evaluation
from .settings import CalibrationSettings, EvaluationSettings
from .source_arguments import TABLE_OPTIONS, TableArguments, check_keywords


def evaluate_scores(
    scores: Any,
    *,
    reference: Any = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_scores: Any = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    text_column: str | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Measure the calibration of scores with labels, whatever model they come from.

    Args:
        scores: a file or a table, as for `read_scores`; a folder, a pattern such as ``part-*.parquet``, or a list of
            files; a `datasets` IterableDataset; a DataFrame or LazyFrame of Polars; an Arrow dataset or reader; or the
            statistics that `measure` gave. A table with more than a million rows is read in batches.
        reference: an earlier table of the same model; the result then says whether the calibration has changed since,
            and the page shows both in one diagram. The subfolder ``reference`` has the earlier one's report.
        precision, coverage, recall, f1, cost, confidence, simultaneous: as for `evaluate_model`.
        threshold_scores: the table to choose the threshold on, which must not have the same samples as `scores`.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        save_scores, no_examples: as for `evaluate`.
        text_column: the column of texts that the page shows.
        on_result: a function that is called with the result before anything is written.
        **columns: the fields of `TableOptions`, which `read_scores` describes: names of columns, and what they hold.
            With `group`, the result has the calibration of each group in `subsets.groups`.

    Raises:
        GoalNotReachedError: no threshold reaches `precision` or `coverage`; the error's `result` holds the
            measurements, as that of the next error does.
        NotPublishedError: the report could not be written.
        InputError: the table or an argument is wrong; the message is one line.

    Examples:
        >>> from hf_focal import evaluate_scores
        >>> evaluate_scores({"probabilities": [[0.9, 0.1], [0.4, 0.6]], "label": [0, 1]}).pre["accuracy"]
        1.0
    """
    settings = EvaluationSettings(
        reference=Data("reference", reference),
        goal=ThresholdGoal.checked(
            confidence, simultaneous, precision=precision, recall=recall, coverage=coverage, f1=f1, cost=cost
        ),
        threshold_data=Data("threshold_scores", threshold_scores),
        num_bins=num_bins,
        output=output,
        save_scores=save_scores,
        no_examples=no_examples,
        on_result=on_result,
    )
    return run_evaluation(_table_arguments("evaluate_scores", scores, columns, text_column), settings)


def calibrate_scores(
    scores: Any,
    *,
    test_scores: Any = None,
    method: str = "auto",
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
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    publish_examples: bool = False,
    text_column: str | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Fit a correction to scores with labels, measure it, and save it as ``correction.json``.

    Args:
        scores, num_bins, text_column, on_result, **columns: as in `evaluate_scores`.
        test_scores: the table to measure on; by default `scores`, so the results are optimistic. Only this table needs
            the column of `group`.
        method, per_label: as for `fit_correction`.
        precision, recall, f1, cost, confidence, simultaneous: as for `calibrate_model`. The thresholds are in
            ``correction.json``, for `apply_thresholds`.
        new_prior: as for `calibrate_model`.
        output: a new or empty folder for ``correction.json``, which `Correction.load` and `correct_file` read, the
            report, and the card, ``README.md``.
        save_scores, no_examples, publish_examples: as for `calibrate`.

    Raises:
        NotPublishedError: the correction or the report could not be written; the error's `result` holds the
            measurements.
        InputError: as in `evaluate_scores`; or the scores are confidences, without the other classes'
            probabilities.

    Examples:
        >>> from hf_focal import calibrate_scores
        >>> result = calibrate_scores("scores.csv", test_scores="test_scores.csv", method="temperature")
        >>> result.temperature.value > 1  # the scores are overconfident
        True
    """
    settings = CalibrationSettings(
        test=Data("test_scores", test_scores),
        method=method,
        per_label=per_label,
        goal=ThresholdGoal.checked(confidence, simultaneous, precision=precision, recall=recall, f1=f1, cost=cost),
        new_prior=new_prior,
        num_bins=num_bins,
        output=output,
        save_scores=save_scores,
        no_examples=no_examples,
        publish_examples=publish_examples,
        on_result=on_result,
    )
    return run_calibration(_table_arguments("calibrate_scores", scores, columns, text_column), settings)


def _table_arguments(
    function: str, scores: Any, columns: Mapping[str, Any], text_column: str | None
) -> TableArguments:
    """Return the arguments of a table; raise `TypeError` for keyword arguments that `function` does not take."""
    check_keywords(function, columns, TABLE_OPTIONS)
    options = columns if text_column is None else {**columns, "text_column": text_column}
    return TableArguments(data=Data("scores", scores), options=options)
