"""The text tasks of the experiments on pretrained models, from a folder with a folder of parquet files for each.

Experiments call a task by a short name, and read some tasks differently: `TextTask.name` tells these variants apart.
`FINE_TUNING_TASKS` are those of fine_tuning.py and yes_or_no.py, `TEXT_LOGIT_TASKS` those of benchmarks/text_logits.
Their records and files have the short names.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from papers.data.newsgroups import NUM_TEST, STRIPPERS


@dataclass(frozen=True)
class TextTask:
    """A task as an experiment reads it.

    Attributes:
        name: that of the variant.
        title: the name in the pages.
        num_classes: the number of classes, or of labels.
        folder: the folder of the files.
        label: the column of the labels: numbers, -1 for rows that are left out, or lists of numbers.
        labels: whether a text has one class or several labels; "only one" leaves out texts with several.
        columns: other columns, with the names that experiments give them.
        validation: the file of the published validation split; "" if there is none.
        strip: the parts of newsgroup posts that are removed.
        is_random_split: pool the posts, and split them at random as the papers do.
        num_validation: posts of the random split that are held out for validation.
        few: training samples of the size "few", more where there are many classes.
        shift: a file of texts from another distribution, with the same classes or with none of them.
    """

    name: str
    title: str
    num_classes: int
    folder: str
    label: str = "label"
    labels: Literal["one", "several", "only one"] = "one"
    columns: tuple[tuple[str, str], ...] = ()
    validation: str = ""
    strip: tuple[str, ...] = ()
    is_random_split: bool = False
    num_validation: int = 0
    few: int = 500
    shift: str = ""


FINE_TUNING_TASKS = {
    "custrev": TextTask("custrev", "customer reviews", 2, "custrev"),
    "mpqa": TextTask("mpqa", "MPQA", 2, "mpqa"),
    "sst": TextTask("sst", "SST", 2, "sst", validation="dev", shift="custrev/test"),
    "trec_qa": TextTask(
        "trec_qa", "TREC QA", 2, "trec_qa", columns=(("question", "text"), ("answer", "pair")), validation="validation"
    ),
    "tweet_irony": TextTask("tweet_irony", "tweets, irony", 2, "tweet_irony", validation="validation"),
    "tweet_offensive": TextTask("tweet_offensive", "tweets, offensive", 2, "tweet_offensive", validation="validation"),
    "tweet_emotion": TextTask("tweet_emotion", "tweets, emotion", 4, "tweet_emotion", validation="validation"),
    "sst5": TextTask("sst5", "SST, 5 classes", 5, "sst", label="label5", validation="dev"),
    "newsgroups": TextTask(
        "newsgroups_without_headers", "20 Newsgroups", 20, "newsgroups", strip=("headers",), is_random_split=True
    ),
    "newsgroups_by_date": TextTask(
        "newsgroups_by_date_without_headers", "20 Newsgroups by date", 20, "newsgroups", strip=("headers",)
    ),
    "goemotions": TextTask(
        *("goemotions_all_labels", "GoEmotions", 28, "goemotions", "labels", "several"), validation="validation"
    ),
    "banking77": TextTask("banking77", "banking77", 77, "banking77", few=1000),
    "clinc150": TextTask(
        *("clinc150", "clinc150", 150, "clinc150"),
        validation="validation",
        few=1500,
        shift="clinc150/out_of_scope_test",
    ),
}
BODY = {"strip": ("headers", "footers", "quotes")}
TEXT_LOGIT_TASKS = FINE_TUNING_TASKS | {
    "newsgroups": replace(FINE_TUNING_TASKS["newsgroups"], name="newsgroups_bodies", num_validation=900, **BODY),
    "newsgroups_by_date": replace(FINE_TUNING_TASKS["newsgroups_by_date"], name="newsgroups_by_date_bodies", **BODY),
    "goemotions": replace(FINE_TUNING_TASKS["goemotions"], name="goemotions_one_label", labels="only one"),
}


def read_task(
    data: Path, task: TextTask, splits: Iterable[str] = ("train", "validation", "test")
) -> dict[str, pd.DataFrame]:
    """Read those of the splits that a task has: tables with the columns text, label, and, for pairs, pair."""

    def table(file: str) -> pd.DataFrame:
        return pd.read_parquet(data / task.folder / f"{file}.parquet")

    if task.is_random_split:
        rows = pd.concat([table("train"), table("test")], ignore_index=True)
        rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))]
        first = NUM_TEST + task.num_validation
        parts = {"test": rows[:NUM_TEST], "validation": rows[NUM_TEST:first], "train": rows[first:]}
        found = {split: parts[split] for split in splits if len(parts[split])}
    else:
        files = {"train": "train", "validation": task.validation, "test": "test"}
        found = {split: table(files[split]) for split in splits if files[split]}
    return {split: task_rows(rows, task) for split, rows in found.items()}


def task_rows(rows: pd.DataFrame, task: TextTask) -> pd.DataFrame:
    """Return the rows of a task with its texts and labels."""
    rows = rows.assign(label=rows[task.label], **{name: rows[column] for column, name in task.columns})
    if task.labels == "one":
        rows = rows[rows["label"] >= 0]
    if task.labels == "only one":
        rows = rows[rows["label"].map(len) == 1]
        rows = rows.assign(label=rows["label"].map(lambda ids: ids[0]))
    for part in task.strip:
        rows = rows.assign(text=rows["text"].map(STRIPPERS[part]))
    return rows


def read_shift(data: Path, task: TextTask) -> pd.DataFrame:
    """Read the texts from another distribution; where no class is right, the label is 0."""
    rows = pd.read_parquet(data / f"{task.shift}.parquet")
    return rows if "label" in rows else rows.assign(label=0)


def in_held_out_questions(rows: pd.DataFrame, rng: np.random.Generator, one_in: int) -> pd.Series:
    """Return which rows are of the questions that are held out, one in so many, so that answers stay together."""
    questions = rng.permutation(rows["text"].unique())
    return rows["text"].isin(questions[: len(questions) // one_in])


def multi_hot(labels: pd.Series, num_classes: int) -> np.ndarray:
    """Return lists of labels as float32 (N, K), 1 for each label in the list."""
    return np.stack(labels.map(lambda ids: np.isin(np.arange(num_classes), ids)).tolist()).astype(np.float32)
