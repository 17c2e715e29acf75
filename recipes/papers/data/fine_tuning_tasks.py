"""The tasks of fine_tuning.py, and their splits, from a folder with a folder of parquet files for each dataset."""

from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset

from .newsgroups import strip_headers

SPLIT_SEED = 0  # of the test subset, which is the same for all runs
POOL, TEST = 1000, 2000  # samples: held out, and measured at most
FEW = {"clinc150": 1500, "banking77": 1000}  # training samples of the size "few"; 500 for other tasks
TASKS = {  # name in the pages, number of classes
    "custrev": ("customer reviews", 2),
    "mpqa": ("MPQA", 2),
    "sst": ("SST", 2),
    "trec_qa": ("TREC QA", 2),
    "tweet_irony": ("tweets, irony", 2),
    "tweet_offensive": ("tweets, offensive", 2),
    "tweet_emotion": ("tweets, emotion", 4),
    "sst5": ("SST, 5 classes", 5),
    "newsgroups": ("20 Newsgroups", 20),
    "newsgroups_by_date": ("20 Newsgroups by date", 20),
    "goemotions": ("GoEmotions", 28),
    "banking77": ("banking77", 77),
    "clinc150": ("clinc150", 150),
}


def read(data: Path, task: str) -> dict[str, pd.DataFrame]:
    """Read the tables "train", "test", and, for some tasks, "shift", with the columns text, label, and maybe pair."""

    def table(name: str, split: str) -> pd.DataFrame:
        return pd.read_parquet(data / name / f"{split}.parquet")

    def sst(split: str, column: str) -> pd.DataFrame:
        rows = table("sst", split)
        return rows.assign(label=rows[column])[rows[column] >= 0]

    if task == "sst":
        return {"train": sst("train", "label"), "test": sst("test", "label"), "shift": table("custrev", "test")}
    if task == "sst5":
        return {"train": sst("train", "label5"), "test": sst("test", "label5")}
    if task.startswith("newsgroups"):
        splits = {split: table("newsgroups", split) for split in ("train", "test")}
        splits = {split: rows.assign(text=rows["text"].map(strip_headers)) for split, rows in splits.items()}
        if task == "newsgroups":  # the random split of the papers
            rows = pd.concat(splits.values(), ignore_index=True)
            rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))]
            splits = {"train": rows[3999:], "test": rows[:3999]}
        return splits
    splits = {split: table(task, split) for split in ("train", "test")}
    if task == "clinc150":
        splits["shift"] = table(task, "out_of_scope_test").assign(label=0)  # no class is right
    if task == "goemotions":
        splits = {split: rows.rename(columns={"labels": "label"}) for split, rows in splits.items()}
    if task == "trec_qa":
        splits = {split: rows.rename(columns={"question": "text", "answer": "pair"}) for split, rows in splits.items()}
    return splits


def task_splits(data: Path, run: dict) -> tuple[dict[str, Dataset], int]:
    """Return the splits "train", "pool" (held out), "test", and maybe "shift", and the number of classes."""
    tables, rng = read(data, run["task"]), np.random.default_rng(run["seed"])
    rows = tables.pop("train")
    if run["task"] == "trec_qa":  # the samples of a question stay together
        questions = rng.permutation(rows["text"].unique())
        pooled = rows["text"].isin(questions[: len(questions) // 5])
        pool, train = rows[pooled].sample(frac=1, random_state=run["seed"])[:POOL], rows[~pooled]
        train = train.sample(frac=1, random_state=run["seed"])
    else:
        rows = rows.iloc[rng.permutation(len(rows))]
        pool, train = rows[:POOL], rows[POOL:]
    train = train[: FEW.get(run["task"], 500) if run["size"] == "few" else int(run["size"])]
    tables = {"train": train, "pool": pool, **tables}
    several = run["task"] == "goemotions"
    num_classes = 28 if several else int(rows["label"].max()) + 1
    splits = {}
    for name, part in tables.items():
        if name in ("test", "shift") and len(part) > TEST:
            part = part.sample(TEST, random_state=SPLIT_SEED)
        labels = np.stack(part["label"].map(lambda ids: np.isin(np.arange(28), ids)).tolist()).astype(np.float32) \
            if several else part["label"].to_numpy(copy=True)  # fmt: skip
        if name == "train" and run["noise"]:
            wrong = rng.random(len(labels)) < run["noise"]
            labels[wrong] = (labels[wrong] + rng.integers(1, num_classes, wrong.sum())) % num_classes
        columns = {"text": part["text"].tolist(), "labels": labels.tolist()}
        splits[name] = Dataset.from_dict(columns | ({"pair": part["pair"].tolist()} if "pair" in part else {}))
    return splits, num_classes
