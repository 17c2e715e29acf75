"""Writing scores to a file that `read_scores` reads back, so that what follows a forward pass can be repeated."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InputError
from ...utils.arrow_values import numpy_values
from ...utils.atomic_write import whole_file
from ...validation import as_tensor
from ..new_files import file_errors

if TYPE_CHECKING:
    from .scores_in_memory import Scores

ROW = "row"  # the column of the numbers of the rows
_UNKNOWN = -100  # the number of a label that is unknown, which is null in a file


def write_scores(path: str | Path, scores: "Scores") -> None:
    """Write logits, labels, and what identifies the rows, as a parquet file; see `scores_table`.

    Rows without any known label, which nothing measures, are left out.
    """
    if Path(path).suffix != ".parquet":
        raise InputError("save_scores", f"must end in .parquet, got {str(path)!r}")
    labels = as_tensor("labels", scores.known_labels).numpy()
    is_known = labels >= 0 if scores.link == "softmax" else ~np.isnan(labels).all(1)
    table = scores_table(scores if is_known.all() else scores.select(is_known), np.flatnonzero(is_known))
    with file_errors("save_scores", path), whole_file(path) as partial:
        pq.write_table(table, partial)


def scores_table(scores: "Scores", rows: np.ndarray) -> pa.Table:
    """Return a table of logits, labels, and what identifies the rows, whose numbers, (N,), are given.

    The columns are ``logit_<class>``, or one column ``logits`` of lists if the classes have no names; ``label``, by
    name if the classes have names, or, for several labels, ``label_<name>`` or lists ``labels`` of a 0 or 1 for each
    (null if unknown); ``row``; and, if there are any, ``cluster`` and ``group``.

    Raises:
        InputError: there are only confidences.
    """
    if scores.confidences is not None:
        raise InputError("save_scores", f"needs the scores of all classes, got confidences in {scores.data_name}")
    names = _column_names(scores)
    columns: dict[str, Any] = {}
    if len(names) > 1:
        columns |= {f"logit_{name}": pa.array(column) for name, column in zip(names, scores.logits.T, strict=True)}
    elif scores.num_classes == 1:
        columns["logit"] = pa.array(scores.logits[:, 0])
    else:
        columns["logits"] = _lists(pa.array(scores.logits.ravel()), scores.num_classes)
    columns |= _labels(scores) | {ROW: pa.array(rows)}
    for name, values in (("cluster", scores.clusters), ("group", scores.groups)):
        columns |= {} if values is None else {name: pa.array(values)}
    return pa.table(columns)


def read_saved(table: pa.Table, classes: Sequence[str], link: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits and the labels of a table that `scores_table` made of scores with these classes and link."""
    logits = _matrix(table, "logit")
    if link == "sigmoid":
        return logits, _matrix(table, "label").astype(np.float64)
    labels = table.column("label").combine_chunks()
    if not pa.types.is_integer(labels.type):
        labels = pc.index_in(labels, pa.array(classes, labels.type))
    return logits, numpy_values(labels.fill_null(_UNKNOWN)).astype(np.int64)


def _matrix(table: pa.Table, name: str) -> np.ndarray:
    """Return the numbers (N, K) of the columns that begin with `name`, or of the one column of lists."""
    columns = [table.column(column).combine_chunks() for column in table.column_names if column.startswith(name)]
    if pa.types.is_list(columns[0].type):
        return numpy_values(columns[0].flatten()).reshape(len(table), -1)
    return np.stack([numpy_values(column) for column in columns], 1)


def _column_names(scores: "Scores") -> tuple[str, ...]:
    """Return the names of the columns of several scores; () if the classes have none, or some have the same."""
    names = scores.score_names
    return names if len({*names}) == scores.num_classes > 1 else ()


def _labels(scores: "Scores") -> dict[str, Any]:
    labels, names = as_tensor("labels", scores.known_labels).numpy(), _column_names(scores)
    if scores.link == "softmax":
        if names:
            labels = np.array([*names, None], dtype=object)[np.maximum(labels, -1)]
            return {"label": pa.array(labels, pa.string())}
        return {"label": pa.array(labels, mask=labels < 0)}
    if scores.num_classes == 1:
        return {"label": pa.array(labels[:, 0], from_pandas=True)}
    if names:
        columns = zip(names, labels.T, strict=True)
        return {f"label_{name}": pa.array(column, from_pandas=True) for name, column in columns}
    return {"labels": _lists(pa.array(labels.ravel(), from_pandas=True), scores.num_classes)}


def _lists(values: pa.Array, size: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, size, dtype=np.int32)), values)
