"""The table of classes: its order, its cells, and the bins that the script draws."""

import numpy as np
import pytest

from hf_focal import CalibrationMetrics, evaluate_scores
from hf_focal.reports import comparison_page
from hf_focal.reports.pages.charts import small_axis_end
from hf_focal.reports.pages.class_table import class_table, small_figures, worst_class_figures
from hf_focal.reports.pages.page_parts import environment


@pytest.fixture(scope="module")
def result():
    """The result of overconfident scores of three classes, the last of which is predicted for 10 samples only."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 3))
    logits[:, 2] -= 12
    logits[:10, 2] += 30
    labels = np.where(rng.random(400) < 0.7, logits.argmax(1), rng.integers(3, size=400))
    return evaluate_scores({"logits": logits, "label": labels})


def test_rows_have_the_largest_ece_first_but_classes_with_few_predictions_last(result):
    table = class_table(result)
    assert table.titles[:3] == ["Class", "ECE %", "precision %"] and table.rows[-1].name == "2"
    first, second = (float(row.cells[0]) for row in table.rows[:2])
    assert first > second and table.omitted == ""
    predictions = [int(row.cells[table.titles.index("predictions") - 1]) for row in table.rows]
    assert sum(predictions) == 400 and predictions[-1] == 10


def test_few_classes_are_below_the_diagrams_and_many_beside_them(result, tmp_path):
    rng = np.random.default_rng(0)
    many = evaluate_scores({"logits": rng.normal(size=(400, 10)), "label": rng.integers(10, size=400)})
    for name, run, is_beside in (("few", result, False), ("many", many, True)):
        (tmp_path / name).mkdir()
        run.save(tmp_path / name / "metrics.json")
        page = comparison_page([tmp_path / name], tmp_path / f"{name}.html").read_text(encoding="utf-8")
        diagrams = page.partition("<h2>Reliability</h2>")[2].partition("<caption>Classes")[0]
        assert ('<div class="columns">' in diagrams) == is_beside


def test_the_bins_of_a_row_hold_its_predictions(result):
    for row in class_table(result).rows:
        counts = [int(bins.split(",")[1]) for bins in row.before.split(";")]
        assert sum(counts) == int(row.cells[3]) and row.after == ""


def test_each_class_has_a_figure_and_one_class_has_neither(result):
    assert [pair[0].caption for pair in worst_class_figures(result)] == [row.name for row in class_table(result).rows]
    one = evaluate_scores({"confidence": [0.9, 0.8, 0.6], "correct": [1, 1, 0]})
    assert class_table(one) is None and worst_class_figures(one) == []


def bins_of(confidence, hits):
    """Return the bins of ten predictions with this confidence, of which `hits` are right."""
    metrics = CalibrationMetrics(classwise=False)
    metrics.update_from_confidences(np.full(10, confidence), np.arange(10) < hits)
    return metrics.bins()


def test_small_diagrams_of_both_sides_have_equal_axes_with_room_for_all_bars(result):
    low, right, high = bins_of(0.2, 3), bins_of(0.2, 10), bins_of(0.9, 8)
    assert [small_axis_end(sides) for sides in ([low], [right], [low, high])] == [0.3, 1, 1]
    (pair,) = small_figures({"a": [low, high]}, result)
    assert all('<text class="tick end" x="26" y="24.0">1</text>' in figure.svg for figure in pair)
    (short,) = small_figures({"a": [low]}, result)
    assert '<text class="tick end" x="26" y="24.0">0.3</text>' in short[0].svg


def test_only_long_words_of_names_may_break():
    breakable = environment().filters["breakable"]
    assert breakable("Calibration of m_emotion") == "Calibration of m_emotion"
    assert breakable("a <b> lost_or_stolen_card") == "a &lt;b&gt; lost_<wbr>or_<wbr>stolen_<wbr>card"
