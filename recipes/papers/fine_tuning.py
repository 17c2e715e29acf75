"""Fine-tune pretrained encoders on many tasks with several losses, and save the logits of each model.

    python recipes/papers/fine_tuning.py --data DATA --encoders ENCODERS --blocks main --output_dir OUT

`ENCODERS` is a folder with the folders of the encoders, by the names in `ENCODERS` below. `plan` lists the runs of
each block. Each finished run has a folder with `run.json` (its settings) and `logits.npz` (float16: held-out pool,
test set, and, if the task has one, a set from another distribution). Several processes can share one output folder:
each takes the next run that is not finished and that no other process trains. A run that fails is printed and does not
stop the others; the exit code is then 1, and the same command repeats it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from transformers import TrainerCallback

from hf_focal import FocalTrainer
from hf_focal.trainer.recipe_arguments import loss_folder
from hf_focal.utils.atomic_write import write_whole
from papers.data.text_tasks import FINE_TUNING_TASKS, in_held_out_questions, multi_hot, read_shift, read_task
from papers.runs.fine_tuned_encoders import new_trainer
from papers.runs.output_folders import refuse_other_settings, unfinished_run

SPLIT_SEED = 0  # of the test subset, which is the same for all runs
POOL, TEST = 1000, 2000  # samples: held out, and measured at most
ENCODERS = {"minilm": ("all-MiniLM-L6-v2", 1e-4), "mpnet": ("all-mpnet-base-v2", 5e-5)}  # folder, learning rate
LOSSES = [
    *("cross_entropy", "label_smoothing:alpha=0.05", "focal:gamma=1", "focal:gamma=2", "flsd53", "dual_focal"),
    *("adafocal", "adafocal@10"),  # @10: update γ every 10 steps instead of every epoch
]
# The losses that every block compares, two at a time, and those of the block "main" alone.
LOSS_PAIRS = (["cross_entropy", "flsd53"], ["focal:gamma=1", "adafocal"])
MAIN_LOSSES = [loss for pair in LOSS_PAIRS for loss in pair]
MORE_LOSSES = [loss for loss in LOSSES if loss not in MAIN_LOSSES]
LARGE = ["sst", "banking77", "tweet_offensive", "goemotions", "clinc150", "newsgroups"]
NOISY = ["sst", "banking77", "tweet_emotion", "custrev", "mpqa", "newsgroups"]
LONG = ["sst", "banking77", "tweet_emotion", "newsgroups", "custrev", "tweet_irony", "mpqa", "tweet_offensive"]
BLOCKS = ("main", "more_samples", "mpnet", "long_and_noisy")


@dataclass(frozen=True)
class Run:
    task: str
    loss: str
    seed: int
    size: str = "few"  # of the training set, or the number of its samples
    encoder: str = "minilm"
    epochs: int = 3
    noise: float = 0.0  # the share of training labels that are replaced by another class


def plan(block: str) -> Iterator[Run]:
    """List the runs of a block in order; a stop at any point leaves each task with about the same runs."""

    def runs(tasks: Iterable[str], losses: list[str], seed: int, **settings: Any) -> Iterator[Run]:
        for task in tasks:
            for loss in losses:
                if FINE_TUNING_TASKS[task].labels == "one" or not loss.startswith("dual_focal"):  # no sigmoid form
                    yield Run(task, loss, seed, **settings)

    if block == "main":
        for seed in (1, 2, 3):
            yield from runs(FINE_TUNING_TASKS, MAIN_LOSSES, seed)
            yield from runs(FINE_TUNING_TASKS, MORE_LOSSES, seed)
    elif block in ("more_samples", "mpnet"):
        settings = {"size": "5000"} if block == "more_samples" else {"encoder": "mpnet"}
        for seed in (1, 2):
            for losses in LOSS_PAIRS:
                yield from runs(LARGE, losses, seed, **settings)
    else:
        for seed in (1, 2, 3):
            for losses in LOSS_PAIRS:
                yield from runs(LONG, losses, seed, epochs=10)
                yield from runs(NOISY, losses, seed, noise=0.2)


def task_splits(data: Path, run: Run) -> dict[str, Dataset]:
    """Return the splits "train", "pool" (held out), "test", and, if the task has it, "shift"."""
    task, rng = FINE_TUNING_TASKS[run.task], np.random.default_rng(run.seed)
    tables = read_task(data, task, ("train", "test"))
    rows = tables.pop("train")
    if run.task == "trec_qa":
        is_pooled = in_held_out_questions(rows, rng, one_in=5)
        pool, train = (part.sample(frac=1, random_state=run.seed) for part in (rows[is_pooled], rows[~is_pooled]))
        pool = pool[:POOL]
    else:
        rows = rows.iloc[rng.permutation(len(rows))]
        pool, train = rows[:POOL], rows[POOL:]
    tables = {"train": train[: task.few if run.size == "few" else int(run.size)], "pool": pool, **tables}
    if task.shift:
        tables["shift"] = read_shift(data, task)
    splits = {}
    for name, part in tables.items():
        if name in ("test", "shift") and len(part) > TEST:
            part = part.sample(TEST, random_state=SPLIT_SEED)
        several = task.labels == "several"
        labels = multi_hot(part["label"], task.num_classes) if several else part["label"].to_numpy(copy=True)
        if name == "train" and run.noise:
            wrong = rng.random(len(labels)) < run.noise
            labels[wrong] = (labels[wrong] + rng.integers(1, task.num_classes, wrong.sum())) % task.num_classes
        columns = {"text": part["text"].tolist(), "labels": labels.tolist()}
        splits[name] = Dataset.from_dict(columns | ({"pair": part["pair"].tolist()} if "pair" in part else {}))
    return splits


class LogitsOfEpochs(TrainerCallback):
    """Keeps the logits of splits after each epoch."""

    def __init__(self, trainer: FocalTrainer, splits: dict[str, Dataset]) -> None:
        self.trainer, self.splits, self.arrays = trainer, splits, {}

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        with torch.random.fork_rng(devices=[]):  # a data loader draws a seed, which must not change the training
            for name, samples in self.splits.items():
                self.arrays[f"{name}_logits_epoch{round(state.epoch)}"] = logits_of(self.trainer, samples)


def logits_of(trainer: FocalTrainer, samples: Dataset) -> np.ndarray:
    return trainer.predict(samples).predictions.astype(np.float16)


def train_one(run: Run, data: Path, encoders: Path, folder: Path, bf16: bool) -> None:
    path, learning_rate = encoders / ENCODERS[run.encoder][0], ENCODERS[run.encoder][1]
    task, splits = FINE_TUNING_TASKS[run.task], task_splits(data, run)
    loss, _, interval = run.loss.partition("@")
    trainer, encoded = new_trainer(
        path,
        splits,
        folder,
        num_labels=task.num_classes,
        problem_type=f"{'multi' if task.labels == 'several' else 'single'}_label_classification",
        max_length=128,
        seed=run.seed,
        held_out="pool",
        loss=loss,
        gamma_update_steps=int(interval) if interval else None,
        num_train_epochs=run.epochs,
        learning_rate=learning_rate,
        bf16=bf16,
        logging_strategy="no",
    )
    epochs = LogitsOfEpochs(trainer, {name: encoded[name] for name in ("pool", "test")})
    if run.epochs > 3:
        trainer.add_callback(epochs)
    started = time.time()
    trainer.train()
    seconds = time.time() - started
    arrays, record = (
        epochs.arrays,
        {**asdict(run), "num_classes": task.num_classes, "learning_rate": learning_rate, "bf16": bf16},
    )
    record |= {f"{name}_samples": len(part) for name, part in encoded.items()}
    for name in ("pool", "test", "shift"):
        if name in encoded:
            arrays[f"{name}_logits"] = logits_of(trainer, encoded[name])
            arrays[f"{name}_labels"] = np.asarray(encoded[name]["labels"])
    record["seconds"] = {"training": round(seconds, 1), "all": round(time.time() - started, 1)}
    record["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    np.savez_compressed(folder / "logits.npz", **arrays)
    write_whole(folder / "run.json", json.dumps(record, indent=1) + "\n")
    print(f"{time.strftime('%H:%M:%S')} {folder.name} {record['seconds']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--encoders", type=Path, required=True, help="the folder of the encoders")
    parser.add_argument("--blocks", nargs="+", choices=BLOCKS, default=BLOCKS, help="parts of the plan")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16 autocast")
    options = parser.parse_args()
    failed = []
    for block in options.blocks:
        for run in plan(block):
            name = f"{block}_{run.task}_{run.loss}_s{run.seed}{'_noise' if run.noise else ''}"
            folder = loss_folder(options.output_dir, name)
            with unfinished_run(folder, "run.json") as is_unfinished:
                if (folder / "run.json").exists():
                    refuse_other_settings(folder, asdict(run) | {"bf16": options.bf16})
                try:
                    if is_unfinished:
                        train_one(run, options.data, options.encoders, folder, options.bf16)
                except Exception as error:
                    print(f"{folder.name} failed: {error!r}", flush=True)
                    failed.append(folder.name)
    if failed:
        sys.exit(f"failed runs: {', '.join(failed)}")


if __name__ == "__main__":
    main()
