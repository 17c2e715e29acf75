"""Scores that are written are read back as they were."""

import numpy as np
import pytest

from hf_focal import Scores, evaluate, read_scores
from hf_focal.scores.saved_scores import write_scores

LOGITS = np.random.default_rng(0).normal(size=(300, 2))
SETS = (np.random.default_rng(1).random((300, 2)) < 0.5).astype(float)
SETS[0, 0] = np.nan


@pytest.mark.parametrize(
    "scores",
    [
        Scores(LOGITS, SETS[:, 1].astype(int), "softmax", ("LABEL_0", "LABEL_1")),
        Scores(LOGITS.astype(np.float32), SETS[:, 1].astype(int), "softmax", ("2", "1"), clusters=np.arange(300) // 2),
        Scores(LOGITS, SETS[:, 1].astype(int)),
        Scores(LOGITS, SETS, "sigmoid", ("sad", "angry or not")),
        Scores(LOGITS[:, :1], SETS[:, 1:], "sigmoid"),
    ],
)
def test_scores_come_back(scores, tmp_path):
    write_scores(tmp_path / "s.parquet", scores)
    read = read_scores(tmp_path / "s.parquet")
    assert (read.link, read.classes) == (scores.link, scores.classes)
    np.testing.assert_array_equal(read.logits, scores.logits)
    assert read.logits.dtype == scores.logits.dtype
    np.testing.assert_array_equal(read.labels, scores.labels)
    assert (read.clusters is None) == (scores.clusters is None)
    if read.clusters is not None:
        assert read.clusters.tolist() == scores.clusters.astype(str).tolist()


def test_groups_and_figures_come_back(tmp_path):
    groups = np.where(np.arange(300) % 3 == 0, "de", "en")
    scores = Scores(LOGITS, SETS[:, 1].astype(int), classes=("no", "yes"), groups=groups)
    write_scores(tmp_path / "s.parquet", scores)
    result = evaluate(scores=tmp_path / "s.parquet", group="group")
    before, _ = scores.measure()
    assert result.pre == pytest.approx(before.compute(), rel=1e-12, nan_ok=True)
    assert sorted(result.details["groups"]["name"]) == ["de", "en"]
