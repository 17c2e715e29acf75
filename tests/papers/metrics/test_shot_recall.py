"""Recall of many-shot, medium-shot and few-shot classes."""

import math

import pytest
from long_tailed_results import COUNTS, result_of
from papers.metrics.shot_recall import shot_recall, shots_table
from papers.runs.reports import write_classifier_comparison, write_experiment_report

from hf_focal.reports import RunResult


def test_the_recall_of_a_group_is_the_mean_of_its_classes():
    recall = shot_recall(COUNTS, [0.9, 0.7, 0.5, 0.4, 0.1, 0.0])
    assert recall == pytest.approx({"all": 2.6 / 6, "many": 0.8, "medium": 0.45, "few": 0.05})
    without = shot_recall(COUNTS, [0.9, math.nan, None, 0.4, 0.1, 0.0])
    assert without == pytest.approx({"all": 0.35, "many": 0.9, "medium": 0.4, "few": 0.05})
    empty = shot_recall([300, 200], [0.5, 0.7])
    assert empty["many"] == empty["all"] == pytest.approx(0.6)
    assert math.isnan(empty["medium"]) and math.isnan(empty["few"])
    with pytest.raises(ValueError, match="class_recall must have 2 classes, as class_counts has, got 1"):
        shot_recall([300, 200], [0.5])


def test_the_table_names_the_groups_and_marks_the_best():
    results = [
        result_of("cross_entropy", [0.9, 0.7, 0.5, 0.4, 0.1, 0.0]),
        result_of("recall:ema=0.1", [0.8, 0.6, 0.5, 0.4, 0.3, 0.2]),
    ]
    assert shots_table(results).splitlines() == [
        "| Mean recall % | all 6 classes | many-shot: 2 with > 100 samples | medium-shot: 2 with 20 to 100 samples | "
        "few-shot: 2 with < 20 samples |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| cross_entropy | 43.33 | **80.00** | **45.00** | 5.00 |",
        "| recall:ema=0.1 | **46.67** | 70.00 | **45.00** | **25.00** |",
    ]
    assert "| – |" in shots_table([result_of("brier", [0.5, 0.7], counts=[300, 50])])
    with pytest.raises(ValueError, match="results must come from the same training data"):
        shots_table([results[0], result_of("brier", [0.5] * 6, counts=[1] * 6)])


@pytest.mark.slow
def test_reports_of_long_tailed_data_have_the_table(tmp_path):
    results = [result_of(loss, [0.9, 0.7, 0.5, 0.4, 0.1, math.nan]) for loss in ("cross_entropy", "recall:ema=0.1")]
    for result in results:
        write_experiment_report(tmp_path / result.loss, result)
        assert (tmp_path / result.loss / "shots.md").is_file()
    loaded = [RunResult.load(tmp_path / result.loss / "metrics.json") for result in results]
    write_classifier_comparison(tmp_path, loaded)
    assert {"table.md", "comparison.png"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "shots.md").read_text() == shots_table(results)
