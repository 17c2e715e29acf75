"""Running a recipe in this process, and small data for it."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import WORDS
from datasets import Dataset
from documented import ROOT

QUICK = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 20,
    "use_cpu": "true",
    "disable_tqdm": "true",
    "report_to": "none",
    "save_strategy": "no",
}


def flags(**options: Any) -> list[str]:
    return [f"--{name}={value}" for name, value in (QUICK | options).items()]


def run(monkeypatch: Any, recipe: str, **options: Any) -> None:
    """Run a recipe's `main` with these options on its command line."""
    spec: Any = importlib.util.spec_from_file_location(recipe, ROOT / "recipes" / f"{recipe}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, recipe, module)  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [f"{recipe}.py", *flags(**options)])
    module.main()


def texts(count: int, seed: int) -> dict[str, list]:
    """Return columns of rows with as many texts of each of five classes."""
    rng = np.random.default_rng(seed)
    labels = [f"class {i % 5}" for i in range(count)]
    lines = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(count)]
    return {"text": lines, "label": labels}


def text_files(folder: Path, count: int = 40, **columns: Any) -> dict[str, str]:
    """Write train.jsonl and test.jsonl, of `texts` and other columns, each a function of the row's number."""
    files = {}
    for seed, name in enumerate(("train", "test")):
        rows = texts(count, seed) | {
            column: [value_of(i) for i in range(count)] for column, value_of in columns.items()
        }
        files[f"{name}_file"] = str(folder / f"{name}.jsonl")
        Dataset.from_dict(rows).to_json(files[f"{name}_file"])
    return files
