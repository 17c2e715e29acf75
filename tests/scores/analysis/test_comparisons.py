"""Groups of samples, and the comparison with earlier samples."""

import numpy as np
import pytest

from hf_focal import InputError, Scores, evaluate
from hf_focal.scores.analysis.comparisons import drift, group_metrics


class Unchanged:
    """A source whose data are its scores."""

    link, classes = "softmax", ("a", "b")

    def scores(self, data):
        return data


@pytest.mark.parametrize("groups", [None, np.array([], str)])
def test_scores_without_rows_have_no_groups(groups):
    scores = Scores(np.zeros((0, 2)), np.zeros(0, np.int64), classes=("a", "b"), groups=groups)
    assert group_metrics(scores, 15) == {}
    with pytest.raises(InputError, match=r"source must give an array of logits .* got the shape \(0, 2\)"):
        evaluate(Unchanged(), scores)


def yes_or_no(shift, num_labels=1, num_samples=3000, seed=0):
    """Scores of labels, 0.4 and 0.6, whose frequencies are `shift` higher."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0.4, 0.6], (num_samples, num_labels))
    labels = (rng.random(p.shape) < p + shift).astype(float)
    return Scores(np.log(p / (1 - p)), labels, "sigmoid", groups=np.repeat(["b", "a"], num_samples // 2))


@pytest.mark.parametrize("num_labels", [1, 3])
def test_labels_that_became_more_frequent_are_found(num_labels):
    changes = drift(yes_or_no(0.2, num_labels), yes_or_no(0, num_labels, seed=1))
    assert changes["p_value"] == 0.001
    assert changes["now"] == pytest.approx(0.2, abs=0.03) and changes["before"] < 0.03
    assert drift(yes_or_no(0, num_labels, seed=2), yes_or_no(0, num_labels, seed=52))["p_value"] > 0.05


def test_entries_of_unknown_labels_do_not_count():
    scores = yes_or_no(0.2, 2)
    scores.labels[:, 1] = np.nan
    one = Scores(scores.logits[:, :1], scores.labels[:, :1], "sigmoid")
    changes, alone = (drift(part, part)["now"] for part in (scores, one))
    assert changes == pytest.approx(alone, rel=1e-9)


def test_the_gap_of_a_group_of_labels_is_that_of_their_frequency():
    scores = yes_or_no(0.2)
    groups = group_metrics(scores, 15)
    for name, gap in zip(groups["name"], groups["gap"], strict=True):
        rows = scores.groups == name
        p = 1 / (1 + np.exp(-scores.logits[rows]))
        assert gap == pytest.approx(p.mean() - scores.labels[rows].mean(), abs=1e-6)
