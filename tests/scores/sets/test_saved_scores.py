"""Scores that are written are read back as they were."""

import resource
import signal
from dataclasses import replace

import numpy as np
import pytest

from hf_focal import InputError, Scores, evaluate, read_scores
from hf_focal.scores.sets.saved_scores import read_saved, scores_table, write_scores

LOGITS = np.random.default_rng(0).normal(size=(300, 2))
SETS = (np.random.default_rng(1).random((300, 2)) < 0.5).astype(float)
SETS[0, 0] = np.nan


def test_names_in_the_place_of_numbers_are_refused(tmp_path):
    names = np.array(["no", "yes"])[SETS[:, 1].astype(int)]
    for labels in (names, names.tolist()):
        scores = Scores(LOGITS, labels, classes=("no", "yes"))
        with pytest.raises(InputError, match="labels must be a tensor or an array of numbers, got"):
            write_scores(tmp_path / "s.parquet", scores)


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
    table = scores_table(scores, np.arange(300) + 5)
    assert table.column("row").to_pylist() == [*range(5, 305)]
    logits, labels = read_saved(table, scores.classes, scores.link)
    np.testing.assert_array_equal(logits, scores.logits)
    np.testing.assert_array_equal(labels, scores.labels)
    values = {name: getattr(scores, name) for name in ("logits", "labels", "clusters")}
    empty = replace(scores, **{name: value if value is None else value[:0] for name, value in values.items()})
    assert scores_table(empty, np.arange(0)).schema == table.schema  # so that shards of no rows join others


def test_classes_of_one_name_are_kept_apart(tmp_path):
    scores = Scores(LOGITS, SETS[:, 1].astype(int), "softmax", ("same", "same"))
    write_scores(tmp_path / "s.parquet", scores)
    np.testing.assert_array_equal(read_scores(tmp_path / "s.parquet").logits, LOGITS)


def test_groups_and_figures_come_back(tmp_path):
    groups = np.where(np.arange(300) % 3 == 0, "de", "en")
    scores = Scores(LOGITS, SETS[:, 1].astype(int), classes=("no", "yes"), groups=groups)
    write_scores(tmp_path / "s.parquet", scores)
    result = evaluate(scores=tmp_path / "s.parquet", group="group")
    before, _ = scores.measure()
    assert result.pre == pytest.approx(before.compute(), rel=1e-12, nan_ok=True)
    assert sorted(result.subsets.groups.name) == ["de", "en"]


def test_a_full_disk_leaves_no_part_of_the_file(tmp_path):
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"save_scores must be a file that can be written, got .*too large"):
            write_scores(tmp_path / "s.parquet", Scores(LOGITS, SETS, "sigmoid"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_rows_without_a_known_label_are_left_out_of_a_file(tmp_path):
    labels = SETS[:, 1].astype(int)
    labels[[3, 7]] = -100
    write_scores(tmp_path / "classes.parquet", scores := Scores(LOGITS, labels, classes=("no", "yes")))
    read = read_scores(tmp_path / "classes.parquet")
    assert len(read) == 298 and read.measure()[0].scores() == scores.measure()[0].scores()
    unknown = SETS.copy()
    unknown[5] = np.nan
    write_scores(tmp_path / "labels.parquet", Scores(LOGITS, unknown, "sigmoid", ("a", "b")))
    assert len(read_scores(tmp_path / "labels.parquet")) == 299


def test_a_file_of_scores_is_a_parquet_file(tmp_path):
    with pytest.raises(InputError, match=r"save_scores must end in .parquet, got .*s\.csv"):
        Scores(LOGITS, SETS[:, 1].astype(int)).save_rows(tmp_path / "s.csv")


@pytest.mark.parametrize("width", [1, 2])
def test_ignored_labels_come_back_as_unknown(width, tmp_path):
    labels = np.where(np.isnan(SETS), -100, SETS).astype(int)[:, :width]
    labels[5] = -100
    scores = Scores(LOGITS[:, :width], labels, "sigmoid")
    write_scores(tmp_path / "s.parquet", scores)
    read = read_scores(tmp_path / "s.parquet")
    known = (labels != -100).any(1)
    np.testing.assert_array_equal(read.labels, np.where(labels == -100, np.nan, labels)[known])
    assert evaluate(scores=tmp_path / "s.parquet").pre == pytest.approx(scores.measure()[0].compute(), nan_ok=True)
