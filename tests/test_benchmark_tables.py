"""`benchmarks/tables.py` on the committed figures."""

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import tables

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def printed(monkeypatch, capsys):
    def printed(*files):
        monkeypatch.setattr(sys, "argv", ["tables", *map(str, files)])
        tables.main()
        return capsys.readouterr().out

    return printed


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_has_as_many_cells_in_each_row(printed):
    found = re.findall(r"(?:^\|.*\n)+", printed(), flags=re.MULTILINE)
    assert len(found) >= 10
    for table in found:
        assert len({len(cells(line)) for line in table.splitlines()}) == 1


def test_figures_of_losses_and_metrics_are_in_the_cell_of_their_names(printed, tmp_path):
    loss = {"rows": 8, "classes": 3, "dtype": "float32", "peak_in_logits": 3.0}
    losses = [
        loss | {"name": "F.cross_entropy", "milliseconds": 0.127, "time_ratio": 1.0},
        loss | {"name": "ours", "milliseconds": 0.4, "time_ratio": 3.149, "peak_in_logits": 2.44},
    ]
    line = {"name": "ECE", "seconds": {"ours": 0.0972}, "ratio": {"loop over bins": 1.54}, "values": {"ours": 0.1}}
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"machine": {"cpus": 2}, "losses": losses, "lines": [line]}), encoding="utf-8")
    rows = [cells(row) for row in printed(file).splitlines() if row.startswith("|")]
    assert rows[0] == ["", "F.cross_entropy", "ours"]
    assert rows[2] == ["8 × 3, float32", "0.127 ms, 3.0", "3.15, 2.4"]
    assert rows[3] == ["", "ours", "torchmetrics", "loop"]
    assert rows[5] == ["ECE", "97.2", "–", "1.5×"]


def test_a_file_without_figures_is_an_error(printed, tmp_path):
    with pytest.raises(FileNotFoundError):
        printed(tmp_path / "missing.json")


def test_the_page_has_the_ranges_over_all_processors(printed):
    _, found, table = printed().rpartition("processors\n\n")
    assert found and table.strip() in (BENCHMARKS / "README.md").read_text(encoding="utf-8")
