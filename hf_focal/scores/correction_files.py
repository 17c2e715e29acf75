"""Files with corrections, ``correction.json``, and the correction of files of scores."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import csv
from tqdm.auto import tqdm

from ..calibration import CalibrationFit, Correction
from ..calibration.corrections import FILE_VERSIONS
from ..calibration.threshold_decisions import are_thresholds, decide
from ..utils.atomic_write import whole_file
from ..utils.json_values import write_json
from ..validation import InputError
from .column_names import KINDS
from .new_files import check_new_file, file_errors
from .schema import LINKS, Schema
from .score_set import names_of
from .score_table import Scores, read_scores
from .table_files import ScoreRows, score_batches
from .table_formats import BatchOptions

FORMAT, VERSION = "hf_focal correction", FILE_VERSIONS[-1]
_ROWS = 100_000  # samples in a batch


@dataclass(frozen=True)
class SavedCorrection:
    """What ``correction.json`` holds.

    Attributes:
        correction: the correction.
        link: "softmax" or "sigmoid".
        classes: the names of the classes or labels in the order of the scores; [] if they have none.
        kind: the kind of scores that the correction was fitted to, such as "logits".
        floor: what replaced a probability of 0; 0 if nothing did.
        schema: of the table that the correction was fitted to; None without one, as in files before version 0.3.
        thresholds: the record of thresholds, which may not be one of these classes; None without any.
    """

    correction: Correction
    link: str
    classes: list[str]
    kind: str
    floor: float
    schema: Schema | None
    thresholds: Any

    @property
    def meaning_without_schema(self) -> dict[str, Any]:
        """Arguments of `read_scores` for the first rows, if there is no schema."""
        return {"kind": self.kind, "classes": self.classes, "link": self.link, "floor": self.floor or None}


def write_correction(
    path: str | Path,
    fit: CalibrationFit,
    classes: Sequence[str] = (),
    schema: Schema | None = None,
    thresholds: dict[str, Any] | None = None,
    source_entries: Mapping[str, Any] | None = None,
) -> None:
    """Write ``correction.json``: the correction, of which scores it is, and the record of thresholds.

    Without a `schema`, the scores are logits. `source_entries` is what else a source keeps, such as its prompt.
    """
    saved: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "link": fit.link,
        "classes": [*classes],
        "scores": "logits" if schema is None else schema.kind,
        "floor": 0.0 if schema is None else schema.floor,
    }
    if schema is not None:
        saved["schema"] = schema.to_dict()
    saved |= {"num_samples": fit.num_samples, "correction": fit.correction.to_dict()}
    if thresholds is not None:
        saved["thresholds"] = thresholds
    write_json(Path(path), saved | dict(source_entries or {}))


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
        output: the file to write, which ends in .csv, .tsv, .jsonl, or .parquet, and must not exist. From csv to csv,
            other columns keep their texts, such as 007.
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
    saved, source, target = read_correction(correction), Path(scores), Path(output)
    schema = saved.schema
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise InputError("output", f"must end in .csv, .tsv, .jsonl or .parquet, got {str(target)!r}")
    check_new_file("output", target)
    if not source.is_file():
        raise InputError("scores", f"must be an existing file, got {str(source)!r}")
    count, writer = 0, None
    with whole_file(target) as part:
        with tqdm(unit=" rows", unit_scale=True, disable=None) as progress:  # on a terminal only
            columns_of_scores = () if score_column or schema is None else schema.columns
            options = BatchOptions(_ROWS, columns_of_scores, others_as_text=suffix in (".csv", ".tsv"))
            for batch in score_batches(source, options):
                if suffix in (".csv", ".tsv") and any(map(pa.types.is_nested, batch.table.schema.types)):
                    raise InputError(
                        "output", f"must end in .jsonl or .parquet: {source.name} has lists, got {target.name!r}"
                    )
                meaning = saved.meaning_without_schema if schema is None else {"schema": schema}
                table = read_scores(batch, needs_labels=False, score_column=score_column, **meaning)
                schema = table.schema
                corrected = _corrected(batch, table, saved, suffix)
                with file_errors("output", target):
                    writer = _writer(part, suffix, corrected.schema) if writer is None else writer
                    writer(corrected)
                count += len(corrected)
                progress.update(len(corrected))
        if writer is None:
            raise InputError("scores", f"must have rows, got none in {str(source)!r}")
        with file_errors("output", target):
            writer(None)
    return count


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


def read_correction(path: str | Path) -> SavedCorrection:
    """Read what `write_correction` wrote, or the ``calibration.json`` of Platt scaling by a trainer of version 0.2.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r}: {error}") from error
    if isinstance(saved, dict) and {"chosen", "decomposition"} <= saved.keys():  # calibration.json of version 0.2
        meaning = {"link": "sigmoid", "classes": [], "scores": "logits", "floor": 0.0}
        saved = {"format": FORMAT, "version": 1, **meaning, "correction": saved.get("correction", saved)}
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r} without its format")
    if (version := saved.get("version")) not in FILE_VERSIONS:
        raise InputError("correction", f"must have version 1 or {VERSION}, got {version!r} in {str(path)!r}")
    if missing := {"link", "classes", "scores", "floor", "correction"} - saved.keys():
        raise InputError("correction", f"must have {', '.join(sorted(missing))}, got {str(path)!r} without it")
    classes, floor = saved["classes"], saved["floor"]
    names = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    checks = {
        "link": saved["link"] in LINKS,
        "scores": saved["scores"] in KINDS and saved["scores"] != "confidence",
        "classes": names and len(set(classes)) == len(classes),
        "floor": isinstance(floor, int | float) and 0 <= floor < 0.5,
    }
    for name, is_valid in checks.items():
        if not is_valid:
            raise InputError(
                "correction", f"must be a file that calibrate wrote, got {name} {saved[name]!r} in {path}"
            )
    try:
        fitted = Correction.from_dict(saved)
        schema = Schema.from_dict(saved["schema"]) if "schema" in saved else None
    except (TypeError, ValueError) as error:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r}: {error}") from error
    if schema is not None:
        stated = (schema.kind, schema.link, [*schema.classes], schema.floor)
        if stated != (saved["scores"], saved["link"], classes, floor):
            raise InputError(
                "correction", f"must be a file that calibrate wrote, got a schema of other scores in {str(path)!r}"
            )
    is_shared_shift = not isinstance(fitted.b, torch.Tensor) and fitted.b != 0  # which no softmax feels
    if is_shared_shift if saved["link"] == "softmax" else fitted.method in ("vector", "matrix"):
        raise InputError("correction", f"must not have {fitted.method} with a {saved['link']}, got {str(path)!r}")
    thresholds = (saved["thresholds"] or {}) if "thresholds" in saved else None  # null is a wrong record, not none
    return SavedCorrection(fitted, saved["link"], classes, saved["scores"], floor, schema, thresholds)


def _named_columns(name: str, values: np.ndarray, classes: list[str], suffix: str) -> dict[str, pa.Array]:
    """Return a column for each class, or one of lists or of single values, with what values (N, K) hold."""
    if values.shape[1] == 1:
        return {name: pa.array(values[:, 0])}
    if not classes and suffix in (".parquet", ".jsonl"):
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
    return _with_columns(table, _named_columns("calibrated", probabilities, classes, suffix))


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
    return _with_columns(table, columns)


def _with_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


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


def _writer(path: Path, suffix: str, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    """Return a function that writes a batch, or closes the file if it is given None."""
    if suffix == ".jsonl":
        file = path.open("w", encoding="utf-8")

        def write_lines(batch: pa.Table | None) -> None:
            if batch is None:
                file.close()
            else:
                # Arrow reads texts of dates as dates.
                file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())

        return write_lines
    options = csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
    made = (
        pq.ParquetWriter(path, schema) if suffix == ".parquet" else csv.CSVWriter(path, schema, write_options=options)
    )
    return lambda batch: made.close() if batch is None else made.write_table(batch)
