"""A large table, whose rows are read in batches; and how large a table is.

A table is large if it has more than a million rows or 67 million scores; `large_tables` judges files by their bytes if
they do not say how many rows they have.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import is_lists, is_number_type
from .score_rows import ScoreRows

MOST_ROWS, MOST_SCORES = 2**20, 2**26  # of a table that is read whole
_SCORES = 2**20  # in a batch
_FEWEST, _MOST = 16, 2**17  # rows in a batch

# From columns (None for all), the columns of scores, and the number of rows of a batch to batches.
ReadBatches = Callable[[Sequence[str] | None, Sequence[str], int], Iterator[ScoreRows]]


@dataclass(frozen=True)
class TableBatches:
    """The rows of a large table, in batches.

    Attributes:
        argument: the argument that gave it.
        data_name: its name in reports.
        read: returns the batches; see `ReadBatches`.
        first_rows: of a table that can be read only once, the rows that have been read already; `read` begins with
            these, too.
        paths: its files, if it comes from any.
    """

    argument: str
    data_name: str
    read: ReadBatches
    first_rows: ScoreRows | None = None
    paths: tuple[Path, ...] = ()

    @property
    def can_repeat(self) -> bool:
        """Whether the table can be read more than once."""
        return self.first_rows is None

    def head(self) -> ScoreRows:
        """Return the first batch, with all columns."""
        first = self.first_rows or next(self.read(None, (), 1), None)
        if first is None:
            raise InputError(self.argument, f"must have rows, got none in {self.data_name}")
        size = rows_of_batch(sum(map(_width, first.table.columns)))
        rows = self.first_rows or next(self.read(None, (), size))
        return replace(rows, data_name=self.data_name, table=rows.table.slice(0, size))


def rows_of_batch(num_scores: int) -> int:
    return max(_FEWEST, min(_MOST, _SCORES // max(1, num_scores)))


def is_large(num_rows: int, first: pa.Table) -> bool:
    """Return whether a table of so many rows, which are like those that are `first`, is not to be read whole."""
    return num_rows > MOST_ROWS or (len(first) > 0 and _num_scores(first, num_rows) > MOST_SCORES)


def _num_scores(first: pa.Table, num_rows: int) -> int:
    """Return how many numbers the columns of numbers, or of lists of these, have in so many rows."""
    return num_rows * sum(
        _width(column) for column in first.columns if is_lists(column) or is_number_type(column.type)
    )


def _width(column: pa.ChunkedArray) -> int:
    """Return how many numbers the first row has."""
    value = column[0]
    return len(value) if is_lists(column) and value.is_valid else 1


def in_slices(rows: ScoreRows) -> TableBatches:
    """Return rows in memory as a table in batches."""

    def read(columns: Sequence[str] | None, _: Sequence[str], size: int) -> Iterator[ScoreRows]:
        part = rows.table if columns is None else rows.table.select([*columns])
        for start in range(0, len(part), size):
            yield replace(rows, table=part.slice(start, size), first=start)

    return TableBatches(rows.argument, rows.data_name, read, paths=() if rows.path is None else (rows.path,))
