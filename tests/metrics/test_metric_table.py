"""A metric is a function and an entry: with these alone, everything that shows metrics has it."""

import inspect

import numpy as np
import pytest
import torch

import hf_focal.metrics
from hf_focal import CalibrationMetrics, fit_temperature
from hf_focal.hub import CardModel, model_card
from hf_focal.metrics import calibration_errors
from hf_focal.metrics.metric_table import METRICS, Metric
from hf_focal.reports import RunResult, comparison_page, results_table, write_report
from hf_focal.reports.wording.text_summary import metrics_table

LABELS = torch.arange(120) % 3
LOGITS = 3 * torch.randn(120, 3, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(3)[LABELS]


def signed_gap(count, gap):
    return np.maximum(gap, 0).sum(-1) / count.sum(-1)


@pytest.fixture(params=[False, True], ids=["equal width", "equal mass"])
def entry(request, monkeypatch):
    meaning = "average gap of the overconfident bins"
    metric = Metric("overconfidence", meaning, is_gap=True, in_card=True, binned=signed_gap, equal_mass=request.param)
    monkeypatch.setitem(METRICS, "overconfidence", metric)
    return metric


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_accumulators_compute_it_with_its_interval(entry, link):
    metrics = CalibrationMetrics(link=link)
    metrics.update(LOGITS, LABELS if link == "softmax" else torch.eye(3)[LABELS])
    actual = metrics.compute()
    low, high = metrics.bootstrap(num_resamples=50)["overconfidence"]
    assert 0 < actual["overconfidence"] <= actual["adaece" if entry.equal_mass else "ece"]
    assert 0 <= low <= actual["overconfidence"] <= high
    if link == "sigmoid":
        labels = metrics.per_label()["overconfidence"]
        assert labels.shape == (3,) and actual["macro_overconfidence"] == pytest.approx(labels.mean())


def test_console_table_page_and_card_show_it(entry, tmp_path):
    temperature = fit_temperature(LOGITS, LABELS)
    result = RunResult.measure("brier", temperature, LOGITS, LABELS)
    value, after = (f"{100 * side['overconfidence']:.2f}" for side in (result.pre, result.post))
    assert f"overconfidence % | {value}" in metrics_table(result).replace("  ", " ")
    assert "Overconfidence %" in results_table([result]) and f"{value} → {after}" in results_table([result])
    write_report(tmp_path / "report", result)
    page = comparison_page([tmp_path], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Overconfidence %" in page and entry.meaning in page and after in page
    card = model_card(result, CardModel("user/model", "text-classification"))
    entries = [result for result in card.data.eval_results if result.metric_type == "overconfidence"]
    card_values = {entry.metric_name: entry.metric_value for entry in entries}
    assert card_values["Overconfidence"] == result.post["overconfidence"]
    assert card_values["Overconfidence before temperature scaling"] == result.pre["overconfidence"]


def test_every_metric_of_logits_or_of_bins_has_an_entry_and_is_exported():
    functions = [value for value in vars(calibration_errors).values() if inspect.isfunction(value)]
    parameters = {function.__name__: [*inspect.signature(function).parameters] for function in functions}
    public = {name: names for name, names in parameters.items() if not name.startswith("_")}
    of_logits = {name for name, names in public.items() if names[:2] == ["logits", "labels"]}
    of_bins = {name for name, names in public.items() if names == ["count", "gap"]}
    entries = METRICS.values()
    assert of_logits - {metric.function.__name__ for metric in entries if metric.function} == set()
    assert of_bins - {metric.binned.__name__ for metric in entries if metric.binned} == set()
    assert of_logits - {*hf_focal.metrics.__all__} == set()
    assert len(of_logits) >= 12 and len(of_bins) >= 4


def test_entries_are_complete():
    for key, metric in METRICS.items():
        assert metric.meaning and (metric.function is None) == (metric.source == ""), key
        assert metric.in_tables or not metric.has_interval, key
        assert METRICS[key].factor == (100 if metric.title.endswith(" %") else 1), key
