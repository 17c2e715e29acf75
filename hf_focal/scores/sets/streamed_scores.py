"""Scores of a table of any size, which is read in batches when they are used."""

from typing import Any

import numpy as np
import pyarrow as pa

from ...calibration import CalibrationFit, Correction
from ...calibration.thresholds import ThresholdSamples
from ...errors import InputError
from ...metrics import CalibrationMetrics
from ..columns.cluster_columns import has_all_clusters
from ..columns.pipeline_outputs import with_class_columns
from ..reading.score_rows import ScoreRows
from ..reading.table_batches import TableBatches, rows_of_batch
from ..schema.schema import Schema
from ..schema.schema_reading import read_with_schema
from ..table_options import TableOptions
from ..values.score_kinds import check_decimals
from ..values.value_notes import ValueNote
from .large_table_meaning import meaning_of
from .score_set import LargeTableScores
from .score_statistics import ScoreStatistics
from .scores_in_memory import Scores
from .statistics_in_use import StatisticsInUse
from .table_scores import floor_of, group_names, scores_of


class StreamedScores(LargeTableScores):
    """The scores of a table of any size, which is read in batches whenever something new is asked of it.

    It has what `evaluate` and `calibrate` need of `Scores`. A fit takes one pass, which adds up the sums for T and
    draws a sample, and measuring takes another. A stream is read only once, with the number of bins given here.
    """

    def __init__(
        self,
        table: TableBatches,
        schema: Schema | None = None,
        options: TableOptions | None = None,
        num_bins: int = 15,
    ) -> None:
        self.table, self.data_name, self.num_bins = table, table.data_name, num_bins
        self.meaning = meaning_of(table, schema, options or TableOptions())
        self.schema = self.meaning.schema
        self._fitted: StatisticsInUse | None = None
        self._measured: StatisticsInUse | None = None

    def __len__(self) -> int:
        return len(self._for_fits())

    def statistics(
        self,
        num_bins: int = 15,
        correction: Correction | None = None,
        *,
        sample_size: int | None = None,
        measures: bool = True,
        fits: bool = True,
    ) -> ScoreStatistics:
        """Read all rows, and return their statistics, or only those that measure, or that fit."""
        meaning, schema = self.meaning, self.schema
        result = ScoreStatistics(
            schema,
            num_bins=num_bins,
            correction=correction,
            sample_size=sample_size,
            data_name=self.data_name,
            notes=meaning.notes,
            cluster_column=meaning.cluster,
            has_named_clusters=meaning.has_named_clusters,
        )
        wanted = {"groups": meaning.group, "clusters": meaning.cluster} if fits else {}
        other_columns = {name: column for name, column in wanted.items() if column is not None}
        columns = [*dict.fromkeys((*meaning.columns, *other_columns.values()))]
        for part in self.table.read(columns, schema.columns, rows_of_batch(max(schema.num_scores, 1))):
            scores, notes = self._read_part(part)
            others = pa.table({name: part.column(name, column) for name, column in other_columns.items()})
            if "groups" in other_columns:
                groups = pa.array(group_names(part, other_columns["groups"]))
                others = others.set_column(others.column_names.index("groups"), "groups", groups)
            clusters = others.column("clusters") if "clusters" in other_columns else None
            if clusters is not None and not has_all_clusters(part, clusters, meaning.has_named_clusters):
                result.forget_clusters()
            result.add(scores, notes, others, measures=measures, fits=fits)
        pa.default_memory_pool().release_unused()  # 30 MB of buffers, before a fit needs memory of its own
        if not result.count:
            raise InputError(self.table.argument, f"must have rows, got none in {self.data_name}")
        return result

    def _read_part(self, part: ScoreRows) -> tuple[Scores, tuple[ValueNote, ...]]:
        meaning, schema = self.meaning, self.schema
        rows, _ = with_class_columns(part, meaning.replaced_column)
        parsed = read_with_schema(
            rows, schema, needs_labels=True, label_column=meaning.label_column, label_set=meaning.label_set
        )
        if meaning.decimals is not None:
            check_decimals(rows, parsed.values, schema.kind, meaning.decimals)
        return scores_of(rows, parsed, floor_of(schema))

    def _for_fits(self) -> StatisticsInUse:
        """Return the statistics with the sample and the sums for T; of a stream, all of them, as it is read once."""
        if self._fitted is None:
            self._fitted = StatisticsInUse(self.statistics(self.num_bins, measures=not self.table.can_repeat))
        return self._fitted

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure the calibration before and after a correction; the second is None without one."""
        if not self.table.can_repeat:
            return self._for_fits().measure(num_bins, correction)
        self._measured = StatisticsInUse(self.statistics(num_bins, correction, fits=False))
        return self._measured.measure(num_bins, correction)

    def fit(self, method: str = "auto", *, num_bins: int = 15, **options: Any) -> CalibrationFit:
        """Fit a correction, as `Scores.fit` does: to a uniform sample, but a T by NLL to all rows."""
        return self._for_fits().fit(method, num_bins=num_bins, **options)

    def collected(self) -> Scores:
        """Return the uniform sample."""
        return self._for_fits().collected()

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the sample, on which thresholds are chosen."""
        return self._for_fits().threshold_samples()

    @property
    def label_counts(self) -> np.ndarray:
        """Those of all rows."""
        return self._for_fits().label_counts

    @property
    def groups(self) -> np.ndarray | None:
        return None if self.meaning.group is None else self._for_fits().groups

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know, of what has been used so far."""
        used = [statistics.notes for statistics in (self._measured, self._fitted) if statistics is not None]
        schema_notes = tuple(note.of(self.data_name) for note in self.meaning.notes)
        return tuple(dict.fromkeys(note for notes in used for note in notes)) or schema_notes
