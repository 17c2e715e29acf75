"""Figures of class weights and training losses."""

import json

import numpy as np
import pytest
from long_tailed_results import COUNTS, result_of
from matplotlib.image import imread
from papers.figures.class_weight_figures import class_weights_figure, normalized_weights, training_loss_figure
from papers.runs.reports import write_classifier_comparison, write_experiment_report

from hf_focal.reports import RunResult

HISTORY = [
    {"step": 10, "epoch": 1.0, "focal": [0.2, 0.3, 0.4, 0.5, 0.6, 0.5], "recall": [0.1, 0.2, 0.5, 0.8, 1.0, 1.0]},
    {"step": 20, "epoch": 2.0, "focal": [0.1, 0.2, 0.2, 0.5, 0.5, None], "recall": [0.1, 0.1, 0.3, 0.7, 1.0, None]},
    {"step": 30, "epoch": 3.0, "focal": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1], "recall": [0.0] * 6},
]


def test_weights_are_shares_of_the_classes_that_had_rows():
    focal, recall = normalized_weights(HISTORY)
    np.testing.assert_allclose(focal[0], np.array(HISTORY[0]["focal"]) / 2.5)
    np.testing.assert_allclose(recall[1], [0.1 / 2.2, 0.1 / 2.2, 0.3 / 2.2, 0.7 / 2.2, 1 / 2.2, np.nan])
    np.testing.assert_allclose(np.nansum(focal, axis=1), 1)
    assert np.isnan(recall[2]).all()


def test_the_figure_draws_both_weights_and_their_ratio_by_the_size_of_the_class(tmp_path):
    figure = class_weights_figure(HISTORY, COUNTS, title="recall:ema=0.1", path=tmp_path / "weights.png")
    focal, recall, ratio, bar = figure.axes
    expected = normalized_weights(HISTORY)
    for axes, values in zip((focal, recall, ratio), (*expected, expected[1] / expected[0]), strict=True):
        lines = axes.get_lines()[:6]
        np.testing.assert_array_equal([line.get_xdata() for line in lines], [[1, 2, 3]] * 6)
        np.testing.assert_allclose([line.get_ydata() for line in lines], values.T)
        top, drawn = axes.get_ylim()[1], values[np.isfinite(values)]
        assert top >= drawn.max()
        assert len({line.get_color() for line in lines}) == 6
    assert focal.get_ylim() == recall.get_ylim()
    assert bar.get_ylabel() == "Training samples of the class" and bar.get_ylim() == pytest.approx((1, 500))
    assert imread(tmp_path / "weights.png").std() > 0.05


@pytest.mark.slow
def test_reports_draw_what_was_recorded(tmp_path):
    recall, losses = [0.9, 0.7, 0.5, 0.4, 0.1, 0.0], [(1.0, 2.0), (2.0, 1.5)]
    results = [
        result_of(loss, recall, class_weights=HISTORY, training_losses=losses)
        for loss in ("recall:ema=0.1", "recall:ema=0.5,gamma=2", "recall")
    ]
    write_experiment_report(tmp_path, results[0])
    assert (tmp_path / "class_weights.png").is_file()
    assert json.loads((tmp_path / "metrics.json").read_text())["details"]["class_weights"] == HISTORY
    loaded = RunResult.load(tmp_path / "metrics.json")
    for number, runs in enumerate(([loaded, *results[1:]], results[:1], [results[0], results[2]])):
        write_classifier_comparison(tmp_path / str(number), runs)
        assert (tmp_path / str(number) / "training_loss.png").exists() == (number == 0)


def test_the_training_losses_of_runs_in_one_figure(tmp_path):
    curves = {"recall:ema=0.1": [(1, 2.0), (2, 1.5)], "recall:ema=1": [(1, 2.1), (2, 1.7), (3, 1.6)]}
    axes = training_loss_figure(curves, path=tmp_path / "loss.png").axes[0]
    for line, (name, curve) in zip(axes.get_lines(), curves.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xydata(), curve)
    assert len({line.get_linestyle() for line in axes.get_lines()}) == 2
    assert imread(tmp_path / "loss.png").std() > 0.05
