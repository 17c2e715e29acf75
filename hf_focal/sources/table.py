"""Tables of scores, from files or in memory, whatever model they come from and however large they are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..reports.result_sections import DataSection
from ..scores.schema import Schema
from ..scores.score_statistics import ScoreStatistics, check_same_schema
from ..scores.score_table import read_scores
from ..scores.streamed_scores import StreamedScores, text_columns
from ..scores.table_batches import TableBatches, large_table
from ..validation import InputError
from .source import Data, Source


class TableSource(Source):
    """Tables of scores. `columns` are arguments of `read_scores` for the first table, whose schema others follow."""

    name = "scores"

    def __init__(self, **columns: Any) -> None:
        self.columns = columns
        self.schema: Schema | None = None

    def scores(self, data: Any) -> Any:
        return self.read(Data("scores", data))

    def read(self, data: Data) -> Any:
        """Return the `Scores` of a table; of a large one, `StreamedScores`; statistics are returned as they are."""
        columns = {} if self.schema is not None else self.columns
        needed = {
            "group": self.columns.get("group") if data.groups else None,
            "cluster_column": self.columns.get("cluster_column") if data.clusters else None,
        }
        found: Any = data.value
        if isinstance(found, ScoreStatistics):
            if given := {name: value for name, value in columns.items() if value}:
                raise InputError(next(iter(given)), "must be given to measure, not with its statistics")
            if self.schema is not None:
                check_same_schema(data.argument, self.schema, found.schema)
        else:
            table = large_table(data.argument, found, text_columns(columns | needed))
            if isinstance(table, TableBatches):
                found = StreamedScores(table, self.schema, columns | needed)
            else:
                found = read_scores(table, name=data.argument, schema=self.schema, **columns | needed)
        if self.schema is None:
            self.schema, self.link, self.classes = found.schema, found.link, found.classes
        return found

    def title(self, scores: Any) -> str:
        return Path(scores.source).stem

    def data_section(self, scores: Any) -> DataSection:
        options = {key: value for key, value in self.columns.items() if key != "floor"}  # those of the command
        return replace(super().data_section(scores), options=options)
