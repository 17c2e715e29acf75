"""Structure of the package: two wings, one direction of imports, no cycles."""

import ast
from pathlib import Path

from documented import ROOT

PACKAGE = ROOT / "hf_focal"
# The papers' models under the names that earlier versions saved, and the one file that registers them when needed.
ALIAS = "hf_focal.models"
REGISTERS_MODELS = "hf_focal.cli.model_loading"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
PRODUCT = {name: path for name, path in FILES.items() if not name.startswith("hf_focal.experiments")}


def imported_modules(name: str, path: Path) -> set[str]:
    """Modules of the package that a file imports: at the top, in functions and under TYPE_CHECKING."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else module for name in names}
    return {module for module in found if module in FILES}


IMPORTS = {name: imported_modules(name, path) for name, path in FILES.items()}


def test_imports_of_all_kinds_are_read(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import hf_focal.models\n"
        "from . import functional\n"
        "from ..metrics import CalibrationMetrics\n"
        "from ..experiments.models import *\n"
        "if TYPE_CHECKING:\n    from .loss_config import LossConfig\n"
        "def load():\n    from hf_focal.calibration import temperature\n"
    )
    assert imported_modules("hf_focal.losses.module", path) == {
        *("hf_focal.models", "hf_focal.losses.functional", "hf_focal.metrics", "hf_focal.experiments.models"),
        *("hf_focal.losses.loss_config", "hf_focal.calibration.temperature"),
    }


def test_the_product_does_not_import_the_experiments():
    wrong = [
        f"{name} imports {module}"
        for name in PRODUCT
        if name != ALIAS
        for module in IMPORTS[name]
        if module.startswith("hf_focal.experiments") or (module == ALIAS and name != REGISTERS_MODELS)
    ]
    assert wrong == []


def test_no_imports_are_circular():
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for module in sorted(IMPORTS[name]):
                visit(module, (*path, name))
            done.add(name)

    for name in FILES:
        visit(name, ())
