"""The tables of docs/guides/large_data.md."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common.lines import ClusterLine, TableLine
from benchmarks.tables.cells import number, pivot
from hf_focal.reports.wording.markdown_tables import MISSING, rows_table

TOOLS = {
    "evaluate": "`evaluate`: all metrics, intervals, and the report",
    "measure": "`measure`, for shards",
    "auto": "`calibrate`, `auto`",
}


def texts(figures: Mapping[str, Any]) -> dict[str, str]:
    return {"costs": costs(figures["lines"]), "cluster": cluster(figures["cluster"])}


def costs(lines: Iterable[TableLine]) -> str:
    rows = [
        [
            TOOLS.get(line["what"], line["what"]),
            f"{line['rows']:,}",
            f"{number(line['cpu_seconds'])} s",
            f"{1e6 * line['cpu_seconds'] / line['rows']:.1f} s",
            f"{line['peak_mb']:.0f} MB" if "peak_mb" in line else MISSING,
        ]
        for line in lines
    ]
    return rows_table(["", "rows", "CPU time", "a million rows", "peak memory"], rows)


def cluster(lines: Sequence[ClusterLine]) -> str:
    """The hours of each worker, by the rows and the number of workers, and what is sent."""
    cells = [(rows_text(line), f"workers: {line['workers']}", f"{line['hours']:.2f} hours") for line in lines]
    cells += [
        (rows_text(line), "sent to the process that merges", f"{number(line['gigabytes_sent'])} GB") for line in lines
    ]
    return pivot(cells, "rows, of ten classes")


def rows_text(line: ClusterLine) -> str:
    """Return the number of rows, a power of ten, as such."""
    return f"10{str(len(str(line['rows'])) - 1).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
