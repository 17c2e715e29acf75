"""Results have typed sections, and `metrics.json` keeps its form."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from hf_focal import CalibrationMetrics, fit_temperature
from hf_focal.metrics import ReliabilityBins
from hf_focal.reports import RunResult
from hf_focal.reports.results import run_results
from hf_focal.reports.results.result_sections import (
    ClassBalance,
    ClassBins,
    DriftSection,
    FilledBins,
    Labels,
    PriorSection,
    SubsetSection,
    ThresholdSection,
)
from hf_focal.utils.json_values import Count, FiniteNumber, Share, from_json, key_of

FILES = sorted((Path(__file__).parent / "results_of_0_3").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_of_earlier_versions_are_written_again_as_they_are_with_a_name_and_a_link(file, tmp_path):
    """They had the name in "loss", whatever it was, and no link."""
    result, old = RunResult.load(file), json.loads(file.read_text())
    assert (result.name, result.loss) == (old["loss"], old["loss"] if file.stem == "trainer" else None)
    assert result.link == ("sigmoid" if "num_entries" in old["pre"] else "softmax")
    result.save(tmp_path / "metrics.json")
    new = {"name": result.name, "loss": result.loss, "link": result.link}
    assert json.loads((tmp_path / "metrics.json").read_text()) == old | new
    assert repr(RunResult.load(tmp_path / "metrics.json")) == repr(result)


def test_whoever_reads_a_section_gets_attributes():
    names = ("drift", "vector", "recall", "trainer")
    drift, vector, recall, trainer = (RunResult.load(FILES[0].with_name(f"{name}.json")) for name in names)
    assert isinstance(drift.drift, DriftSection) and isinstance(drift.drift.bins, ReliabilityBins)
    assert drift.data.task == "scores" and drift.subsets.groups.name and drift.fit.fitted_on is None
    assert isinstance(vector.thresholds, ThresholdSection) and vector.thresholds.share == "coverage"
    assert vector.method == vector.fit.cross_fit.method == "vector" and vector.has_own_test_data
    assert isinstance(vector.subsets.class_balance, ClassBalance) and not vector.details
    assert recall.prior == PriorSection(["l0", "l1"], recall.prior.train_prior, [0.3, 0.4])
    assert not recall.has_own_test_data and recall.subsets.worst_labels
    assert trainer.details == {"epochs": 2, "nested": {"a": [1, None]}} and len(trainer.subsets.gamma_history) == 2
    assert trainer.data.model is None and trainer.notes == []


def test_a_new_result_has_the_keys_of_an_old_one(tmp_path):
    old = json.loads((FILES[0].with_name("trainer.json")).read_text())
    logits, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    details = {key: old["details"][key] for key in ("epochs", "gamma_history", "measured_on", "nested")}
    temperature = fit_temperature(logits + 2 * torch.eye(3)[labels], labels)
    result = RunResult.measure("adafocal:bins=2", temperature, logits, labels, 5, details=details)
    result.save(tmp_path / "metrics.json")
    new = json.loads((tmp_path / "metrics.json").read_text())
    assert new.keys() == old.keys() | {"name", "link"} and new["details"].keys() == old["details"].keys() | {"classes"}
    for key in ("pre", "post", "temperature", "pre_bins", "pre_intervals"):
        assert new[key].keys() >= old[key].keys(), key  # a later version may have further metrics
    for key in ("class_balance", "confusion", "risk_coverage"):
        assert new["details"][key].keys() == old["details"][key].keys(), key
    assert {key: new["details"][key] for key in details} == details


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Share, 1.5, "x must be a number from 0 to 1, got 1.5"),
        (FiniteNumber, None, "x must be a number from -1e"),
        (Count, True, "x must be of type int, got True"),
        (list[Count], [1, -1], r"x\[1\] must be a number from 0"),
        (dict[str, list[Share]], {"a": {}}, "x.a must be a list, got {}"),
        (ClassBalance, {"classes": 3}, "x must have smallest"),
        (str | None, 3, "x must be of type str, got 3"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(kind, value, message):
    with pytest.raises(ValueError, match=message):
        from_json(kind, value, "x")


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            "pre_bins",
            {"edges": [0, 1], "count": [3], "confidence": [None], "accuracy": [0.5]},
            "bins must have the mean",
        ),
        ("pre_bins", {"edges": [0, 0], "count": [3], "confidence": [0.5], "accuracy": [0.5]}, "bins must have edges"),
        ("details", {"gamma_history": [{"epoch": 1, "gammas": [1], "edges": [0, 0.5, 1]}]}, "a γ for each bin"),
        ("details", {"confusion": {"names": ["a", "b"], "counts": [[1, 2]]}}, "a row and a column for each of its 2"),
        ("details", {"groups": {"name": ["a"]}}, "details.groups must have num_samples"),
        ("details", {"drift": {"reference": "a", "before": 0.1, "now": 0.1}}, "drift must have p_value"),
        ("details", {"calibration": {"method": "x", "chosen": "cubes"}}, "methods of none, temperature, .*'cubes'"),
        ("details", {"calibration": {"method": "x", "scores": {"cubes": {}}}}, "methods of none, .*'cubes'"),
    ],
)
def test_a_broken_section_is_one_error(part, value, message, tmp_path):
    values = json.loads((FILES[0].with_name("trainer.json")).read_text()) | {part: value}
    (tmp_path / "metrics.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        RunResult.load(tmp_path / "metrics.json")


def test_classes_of_labels_must_be_among_them():
    labels = Labels(["a", "b"], *([[0.5, 0.5]] * 5))
    classes = ClassBins(["a", "c"], [1, 1], [[0, 1]], [0, 0], FilledBins([0], [0], [1], [0.5], [1]))
    with pytest.raises(ValueError, match="classes must have the names of labels"):
        SubsetSection(labels=labels, classes=classes)


def test_no_two_entries_of_the_details_have_one_name():
    names = ["notes", *(key for key, _ in run_results._NESTED.values())]
    names += [key_of(part) for kind in run_results._FLAT.values() for part in fields(kind)]
    assert len(names) == len({*names}) > 20


@pytest.mark.parametrize("intervals", [True, False])
def test_several_labels_need_no_samples(intervals):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 3, generator=generator) - 5
    metrics = CalibrationMetrics(link="sigmoid", keep_samples=10)
    metrics.update(logits, (torch.rand(500, 3, generator=generator) < torch.sigmoid(logits)).long())
    assert not metrics.has_samples
    result = RunResult.from_metrics("m", None, metrics, None, intervals=intervals)
    assert result.pre["num_samples"] == 500 and result.pre_intervals == {}
