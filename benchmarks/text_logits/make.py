"""Make the sets of logits: fine-tune encoders, fit linear heads to their embeddings, and ask a language model.

    python -m benchmarks.text_logits.make --data DATA --models MODELS

`MODELS` is a folder with the folders `minilm` and `mpnet` (all-MiniLM-L6-v2 and all-mpnet-base-v2) and the file
`smollm2.gguf` (SmolLM2-135M-Instruct, Q4_1); README.md says where to get them. The runs are those that `plan` lists,
in its order, or, with `--only`, those whose names match a pattern. Sets that `sets.csv` already has are not made
again, so an interrupted run goes on where it stopped. A run that fails is printed and does not stop the others; the
exit code is then 1.
"""

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.text_logits.encoders import LogitsOf, fine_tune, fit_probe
from benchmarks.text_logits.language_model import ask
from benchmarks.text_logits.load import FOLDER, TABLE, Logits
from benchmarks.text_logits.lora import fine_tune_language_model
from benchmarks.text_logits.runs import SHIFTS, Run, plan
from benchmarks.text_logits.texts import splits_of
from hf_focal.utils.atomic_write import write_whole

METHODS: dict[str, Callable[[Run, Path, Path], LogitsOf]] = {
    "fine_tuned": fine_tune,
    "probe": fit_probe,
    "zero_shot": ask,
    "lora": fine_tune_language_model,
}


def make(run: Run, data: Path, models: Path) -> None:
    started = time.time()
    parts = {"": (run.task, "validation"), run.task: (run.task, "test")}
    if run.kind != "zero_shot":
        parts |= {task: (task, "test") for task in SHIFTS.get(run.task, ())}
    logits_of = METHODS[run.kind](run, data, models)
    logits = {name: as_saved(logits_of(*part)) for name, part in parts.items()}
    labels = {
        name: splits_of(data, task)[split]["label"].to_numpy()[: len(logits[name])]
        for name, (task, split) in parts.items()
    }
    for task in list(parts)[1:]:
        shift = "" if task == run.task else task
        name = run.name + (f"-to_{shift}" if shift else "")
        saved = Logits(logits[""], labels[""].astype(np.uint8), logits[task], labels[task].astype(np.uint8))
        np.savez_compressed(FOLDER / "logits" / f"{name}.npz", **vars(saved))
        scores = {"test_error": (logits[task].argmax(1) != labels[task]).mean()}
        wide = torch.from_numpy(logits[task].astype(np.float64))
        scores["test_nll"] = float(cross_entropy(wide, torch.tensor(labels[task])))
        by_date = "by date" if run.task == "newsgroups_by_date" else ""
        record(
            {"name": name, **asdict(run), "classes": logits[task].shape[1], "validation_rows": len(labels[""])}
            | {"test_rows": len(labels[task]), "shift": shift or by_date}
            | {key: round(float(value), 5) for key, value in scores.items()}
        )
        print(f"{time.strftime('%H:%M:%S')} {name} {scores} {time.time() - started:.0f} s", flush=True)


def as_saved(logits: Tensor) -> np.ndarray:
    """Return float16 logits whose rows have a mean of 0, which no probability depends on."""
    return (logits - logits.mean(1, keepdim=True)).detach().numpy().astype(np.float16)


def made() -> list[dict[str, Any]]:
    return pd.read_csv(TABLE, keep_default_na=False).to_dict("records") if TABLE.exists() else []


def record(row: dict[str, Any]) -> None:
    rows = [other for other in made() if other["name"] != row["name"]] + [row]
    write_whole(TABLE, pd.DataFrame(rows).sort_values("name").to_csv(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--models", type=Path, required=True, help="the folder of the models")
    parser.add_argument("--only", default="*", help="a pattern of names of runs, such as 'zero_shot-*'")
    options = parser.parse_args()
    (FOLDER / "logits").mkdir(exist_ok=True)
    failed = []
    for run in plan():
        if fnmatch.fnmatch(run.name, options.only) and run.name not in {row["name"] for row in made()}:
            try:
                make(run, options.data.resolve(), options.models.resolve())
            except Exception as error:  # the other runs go on
                print(f"{run.name} failed: {error!r}", flush=True)
                failed.append(run.name)
    if failed:
        sys.exit(f"failed runs: {', '.join(failed)}")


if __name__ == "__main__":
    main()
