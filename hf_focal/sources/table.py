"""Tables of scores, from files or in memory, whatever model they come from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..reports.result_sections import DataSection
from ..scores.schema import Schema
from ..scores.score_table import Scores, read_scores
from ..scores.table_files import load
from .source import Data, Source


class TableSource(Source):
    """Tables of scores.

    `columns` are arguments of `read_scores` for the first table, whose schema others follow. The column `text_column`
    has the texts that the page shows.
    """

    name = "scores"

    def __init__(self, text_column: str | None = None, **columns: Any) -> None:
        self.columns, self.text_column = columns, text_column
        self.schema: Schema | None = None

    def scores(self, data: Any) -> Scores:
        return self.read(Data("scores", data))

    def read(self, data: Data) -> Scores:
        columns = {} if self.schema is not None else self.columns
        needed = {
            "group": self.columns.get("group") if data.groups else None,
            "cluster_column": self.columns.get("cluster_column") if data.clusters else None,
        }
        found = read_scores(data.value, name=data.argument, schema=self.schema, **columns | needed)
        if self.schema is None:
            self.schema, self.link, self.classes = found.schema, found.link, found.classes
        return found

    def inputs(self, data: Data, scores: Any, rows: np.ndarray) -> list[Any] | None:
        if self.text_column is None:
            return super().inputs(data, scores, rows)
        texts = load(data.argument, data.value, (self.text_column,)).column("text_column", self.text_column)
        return ["" if text is None else text for text in texts.take(rows).to_pylist()]

    def title(self, scores: Any) -> str:
        return Path(scores.source).stem

    def data_section(self, scores: Any) -> DataSection:
        options = {key: value for key, value in self.columns.items() if key != "floor"}  # those of the command
        options |= {} if self.text_column is None else {"text_column": self.text_column}
        return replace(super().data_section(scores), options=options)
