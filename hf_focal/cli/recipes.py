"""The training scripts that `hf-focal recipe` lists and copies."""

import ast
import re
import shutil
from pathlib import Path

from ..errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]
# In an installed package, the recipes are beside this folder; in a clone, they are in the repository's folder.
FOLDER = next((folder for folder in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if folder.is_dir()), _PACKAGE)


def recipes() -> dict[str, str]:
    """Return the recipes' names with the first lines of their docstrings."""
    files = sorted(FOLDER.glob("*.py"))
    return {file.stem: (ast.get_docstring(_parsed(file)) or "").splitlines()[0] for file in files}


def copy_recipe(name: str, output_dir: str | Path = ".") -> list[Path]:
    """Copy a recipe and the configurations that its docstring names into a folder.

    Args:
        name: one of `recipes`.
        output_dir: the folder, made if it is missing.

    Returns:
        The new files, the recipe first.

    Raises:
        InputError: no recipe has this name, or a file is already there.
    """
    if name not in recipes():
        raise InputError("recipe", f"must be one of {', '.join(recipes())}, got {name!r}")
    recipe = FOLDER / f"{name}.py"
    configs = re.findall(r"--config (\w+\.yaml)", ast.get_docstring(_parsed(recipe)) or "")
    sources = [recipe, *(FOLDER / "configs" / config for config in dict.fromkeys(configs))]
    copies = [Path(output_dir) / source.name for source in sources]
    if existing := [copy for copy in copies if copy.exists()]:
        raise InputError("output_dir", f"must not have the file {str(existing[0])!r}: choose another folder")
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    for source, copy in zip(sources, copies, strict=True):
        shutil.copyfile(source, copy)
    return copies


def _parsed(recipe: Path) -> ast.Module:
    return ast.parse(recipe.read_text(encoding="utf-8"))
