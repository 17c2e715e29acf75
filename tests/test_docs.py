"""The guides' examples run, and the files, names and options in the documentation exist."""

import ast
import dataclasses
import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from documented import ROOT, answers_and_language_model, classifier, examples_of, reviews_and_encoder, run_example
from recipe_modules import import_recipe
from transformers import TrainingArguments

import hf_focal
from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.cli.main import main

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
INDEX = DOCS / "paper_index.md"
API = sorted((DOCS / "api").glob("*.md"))
# The first example of calibrate_existing trains for 16 minutes, and `test_guide.py` runs the others; those of scores
# need files of other tools, which `scores/test_scores_guide.py` makes, and those of prediction_sets need MAPIE, as
# `scores/test_prediction_sets.py` does; `sources/test_source.py` runs those of own_source, and
# `sources/test_label_words.py` those of language_model_classifier.
# `scores/test_large_data_guide.py` runs those of large_data as scripts.
ELSEWHERE = (
    "calibrate_existing",
    "language_model_classifier",
    "large_data",
    "own_source",
    "prediction_sets",
    "scores",
    "sft",  # needs TRL, and is tested below
)
# These guides build their own model and data; the others continue from an existing model and splits.
COMPLETE = (*("csv_to_hub", "losses", "reliability_diagram", "train_with_trainer", "translation"),)
GUIDES = [page for page in PAGES if page.stem not in ELSEWHERE and examples_of(page)]
STATUSES = {"reproduced", "small-scale run", "implemented, not run", "not implemented"}

# Files with commands that are not part of the site.
OTHER_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "benchmarks/README.md")]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
all_pages = pytest.mark.parametrize("page", PAGES + OTHER_PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_examples_run_in_order(page, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(page)
    names = {} if page.stem in COMPLETE else classifier()
    if page.stem in ("launching", "exactness"):  # they continue a training script
        names["args"] = FocalTrainingArguments(output_dir="out", report_to="none", num_train_epochs=1)
        names["trainer"] = FocalTrainer(
            names["model"], names["args"], train_dataset=names["train"], eval_dataset=names["validation"]
        )
    if page.stem in ("csv_to_hub", "train_with_trainer"):
        reviews_and_encoder(tmp_path)
        hub = request.getfixturevalue("hub")
    if find_spec("peft") is None:
        examples = [example for example in examples if "peft" not in example]
    if page.stem == "decisions":
        sides = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0)) * 3
        arrays = {f"{part}_logits": torch.cat([sides, -sides], 1).numpy() for part in ("validation", "test")}
        labels = torch.bernoulli((-sides.squeeze(1)).sigmoid()).long().numpy()
        np.savez("logits.npz", **arrays, validation_labels=labels, test_labels=labels)
    if page.stem == "multi_label":
        names["logits"] = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        names["labels"] = torch.bernoulli(names["logits"].sigmoid())
    capsys.readouterr()
    for example in examples:
        run_example(example, page, names)
    printed = capsys.readouterr().out.splitlines()
    if page.stem == "csv_to_hub":
        (line,) = re.findall(r"```console\n\$ hf-focal (.*)\n```", page.read_text(encoding="utf-8"))
        assert main(line.split()) == 0 and (tmp_path / "reviews.html").stat().st_size > 0
        (published,) = hub.repositories.values()
        assert {"README.md", "model.safetensors", "temperature.json"} <= published.keys()
        assert json.loads(published["temperature.json"])["num_samples"] == 500
    if page.stem == "train_with_trainer":
        (published,) = hub.repositories.values()
        assert {"README.md", "correction.json"} <= published.keys()
        assert "license: apache-2.0" in published["README.md"].decode()
    if page.stem == "translation":
        assert names["folded"].config.calibration["folded"]
    if page.stem == "reliability_diagram":
        assert printed == [comment.partition(":")[0] for comment in re.findall(r"\)  # (.*%.*)", "\n".join(examples))]
        assert (tmp_path / "overconfident.png").stat().st_size > 0
    if page.stem == "gamma":
        assert len(names["history"]) > 1
        assert (tmp_path / "gamma.png").stat().st_size > 0
        shown = re.findall(r"\)  # ([\d.]+)\.\.\.", examples[0])
        assert len(shown) == 2
        numbers = [line for line in printed if re.fullmatch(r"[\d.]+", line)]
        assert all(line.startswith(number) for line, number in zip(numbers, shown, strict=True))


@pytest.mark.full
def test_the_example_of_supervised_fine_tuning_runs(tmp_path, monkeypatch):
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    page = DOCS / "guides" / "sft.md"
    (example,) = examples_of(page)
    answers_and_language_model(tmp_path)
    names: dict = {}
    run_example(example, page, names)
    trainer = names["trainer"]
    assert trainer.fit.temperature.num_samples > 0
    saved = type(trainer.model).from_pretrained("out/sft")
    assert saved.config.calibration["temperature"] == trainer.fit.temperature.value


def test_guides_with_examples():
    assert {page.stem for page in GUIDES} == {
        *("csv_to_hub", "decisions", "gamma", "losses", "reliability_diagram", "translation"),
        *("exactness", "launching", "multi_label", "train_with_trainer"),
    }


def site() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def leaves(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(entry)]


def test_every_page_is_once_in_the_navigation_or_is_a_page_that_another_links():
    in_navigation = leaves(site()["nav"])
    patterns = [line.strip("/") for line in site()["not_in_nav"].split()]
    others = [page.relative_to(DOCS).as_posix() for pattern in patterns for page in DOCS.glob(pattern)]
    assert sorted([*in_navigation, *others]) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)\s]+\.md[^)\s]*)\)", without_code(page))
    }
    assert [name for name in others if (DOCS / name).resolve() not in linked] == []


def test_the_sidebar_is_short():
    sections = [entry for section in site()["nav"] for entry in section.values()]
    assert sum(1 if isinstance(section, str) else len(section) for section in sections) <= 24


def without_code(page: Path) -> str:
    """The text of a page without its code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pages
def test_links_stay_within_the_documentation_and_exist(page):
    # A link that leaves docs/ breaks on the site, so pages name such files as code.
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if not target.startswith(("https://", "#")):
            path = (page.parent / target.partition("#")[0]).resolve()
            assert path.is_relative_to(DOCS.resolve()), f"{target} leaves docs/"
            assert path.is_file(), f"{target} does not exist"


def tables(page: Path) -> list[list[list[str]]]:
    """The cells of each table of a page, without the row of dashes."""
    blocks = re.findall(r"(?:^\|.*\n)+", without_code(page) + "\n", re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        for table in blocks
    ]


@pages
def test_table_rows_have_equally_many_cells(page):
    for header, dashes, *rows in tables(page):
        assert all(re.fullmatch(r":?-+:?", cell) for cell in dashes)
        assert {len(row) for row in rows} == {len(header)}, header


def index_rows() -> list[dict[str, str]]:
    return [
        dict(zip(header, row, strict=True))
        for header, _, *rows in tables(INDEX)
        if header[-1] == "Status"
        for row in rows
    ]


def test_no_cell_of_the_index_is_empty():
    assert all(cell for table in tables(INDEX) for row in table for cell in row)


def test_each_row_of_the_index_has_a_status():
    for row in index_rows():
        status = row["Status"].partition(":")[0]
        assert status in STATUSES, row
        if status != "not implemented":
            assert row["Code"] != "–", row
            assert row["Test"] != "–", row


def test_index_has_every_equation_table_and_figure():
    first = " ".join(next(iter(row.values())) for row in index_rows())
    for kind, last in (("Equation", 13), ("Table", 13), ("Figure", 10), ("Proposition", 2)):
        for number in range(1, last + 1):
            assert re.search(rf"{kind} {number}\b", first), f"{kind} {number}"


def named_files(page: Path) -> list[str]:
    """Paths in the repository that a page names anywhere, with "::test" where it names a test."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"(?<![\w/.-])((?:hf_focal|recipes|tests|benchmarks|docs)/[\w/.-]+\.[a-z]+(?:::\w+)?)", text)


@all_pages
def test_named_files_exist(page):
    for name in named_files(page):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        if test:
            assert re.search(rf"^def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), name


def test_index_names_files():
    assert len(named_files(INDEX)) > 50


def recipe_commands(page: Path) -> list[tuple[str, list[str]]]:
    """The recipe and the options of each command in a page's code blocks, or in the Makefile."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    if page.suffix == ".md":
        text = "\n".join(re.findall(r"```(?:\n|console\n).*?```", text, re.DOTALL))
    commands = re.findall(r"recipes/papers/(\w+)\.py(.*)", text)
    return [(recipe, re.findall(r" --(\w+)", rest)) for recipe, rest in commands]


@all_pages
def test_options_of_recipe_commands_exist(page):
    for recipe, options in recipe_commands(page):
        if recipe == "sft":
            pytest.importorskip("trl")
        module = import_recipe(recipe)
        classes = [value for value in vars(module).values() if dataclasses.is_dataclass(value)]
        fields = {field.name for value in classes for field in dataclasses.fields(value)}
        if not hasattr(module, "argparse"):
            assert set(options) <= fields | {"config", "losses"}, recipe


def test_commands_of_pages_are_found():
    assert len([command for page in PAGES + OTHER_PAGES for command in recipe_commands(page)]) > 10


def resolve(name: str):
    """The module, class or attribute of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            value = getattr(value, attribute)
        return value
    raise ModuleNotFoundError(name)


@pages
def test_names_of_the_package_resolve(page):
    for name in re.findall(r"(?:`|::: )(hf_focal(?:\.\w+)+)", without_code(page)):
        resolve(name)


def test_every_public_name_is_in_the_reference():
    directives = [re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE) for page in API]
    modules = [resolve(name) for names in directives for name in names]
    documented = [
        getattr(value, name) for value in modules for name in getattr(value, "__all__", dir(value))
    ] + modules
    missing = [name for name in hf_focal.__all__ if not any(getattr(hf_focal, name) is value for value in documented)]
    assert missing == []
    product = {"losses", "metrics", "calibration", "trainer", "reports", "hub"}
    assert {f"hf_focal.{package}" for package in product} <= {module.__name__ for module in modules}


@pytest.mark.parametrize("package", ["losses", "metrics", "calibration", "trainer", "reports", "hub"])
def test_the_reference_shows_each_name_of_a_package(package):
    # It leaves out a name without a docstring, and one that a file of the package shares unless a line names it.
    folder, reference = ROOT / "hf_focal" / package, "".join(page.read_text(encoding="utf-8") for page in API)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    definitions = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    described = {node.name for node in definitions if ast.get_docstring(node)}
    names = set(import_module(f"hf_focal.{package}").__all__)
    assert names - described <= {"LOSSES", "LossFunction"}  # assigned names
    for name in names:
        directive = f"::: hf_focal.{package}.{name}.{name}\n"
        assert not (folder / f"{name}.py").exists() or directive in reference


def test_the_trainers_own_arguments_are_in_a_table_with_their_defaults():
    rows = {row[0].strip("`"): row[1].strip("`") for row in tables(DOCS / "api" / "trainer.md")[0][2:]}
    defaults = {field.name: field.default for field in dataclasses.fields(FocalTrainingArguments)}
    others = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    assert rows == {
        name: json.dumps(value) if isinstance(value, str) else str(value)
        for name, value in defaults.items()
        if name not in others or value != others[name]
    }


def test_architecture_has_one_picture_and_no_code():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert len(re.findall(r"!\[", page)) == 1
    assert "```" not in page
