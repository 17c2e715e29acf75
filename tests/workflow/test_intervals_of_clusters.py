"""Intervals of tables with clusters: over these, in the result, its text, its page, and its groups."""

import numpy as np
import pandas as pd
import pytest

from hf_focal import CalibrationMetrics, calibrate_scores, evaluate_scores, measure
from hf_focal.scores.sets.score_statistics import ScoreStatistics

GENERATOR = np.random.default_rng(0)
LOGITS = np.repeat(3 * GENERATOR.normal(size=(100, 3)), 4, axis=0)
LABELS = np.repeat(GENERATOR.integers(0, 3, 100), 4)
NUMBERS = np.arange(400) // 4


def table(**columns) -> pd.DataFrame:
    scores = pd.DataFrame(LOGITS, columns=["logit_a", "logit_b", "logit_c"])
    return scores.assign(label=np.array([*"abc"])[LABELS], **columns)


def interval(rows=slice(None)) -> tuple[float, float]:
    metrics = CalibrationMetrics()
    metrics.update(LOGITS[rows], LABELS[rows])
    return metrics.bootstrap(clusters=NUMBERS[rows])["ece"]


@pytest.mark.parametrize(
    ("column", "options"), [("question", {}), ("document", {"cluster_column": "document"})], ids=["found", "named"]
)
def test_the_intervals_are_over_the_clusters(column, options, tmp_path):
    result = evaluate_scores(table(**{column: NUMBERS}), output=tmp_path / "out", **options)
    assert result.pre_intervals["ece"] == pytest.approx(interval())
    assert result.data.num_clusters == 100
    assert "rows with the same value stay together in folds, for thresholds, and for intervals" in result.notes[0]
    legend = "95% bootstrap interval of the ECE over 100 clusters."
    assert legend in str(result) and legend in (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert evaluate_scores(table()).pre_intervals["ece"][0] > result.pre_intervals["ece"][0]
    assert evaluate_scores(table()).data.num_clusters is None


def test_groups_and_both_sides_of_a_correction_have_them():
    tables = table(document=NUMBERS, language=np.where(NUMBERS < 40, "de", "fr"))
    result = calibrate_scores(tables, test_scores=tables.copy(), cluster_column="document", group="language")
    groups = result.subsets.groups
    assert result.pre_intervals["ece"] == pytest.approx(interval())
    assert result.post_intervals["ece"][0] < result.post["ece"] < result.post_intervals["ece"][1]
    evaluated = evaluate_scores(tables, cluster_column="document", group="language").subsets.groups
    for name, low, high in zip(evaluated.name, evaluated.ece_low, evaluated.ece_high, strict=True):
        assert (low, high) == pytest.approx(interval(NUMBERS < 40 if name == "de" else NUMBERS >= 40))
    assert len(groups.name) == 2


def test_test_data_need_not_have_the_named_column():
    result = calibrate_scores(table(document=NUMBERS), test_scores=table(), cluster_column="document")
    assert result.data.num_clusters is None


def test_a_group_of_one_cluster_has_no_interval():
    tables = table(document=NUMBERS, language=np.where(NUMBERS < 1, "de", "fr"))
    groups = evaluate_scores(tables, cluster_column="document", group="language").subsets.groups
    assert np.isnan(groups.ece_low[groups.name.index("de")]) and not np.isnan(groups.ece_low[groups.name.index("fr")])
    alone = evaluate_scores(table(document=np.zeros(400, int)), cluster_column="document")
    assert alone.pre_intervals == {} and "95% bootstrap interval" not in str(alone)


def test_statistics_that_keep_all_rows_have_them_and_others_say_that_they_lack_them():
    tables = table(document=NUMBERS)
    result = evaluate_scores(measure(tables, cluster_column="document"))
    assert result.pre_intervals["ece"] == pytest.approx(interval(), rel=0.05) and result.data.num_clusters == 100
    sampled: ScoreStatistics = measure(tables, cluster_column="document", sample_size=0)
    result = evaluate_scores(sampled)
    assert result.data.num_clusters is None
    assert any("take each row as independent, whatever its 'document'" in note for note in result.notes)
