"""The tables of pages whose runs left no records."""

import json
import re
import shutil

import numpy as np
import pytest
from papers.pages import finished_tables, yes_or_no
from written_pages import empty_copy

PAGES = sorted(path.name for path in finished_tables.TABLES.iterdir() if path.is_dir())


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the tables and the pages, without the tables."""
    committed = {name: (finished_tables.DOCS / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
    shutil.copytree(finished_tables.TABLES, tmp_path / "finished_tables")
    for name in PAGES:
        tables = "|".join(path.stem for path in (tmp_path / "finished_tables" / name).glob("*.csv"))
        empty_copy(finished_tables.DOCS / f"{name}.md", tmp_path, tables)
    monkeypatch.setattr(finished_tables, "DOCS", tmp_path)
    monkeypatch.setattr(finished_tables, "TABLES", tmp_path / "finished_tables")
    return tmp_path, committed


def test_the_pages_are_those_of_the_committed_tables(copy):
    folder, committed = copy
    finished_tables.write_page()
    assert {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in PAGES} == committed
    assert len(PAGES) == 4


def test_the_best_number_of_a_column_is_bold():
    cells = ["6.2 [5, 7] → 2.0", "1.9 [1, 3] → 2.0", "3.0 → 2.1"]
    assert finished_tables.in_bold(cells, "min") == ["6.2 [5, 7] → **2.0**", "**1.9** [1, 3] → **2.0**", "3.0 → 2.1"]
    assert finished_tables.in_bold(["1", "9"], "max") == ["1", "**9**"]
    assert finished_tables.in_bold(["1", "9"], "") == ["1", "9"]


@pytest.mark.filterwarnings("ignore")
def test_new_runs_of_yes_or_no_replace_their_tables(copy):
    folder, committed = copy
    rng = np.random.default_rng(0)
    (folder / "out").mkdir()
    for seed in (1, 2):
        settings = {
            "task": "goemotions",
            "loss": "brier",
            "seed": seed,
            "train_samples": 900,
            "epochs": 2,
            "torch": "2",
        }
        labels = {name: (rng.random((300, 2)) < 0.3).astype(float) for name in ("validation", "test")}
        arrays = {f"{name}_labels": values for name, values in labels.items()}
        arrays |= {f"{name}_logits": rng.normal(size=(300, 2)) + 2 * values - 2 for name, values in labels.items()}
        np.savez(folder / "out" / f"goemotions_brier_s{seed}.npz", settings=json.dumps(settings), **arrays)
    yes_or_no.add_runs([folder / "out"])
    finished_tables.write_page()
    text = (folder / "yes_or_no.md").read_text(encoding="utf-8")
    assert "<!-- goemotions_runs -->seeds of brier: 1, 2; 2 epochs of 900 samples" in text
    assert re.search(r"^\| brier \| platt per label \| 0\.\d{4} ± 0\.\d{4} \|", text, re.MULTILINE)
    assert re.search(
        r"`auto` takes: <!-- goemotions_auto -->brier, seed 1: [\w ]+; brier, seed 2: [\w ]+<!-- /g", text
    )
    section = text.partition("## GoEmotions")[2].partition("## A reranker")[0]
    assert "class_balanced" not in section
    end = "## A reranker on TREC QA"
    assert text.partition(end)[2] == committed["yes_or_no"].partition(end)[2]
