"""Cells, tables, and the places in pages where scripts write them."""

import math

import numpy as np
import pytest
from papers.figures.tables import mean_and_deviation, replace_rest, replace_section, rows_table


def test_a_cell_has_the_mean_and_the_deviation():
    values = [0.2, 0.25, math.nan, 0.21]
    own = [20, 25, 21]
    assert mean_and_deviation(values, 1, 100) == f"{np.mean(own):.1f} ± {np.std(own, ddof=1):.1f}"
    assert mean_and_deviation([math.nan, 0.5]) == "0.50"
    assert mean_and_deviation([math.nan]) == "–"


def test_a_table_of_rows():
    table = rows_table(["Loss", "ECE %", "chosen"], [["`brier`", "1.0", "T"]], ["chosen"])
    assert table == "| Loss | ECE % | chosen |\n| --- | ---: | --- |\n| `brier` | 1.0 | T |\n"


def test_a_section_of_a_page_is_replaced(tmp_path):
    page, mark = tmp_path / "page.md", "<!-- results: written by recipes/papers/results.py -->"
    page.write_text(f"above\n{mark}\nold\n<!-- end of results -->\nbelow\n")
    replace_section(page, "results", "newer\n")
    assert page.read_text() == f"above\n{mark}\n\nnewer\n\n<!-- end of results -->\nbelow\n"
    with pytest.raises(ValueError, match=r"page.md must have the comments <!-- tests: written by"):
        replace_section(page, "tests", "new")


def test_what_is_written_by_hand_is_kept(tmp_path):
    page, mark = tmp_path / "page.md", "<!-- What follows is written by recipes/papers/some_page.py. -->\n"
    page.write_text(f"By hand.\n{mark}old\n")
    replace_rest(page, "some_page.py", "new\n")
    assert page.read_text() == f"By hand.\n{mark}\nnew\n"
    with pytest.raises(ValueError, match=r"page.md must have the comment <!-- What follows is written by .*/other.py"):
        replace_rest(page, "other.py", "new")
