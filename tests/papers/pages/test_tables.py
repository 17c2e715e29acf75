"""Cells, tables, and the places in pages where scripts write them."""

import math

import numpy as np
import pytest
from papers.pages.tables import fill_page, mean_and_deviation, rows_table


def test_a_cell_has_the_mean_and_the_deviation():
    values = [0.2, 0.25, math.nan, 0.21]
    measured = [20, 25, 21]
    assert mean_and_deviation(values, 1, 100) == f"{np.mean(measured):.1f} ± {np.std(measured, ddof=1):.1f}"
    assert mean_and_deviation([math.nan, 0.5]) == "0.50"
    assert mean_and_deviation([math.nan]) == "–"


def test_a_table_of_rows():
    table = rows_table(["Loss", "ECE %", "chosen"], [["`brier`", "1.0", "T"]], ["chosen"])
    assert table == "| Loss | ECE % | chosen |\n| --- | ---: | --- |\n| `brier` | 1.0 | T |\n"


def test_numbers_and_blocks_of_a_page_are_filled_in(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "On <!-- n -->3<!-- /n --> tasks.\n\n<!-- t -->\nold\n<!-- /t -->\n\nAll <!-- n -->3<!-- /n -->.\n"
    )
    fill_page(page, {"n": r"4\1", "t": "| a |\n| b |\n"})
    n = r"<!-- n -->4\1<!-- /n -->"
    assert page.read_text() == f"On {n} tasks.\n\n<!-- t -->\n\n| a |\n| b |\n\n<!-- /t -->\n\nAll {n}.\n"
    fill_page(page, {"t": "none yet"})
    assert "<!-- t -->\n\nnone yet\n\n<!-- /t -->" in page.read_text()
    with pytest.raises(ValueError, match=r"page.md must have the comments <!-- m --> and <!-- /m -->"):
        fill_page(page, {"m": "1"})
