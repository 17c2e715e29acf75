"""Other splits and labels of 20 Newsgroups."""

import sys

import numpy as np
import pytest
from datasets import Dataset
from recipe_modules import import_recipe


def test_the_random_split_pools_both_files(tmp_path, monkeypatch, capsys):
    posts = Dataset.from_dict(
        {"text": [f"From: me\n\npost {number}" for number in range(5000)], "label": [0, 1] * 2500}
    )
    for name, part in (("train", range(3000)), ("test", range(3000, 5000))):
        posts.select(part).to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / "train.parquet"), str(tmp_path / "test.parquet")]
    monkeypatch.setattr(sys, "argv", ["split_newsgroups.py", *files, "--output_dir", str(tmp_path / "random")])
    import_recipe("split_newsgroups").main()
    assert capsys.readouterr().out == "train: 101 posts\nvalidation: 900 posts\ntest: 3999 posts\n"
    splits = {
        name: Dataset.from_parquet(str(tmp_path / "random" / f"{name}.parquet"))
        for name in ("train", "validation", "test", "test_body")
    }
    bodies = splits.pop("test_body")
    order = np.random.default_rng(0).permutation(5000)
    assert splits["test"]["text"][:] == [f"From: me\n\npost {number}" for number in order[:3999]]
    assert bodies["text"][:] == [f"post {number}" for number in order[:3999]]
    assert bodies["label"][:] == splits["test"]["label"][:]
    assert sorted(text for split in splits.values() for text in split["text"]) == sorted(posts["text"])


@pytest.mark.parametrize(
    ("group", "labels"), [("rec.sport.hockey", ["rec", "sport", "rec or sci"]), ("alt.atheism", ["alt", "atheism"])]
)
def test_the_labels_of_a_newsgroup(group, labels):
    assert import_recipe("label_newsgroups").labels_of(group) == labels
