"""`evaluate` and `calibrate` for tables of scores, in files or in memory; they need no Transformers."""

from typing import Any, Unpack

from ..reports import RunResult
from ..sources.source import Data
from .evaluate_calibrate import calibrate, evaluate
from .keyword_arguments import TableCalibrationArguments, TableEvaluationArguments, check_keywords


def evaluate_scores(
    scores: Any, *, threshold_scores: Any = None, **arguments: Unpack[TableEvaluationArguments]
) -> RunResult:
    """Measure the calibration of scores with labels, whatever model they come from.

    Args:
        scores: a file or a table, as for `read_scores`; a folder, a pattern such as ``part-*.parquet``, or a list of
            files; a `datasets` IterableDataset; a DataFrame or LazyFrame of Polars; an Arrow dataset or reader; or the
            statistics that `measure` gave. A table with more than a million rows is read in batches.
        threshold_scores: the table to choose the threshold on, which must not have the same samples as `scores`.
        reference: an earlier table of the same model; otherwise as for `evaluate`.
        text_column: the column of texts that the page shows.
        precision, coverage, recall, f1, cost, confidence, simultaneous: as for `evaluate`.
        num_bins, output, save_scores, no_examples, on_result: as for `evaluate`.
        **arguments: those above from `reference` on, and the fields of `TableOptions`, which `read_scores` describes:
            names of columns, and what they hold. With `group`, the result has the calibration of each group in
            `subsets.groups`.

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
    check_keywords("evaluate_scores", arguments, TableEvaluationArguments)
    threshold_data = Data("threshold_scores", threshold_scores)
    return evaluate(scores=Data("scores", scores), threshold_data=threshold_data, **arguments)


def calibrate_scores(
    scores: Any, *, test_scores: Any = None, method: str = "auto", **arguments: Unpack[TableCalibrationArguments]
) -> RunResult:
    """Fit a correction to scores with labels, measure it, and save it as ``correction.json``.

    Args:
        scores: as in `evaluate_scores`.
        test_scores: the table to measure on; by default `scores`, so the results are optimistic. Only this table needs
            the column of `group`.
        method: as for `fit_correction`.
        text_column: as in `evaluate_scores`.
        precision, recall, f1, cost, confidence, simultaneous: as for `calibrate`.
        per_label, new_prior, num_bins, output, save_scores, no_examples, publish_examples, on_result: as for
            `calibrate`.
        **arguments: those above from `text_column` on, and the fields of `TableOptions`, as in `evaluate_scores`.

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
    check_keywords("calibrate_scores", arguments, TableCalibrationArguments)
    return calibrate(scores=Data("scores", scores), test=Data("test_scores", test_scores), method=method, **arguments)
