"""Cells, tables, and the places in pages where scripts write them."""

import math
import re

import numpy as np
import pytest
from papers.pages.page import DOCS, fill_page, mean_and_deviation

INLINE = re.compile(r"\s*(- )?<!-- \w+ -->\S")


def test_a_cell_has_the_mean_and_the_deviation():
    values = [0.2, 0.25, math.nan, 0.21]
    measured = [20, 25, 21]
    assert mean_and_deviation(values, 1, 100) == f"{np.mean(measured):.1f} ± {np.std(measured, ddof=1):.1f}"
    assert mean_and_deviation([math.nan, 0.5]) == "0.50"
    assert mean_and_deviation([math.nan]) == "–"


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


def test_no_line_of_a_page_begins_with_the_comment_of_a_number():
    """Markdown takes such a line for HTML, and shows its links and emphasis as they are typed."""
    pages = [*DOCS.parent.rglob("*.md"), DOCS.parents[1] / "benchmarks" / "README.md"]
    found = [
        (page.name, line) for page in pages for line in page.read_text("utf-8").splitlines() if INLINE.match(line)
    ]
    assert found == []
