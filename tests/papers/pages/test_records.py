"""Records of finished runs."""

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from papers.pages.records import add_records, bins_of, read_records, record_of

from hf_focal import fit_temperature
from hf_focal.metrics import adaptive_calibration_error
from hf_focal.reports import RunResult


@pytest.fixture
def folder(tmp_path):
    """A finished run."""
    torch.manual_seed(0)
    logits, labels = 4 * torch.randn(400, 3), torch.randint(3, (400,))
    labels = torch.where(torch.rand(400) < 0.6, logits.argmax(1), labels)
    validation, test = (slice(0, 200), slice(200, 400))
    temperature = fit_temperature(logits[validation], labels[validation], "ece")
    details = {"best_checkpoint": "checkpoint-7", "class_counts": [1, 2]}
    result = RunResult.measure("focal:gamma=3", temperature, logits[test], labels[test], details=details)
    (tmp_path / "report").mkdir()
    result.save(tmp_path / "report" / "metrics.json")
    run = {"loss": "focal:gamma=3", "seed": 5, "train_file": "/home/me/train.parquet", "milestones": None}
    run["model_name_or_path"] = "/home/me/encoder"
    run |= {"embedding_learning_rate": 0.0, "bf16": False}
    (tmp_path / "run.json").write_text(json.dumps(run))
    arrays = {
        f"{name}_{kind}": values[part].numpy()
        for name, part in (("validation", validation), ("test", test))
        for kind, values in (("logits", logits), ("labels", labels))
    }
    np.savez(tmp_path / "logits.npz", **arrays)
    return tmp_path, result, arrays


def test_a_record_has_the_dynamics_that_were_measured(folder):
    path, result, _ = folder
    assert "dynamics_history" not in record_of(path)
    history = [{"epoch": 0.0, "test_ece": 0.25}]
    changed = dataclasses.replace(result, details=result.details | {"dynamics_history": history})
    changed.save(path / "report" / "metrics.json")
    assert record_of(path)["dynamics_history"] == history


def test_a_record_has_the_settings_and_what_was_measured(folder, tmp_path):
    path, result, arrays = folder
    file = tmp_path / "records" / "experiment.csv"
    add_records(file, [record_of(path)], str)
    assert len(file.read_text()) < 6000
    assert "/home" not in file.read_text()
    (record,) = read_records(file)
    assert (record["loss"], record["seed"], record["best_checkpoint"]) == ("focal:gamma=3", 5, "checkpoint-7")
    assert record["settings"]["train_file"] == "train.parquet"
    assert record["settings"]["model_name_or_path"] == "encoder"
    assert record["settings"]["embedding_learning_rate"] == 0  # frozen vectors are a setting, not a missing one
    assert record["settings"]["bf16"] is False
    assert "milestones" not in record["settings"]
    assert record["before"]["ece"] == pytest.approx(result.pre["ece"], rel=1e-6)
    assert record["after"]["nll"] == pytest.approx(result.post["nll"], rel=1e-6)
    assert record["temperature"]["value"] == pytest.approx(result.temperature.value)
    bins = bins_of(record)
    np.testing.assert_allclose(bins.accuracy, result.pre_bins.accuracy, rtol=1e-6)
    np.testing.assert_array_equal(bins.count, result.pre_bins.count)

    temperature = fit_temperature(arrays["validation_logits"], arrays["validation_labels"], "adaece").value
    after = adaptive_calibration_error(arrays["test_logits"] / temperature, arrays["test_labels"])
    assert record["equal_mass"]["temperature"] == pytest.approx(temperature)
    assert record["equal_mass"]["after"] == pytest.approx(after, rel=1e-5)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text("ab.", max_size=2), values, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), JSON), min_size=1, max_size=4))
def test_records_are_read_as_they_were_written(records):
    records = [{**record, "seed": seed} for seed, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "experiment.csv")
        for record in reversed(records):
            add_records(file, [record], lambda record: record["seed"])
        assert json.dumps(read_records(file), sort_keys=True) == json.dumps(records, sort_keys=True)


def test_what_all_runs_share_is_in_a_file_of_its_own(tmp_path):
    records = [{"loss": "brier", "seed": seed, "settings": {"bf16": True, "lr": 0.1}} for seed in (2, 1)]
    add_records(tmp_path / "runs.csv", records, lambda record: record["seed"])
    assert (tmp_path / "runs.csv").read_text() == "seed\n1\n2\n"
    shared = {"loss": "brier", "settings/bf16": True, "settings/lr": 0.1}
    assert json.loads((tmp_path / "runs.settings.json").read_text()) == shared
    other = {"loss": "mmce", "seed": 2, "settings": {"bf16": False}}
    add_records(tmp_path / "runs.csv", [other], lambda record: record["seed"])
    assert read_records(tmp_path / "runs.csv") == [records[1], other]


def test_a_t_of_equal_mass_needs_no_logits(folder):
    path, result, _ = folder
    (path / "logits.npz").unlink()
    temperature = dataclasses.replace(result.temperature, objective="adaece", value=1.3)
    dataclasses.replace(result, temperature=temperature).save(path / "report" / "metrics.json")
    record = record_of(path)
    expected = {"temperature": 1.3, "before": result.pre["adaece"], "after": result.post["adaece"]}
    assert record["equal_mass"] == pytest.approx(expected)


def test_without_logits_there_is_no_error_of_equal_mass(folder):
    path, *_ = folder
    (path / "logits.npz").unlink()
    assert record_of(path)["equal_mass"] is None
