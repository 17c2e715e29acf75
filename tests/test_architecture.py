"""The rules of structure: folders import those above them only, and the package does not import the recipes."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented import ROOT


def imported_modules(path: Path) -> set[str]:
    """The absolute names of the modules that a file imports anywhere."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return names | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}


@pytest.mark.slow
def test_the_package_does_not_import_the_recipes():
    files = sorted((ROOT / "hf_focal").rglob("*.py"))
    assert files
    recipes = {"recipes", "papers"} | {path.stem for path in (ROOT / "recipes").glob("*.py")}
    wrong = {str(path): {name for name in imported_modules(path) if name.split(".")[0] in recipes} for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}


# Folders and modules, each of which imports only those above it, as the picture in docs/architecture.md shows.
LAYERS = [
    "utils", "errors", "validation",
    "losses", "metrics",
    "calibration",
    "tasks", "recommendation", "command_lines",
    "choices",
    "reports",
    "hub", "scores",
    "trainer",
    "sources",
    "workflow", "demo",
    "cli",
]  # fmt: skip


def imported_layers(path: Path) -> set[str]:
    """The folders and modules of the package that a file imports anywhere, except its own."""
    package = ("hf_focal", *path.relative_to(ROOT / "hf_focal").parts[:-1])
    layers = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            layers |= {".".join((*base, name)).split(".")[1] for name in names}
    return layers - {*package[1:2]}


# Imports of types alone, which nothing executes: an error carries a result.
TYPES_ALONE = {"errors": ["reports"]}


def test_folders_import_only_those_above_them():
    wrong = []
    for path in sorted((ROOT / "hf_focal").rglob("*.py")):
        layer = (path.relative_to(ROOT / "hf_focal").parts[0]).removesuffix(".py")
        if layer not in ("__init__", "__main__"):
            above = LAYERS[: LAYERS.index(layer)] + TYPES_ALONE.get(layer, [])
            wrong += [f"{path}: {name}" for name in imported_layers(path) - {layer} if name not in above]
    assert wrong == []


# Parts of `scores`, each of which imports only those above it, as docs/architecture.md says.
PARTS_OF_SCORES = [
    "meanings", "name_vocabulary", "new_files", "table_options",
    "reading", "values", "columns", "schema", "sets", "correction_files", "analysis",
]  # fmt: skip


def test_parts_of_scores_import_only_those_above_them():
    wrong = []
    folder = ROOT / "hf_focal" / "scores"
    for path in sorted(folder.rglob("*.py")):
        part = path.relative_to(folder).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        above = PARTS_OF_SCORES[: PARTS_OF_SCORES.index(part)]
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        depth = len(path.relative_to(folder).parts)
        relative = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level == depth]
        imported = {str(node.module).split(".")[0] for node in relative}
        wrong += [f"{path}: {name}" for name in imported - {part} if name not in above]
    assert wrong == []


def test_the_picture_has_every_folder():
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    boxes = {*re.findall(r'class="name"[^>]*>(\w+)<', picture)}
    assert {*LAYERS} - {"utils", "errors", "validation", "command_lines"} <= boxes
    assert {path.name for path in (ROOT / "hf_focal").iterdir() if (path / "__init__.py").is_file()} <= {*LAYERS}


# Files that runs and saved models have, not the repository.
WRITTEN = {"correction.json", "temperature.json", "generation_config.json", "focal_state.json", "run.json"}
WRITTEN |= {"metrics.json", "report/metrics.json", "recipes/papers/configs/<dataset>/<name>.yaml"}


def test_every_path_in_the_description_exists():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {*re.findall(r"`([\w./<>-]*(?:/|\.(?:py|md|csv|txt|bib|svg|toml|yaml|json)))`", text)}
    assert len(names) > 60
    files = [*(ROOT / "hf_focal").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    known = {path.name for path in files}
    missing = [name for name in names if not ((ROOT / name).exists() or (ROOT / "hf_focal" / name).exists())]
    assert {name for name in missing if name not in known} <= WRITTEN


def test_losses_and_metrics_import_neither_transformers_nor_the_trainer():
    code = "import sys, hf_focal.losses, hf_focal.metrics; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"hf_focal.losses", "hf_focal.metrics"} <= set(modules)
    assert not {"transformers", "hf_focal.trainer"}.intersection(modules)
