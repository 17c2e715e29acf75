"""What the figures hold: axes, bars, texts, files; and that drawing them changes nothing global."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from scipy.stats import binomtest

from hf_focal import fit_temperature
from hf_focal.metrics import CalibrationMetrics, ReliabilityBins
from hf_focal.reports import comparison_figure, reliability_diagram
from hf_focal.reports.figures.figure_style import OVER, UNDER

LOGITS = 3 * torch.randn(600, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.multinomial((LOGITS / 2).softmax(1), 1, generator=torch.Generator().manual_seed(1)).squeeze(1)


def gathered(logits=LOGITS, num_bins=15):
    metrics = CalibrationMetrics(num_bins=num_bins)
    metrics.update(logits, LABELS)
    return metrics


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_reliability_diagram_shows_the_bins(tmp_path):
    num_bins, path = 15, tmp_path / "diagram.png"
    figure = reliability_diagram(LOGITS, LABELS, num_bins=num_bins, title="A title", path=path)
    diagram, histogram = figure.axes
    metrics = gathered(num_bins=num_bins)
    bins, values = metrics.bins(), metrics.compute()
    filled = bins.count > 0
    accuracy_bars, gap_bars, hatched = diagram.containers
    assert all(bar.get_hatch() for bar in hatched)
    assert [bar.get_bbox().bounds for bar in hatched] == [bar.get_bbox().bounds for bar in gap_bars]
    assert len(accuracy_bars) == len(gap_bars) == filled.sum()
    assert [bar.get_width() for bar in accuracy_bars] == pytest.approx([1 / num_bins] * filled.sum())
    assert [bar.get_x() for bar in accuracy_bars] == pytest.approx(bins.edges[:-1][filled].tolist())
    assert [bar.get_height() for bar in accuracy_bars] == pytest.approx(bins.accuracy[filled].tolist())
    ends = [bar.get_y() + bar.get_height() for bar in gap_bars]
    assert ends == pytest.approx(bins.confidence[filled].tolist())
    assert texts(diagram) == [f"ECE {100 * values['ece']:.1f}%"]
    assert len(histogram.patches) == num_bins
    assert sum(bar.get_height() for bar in histogram.patches) == pytest.approx(100)
    assert [line.get_label() for line in histogram.lines] == [
        f"accuracy {100 * values['accuracy']:.1f}%",
        f"mean confidence {100 * values['confidence']:.1f}%",
    ]
    assert figure.get_suptitle() == "A title"
    assert (histogram.get_xlabel(), diagram.get_ylabel()) == ("Confidence", "Accuracy")
    assert imread(path).std() > 0.1


def test_metrics_arrays_and_temperature_are_understood():
    expected = texts(reliability_diagram(LOGITS, LABELS).axes[0])
    assert texts(reliability_diagram(metrics=gathered()).axes[0]) == expected
    assert texts(reliability_diagram(LOGITS.numpy(), LABELS.numpy()).axes[0]) == expected
    cooled = texts(reliability_diagram(LOGITS, LABELS, temperature=2.0).axes[0])
    assert cooled == texts(reliability_diagram(LOGITS / 2, LABELS).axes[0]) != expected
    gaps = [
        [bar.get_height() for bar in reliability_diagram(logits, LABELS, temperature=1.3).axes[0].containers[1]]
        for logits in (LOGITS.bfloat16(), LOGITS.bfloat16().float())
    ]
    assert gaps[0] == gaps[1]


@pytest.mark.parametrize(
    "arguments", [{"logits": LOGITS}, {"logits": LOGITS, "labels": LABELS, "metrics": gathered()}]
)
def test_the_samples_come_from_one_place(arguments):
    with pytest.raises(TypeError, match="arguments must be logits and labels, or metrics, got"):
        reliability_diagram(**arguments)


def test_other_errors():
    with pytest.raises(TypeError, match="temperature must be None with metrics"):
        reliability_diagram(metrics=gathered(), temperature=2.0)
    with pytest.raises(ValueError, match="metrics must hold at least one sample, got none"):
        reliability_diagram(metrics=CalibrationMetrics())
    with pytest.raises(ValueError, match="at least one run"):
        comparison_figure({})


def test_temperatures_of_labels_are_for_the_sigmoid():
    labels = torch.nn.functional.one_hot(LABELS, 5)
    fitted = fit_temperature(LOGITS, labels, "nll", link="sigmoid", per_label=True)
    assert reliability_diagram(LOGITS, labels, temperature=fitted, link="sigmoid").axes
    with pytest.raises(ValueError, match="temperature must be one number with link='softmax', got"):
        reliability_diagram(LOGITS, LABELS, temperature=fitted)


def test_the_temperature_must_be_finite_and_positive():
    temperature = float("nan")
    with pytest.raises(ValueError, match="temperature must be finite and positive, got"):
        reliability_diagram(LOGITS, LABELS, temperature=temperature)


def test_of_a_sigmoid_it_is_the_frequency_of_labels_against_their_probability():
    z = 3 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    y = (torch.rand(z.shape, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(z / 2)).int()
    fitted = fit_temperature(z, y, "nll", link="sigmoid", per_label=True)
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(fitted.correction.apply(z), y)
    for figure in (
        reliability_diagram(z, y, temperature=fitted, link="sigmoid"),
        reliability_diagram(metrics=metrics),
        reliability_diagram(metrics=metrics.bins(), link="sigmoid"),
    ):
        diagram, histogram = figure.axes
        assert texts(diagram) == [f"ECE {100 * fitted.ece_after:.1f}%"]
        assert (diagram.get_ylabel(), histogram.get_xlabel()) == ("Frequency", "P(label)")
        labels = [text.get_text() for text in diagram.get_legend().get_texts()]
        assert labels == ["frequency", "95% interval", "P too high", "P too low", "calibrated"]
    figure = comparison_figure({"one": [metrics.bins(0)], "two": [metrics.bins(1)]}, link="sigmoid")
    assert [texts(axes) for axes in figure.axes] == [[f"ECE {100 * e:.1f}%"] for e in metrics.per_label()["ece"]]
    assert figure.axes[0].get_ylabel() == "Frequency"


@pytest.mark.slow
def test_comparison_has_a_column_a_run(tmp_path):
    num_runs = 4
    before, after = gathered(), gathered(LOGITS / 2)
    path = tmp_path / "comparison.png"
    names = [f"run {number} with a rather long name" for number in range(num_runs)]
    figure = comparison_figure({name: (before.bins(), after.bins()) for name in names}, path)
    assert len(figure.axes) == 2 * num_runs
    assert figure.get_figwidth() < 5.2  # nine points stay legible on a phone
    for number, name in enumerate(names):
        (above,) = (axes for axes in figure.axes if axes.get_title().replace("\n", " ") == name)
        place = above.get_subplotspec()
        (below,) = (
            axes
            for axes in figure.axes
            if (spot := axes.get_subplotspec()).rowspan.start == place.rowspan.start + 1
            and spot.colspan == place.colspan
        )
        assert (place.rowspan.start, place.colspan.start) == (2 * (number // 3), number % 3)
        for axes, bins, when in ((above, before, "before"), (below, after, "after")):
            assert texts(axes) == [f"ECE {100 * bins.compute()['ece']:.1f}%"]
            assert axes.get_ylabel() == ("" if number % 3 else f"Accuracy\n{when}")
        assert [label.get_text() for label in below.get_xticklabels()] == ["0", "0.5", "1"]
    assert imread(path).std() > 0.1


def test_over_and_underconfidence_have_a_legend_and_their_own_colors():
    bins = gathered().bins()
    colors = []
    for scale in (1, 0.25):  # the logits are overconfident by a factor of 2
        diagram = reliability_diagram(LOGITS * scale, LABELS).axes[0]
        filled = gathered(LOGITS * scale).bins().count > 0
        bar = diagram.containers[2][list(np.flatnonzero(filled)).index(9 if scale == 1 else 7)]
        colors.append(bar.get_edgecolor()[:3])
        labels = [text.get_text() for text in diagram.get_legend().get_texts()]
        assert labels == ["accuracy", "95% interval", "overconfident", "underconfident", "calibrated"]
    assert bins.count[9] >= 30 and colors == [to_rgb(OVER), to_rgb(UNDER)]


def test_bins_with_few_samples_are_pale_and_have_wilson_intervals():
    count, accuracy = np.array([2, 300]), np.array([0.5, 0.8])
    bins = ReliabilityBins(np.array([0, 0.5, 1]), count, np.array([0.4, 0.9]), accuracy)
    diagram = reliability_diagram(metrics=bins).axes[0]
    pale, solid = (bar.get_facecolor()[3] for bar in diagram.containers[0])
    assert pale < solid / 2
    segments = diagram.collections[0].get_segments()
    for n, share, segment in zip(count, accuracy, segments, strict=True):
        interval = binomtest(round(n * share), n).proportion_ci(method="wilson")
        assert segment[:, 1] == pytest.approx([interval.low, interval.high], abs=1e-4)


@pytest.mark.slow
def test_matplotlib_is_only_imported_to_draw_and_left_as_it_was():
    code = """
import sys
import torch
from hf_focal.reports import results_table, reliability_diagram
assert not any(name.startswith("matplotlib") for name in sys.modules)
import matplotlib
before = dict(matplotlib.rcParams)
reliability_diagram(2 * torch.eye(3), torch.arange(3))
assert dict(matplotlib.rcParams) == before
import matplotlib.pyplot
assert not matplotlib.pyplot.get_fignums()
"""
    # The parser of older matplotlib's settings warns of names that go, in a class that is both kinds of warning.
    warnings = ["-W", "error::UserWarning", "-W", "ignore::DeprecationWarning"]
    subprocess.run([sys.executable, *warnings, "-c", code], check=True)
