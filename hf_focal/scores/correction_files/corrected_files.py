"""The correction of files of scores."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tqdm.auto import tqdm

from ...calibration.threshold_decisions import are_thresholds, decide
from ...errors import InputError
from ...utils.arrow_values import with_columns
from ...utils.atomic_write import whole_file
from ..new_files import check_new_file, file_errors
from ..reading.batch_options import BatchOptions
from ..reading.score_rows import ScoreRows, score_batches
from ..sets.score_set import names_of
from ..sets.scores_in_memory import Scores
from ..sets.table_scores import read_scores
from .correction_json import SavedCorrection, read_correction
from .table_writers import SUFFIXES, is_flat_format, open_writer

_ROWS = 100_000  # samples in a batch


def correct_file(
    correction: str | Path, scores: str | Path, output: str | Path, score_column: str | Sequence[str] | None = None
) -> int:
    """Correct the scores in a file, in batches, and write the file with the calibrated probabilities added.

    The new columns are ``calibrated_<class>``, or one column ``calibrated`` for one score or unnamed classes. If
    ``correction.json`` has thresholds, there are decisions by them, too. With a softmax, ``decision`` is the most
    probable class, or null (in a csv file, empty) where its probability is below the threshold, or there is none. With
    one score, ``decision`` is true or false, and with several labels, so is ``decision_<label>``; a label without a
    threshold never applies.

    Args:
        correction: the file ``correction.json``.
        scores: a csv, tsv, json, jsonl, or parquet file; labels are not needed.
        output: the file to write, which ends in .csv, .tsv, .jsonl, or .parquet, and must not exist. The other
            columns keep their values: numbers stay numbers, and texts such as 007 stay texts.
        score_column: the columns of the scores, as for `read_scores`, if they are called otherwise than in the table
            that the correction was fitted to. They must be scores of the same kind and classes.

    Returns:
        The number of rows.

    Raises:
        InputError: a file or a row is wrong, or does not fit the schema in ``correction.json``.

    Examples:
        >>> from hf_focal.scores import correct_file
        >>> correct_file("correction.json", "test_scores.csv", "with_probabilities.csv")
        200
    """
    saved, scores_file, target = read_correction(correction), Path(scores), Path(output)
    _check_files(scores_file, target)
    count, writer = 0, None
    progress_bar = tqdm(unit=" rows", unit_scale=True, disable=None)  # on a terminal only
    with whole_file(target) as part, progress_bar as progress:
        for corrected in _corrected_batches(saved, scores_file, target, score_column):
            with file_errors("output", target):
                writer = writer or open_writer(part, target.suffix.lower(), corrected.schema)
                writer.write_table(corrected)
            count += len(corrected)
            progress.update(len(corrected))
        if writer is None:
            raise InputError("scores", f"must have rows, got none in {str(scores_file)!r}")
        with file_errors("output", target):
            writer.close()
    return count


def _check_files(scores_file: Path, target: Path) -> None:
    if target.suffix.lower() not in SUFFIXES:
        raise InputError("output", f"must end in .csv, .tsv, .jsonl or .parquet, got {str(target)!r}")
    check_new_file("output", target)
    if not scores_file.is_file():
        raise InputError("scores", f"must be an existing file, got {str(scores_file)!r}")


def _corrected_batches(
    saved: SavedCorrection, scores_file: Path, target: Path, score_column: str | Sequence[str] | None
) -> Iterator[pa.Table]:
    """Read a file in batches, each by the schema of the correction, or else of the first batch, and correct them."""
    schema, suffix = saved.schema, target.suffix.lower()
    columns_of_scores = () if score_column or schema is None else schema.columns
    options = BatchOptions(_ROWS, columns_of_scores, others="text" if is_flat_format(suffix) else "exact")
    for batch in score_batches(scores_file, options):
        if is_flat_format(suffix) and any(map(pa.types.is_nested, batch.table.schema.types)):
            expected = f"must end in .jsonl or .parquet: {scores_file.name} has lists"
            raise InputError("output", f"{expected}, got {target.name!r}")
        meaning = saved.meaning_without_schema if schema is None else {"schema": schema}
        try:
            scores = read_scores(batch, needs_labels=False, score_column=score_column, **meaning)
        except InputError as error:
            if schema is None and error.argument == "score_column":  # of a model, whose logits have no known columns
                problem = f"{error.args[1]}; the correction is for {saved.kind} of a model"
                raise InputError("score_column", problem) from error
            raise
        schema = scores.schema
        yield _corrected(batch, scores, saved, suffix)


def _corrected(batch: ScoreRows, scores: Scores, saved: SavedCorrection, suffix: str) -> pa.Table:
    """Return the rows with the calibrated probabilities of their `scores`, and decisions, if there are thresholds."""
    correction = saved.correction
    if correction.size not in (None, size := scores.logits.shape[1]):
        raise InputError("correction", f"must be for {size} classes like scores, got one for {correction.size}")
    if correction.method in ("vector", "matrix") and (infinite := ~np.isfinite(scores.logits).all(1)).any():
        where = batch.where(int(infinite.argmax()))
        raise InputError("scores", f"must be finite for {correction.method} scaling, got -inf in {where}")
    logits = torch.from_numpy(correction.apply(scores.logits))
    probabilities = (logits.sigmoid() if saved.link == "sigmoid" else logits.softmax(1)).numpy()
    corrected = _with_probabilities(batch.table, probabilities, saved.classes, suffix)
    if saved.thresholds is None:
        return corrected
    thresholds = _checked_thresholds(saved.thresholds, names_of(scores), saved.link)
    return _with_decisions(corrected, probabilities, thresholds, saved.classes, suffix)


def _named_columns(name: str, values: np.ndarray, classes: list[str], suffix: str) -> dict[str, pa.Array]:
    """Return a column for each class, or one of lists or of single values, with what values (N, K) hold."""
    if values.shape[1] == 1:
        return {name: pa.array(values[:, 0])}
    if not classes and not is_flat_format(suffix):
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return {name: pa.FixedSizeListArray.from_arrays(flat, values.shape[1]).cast(pa.list_(flat.type))}
    names = classes or range(values.shape[1])
    return {
        f"{name}_{class_name}": pa.array(np.ascontiguousarray(column))
        for class_name, column in zip(names, values.T, strict=True)
    }


def _with_probabilities(table: pa.Table, probabilities: np.ndarray, classes: list[str], suffix: str) -> pa.Table:
    names = {"calibrated", *(f"calibrated_{name}" for name in classes or range(probabilities.shape[1]))}
    if taken := names & {*table.column_names}:
        raise InputError("scores", f"must have no calibrated probabilities yet, got a column {min(taken)!r}")
    return with_columns(table, _named_columns("calibrated", probabilities, classes, suffix))


def _with_decisions(
    table: pa.Table, probabilities: np.ndarray, thresholds: Mapping[str, Any], classes: list[str], suffix: str
) -> pa.Table:
    """Add what the thresholds decide: the class of each row or, with a sigmoid, whether each label applies."""
    decisions = decide(probabilities, thresholds)
    if thresholds["link"] == "sigmoid":
        columns = _named_columns("decision", decisions, classes, suffix)
    else:
        names = pa.array(thresholds["labels"], pa.string())
        columns = {"decision": names.take(pa.array(probabilities.argmax(1), mask=~decisions))}
    if taken := columns.keys() & {*table.column_names}:
        expected = "must have no column for the decisions by the thresholds in correction.json"
        raise InputError("scores", f"{expected}, got a column {min(taken)!r}: rename it")
    return with_columns(table, columns)


def _checked_thresholds(record: Any, names: list[str], link: str) -> dict[str, Any]:
    """Return a record of thresholds that is complete; raise `InputError` unless it is one of these labels."""
    complete = {"labels": names, **record} if isinstance(record, Mapping) else {}  # before 0.3 without labels
    values = complete.get("values")
    is_valid = (
        are_thresholds(values)
        and (complete["labels"], complete.get("link")) == (names, link)
        and values.keys() <= {*names}
    )
    if not is_valid:
        raise InputError("correction", "must have thresholds of its own classes or labels, as calibrate writes them")
    return complete
