"""The text tasks, on made-up files, and how the experiments' variants differ."""

import numpy as np
import pandas as pd
import pytest
from papers.data import text_tasks
from papers.data.text_tasks import FINE_TUNING_TASKS, TEXT_LOGIT_TASKS, in_held_out_questions, multi_hot, read_task

POST = "From: a\nSubject: b\n\n> a quote\nA line of {}.\n\n--\nA signature"


def write(folder, **splits):
    folder.mkdir(parents=True)
    for name, columns in splits.items():
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")


def test_variants_have_names_of_their_own():
    tasks = {task.name: task for tasks in (FINE_TUNING_TASKS, TEXT_LOGIT_TASKS) for task in tasks.values()}
    assert len(tasks) == len({*FINE_TUNING_TASKS.values(), *TEXT_LOGIT_TASKS.values()})
    changed = {name for name, task in TEXT_LOGIT_TASKS.items() if task != FINE_TUNING_TASKS[name]}
    assert changed == {"newsgroups", "newsgroups_by_date", "goemotions"}


def test_posts_lose_their_headers_or_all_but_their_bodies(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tasks, "NUM_TEST", 3)
    posts = {"text": [POST.format(number) for number in range(1000)], "label": [0] * 1000}
    few = {name: column[:6] for name, column in posts.items()}
    write(tmp_path / "newsgroups", train=posts, test=few)
    fine_tuning, bodies = (read_task(tmp_path, tasks["newsgroups"]) for tasks in (FINE_TUNING_TASKS, TEXT_LOGIT_TASKS))
    assert {name: len(rows) for name, rows in fine_tuning.items()} == {"train": 1003, "test": 3}
    assert {name: len(rows) for name, rows in bodies.items()} == {"train": 103, "validation": 900, "test": 3}
    assert "a quote" in fine_tuning["test"]["text"].iloc[0] and "From:" not in fine_tuning["test"]["text"].iloc[0]
    assert set(bodies["test"]["text"]) <= {f"A line of {number}.\n" for number in range(1000)} | {
        f"A line of {number}." for number in range(1000)
    }
    by_date = read_task(tmp_path, FINE_TUNING_TASKS["newsgroups_by_date"])
    assert {name: len(rows) for name, rows in by_date.items()} == {"train": 1000, "test": 6}


def test_a_text_has_all_its_labels_or_is_left_out(tmp_path):
    rows = {"text": ["a", "b", "c"], "labels": [[3], [0, 27], [1]]}
    write(tmp_path / "goemotions", train=rows, validation=rows, test=rows)
    several, one = (
        read_task(tmp_path, tasks["goemotions"], ["test"])["test"] for tasks in (FINE_TUNING_TASKS, TEXT_LOGIT_TASKS)
    )
    assert one["label"].tolist() == [3, 1] and one["text"].tolist() == ["a", "c"]
    hot = multi_hot(several["label"], 28)
    assert hot.dtype == np.float32 and hot.sum(1).tolist() == [1, 2, 1] and hot[1, 27] == 1


def test_neutral_sentences_are_left_out_and_pairs_have_two_texts(tmp_path):
    write(tmp_path / "sst", dev={"text": ["a", "b"], "label": [-1, 1], "label5": [2, 4]})
    tasks = FINE_TUNING_TASKS
    assert read_task(tmp_path, tasks["sst"], ["validation"])["validation"]["text"].tolist() == ["b"]
    assert read_task(tmp_path, tasks["sst5"], ["validation"])["validation"]["label"].tolist() == [2, 4]
    write(tmp_path / "trec_qa", test={"question": ["q"], "answer": ["a"], "label": [1]})
    rows = read_task(tmp_path, tasks["trec_qa"], ["test"])["test"]
    assert rows[["text", "pair", "label"]].to_numpy().tolist() == [["q", "a", 1]]


@pytest.mark.parametrize("one_in", [4, 5])
def test_the_answers_of_a_question_stay_together(one_in):
    rows = pd.DataFrame({"text": [f"q{number // 3}" for number in range(60)]})
    held_out = in_held_out_questions(rows, np.random.default_rng(1), one_in)
    assert held_out.sum() == 60 // one_in
    assert held_out.groupby(rows["text"]).nunique().eq(1).all()
