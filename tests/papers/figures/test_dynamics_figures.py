"""Figures of training dynamics, against the numbers of the history."""

import numpy as np
import pytest
from matplotlib.image import imread
from papers.figures.dynamics_figures import (
    dynamics_comparison,
    dynamics_figure,
    equal_mass_figure,
    gradient_norm_figure,
    reliability_by_epoch,
    write_dynamics,
    write_dynamics_comparison,
)

BINS = {
    "edges": [0.0, 0.25, 0.5, 0.75, 1.0],
    "count": [0, 1, 1, 2],
    "confidence": [None, 0.4, 0.6, 0.9],
    "accuracy": [None, 0.0, 1.0, 0.5],
}


def entry(epoch, **values):
    measures = {
        f"{split}_{name}": 0.1 * number + 0.01 * epoch
        for split in ("train", "test")
        for number, name in enumerate(
            ("nll", "nll_correct", "nll_incorrect", "entropy", "entropy_correct", "entropy_incorrect", "error", "ece")
        )
    } | {f"{split}_adaece": 0.8 + 0.01 * epoch for split in ("train", "test")}
    masses = {
        "train_equal_mass": {"confidence": [0.2, 0.5, 0.9 + 0.01 * epoch], "accuracy": [0.1, 0.5, 1.0]},
        "test_equal_mass": {"confidence": [0.3, 0.6, 0.8], "accuracy": [0.1, 0.5, 0.7 - 0.1 * epoch]},
    }
    norms = {"weight_norm": 2.0 + epoch, "feature_norm": 5.0 - epoch, "gradient_norm": 0.5}
    return {"step": 10 * epoch, "epoch": float(epoch), **measures, **masses, **norms, **values}


def with_bins(epoch):
    norms = {"edges": [0.001, 0.01, 0.1, 1.0], "count": [0, 3, 1]}
    return entry(epoch, train_bins=BINS, test_bins=BINS, gradient_norms=norms)


HISTORY = [entry(0), with_bins(1), entry(2), with_bins(3)]


def lines_of(panel):
    return {line.get_label(): line.get_ydata().tolist() for line in panel.lines}


def test_panels_of_one_run():
    figure = dynamics_figure(HISTORY, title="A title")
    train, test, errors, weights, features, gradients = figure.axes
    assert figure.get_suptitle() == "A title"
    assert lines_of(test)["NLL, wrong"] == pytest.approx([0.2, 0.21, 0.22, 0.23])
    assert lines_of(train)["entropy, right"] == pytest.approx([0.4, 0.41, 0.42, 0.43])
    assert len(train.lines) == len(test.lines) == 6
    assert lines_of(errors)["test ECE"] == pytest.approx([70, 71, 72, 73])
    assert lines_of(errors)["train error"] == pytest.approx([60, 61, 62, 63])
    assert [panel.lines[0].get_ydata().tolist() for panel in (weights, features, gradients)] == [
        *([2, 3, 4, 5], [5, 4, 3, 2], [0.5] * 4)
    ]
    assert gradients.lines[0].get_xdata().tolist() == [0, 1, 2, 3]
    assert [panel.get_yscale() for panel in (weights, features, gradients)] == ["linear", "log", "log"]
    assert test.get_ylim()[0] <= 0 < 0.53 < test.get_ylim()[1]


def test_reliability_of_the_epochs_that_were_kept():
    figure = reliability_by_epoch([HISTORY[1], HISTORY[3]], "train")
    above, below = figure.axes[:2], figure.axes[2:]
    assert [axes.get_title() for axes in above] == ["Epoch 1", "Epoch 3"]
    assert [bar.get_height() for bar in above[0].containers[0]] == [0.0, 1.0, 0.5]
    assert [bar.get_height() for bar in below[1].containers[0]] == [0, 25, 25, 50]
    # (0.4 + 0.4 + 2 · 0.4) / 4
    assert [text.get_text() for text in above[0].texts] == ["ECE 40.0%"]


@pytest.mark.slow
def test_files(tmp_path):
    paths = write_dynamics(tmp_path / "one", HISTORY, title="a run")
    assert [path.name for path in paths] == [
        *("dynamics.png", "dynamics_train.png", "dynamics_test.png", "dynamics_gradients.png")
    ]
    both = write_dynamics_comparison(tmp_path / "both", {"one": HISTORY, "other": [entry(0)]})
    names = ["dynamics.png", "dynamics_gaps.png", "dynamics_confidence.png", "dynamics_gradients.png"]
    assert [path.name for path in both] == names
    assert all(imread(path).std() > 0.1 for path in both)
    plain = write_dynamics_comparison(tmp_path / "plain", {"one": [entry(0)]})
    assert [path.name for path in plain] == names[:3]


def test_what_is_undefined_breaks_the_line_and_what_is_not_measured_is_said():
    history = [{name: value for name, value in entry(epoch).items() if name != "gradient_norm"} for epoch in (0, 1, 2)]
    del history[1]["train_nll_incorrect"]
    figure = dynamics_figure(history)
    broken = figure.axes[0].lines[2].get_ydata()
    assert np.isnan(broken).tolist() == [False, True, False]
    assert [text.get_text() for text in figure.axes[5].texts] == ["not measured"]
    assert not figure.axes[4].texts


def test_runs_over_each_other():
    figure = dynamics_comparison({"cross_entropy": HISTORY, "focal:gamma=3": HISTORY[:2]})
    labels = [panel.get_ylabel() for panel in figure.axes]
    assert labels[:2] == ["Test NLL", "Test NLL, right"]
    assert [line.get_ydata().tolist() for line in figure.axes[labels.index("Test ECE, %")].lines] == [
        pytest.approx([70, 71, 72, 73]),
        pytest.approx([70, 71]),
    ]
    (line, _) = figure.axes[labels.index("Test AdaECE, %")].lines
    assert line.get_ydata() == pytest.approx([80, 81, 82, 83])
    assert len({(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cross_entropy", "focal: gamma=3"]


def test_bins_of_equal_mass_training_beside_test():
    histories = {"cross_entropy": HISTORY, "focal:gamma=3": HISTORY[:2]}
    gaps = equal_mass_figure(histories, "gap").axes
    assert [panel.get_ylabel() for panel in gaps[::2]] == ["Bin 1 of 3", "Bin 2 of 3", "Bin 3 of 3"]
    highest_train, highest_test = gaps[4:]
    assert highest_train.lines[0].get_ydata() == pytest.approx([-10, -9, -8, -7])
    assert highest_test.lines[0].get_ydata() == pytest.approx([10, 20, 30, 40])
    assert highest_test.lines[1].get_ydata() == pytest.approx([10, 20])
    confidence = equal_mass_figure(histories, "confidence").axes
    assert confidence[0].lines[0].get_ydata() == pytest.approx([20] * 4)
    assert confidence[1].lines[0].get_ydata() == pytest.approx([30] * 4)


def test_histograms_of_gradient_norms():
    other = [with_bins(3) | {"gradient_norms": {"edges": [0.001, 0.01, 0.1, 1.0], "count": [2, 2, 0]}}]
    figure = gradient_norm_figure({"one": [HISTORY[1], HISTORY[3]], "other": other})
    assert [axes.get_title() for axes in figure.axes] == ["Epoch 1", "Epoch 3"]
    assert [len(axes.patches) for axes in figure.axes] == [1, 2]
    assert figure.axes[0].patches[0].get_data().values.tolist() == [0, 75, 25]
    assert figure.axes[1].patches[1].get_data().values.tolist() == [50, 50, 0]
    assert figure.axes[0].get_xlim() == pytest.approx((0.001, 1))
