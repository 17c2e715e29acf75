"""The recipes, which are scripts, as modules, and their command lines."""

import functools
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / "recipes" / "papers"
# Options of the recipe of texts, for generated texts and a tiny network.
TINY_TEXTS = {
    "variant": "strided",
    "num_generated": 120,
    "validation_size": 60,
    "max_length": 40,
    "vocab_size": 300,
    "embedding_size": 8,
    "num_filters": 8,
    "num_layers": 1,
    "per_device_train_batch_size": 32,
    "learning_rate": "1e-2",
}
ON_CPU = {"use_cpu": "true", "disable_tqdm": "true"}
# The files of each run's report.
REPORT = {"metrics.json", "table.md", "loss.yaml", "risk_coverage.png"}
REPORT |= {"reliability_before.png", "reliability_after.png"}


@functools.cache
def import_recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{Path(name).name}_recipe", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def flags(values: Mapping[str, Any]) -> list[str]:
    """The values as a command line; an option that is None is left out, a list is several values."""
    parts = []
    for name, value in values.items():
        if value is not None:
            parts += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return parts


class NoTrainer:
    """In the place of a recipe's trainer, where nothing is to be trained."""

    def __init__(self, *args, **kwargs):
        raise AssertionError("a finished run was started again")
