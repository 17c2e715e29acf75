"""A metrics.json in which one value is another is an error of one line, or a page: never a traceback."""

import copy
import json

import pytest
import torch

from hf_focal import Temperature
from hf_focal.cli.main import main
from hf_focal.reports import RunResult, comparison_page, write_report
from hf_focal.reports.pages import page_parts, run_html_page

VALUES = (None, "x", -1, 1e300, 10**400, True, [], {}, [1], {"a": 1}, float("nan"), float("inf"), "missing")


def places(value, place=()):
    """The paths to all values, of lists to the first."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*place, key))


def changed(value, place, other):
    if not place:
        return other
    value = copy.deepcopy(value)
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    if other == "missing":
        del parent[place[-1]]
    else:
        parent[place[-1]] = other
    return value


@pytest.fixture
def metrics(tmp_path):
    fit = Temperature(1.3, "ece", 0.1, 0.05, 0.9, 0.8, num_samples=60, num_bins=3)
    logits, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    history = [{"epoch": float(epoch), "gammas": [1.0, 2.0], "edges": [0, 0.3, 1]} for epoch in (1, 2)]
    details = {"gamma_history": history}
    result = RunResult.measure("adafocal", fit, logits, labels, 3, true_calibration_error=(0.1, 0.2), details=details)
    write_report(tmp_path / "report", result, pictures=False)
    return tmp_path / "report" / "metrics.json"


@pytest.mark.slow
def test_any_value_may_be_another(metrics, monkeypatch):
    # Drawing takes most of the time; what it asks of its input is kept.
    monkeypatch.setattr(page_parts, "reliability_chart", lambda bins, *_: bins.accuracy[bins.count > 0])
    monkeypatch.setattr(run_html_page, "gamma_heatmap", lambda history: [update["epoch"] + 1 for update in history])
    monkeypatch.setattr(run_html_page, "matplotlib_page_figure", lambda *_: page_parts.PageFigure("", ""))
    whole, errors, pages = json.loads(metrics.read_text()), 0, 0
    for place in places(whole):
        for other in VALUES:
            if place or other != "missing":
                metrics.write_text(json.dumps(changed(whole, place, other)))
                try:
                    comparison_page([metrics.parent], metrics.parent / "page.html")
                    pages += 1
                except ValueError as error:
                    assert str(metrics) in str(error)
                    errors += 1
    assert errors > pages > 10


def test_a_bug_in_a_report_is_not_a_broken_file(metrics, monkeypatch):
    def broken(run):
        return {}["missing"]

    monkeypatch.setattr(run_html_page, "verdict", broken)
    with pytest.raises(KeyError, match="missing"):
        comparison_page([metrics.parent], metrics.parent / "page.html")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000], ids=lambda text: text[:9])
def test_broken_json_is_one_line(metrics, content, capsys):
    metrics.write_bytes(content)
    assert main(["report", str(metrics.parent)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "metrics.json must be what a report writes" in error
