"""The recipes, which are scripts, as modules."""

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "recipes"


@functools.cache
def import_recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_recipe", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
