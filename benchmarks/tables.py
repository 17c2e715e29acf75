"""Print the Markdown tables of benchmarks/README.md from the files that the other scripts wrote.

    python -m benchmarks.tables [benchmarks/results/loss.json ...]

Tables of losses and metrics have the columns of the page; other tables have one column for each number or text.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.measuring import RESULTS
from hf_focal.reports.wording.markdown_tables import rows_table

TORCHVISION = "torchvision's sigmoid focal"
BASES = ("F.cross_entropy", "F.bce_with_logits", "dense MMCE")


def number(value: object) -> str:
    """Three significant digits; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"


def losses(lines: list[dict]) -> str:
    """A row per size, a column per implementation: its time over that of the base (in milliseconds), and memory."""
    columns = list(dict.fromkeys(line["name"] for line in lines))
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        size = f"{line['rows']:,} × {line['classes']:,}, {line['dtype']}"
        base = line["name"] in BASES
        time = f"{number(line['milliseconds'])} ms" if base else f"{line['time_ratio']:.2f}"
        rows.setdefault(size, {})[line["name"]] = f"{time}, {line['peak_in_logits']:.1f}"
    return rows_table(
        ["", *columns], ([size, *(cells.get(name, "–") for name in columns)] for size, cells in rows.items())
    )


def metrics(lines: list[dict]) -> str:
    """Our milliseconds, and the others' time as multiples of it."""
    rows = []
    for line in lines:
        loop = next((ratio for name, ratio in line["ratio"].items() if name.startswith("loop")), None)
        peer = next((ratio for name, ratio in line["ratio"].items() if name.startswith("torchmetrics")), None)
        others = ["–" if ratio is None else f"{ratio:.1f}×" for ratio in (peer, loop)]
        rows.append([line["name"], number(1e3 * line["seconds"]["ours"]), *others])
    return rows_table(["", "ours", "torchmetrics", "loop"], rows)


def flat(lines: list[dict]) -> str:
    """A column for each value that is a number or a text."""
    columns = [name for name, value in lines[0].items() if isinstance(value, int | float | str)]
    return rows_table(columns, ([number(line.get(name, "–")) for name in columns] for line in lines))


def processors(files: Iterable[Path]) -> str:
    """A row for each loss, a column for each size: the least and the greatest ratio over all processors measured."""
    cells: dict[tuple[str, str], list[dict]] = {}
    for file in files:
        for line in json.loads(file.read_text(encoding="utf-8"))["cpu_time"]:
            size = f"{line['rows']:,} × {line['classes']:,}, {line['dtype']}"
            cells.setdefault((line["name"], size), []).append(line)
    names, sizes = (list(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))

    def cell(name: str, size: str) -> str:
        lines = cells.get((name, size), [])
        if not lines:
            return "–"
        low, high = min(line["least"] for line in lines), max(line["most"] for line in lines)
        return f"{low:.2f} to {high:.2f} ({len(lines)})"

    measured = [name for name in names if name not in (*BASES, TORCHVISION)]
    return rows_table(["", *sizes], ([name, *(cell(name, size) for size in sizes)] for name in measured))


def tables(file: Path) -> Iterator[str]:
    """The tables of one file, each below the name of its list."""
    for name, lines in json.loads(file.read_text(encoding="utf-8")).items():
        if not isinstance(lines, list) or not lines or not isinstance(lines[0], dict):
            continue
        if "peak_in_logits" in lines[0]:
            make = losses
        else:
            make = metrics if "values" in lines[0] and "ratio" in lines[0] else flat
        yield f"{file.stem}, {name}\n\n{make(lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", default=sorted(RESULTS.glob("*.json")))
    for file in parser.parse_args().files:
        print("\n".join(tables(file)))
    print(f"processors\n\n{processors(sorted(RESULTS.glob('processors/*.json')))}")


if __name__ == "__main__":
    main()
