"""The pages have the tables that `python -m benchmarks.tables` writes from the committed figures."""

import re

import pytest
from documented import ROOT
from written_pages import empty_copy

from benchmarks.tables import losses, metrics, pages, peers, text_corrections, zero_shot
from hf_focal import recommend

README = ROOT / "benchmarks" / "README.md"
WRITTEN = {
    pages.write_readme: README,
    pages.write_exactness: ROOT / "docs" / "exactness.md",
    pages.write_scaling: ROOT / "docs" / "research" / "scaling.md",
    pages.write_large_data: ROOT / "docs" / "guides" / "large_data.md",
    pages.write_thresholds: ROOT / "docs" / "research" / "thresholds.md",
}


@pytest.mark.parametrize("write", WRITTEN, ids=lambda write: write.__name__)
def test_a_page_has_the_tables_of_the_committed_figures(write, tmp_path):
    copy = empty_copy(WRITTEN[write], tmp_path)
    write(copy)
    assert copy.read_text(encoding="utf-8") == WRITTEN[write].read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [text_corrections, zero_shot], ids=["text_corrections", "zero_shot"])
def test_the_page_of_a_study_has_the_committed_figures(module, tmp_path, monkeypatch):
    committed = module.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(module, "PAGE", empty_copy(module.PAGE, tmp_path))
    module.write_page()
    assert module.PAGE.read_text(encoding="utf-8") == committed


def test_the_recommendation_is_what_the_sets_of_logits_say():
    evidence = recommend(num_classes=2, train_samples=500, held_out_samples=200).evidence
    rows = text_corrections.read_cells()
    trained, frozen = (text_corrections.loss_differences(rows, kind, "flsd53") for kind in ("fine_tuned", "probe"))
    difference = text_corrections.difference_with_interval
    assert f"the NLL of flsd53 minus that of cross_entropy is {difference(trained['nll auto'], 3)}, " in evidence
    assert f"and the error {difference(100 * trained['error auto'], 1)} points" in evidence
    assert f"on {(frozen['nll auto'] > 0).sum()} of {len(frozen)} tasks. T" in evidence


def test_the_comparison_with_peers_has_the_committed_figures(tmp_path):
    committed = (ROOT / "benchmarks" / "peers.md").read_text(encoding="utf-8")
    copy = tmp_path / "peers.md"
    copy.write_text(committed.partition(peers.MARK)[0], encoding="utf-8")
    pages.write_peers(copy)
    assert copy.read_text(encoding="utf-8") == committed


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_has_as_many_cells_in_each_row():
    found = re.findall(r"(?:^\|.*\n)+", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(found) >= 20
    for table in found:
        assert len({len(cells(line)) for line in table.splitlines()}) == 1


def test_figures_of_losses_and_metrics_are_in_the_cell_of_their_names():
    loss = {"rows": 8, "classes": 3, "dtype": "float32", "peak_in_logits": 3.0}
    lines = [
        loss | {"name": "F.cross_entropy", "milliseconds": 0.127, "time_ratio": 1.0},
        loss | {"name": "ours", "milliseconds": 0.4, "time_ratio": 3.149, "peak_in_logits": 2.44},
    ]
    line = {"name": "ECE", "seconds": {"ours": 0.0972}, "ratio": {"loop over bins": 1.54}, "values": {"ours": 0.1}}
    assert [cells(row) for row in losses.losses(lines).splitlines()] == [
        ["", "8 × 3, float32"],
        ["---", "---:"],
        ["F.cross_entropy", "0.127 ms, 3.0"],
        ["ours", "3.15, 2.4"],
    ]
    titles, _, row = (cells(row) for row in metrics.metrics([line], []).splitlines())
    assert titles == ["", "ours, ms", "torchmetrics", "loop"]
    assert row == ["ECE", "97.2", "–", "1.5×"]
