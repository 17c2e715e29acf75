"""The tables of one run on a GPU."""

from collections.abc import Iterable

from benchmarks.common.lines import GpuLine
from benchmarks.tables.cells import number, pivot


def section(lines: Iterable[GpuLine], name: str) -> str:
    """A row per size, a column per implementation: its time over that of the first (in milliseconds), and peak MiB."""
    first: dict[str, float] = {}
    cells = []
    for line in lines:
        if line["section"] != name or "failure" in line:
            continue
        size, milliseconds = line["size"], line["milliseconds"]
        time = f"{milliseconds / first[size]:.2f}" if size in first else f"{number(milliseconds)} ms"
        first.setdefault(size, milliseconds)
        cells.append((line["name"], size, f"{time}, {line['peak_MiB']:,.0f}"))
    return pivot(cells)
