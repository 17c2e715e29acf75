"""The committed runs, and the pages that are written from them."""

import json
import shutil
from pathlib import Path

import pytest
from recipe_modules import import_recipe

corrections = import_recipe("corrections")
results = import_recipe("results")
ROOT = Path(__file__).parents[3]
PAGES = ["docs/results/newsgroups.md", "docs/results/sst.md", "docs/results/cifar10_overfit.md"]
PAGES += ["docs/results/multi30k.md", "docs/results/reproduction.md"]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the pages for the script to write into."""
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    (tmp_path / "docs" / "guides").mkdir()
    monkeypatch.setattr(results, "DOCS", tmp_path / "docs" / "results")
    return tmp_path


def test_the_pages_are_those_of_the_committed_runs(copy):
    results.main([])
    for page in PAGES:
        assert (copy / page).read_text(encoding="utf-8") == (ROOT / page).read_text(encoding="utf-8"), page
    drawn = (
        "results/20_newsgroups_strided.png",
        "results/sst_binary.png",
        "guides/calibrate_existing.png",
        "guides/csv_to_hub.png",
        "results/cifar10_dynamics/dynamics_gaps.png",
        "results/cifar10_dynamics/cross_entropy_train.png",
    )
    for figure in drawn:
        assert (copy / "docs" / figure).stat().st_size > 10_000


def test_a_network_s_section_fills_with_its_first_run(copy, monkeypatch):
    records = copy / "records"
    for task in ("20_newsgroups_strided", "cifar10_dynamics", "calibrate_existing", "csv_to_hub"):
        shutil.copytree(results.RECORDS / task, records / task)
    (records / "20_newsgroups").mkdir()
    shutil.copy(records / "20_newsgroups_strided" / "cross_entropy_s1.json", records / "20_newsgroups")
    monkeypatch.setattr(results, "RECORDS", records)
    results.main([])
    text = (copy / "docs" / "results" / "newsgroups.md").read_text(encoding="utf-8")
    section = text.split("<!-- 20_newsgroups: ")[1].split("<!-- end of 20_newsgroups -->")[0]
    assert "| cross-entropy | 16.46 | 17.92° | 3.10 | 3.4 | 1.65 | 2.39 | 23.76 | 26.68 | 1 |" in section
    assert (copy / "docs" / "results" / "20_newsgroups_errors.png").stat().st_size > 10_000
    assert "There are no runs yet." in (copy / "docs" / "results" / "sst.md").read_text(encoding="utf-8")


def test_every_committed_run_is_in_its_file():
    tasks = results.TASKS | results.DYNAMICS
    for task in tasks:
        for file in (results.RECORDS / task).glob("*.json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            assert file.name == f"{results.name_of(task, record)}_s{record['seed']}.json"
    # Their pages have scripts of their own, and one run in bfloat16 is in no table that is written.
    others = {"fine_tuning", "corrections", "multi_label", "calibrate_existing", "csv_to_hub", "sft", "many_tasks"}
    others.add("20_newsgroups_strided_bfloat16")
    assert {path.name for path in (results.RECORDS).iterdir()} <= {*tasks, *others}


def test_a_section_of_a_page_is_replaced(tmp_path):
    page, mark = tmp_path / "page.md", "<!-- results: written by recipes/papers/results.py -->"
    page.write_text(f"above\n{mark}\nold\n<!-- end of results -->\nbelow\n")
    results.replace_section(page, "results", "newer\n")
    assert page.read_text() == f"above\n{mark}\n\nnewer\n\n<!-- end of results -->\nbelow\n"
    with pytest.raises(ValueError, match=r"page.md must have the comments <!-- tests: written by"):
        results.replace_section(page, "tests", "new")


def test_the_page_of_corrections_is_that_of_the_committed_runs():
    files = sorted((results.RECORDS / "corrections").glob("*.json"))
    page = corrections.page([json.loads(file.read_text(encoding="utf-8")) for file in files])
    assert (results.DOCS / "corrections.md").read_text(encoding="utf-8") == page


def test_corrected_runs_have_names_of_their_own():
    logits = [Path(f"out/{task}/seed_1/logits.npz") for task in ("sst", "news")]
    assert corrections.names_of(logits) == ["sst_seed_1", "news_seed_1"]
    assert corrections.names_of(logits[:1]) == ["seed_1"]
    with pytest.raises(ValueError, match="logits must be files of different folders, got out/sst/seed_1"):
        corrections.names_of([*logits, logits[0]])
