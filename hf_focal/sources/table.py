"""Tables of scores, from files or in memory, whatever model they come from."""

from pathlib import Path
from typing import Any

from ..scores.schema import Schema
from ..scores.score_table import Scores, read_scores
from .source import Data, Source


class TableSource(Source):
    """Tables of scores. `columns` are arguments of `read_scores` for the first table, whose schema others follow."""

    name = "scores"

    def __init__(self, **columns: Any) -> None:
        self.columns = columns
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

    def title(self, scores: Any) -> str:
        return Path(scores.source).stem

    def details(self, scores: Any) -> dict[str, Any]:
        options = {key: value for key, value in self.columns.items() if key != "floor"}  # those of the command
        return {**super().details(scores), "options": options}
