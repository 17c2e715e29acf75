"""Every kind of scores does what `evaluate` and `calibrate` ask of it, or says why it cannot."""

import numpy as np
import pytest

from hf_focal import InputError, Scores, measure, read_scores
from hf_focal.scores.reading.large_tables import in_batches
from hf_focal.scores.sets.streamed_scores import StreamedScores


def table(size=60):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(size, 2))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return {"logit_no": logits[:, 0], "logit_yes": logits[:, 1], "label": np.array(["no", "yes"])[labels]}


def confidences(size=60):
    return {"confidence": np.linspace(0.5, 0.9, size), "correct": np.arange(size) % 3 > 0}


KINDS = {
    "in memory": read_scores,
    "in batches": lambda rows: StreamedScores(in_batches("scores", rows)),
    "statistics": measure,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_describes_the_same_table_alike(kind):
    scores, expected = KINDS[kind](table()), read_scores(table())
    for name in ("link", "kind", "classes", "score_names", "num_classes", "schema", "groups", "keys"):
        assert getattr(scores, name) == getattr(expected, name), name
    assert len(scores) == len(expected) == 60
    assert scores.has_all_rows == isinstance(scores, Scores)
    assert scores.label_counts.tolist() == expected.label_counts.tolist()
    assert scores.measure()[0].compute()["ece"] == pytest.approx(expected.measure()[0].compute()["ece"], rel=1e-9)
    fit, expected_fit = (part.fit("temperature", cross_fit=False) for part in (scores, expected))
    assert float(fit.temperature) == pytest.approx(float(expected_fit.temperature), rel=1e-5)
    assert KINDS[kind](confidences()).kind == "confidence"


@pytest.mark.parametrize("kind", KINDS)
def test_only_scores_in_memory_are_written_again(kind, tmp_path):
    scores = KINDS[kind](table())
    with pytest.raises(InputError, match=r"save_scores must end in \.parquet, got .*: a folder is for models"):
        scores.save_shards(tmp_path / "shards")
    path = tmp_path / "scores.parquet"
    if kind != "in memory":
        with pytest.raises(
            InputError, match=r"save_scores must not be given for a large table, .*: the table already contains them"
        ):
            scores.save_rows(path)
        return
    scores.save_rows(path, is_main=False)
    assert not path.exists()
    scores.save_rows(path)
    np.testing.assert_array_equal(read_scores(path).logits, scores.logits)


def test_a_page_shows_the_clusters_of_scores_if_they_are_texts():
    scores = Scores(np.eye(2), np.array([0, 1]), clusters=np.array(["a text", "another"]))
    assert scores.inputs(np.array([1])) == ["row 1: another"]
    assert Scores(np.eye(2), np.array([0, 1]), clusters=np.array([7, 8])).inputs(np.array([1])) is None
    assert Scores(np.eye(2), np.array([0, 1])).inputs(np.array([1])) is None
