"""Stripping of newsgroup posts, against scikit-learn."""

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from papers.data.newsgroups import strip_footers, strip_headers, strip_quotes
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
