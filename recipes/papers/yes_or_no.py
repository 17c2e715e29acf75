"""Fine-tune an encoder with sigmoid heads, on GoEmotions (28 labels) and TREC QA (a reranker); save the logits.

    python recipes/papers/yes_or_no.py --data DATA --encoder all-MiniLM-L6-v2 --output_dir out/yes_or_no

Runs that are finished are skipped, so a stopped command continues. Each run writes `NAME.npz` with the logits
(float32) and labels of "pool" (held out of the training data), "validation", and "test", and for TREC QA the numbers
of their questions. `papers.pages.yes_or_no` turns these files into docs/results/yes_or_no.md.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from hf_focal.trainer.recipe_arguments import loss_folder
from papers.data.text_tasks import FINE_TUNING_TASKS, in_held_out_questions, multi_hot, read_task
from papers.runs.fine_tuned_encoders import new_trainer
from papers.runs.output_folders import refuse_differences

GOEMOTIONS_LOSSES = ["cross_entropy", "cross_entropy:pos_weight=9", "focal:gamma=2", "class_balanced"]
TREC_QA_LOSSES = ["cross_entropy", "cross_entropy:pos_weight=9"]
# The order in which the runs are made: a command that is stopped early leaves complete comparisons.
RUNS = [
    ("trec_qa", TREC_QA_LOSSES[0], 1),
    *(("goemotions", loss, 1) for loss in GOEMOTIONS_LOSSES),
    *(("trec_qa", TREC_QA_LOSSES[0], seed) for seed in (2, 3)),
    *(("goemotions", loss, seed) for seed in (2, 3) for loss in GOEMOTIONS_LOSSES),
    *(("trec_qa", TREC_QA_LOSSES[1], seed) for seed in (1, 2, 3)),
]
# Samples of GoEmotions: for training, held out, and at most measured.
TRAIN, POOL, MEASURED = 4000, 1000, 3000


def read(data: Path, task: str, seed: int) -> dict[str, pd.DataFrame]:
    """Return the tables "train", "pool", "validation", and "test" with the columns text, labels, and maybe pair."""
    tables, rng = read_task(data, FINE_TUNING_TASKS[task]), np.random.default_rng(seed)
    train = tables.pop("train")
    if task == "trec_qa":
        is_pooled = in_held_out_questions(train, rng, one_in=4)
        tables |= {"train": train[~is_pooled].sample(frac=1, random_state=seed), "pool": train[is_pooled]}
        return {
            name: part[["text", "pair"]].assign(
                labels=[[float(label)] for label in part["label"]], question=pd.factorize(part["text"])[0]
            )
            for name, part in tables.items()
        }
    train = train.iloc[rng.permutation(len(train))]
    tables = {name: part.sample(min(MEASURED, len(part)), random_state=0) for name, part in tables.items()}
    tables |= {"train": train[:TRAIN], "pool": train[TRAIN : TRAIN + POOL]}
    emotions = FINE_TUNING_TASKS[task].num_classes
    return {
        name: part[["text"]].assign(labels=list(multi_hot(part["label"], emotions).astype(float)))
        for name, part in tables.items()
    }


def train_one(data: Path, encoder: Path, folder: Path, settings: Mapping[str, Any]) -> dict:
    tables = read(data, settings["task"], settings["seed"])
    splits = {name: Dataset.from_pandas(table, preserve_index=False) for name, table in tables.items()}
    trainer, encoded = new_trainer(
        encoder,
        splits,
        folder / "checkpoints",
        num_labels=len(tables["train"]["labels"].iloc[0]),
        problem_type="multi_label_classification",
        max_length=96,
        seed=settings["seed"],
        loss=settings["loss"],
        num_train_epochs=settings["epochs"],
        learning_rate=1e-4,
        train_sampling_strategy="group_by_length",
    )
    started = time.time()
    trainer.train()
    measured = {"seconds": round(time.time() - started), "torch": torch.__version__}
    record = {**settings, "train_samples": len(encoded["train"]), **measured}
    arrays = {"settings": np.array(json.dumps(record))}
    for name in ("pool", "validation", "test"):
        arrays[f"{name}_logits"] = trainer.predict(encoded[name]).predictions
        arrays[f"{name}_labels"] = np.array(encoded[name]["labels"], np.float32)
        if "question" in tables[name]:
            arrays[f"{name}_questions"] = tables[name]["question"].to_numpy()
    arrays["train_frequency"] = np.array(encoded["train"]["labels"], np.float32).mean(0)
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--encoder", type=Path, required=True, help="the folder of the pretrained encoder")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--task", choices=["goemotions", "trec_qa"], help="only the runs of this task")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for task, loss, seed in RUNS:
        path = loss_folder(options.output_dir, f"{task}_{loss}_s{seed}.npz")
        if options.task not in (None, task):
            continue
        settings = {"task": task, "loss": loss, "seed": seed, "epochs": options.epochs}
        settings["encoder"] = options.encoder.resolve().name
        if path.exists():
            with np.load(path) as finished:
                refuse_differences(path, json.loads(str(finished["settings"])), settings)
            continue
        arrays = train_one(options.data, options.encoder, options.output_dir, settings)
        part = path.with_name(f"part_{path.name}")
        np.savez_compressed(part, **arrays)
        part.rename(path)
        print(time.strftime("%H:%M:%S"), arrays["settings"], flush=True)


if __name__ == "__main__":
    main()
