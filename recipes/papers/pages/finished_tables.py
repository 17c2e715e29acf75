"""Write the tables of pages whose runs left no records, from the tables in recipes/papers/records/finished_tables.

    python -m papers.pages.finished_tables

PAGE/TABLE.csv has the cells of a table of docs/results/PAGE.md, or of one that the page only links: the titles, then
for each column whether the smallest ("min") or largest ("max") number is bold, then the rows. If this second line
begins with "row", it is about rows. In a cell with " → ", the numbers before and after are compared separately.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_focal.reports.wording.markdown_tables import rows_table
from papers.pages.page import DOCS, RECORDS, fill_page

TABLES = RECORDS / "finished_tables"


def in_bold(cells: Sequence[str], best: str) -> list[str]:
    """Put the best number of the cells in bold, or of each side of " → "; numbers may be followed by an interval."""
    if not best:
        return list(cells)
    sides = []
    for side in zip(*(cell.split(" → ") for cell in cells), strict=True):
        numbers = [float(part.split(" ")[0]) for part in side]
        wanted = {"min": min, "max": max}[best](numbers)
        marked = []
        for part, number in zip(side, numbers, strict=True):
            first, *rest = part.split(" ")
            marked.append(" ".join([f"**{first}**" if number == wanted else first, *rest]))
        sides.append(marked)
    return [" → ".join(parts) for parts in zip(*sides, strict=True)]


def read_table(path: Path) -> str:
    """Format the table of a CSV file in Markdown."""
    with path.open(encoding="utf-8", newline="") as file:
        titles, best, *rows = csv.reader(file)
    if best[0] == "row":
        compared = [number for number, rule in enumerate(best) if number and rule]
        for row in rows:
            cells = in_bold([row[number] for number in compared], best[compared[0]])
            for number, cell in zip(compared, cells, strict=True):
                row[number] = cell
        return rows_table(titles, rows)
    columns = [in_bold(column, rule) for column, rule in zip(zip(*rows, strict=True), ["", *best[1:]], strict=True)]
    return rows_table(titles, zip(*columns, strict=True))


def write_table(page: str, table: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table of a page, without bold numbers, to its CSV file."""
    path = TABLES / page / f"{table}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([titles, ["best", *[""] * (len(titles) - 1)], *rows])


def write_page() -> None:
    for folder in sorted(path for path in TABLES.iterdir() if path.is_dir()):
        page = DOCS / f"{folder.name}.md"
        names_in_page = set(re.findall(r"<!-- (\w+) -->", page.read_text(encoding="utf-8")))
        paths = [path for path in sorted(folder.glob("*.csv")) if path.stem in names_in_page]
        fill_page(page, {path.stem: read_table(path) for path in paths})


if __name__ == "__main__":
    write_page()
