"""The tables of peers.md."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.lines import EdgeCases, MetricLine
from benchmarks.common.metric_functions import OURS
from benchmarks.tables.losses import losses_by_size
from hf_focal.reports.wording.markdown_tables import rows_table

MARK = "<!-- What follows is written by benchmarks.tables. -->\n"


def edge_case_cell(value: float | str | None, right: bool | None, convention: bool) -> str:
    if value is None:
        return "–"
    if isinstance(value, str) and value.endswith(("Error", "Exception")):
        return f"`{value}`"
    text = value if isinstance(value, str) else f"{value + 0.0:.4g}"  # 0, not -0
    return text if right else f"*{text}*" if convention else f"**{text}**"


def edge_case_tables(tables: Iterable[EdgeCases]) -> str:
    text = ""
    for figures in tables:
        rows = []
        for row in figures["rows"]:
            exact = "none" if row["exact"] is None else f"{row['exact']:.4g}"
            cells = [
                edge_case_cell(row["values"][who], row["right"][who], row["convention"]) for who in figures["columns"]
            ]
            rows.append([row["case"], exact, *cells])
        text += f"### {figures['title']}\n\nRight: within {100 * figures['relative']:g}% of the exact value.\n\n"
        text += rows_table(["", "exact", *figures["columns"]], rows) + "\n"
    return text


def timing_table(lines: Sequence[MetricLine]) -> str:
    """Format our time and memory, and for peers the ratio of times, memory, and the value if it differs."""
    columns = list(dict.fromkeys(who for figures in lines for who in figures["seconds"]))
    rows = []
    for figures in lines:
        ours = figures["values"][OURS]
        cells = [", ".join([figures["name"], *([figures["exact"]] if "exact" in figures else [])])]
        for who in columns:
            if who not in figures["seconds"]:
                cells.append("–")
                continue
            ratio = figures["ratio"].get(who, 1)
            first = f"{1e3 * figures['seconds'][who]:.3g} ms" if who == OURS else f"{ratio:.{1 if ratio > 1 else 2}f}×"
            value = figures["values"][who]
            differs = f", gives {value:.4g}" if abs(value - ours) > 1e-3 * abs(ours) else ""
            gives = f", gives {ours:.4g}" if who == OURS else differs
            cells.append(f"{first}, {figures['peak_mib'][who]:.3g} MiB{gives}")
        rows.append(cells)
    return rows_table(["", *columns], rows)


SECTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "edge_cases": ("Edge cases", edge_case_tables),
    "metrics": ("Metrics: time and memory", timing_table),
    "temperature": ("Temperatures: time and memory", timing_table),
    "loss": ("Focal loss, γ = 3, forward and backward: time and memory over the logits' size", losses_by_size),
}


def write_page(page: Path, figures: dict[str, Any]) -> None:
    """Write what follows the mark of a page."""
    text = page.read_text(encoding="utf-8").partition(MARK)[0] + MARK
    for part, (title, table) in SECTIONS.items():
        facts = ", ".join(f"{name} {value}" for name, value in figures[part]["machine"].items())
        text += f"\n## {title}\n\nMeasured with: {facts}.\n\n{table(figures[part]['figures']).rstrip()}\n"
    page.write_text(text, encoding="utf-8")
