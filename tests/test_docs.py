"""The guides' examples run as they stand, and whatever the documentation names is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from documented import ROOT, classifier, examples_of, run_example, translator

import hf_focal

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
INDEX = DOCS / "paper_index.md"
API = sorted((DOCS / "api").glob("*.md"))
# Its first example trains for a quarter of an hour: `test_guide.py` runs the others.
ELSEWHERE = DOCS / "guides" / "calibrate_existing.md"
GUIDES = [page for page in PAGES if page != ELSEWHERE and examples_of(page)]
STATUSES = {"reproduced", "run in small", "implemented, not run", "not built"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_examples_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(page)
    names = translator() if "Seq2Seq" in "".join(examples) else classifier()
    if page.stem in ("launching", "exactness"):  # which begin with a training script that is there
        names["args"] = names["FocalTrainingArguments"](output_dir="out", report_to="none", num_train_epochs=1)
        names["trainer"] = names["FocalTrainer"](
            names["model"], names["args"], train_dataset=names["train"], eval_dataset=names["validation"]
        )
    for example in examples:
        run_example(example, page, names)
    if page.stem == "first_model":
        saved = type(names["model"]).from_pretrained("out")
        assert saved.config.calibration["temperature"] == names["temperature"].value
        assert names["figures"]["eval_error"] < 0.5  # it has learnt something: chance is 0.9
    if page.stem == "translation":
        assert names["folded"].config.calibration["folded"]
    if page.stem == "adafocal":
        assert len(names["history"]) > 1
        assert (tmp_path / "gamma.png").stat().st_size > 0
    if page.stem == "reliability_diagram":
        assert (tmp_path / "overconfident.png").stat().st_size > 0


def test_the_ece_that_the_guide_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = DOCS / "guides" / "reliability_diagram.md"
    (example,) = examples_of(page)
    run_example(example, page, {})
    shown = re.findall(r"print\(.*?\)  # ([^:\n]*)", example)
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == shown


def test_which_guides_have_examples():
    assert {page.stem for page in GUIDES} == {
        *("adafocal", "first_model", "gamma", "losses", "reliability_diagram", "translation"),
        *("exactness", "launching"),
    }


def site() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def leaves(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(entry)]


def test_the_site_has_every_page_once():
    assert sorted(leaves(site()["nav"])) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


@pages
def test_links_stay_within_the_documentation_and_lead_somewhere(page):
    # A link that leaves docs/ works on a code host and not on the site: such files are named as code.
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("https://", "#")):
            path = (page.parent / target.partition("#")[0]).resolve()
            assert path.is_relative_to(DOCS.resolve()), f"{target} leaves docs/"
            assert path.is_file(), f"{target} is not there"


def tables(page: Path) -> list[list[list[str]]]:
    """The cells of each table of a page, without the row of dashes."""
    found = re.findall(r"(?:^\|.*\n)+", re.sub(r"```.*?```", "", page.read_text("utf-8") + "\n", flags=re.DOTALL), re.M)
    return [
        [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        for table in found
    ]


@pages
def test_tables_have_as_many_cells_in_each_row(page):
    for header, dashes, *rows in tables(page):
        assert all(re.fullmatch(r":?-+:?", cell) for cell in dashes)
        assert {len(row) for row in rows} == {len(header)}, header


def rows_of_the_index() -> list[dict[str, str]]:
    return [
        dict(zip(header, row, strict=True))
        for header, _, *rows in tables(INDEX)
        if header[-1] == "Status"
        for row in rows
    ]


def test_no_cell_of_the_index_is_empty():
    assert all(cell for table in tables(INDEX) for row in table for cell in row)


def test_each_row_of_the_index_has_a_status():
    for row in rows_of_the_index():
        assert row["Status"].partition(":")[0] in STATUSES, row
        if row["Status"] != "not built":
            assert row["Code"] != "–", row
            assert row["Test"] != "–", row


def test_the_index_has_every_equation_table_and_figure():
    first = " ".join(next(iter(row.values())) for row in rows_of_the_index())
    for kind, last in (("Equation", 13), ("Table", 13), ("Figure", 10), ("Proposition", 2)):
        for number in range(1, last + 1):
            assert re.search(rf"{kind} {number}\b", first), f"{kind} {number}"


def test_the_files_of_the_index_are_there():
    named = re.findall(r"`((?:hf_focal|recipes|tests|benchmarks|docs)/[^`\s]+)`", INDEX.read_text("utf-8"))
    assert len(named) > 50
    for name in named:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        if test:
            assert re.search(rf"^def {test}\(", (ROOT / path).read_text("utf-8"), re.M), name


def resolve(name: str):
    """The module, class or attribute that a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


@pages
def test_names_of_the_package_resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in re.findall(r"(?:`|::: )(hf_focal(?:\.\w+)+)", text):
        resolve(name)


def test_every_public_name_is_in_the_reference():
    modules = [resolve(name) for page in API for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.M)]
    documented = [getattr(module, name) for module in modules for name in module.__all__]
    missing = [name for name in hf_focal.__all__ if not any(getattr(hf_focal, name) is found for found in documented)]
    assert missing == []
    packages = {module.parent.name for module in (ROOT / "hf_focal").glob("*/__init__.py")}
    assert {f"hf_focal.{package}" for package in packages} <= {module.__name__ for module in modules}
