"""The texts of the sets: validation and test rows of each task, which no training row repeats, and training rows."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from papers.data.text_tasks import TEXT_LOGIT_TASKS, read_task

from benchmarks.text_logits.runs import Run

SPLIT_SEED = 0  # of the validation rows cut from training data, and of the rows kept of a large split: for all runs
VALIDATION, TEST = 1500, 2000  # rows at most
MANY_CLASSES, ROWS_MANY_CLASSES = 50, 1100  # fewer rows in each split with at least so many classes


@cache
def splits_of(data: Path, name: str) -> dict[str, pd.DataFrame]:
    """Return the splits "train", "validation", and "test" of a task, shuffled: columns text, maybe pair, label.

    Rows of "train" whose text is also in another split are removed.
    """
    task, rng = TEXT_LOGIT_TASKS[name], np.random.default_rng(SPLIT_SEED)
    # In the order in which their permutations were drawn for the stored sets.
    order = ("test", "validation", "train") if task.is_random_split else ("train", "validation", "test")
    splits = read_task(data, task, order)
    pairs = ["text", *["pair"] * ("pair" in splits["train"])]
    splits = {split: rows[[*pairs, "label"]].iloc[rng.permutation(len(rows))] for split, rows in splits.items()}
    if "validation" not in splits:
        rows = splits["train"]
        size = min(VALIDATION, len(rows) // 2)
        splits["validation"], splits["train"] = rows[:size], rows[size:]
    for split, size in (("validation", VALIDATION), ("test", TEST)):
        splits[split] = splits[split][: ROWS_MANY_CLASSES if task.num_classes >= MANY_CLASSES else size]
        seen = pd.MultiIndex.from_frame(splits[split][pairs])
        splits["train"] = splits["train"][~pd.MultiIndex.from_frame(splits["train"][pairs]).isin(seen)]
    return splits


def training_rows(data: Path, run: Run) -> pd.DataFrame:
    """Return the rows that a run trains on, with its share of wrong labels."""
    train, num_classes = splits_of(data, run.task)["train"], TEXT_LOGIT_TASKS[run.task].num_classes
    rng = np.random.default_rng(run.seed)
    rows = train.iloc[rng.permutation(len(train))[: run.samples]]
    labels = rows["label"].to_numpy(copy=True)
    wrong = rng.random(len(labels)) < run.wrong_labels
    labels[wrong] = (labels[wrong] + rng.integers(1, num_classes, wrong.sum())) % num_classes
    return rows.assign(label=labels)
