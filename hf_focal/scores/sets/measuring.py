"""Statistics of a table, or of a shard of one, in one pass."""

from pathlib import Path
from typing import Any

from ...calibration import Correction
from ...errors import InputError
from ...validation import check_count
from ..reading.file_lists import files_of
from ..reading.large_tables import in_batches
from ..schema.schema import Schema
from ..table_options import TableOptions
from .score_statistics import ScoreStatistics, load_statistics
from .streamed_scores import StreamedScores


def measure(
    scores: Any,
    *,
    schema: Schema | None = None,
    correction: Correction | None = None,
    num_bins: int = 15,
    sample_size: int | None = None,
    cache: str | Path | None = None,
    **columns: Any,
) -> ScoreStatistics:
    """Measure a table of scores, or a shard of one, in one pass and in memory that does not grow with its rows.

    Statistics of shards `merge` in any order. `evaluate(scores=...)` and `calibrate(scores=...)` take them in the
    place of a table. The guide on large data has code for pools of processes and for cluster engines.

    Args:
        scores: whatever `evaluate` takes as `scores`: a file, a folder, a pattern of files, a dataset, a DataFrame, an
            Arrow table, dataset, or reader, or a mapping from names to columns.
        schema: the schema of an earlier shard, ``statistics.schema``; options that it decides must not be given with
            it. Without it, each shard decides by itself, and `merge` refuses those that differ.
        correction: measure the corrected scores, too.
        num_bins: bins of the calibration errors.
        sample_size: the most rows of the uniform sample, from which corrections of several parameters, thresholds,
            groups, and changes come; by default 250,000, or fewer with more than 268 classes. With 0, statistics take
            less than 2 MB, and can be reported but not fitted.
        cache: a file for the statistics. If it already holds those of the same file and arguments, they are read
            instead: a measurement that was interrupted goes on with the shards that it lacks.
        **columns: arguments of `read_scores`: names of columns, and what they hold.

    Raises:
        InputError: the table or an argument is wrong; the message is one line.

    Examples:
        >>> from hf_focal import evaluate, measure
        >>> first = measure("scores.csv")
        >>> both = first.merge(measure("test_scores.csv", schema=first.schema))
        >>> evaluate(scores=both).pre["num_samples"]
        400.0
    """
    check_count("num_bins", num_bins)
    if sample_size is not None and (
        isinstance(sample_size, bool) or not isinstance(sample_size, int) or sample_size < 0
    ):
        raise InputError("sample_size", f"must be an integer of at least 0, got {sample_size!r}")
    if unknown := sorted(columns.keys() - TableOptions.names()):
        raise InputError(unknown[0], f"must not be given to measure, got {columns[unknown[0]]!r}")
    options = TableOptions.from_arguments(columns)
    if schema is not None:
        options.check_with_schema()
    key = None if cache is None else _key(scores, schema, correction, [num_bins, sample_size, options])
    if cache is not None and Path(cache).is_file():
        statistics = load_statistics("cache", cache, "measure")
        if statistics.key == key:
            return statistics
        raise InputError(
            "cache", f"must be a file of the same scores and arguments, got {str(cache)!r} of others: remove it"
        )
    table = in_batches("scores", scores, options.text_columns)
    streamed = StreamedScores(table, schema, options)
    measured = streamed.statistics(num_bins, correction, sample_size=sample_size)
    if cache is not None:
        measured.key = key
        measured.save(cache)
    return measured


def _key(scores: Any, schema: Schema | None, correction: Correction | None, others: list[Any]) -> str:
    """Return what tells files of statistics apart: the files that are measured, and the arguments."""
    if not isinstance(scores, str | Path):
        raise InputError("cache", f"must come with scores in files, got a {type(scores).__name__}")
    _, paths = files_of("scores", scores)
    parts = [
        (str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in paths if path.is_file()
    ]
    return repr((parts, schema, None if correction is None else correction.to_dict(), others))
