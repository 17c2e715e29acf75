"""Tables of scores, from files or in memory, whatever model they come from and however large they are."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from ..reports.results.result_sections import DataSection
from ..scores.columns.cluster_columns import cluster_column_of
from ..scores.name_vocabulary import PREDICTIONS, known_columns
from ..scores.reading.large_tables import open_table
from ..scores.reading.score_rows import load
from ..scores.reading.table_batches import TableBatches
from ..scores.schema.schema import Schema
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.score_statistics import ScoreStatistics, check_same_schema
from ..scores.sets.scores_in_memory import Scores
from ..scores.sets.statistics_in_use import StatisticsInUse
from ..scores.sets.streamed_scores import StreamedScores
from ..scores.sets.table_scores import read_table
from ..scores.table_options import TableOptions
from ..utils.arrow_values import is_text_type
from ..utils.names import listed
from .source import BaseSource, Data, Samples


@dataclass(frozen=True)
class ScoresWithTexts(Scores):
    """The scores of a table that is in memory, and what a page can show of its rows.

    Attributes:
        texts: the texts of the rows, (N,); None without a column of texts.
        text_columns: names of columns of texts that nothing reads.
    """

    texts: pa.ChunkedArray | None = None
    text_columns: tuple[str, ...] = ()

    def inputs(self, rows: np.ndarray) -> list[str] | None:
        if self.texts is None:
            return super().inputs(rows)
        return ["" if text is None else text for text in self.texts.take(rows).to_pylist()]

    def select(self, rows: np.ndarray) -> "ScoresWithTexts":
        selected = super().select(rows)
        assert isinstance(selected, ScoresWithTexts)
        return selected if self.texts is None else replace(selected, texts=self.texts.take(np.arange(len(self))[rows]))


class TableSource(BaseSource):
    """Tables of scores.

    `columns` are the `TableOptions` for a table that is like no other. The column `text_column` has the
    texts that the page shows, and `num_bins` are the bins of the calibration errors.

    Raises:
        TypeError: one of `columns` is no option.
    """

    name = "scores"

    def __init__(self, text_column: str | None = None, num_bins: int = 15, **columns: Any) -> None:
        self.options, self.text_column = TableOptions.from_arguments(columns), text_column
        self.arguments = columns if text_column is None else {**columns, "text_column": text_column}
        self.num_bins = num_bins

    def read(self, data: Data, like: ScoreSet | None = None) -> ScoreSet:
        """Return the `Scores` of a table; of a large one, `StreamedScores`; and of statistics, `StatisticsInUse`."""
        schema, options = (None, self.options) if like is None else (like.schema, TableOptions())
        if isinstance(data.value, ScoreStatistics):
            if used := [name for name in self.arguments if getattr(options, name, None)]:
                raise InputError(used[0], "must be given to measure, not with its statistics")
            if schema is not None:
                check_same_schema(data.argument, schema, data.value.schema)
            return StatisticsInUse(data.value)
        options = replace(
            options, group=self.options.group if data.groups else None, cluster_column=self.options.cluster_column
        )
        if self.text_column is None:
            rows = open_table(data.argument, data.value, options.text_columns)
        else:  # whole: the texts of rows that are far apart may be shown
            text = (self.options.label_column, self.options.correct_column, options.group, options.cluster_column)
            rows = load(data.argument, data.value, (*text, self.text_column))
        if not data.clusters and options.cluster_column is not None:
            table = (rows.head() if isinstance(rows, TableBatches) else rows).table
            if options.cluster_column not in table.column_names:
                options = replace(options, cluster_column=None)
        if isinstance(rows, TableBatches):
            return StreamedScores(rows, schema, options, self.num_bins)
        texts = None
        # What is measured, as its groups are, must have the texts.
        if self.text_column is not None and (data.groups or self.text_column in rows.table.column_names):
            texts = rows.column("text_column", self.text_column)
        scores = read_table(data.argument, rows, options, schema)
        unread = () if self.text_column is not None else _unread_texts(rows.table, scores.schema, options)
        return ScoresWithTexts(**vars(scores), texts=texts, text_columns=unread)

    def inputs_hint(self, samples: Samples) -> str:
        names = samples.scores.text_columns if isinstance(samples.scores, ScoresWithTexts) else ()
        if not names:
            return ""
        if len(names) == 1:
            return f"To see the texts in {names[0]!r} here, add --text_column {shlex.quote(names[0])}."
        return f"To see texts here, name their column with --text_column: {listed(names)}."

    def title(self, scores: ScoreSet) -> str:
        return Path(scores.data_name).stem

    def data_section(self, scores: ScoreSet) -> DataSection:
        return replace(super().data_section(scores), options=dict(self.arguments))


def _unread_texts(table: pa.Table, schema: Schema | None, options: TableOptions) -> tuple[str, ...]:
    """Return the columns of texts that hold no scores, labels, predictions, groups, clusters, or JSON."""
    names = table.column_names
    read = {options.group, options.cluster_column, cluster_column_of(names, options.cluster_column)}
    read |= {*known_columns(names, PREDICTIONS)}
    if schema is not None:
        read |= {*schema.columns, *schema.label_columns, schema.prediction_column, schema.correct_column}
    texts = [field.name for field in table.schema if is_text_type(field.type) and field.name not in read]
    return tuple(name for name in texts if not str(table.column(name)[0].as_py()).lstrip().startswith(("[", "{")))
