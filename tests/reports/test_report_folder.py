"""Results of runs: what is measured, written and read back."""

import datetime
import math
from dataclasses import fields

import numpy as np
import pytest
import scipy.stats
import torch
import yaml
from files import strict_json
from matplotlib.image import imread
from sklearn.metrics import confusion_matrix, f1_score

from hf_focal import CalibrationMetrics, LossConfig, Temperature, fit_temperature
from hf_focal.losses import AdaFocalGamma
from hf_focal.reports import RunResult, results_table, write_comparison, write_report
from hf_focal.reports.figures.group_figure import group_figure
from hf_focal.reports.results.result_sections import Confusion, DataSection, SubsetSection

LABELS = torch.arange(40) % 4


def result_of(loss="focal:gamma=3", accuracy=0.8, **options):
    logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = torch.arange(40) < 40 * accuracy
    logits[right] += 9 * torch.nn.functional.one_hot(LABELS[right], 4)
    temperature = fit_temperature(logits, LABELS, "ece")
    return RunResult.measure(loss, temperature, logits, LABELS, **options), logits


def test_measure_is_before_and_after_the_temperature():
    result, logits = result_of(num_bins=10)
    before, after = CalibrationMetrics(10), CalibrationMetrics(10)
    before.update(logits, LABELS)
    after.update(logits / result.temperature.value, LABELS)
    assert result.loss == "focal:gamma=3"
    assert result.temperature.value != 1
    predicted = logits.argmax(1)
    decisions = {"macro_f1": pytest.approx(f1_score(LABELS, predicted, average="macro"))}
    assert result.pre == before.compute() | decisions
    assert result.post == after.compute() | decisions
    for intervals, metrics in ((result.pre_intervals, before), (result.post_intervals, after)):
        assert intervals.items() >= metrics.bootstrap().items()
        assert np.mean(intervals["nll"]) == pytest.approx(metrics.compute()["nll"], rel=1e-6)
    errors = round(40 * result.pre["error"])
    wilson = scipy.stats.binomtest(errors, 40).proportion_ci(method="wilson")
    assert result.pre_intervals["error"] == pytest.approx((wilson.low, wilson.high), abs=1e-5)
    np.testing.assert_array_equal(result.pre_bins.accuracy, before.bins().accuracy)
    np.testing.assert_array_equal(result.post_bins.count, after.bins().count)
    assert result.true_calibration_error is None
    curves = result.subsets.risk_coverage
    for curve, metrics in ((curves.before, before), (curves.after, after)):
        whole = metrics.risk_coverage()  # of fewer than 100 samples, so all points are kept
        assert (curve.answered, curve.errors) == (whole.answered.tolist(), whole.errors.tolist())
    counts = confusion_matrix(LABELS, predicted).tolist()
    balance = result.subsets.class_balance
    assert (balance.classes, balance.smallest, balance.largest) == (4, 10, 10)
    assert balance.predicted == int(predicted.bincount().max())
    assert result.subsets == SubsetSection(
        balance, None, result.subsets.classes, curves, Confusion(["0", "1", "2", "3"], counts)
    )
    assert result.data == DataSection(date=datetime.date.today().isoformat())
    assert result.details == {}


def test_the_temperature_rounds_no_logits_of_half_precision():
    temperature = Temperature.from_dict(result_of()[0].temperature.to_dict() | {"value": 1.3})
    logits = (3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0))).bfloat16()
    result = RunResult.measure("brier", temperature, logits, LABELS)
    exact = RunResult.measure("brier", temperature, logits.float(), LABELS)
    assert (result.pre, result.post) == (exact.pre, exact.post)


@pytest.mark.parametrize("truth", [None, (0.25, 0.125)])
def test_a_saved_result_reads_back_equal_nan_included(truth, tmp_path):
    result, _ = result_of(accuracy=1, true_calibration_error=truth, details={"epochs": 2, "name": "checkpoint-3"})
    assert math.isnan(result.pre["nll_incorrect"])
    result.save(tmp_path / "metrics.json")
    assert strict_json(tmp_path / "metrics.json")["pre"]["nll_incorrect"] is None
    again = RunResult.load(tmp_path / "metrics.json")
    for field in fields(RunResult):
        mine, loaded = getattr(result, field.name), getattr(again, field.name)
        if field.name.endswith("_bins"):
            for array in ("edges", "count", "confidence", "accuracy"):
                np.testing.assert_array_equal(getattr(loaded, array), getattr(mine, array))
                assert getattr(loaded, array).dtype == getattr(mine, array).dtype
        elif field.name in ("pre", "post"):
            assert loaded == pytest.approx(mine, rel=0, abs=0, nan_ok=True)
        else:
            assert loaded == mine
    assert results_table([again]) == results_table([result])


PICTURES = ("reliability_before.png", "risk_coverage.png")


def test_the_report_shows_groups_with_their_intervals(tmp_path):
    columns = {"name": ["a", "b"], "num_samples": [9, 9], "error": [0.1, 0.2], "gap": [0.1, 0.0]}
    columns |= {"ece": [0.2, 0.1], "ece_low": [0.1, 0.0], "ece_high": [0.25, 0.2]}
    result, _ = result_of(details={"groups": columns})
    assert tmp_path / "groups.png" in write_report(tmp_path, result)
    axes = group_figure(result.subsets.groups).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    (dots, _, (bars,)) = axes.containers[0]
    assert dots.get_xdata().tolist() == [20, 10]
    np.testing.assert_allclose([segment[:, 0] for segment in bars.get_segments()], [[10, 25], [0, 20]])


def test_the_report_of_a_run(tmp_path):
    result, _ = result_of("flsd:thresholds=0.2/0.5,gammas=5/3/2")
    folder = tmp_path / "new" / "report"
    paths = write_report(folder, result)
    diagrams = ["reliability_before.png", "reliability_after.png"]
    names = ["table.md", "loss.yaml", *diagrams, "risk_coverage.png", "metrics.json"]
    assert [path.name for path in paths] == names
    assert sorted(folder.iterdir()) == sorted(paths)
    assert strict_json(folder / "metrics.json")["temperature"]["value"] == result.temperature.value
    assert LossConfig.parse(str(folder / "loss.yaml")) == LossConfig.parse(result.loss)
    assert yaml.safe_load((folder / "loss.yaml").read_text())["gammas"] == [5, 3, 2]
    header, _, row, *_ = (folder / "table.md").read_text().strip().splitlines()
    assert header.startswith("| Loss | ECE % | T | Error % | Macro F1 % |")
    assert row.startswith(f"| {result.loss} | {100 * result.pre['ece']:.2f} [")
    low, high = result.pre_intervals["ece"]
    assert f"{100 * result.pre['ece']:.2f} [{100 * low:.2f}, {100 * high:.2f}] → " in row
    for name in (*diagrams, "risk_coverage.png"):
        assert imread(folder / name).std() > 0.05
    (folder / "reliability_after.svg").touch()  # of an earlier version
    write_report(folder, result, pictures=False)
    assert {path.name for path in folder.iterdir()} == {"table.md", "loss.yaml", "metrics.json"}


@pytest.mark.slow
def test_the_report_shows_how_gamma_moved(tmp_path):
    policy, history = AdaFocalGamma(3), []
    for epoch in (1, 2):
        policy.update(torch.linspace(0.3, 0.9, 40), LABELS < 2)
        history.append({"step": 10 * epoch, "epoch": float(epoch), **policy.state_dict()})
    result, _ = result_of("adafocal:bins=3", details={"gamma_history": history})
    paths = write_report(tmp_path, result)
    assert [path.name for path in paths[-2:]] == ["gamma.png", "metrics.json"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert imread(tmp_path / "gamma.png").std() > 0.1
    assert RunResult.load(tmp_path / "metrics.json").subsets.gamma_history == history


def test_the_comparison_of_runs(tmp_path):
    results = [result_of("brier", 0.7)[0], result_of("focal:gamma=3", true_calibration_error=(0.1, 0.05))[0]]
    paths = write_comparison(tmp_path / "report", results)
    assert [path.name for path in paths] == ["table.md", "comparison.png"]
    lines = paths[0].read_text().strip().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| brier", "| focal:gamma=3", "| (majority class)"]
    assert "true ECE %" in lines[0]
    assert "10.00 → 5.00" in lines[3]
    assert imread(paths[1]).std() > 0.1


def test_the_report_of_a_model_without_temperature_that_was_trained_elsewhere(tmp_path):
    before = CalibrationMetrics(15)
    before.update(4 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3)
    result = RunResult.from_metrics("org/model", None, before, None)
    assert result.temperature == Temperature.unfitted(before.compute(), 15) and not result.temperature.is_fitted
    assert result.post == result.pre and float(result.temperature) == 1
    names = {path.name for path in write_report(tmp_path, result)}
    assert names == {*("table.md", "metrics.json"), *PICTURES}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert RunResult.load(tmp_path / "metrics.json").temperature == result.temperature
    table = (tmp_path / "table.md").read_text()
    assert table == results_table([result]) and "→" not in table


def test_files_that_are_no_part_of_a_report_stay(tmp_path):
    for name in ("groups.csv", "gamma.npy", "groups.png"):
        (tmp_path / name).write_bytes(b"")
    write_report(tmp_path, result_of("brier")[0])
    assert (tmp_path / "groups.csv").exists() and (tmp_path / "gamma.npy").exists()
    assert not (tmp_path / "groups.png").exists()  # of an earlier report
