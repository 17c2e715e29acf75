"""Newsgroup posts: stripped as scikit-learn does, split at random, and with several labels."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from papers.data.newsgroups import labels_of, main, strip_footers, strip_headers, strip_quotes
from sklearn.datasets import _twenty_newsgroups as peer

LINES = [
    "",
    " ",
    "--",
    " -- ",
    "---\r",
    "> old",
    "|> older",
    "In article <1@x> a@b.c",
    "Ann wrote:",
    "Subject: a",
    "hello",
]
posts = st.lists(st.sampled_from(LINES) | st.text("a>-|: \t\r", max_size=5), max_size=12).map("\n".join)


def strip_all(post):
    return strip_quotes(strip_footers(strip_headers(post)))


@given(posts)
def test_each_filter_agrees_with_scikit_learn(post):
    assert strip_headers(post) == peer.strip_newsgroup_header(post)
    assert strip_footers(post) == peer.strip_newsgroup_footer(post)
    assert strip_quotes(post) == peer.strip_newsgroup_quoting(post)


@pytest.mark.real_data
@pytest.mark.parametrize("split", ["train", "test"])
def test_real_posts_agree_with_scikit_learn(real_data, split):
    posts = Dataset.from_parquet(str(real_data / "newsgroups" / f"{split}.parquet"))["text"][::5]
    for post in posts:
        body = peer.strip_newsgroup_footer(peer.strip_newsgroup_header(post))
        assert strip_all(post) == peer.strip_newsgroup_quoting(body)


def test_the_random_split_pools_both_files(tmp_path, capsys):
    posts = Dataset.from_dict(
        {"text": [f"From: me\n\npost {number}" for number in range(5000)], "label": [0, 1] * 2500}
    )
    for name, part in (("train", range(3000)), ("test", range(3000, 5000))):
        posts.select(part).to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / "train.parquet"), str(tmp_path / "test.parquet")]
    main(["split", *files, "--output_dir", str(tmp_path / "random")])
    assert capsys.readouterr().out == "test: 3999 posts\nvalidation: 900 posts\ntrain: 101 posts\n"
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
    assert labels_of(group) == labels
