"""The slider of thresholds, and the risk-coverage curve above it."""

import numpy as np
import pytest

from hf_focal import calibrate_scores, evaluate_scores
from hf_focal.command_lines import RunCommands
from hf_focal.reports.pages.threshold_slider import risk_coverage_page_figure, threshold_slider


def table(seed, size=500):
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(size, 3))
    return {"logits": logits, "label": (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)}


def test_the_points_are_those_of_the_curve():
    result = evaluate_scores(table(0))
    slider, curve = threshold_slider(result, None, "out"), result.subsets.risk_coverage.before
    points = [[float(number) for number in point.split(",")] for point in slider.points.split(";")]
    assert [point[0] for point in points] == curve.answered and slider.total == 500 and slider.goal == "coverage"
    assert slider.columns["coverage %"][0] == "100.0"


def test_the_thresholds_of_the_slider_answer_what_it_says():
    z = 40 * np.random.default_rng(0).normal(size=2000)
    result = evaluate_scores({"logits": np.stack([0 * z, z], 1), "label": (z > 5).astype(int)})
    p = (1 / (1 + np.exp(-np.abs(z)))).astype(np.float32)  # that of the top class
    points = threshold_slider(result, None, "out").points.split(";")
    for point in points:
        answered, _, threshold = map(float, point.split(","))
        assert abs((p >= threshold).sum() - answered) <= 1  # of 2,000
    assert float(points[0].split(",")[2]) < 1


def test_the_points_of_a_sigmoid_are_its_bins():
    rng = np.random.default_rng(0)
    p = rng.random(400)
    result = evaluate_scores({"probabilities": p, "label": (rng.random(400) < p).astype(int)}, link="sigmoid")
    slider = threshold_slider(result, RunCommands("evaluate", {"scores": "s.csv"}), "out")
    counts = [int(point.split(",")[1]) for point in slider.points.split(";")]
    assert sum(counts) == slider.total == 400 and slider.goal == "precision" and "GOAL" in slider.command
    assert risk_coverage_page_figure(result) is None


@pytest.mark.parametrize("precision", [0.8, None])
def test_the_legend_has_the_chosen_threshold_and_that_of_the_slider(precision):
    result = calibrate_scores(table(0), test_scores=table(1), method="temperature", precision=precision)
    svg = str(risk_coverage_page_figure(result).svg)
    assert ("chosen threshold 0." in svg) == (precision is not None)
    assert svg.count('class="mark"') == (2 if precision else 0) and "at the slider&#39;s threshold" in svg
