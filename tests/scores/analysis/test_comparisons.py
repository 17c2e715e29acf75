"""Groups of samples, where there are none."""

import numpy as np
import pytest

from hf_focal import InputError, Scores, evaluate
from hf_focal.scores.analysis.comparisons import group_metrics


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
