"""Columns of clusters, which say which rows may depend on each other, or tell rows apart."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...utils.names import normalized
from ..reading.score_rows import ScoreRows

_CLUSTERS = ("cluster", "question", "query", "text", "question_id", "query_id", "qid", "id")


def cluster_column_of(names: Sequence[str], column: str | None) -> str | None:
    """Return the column of clusters: the named one, or else the first known one."""
    if column:
        return column
    found = ([name for name in names if normalized(name) == normalized(known)] for known in _CLUSTERS)
    return next((same[0] for same in found if len(same) == 1), None)


def has_all_clusters(rows: ScoreRows, column: pa.Array | pa.ChunkedArray, is_named: bool) -> bool:
    """Return whether no row lacks its cluster; raise `InputError` if one does in a column that the user named."""
    if not column.null_count:
        return True
    if is_named:
        where = rows.where(int(pc.index(column.is_null(), True).as_py()))
        raise InputError("cluster_column", f"must have no missing values, got one in {where}")
    return False
