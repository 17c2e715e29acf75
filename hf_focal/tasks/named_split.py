"""A split of a dataset, with the name that errors give it."""

from typing import NamedTuple

import pyarrow as pa
from datasets import Dataset


class NamedSplit(NamedTuple):
    """The name of the data in errors, such as "test_file 'reviews.csv'", and their rows."""

    data_name: str
    rows: Dataset

    def where(self, column: str) -> str:
        """Return the text that says in errors where a value was found."""
        return f"{column!r} of {self.data_name}"

    def column(self, column: str) -> pa.Array:
        """Return a column in one piece, of type `pa.ListArray` if it holds lists."""
        return self.rows.with_format("arrow")[:].column(column).combine_chunks()
