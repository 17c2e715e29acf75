"""The scripts for a borrowed GPU machine, on the CPU with tiny sizes, without the packages that it may lack."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from documented import ROOT

CIFAR10 = Path(__file__).parents[3] / "shared" / "data" / "cifar10"
# Runs the module that follows as if these packages were not installed.
BARE = """
import importlib.abc, runpy, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("datasets", "evaluate", "papers", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run(script, *arguments, timeout=500):
    command = [sys.executable, "-c", BARE, f"benchmarks.{script}", *arguments, "--device", "cpu"]
    options = {"check": True, "capture_output": True, "text": True, "cwd": ROOT}
    done = subprocess.run(list(map(str, command)), timeout=timeout, **options)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def printed(capsys):
    """The lines after that of the machine."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")][1:]


@pytest.mark.slow
def test_all_that_needs_no_gpu(tmp_path):
    figures = tmp_path / "gpu.jsonl"
    shown = run("speed.gpu", "--sizes", "tiny", "--json", figures)
    machine, *lines = [json.loads(line) for line in figures.read_text(encoding="utf-8").splitlines()]
    assert shown == [machine, *lines] and machine["torch"] == torch.__version__
    assert {line["section"] for line in lines} == {"losses", "heads", "metrics", "stream", "images"}
    # Peers may need what is missing.
    assert [line for line in lines if "failure" in line and not line["name"].startswith("torchmetrics")] == []
    lines = [line for line in lines if "failure" not in line]
    assert all(line["milliseconds"] > 0 for line in lines)
    if hasattr(torch.nn.functional, "linear_cross_entropy"):
        assert "focal of the tokens of F.linear_cross_entropy" in {line["name"] for line in lines}
    compiled = [line for line in lines if line["name"] == "ours, compiled: focal:gamma=3"]
    assert [line["error"] < 1e-6 for line in compiled] == [True, False]  # float32, bfloat16


@pytest.mark.slow
def test_a_failure_is_a_line_and_the_next_measurement_follows(monkeypatch, capsys):
    from benchmarks.speed import gpu

    def broken(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu, "expected_calibration_error", lambda *_: torch.tensor(0.5))  # wrong where it is measured
    monkeypatch.setattr(gpu, "TemperatureStream", broken)
    monkeypatch.setattr(gpu, "resnet", broken)
    options = ["--device", "cpu", "--sizes", "tiny", "--sections"]
    gpu.main([*options, "metrics", "stream", "images"])
    lines = printed(capsys)
    by_name = {line.get("name", line["section"]): line for line in lines}
    assert by_name["ours: CalibrationMetrics, all"]["failure"].startswith("AssertionError: relative error")
    assert "milliseconds" not in by_name["ours: CalibrationMetrics, all"]
    assert by_name["100 temperatures"]["failure"] == by_name["images"]["failure"] == "RuntimeError: out of memory"
    gpu.main([*options, "losses", "metrics", "--minutes", "0"])
    lines = printed(capsys)
    no_time = "no time left of 0 minutes"
    assert lines == [{"section": section, "failure": no_time} for section in ("losses", "metrics")]


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR10.is_dir(), reason="needs the images of CIFAR-10")
def test_cifar10_in_seconds(tmp_path):
    small = ("--layers", 1, 1, "--width", 8, "--batch_size", 32, "--held_out", 100, "--limit", 300)
    losses = ("cross_entropy", "no_such_loss", "adafocal")
    lines = run("studies.gpu_cifar10", CIFAR10, *small, "--minutes", 0.4, "--losses", *losses)
    results = {line["loss"]: line for line in lines if "test" in line or "failure" in line}
    assert list(results) == list(losses) and "failure" in results["no_such_loss"]
    for name in ("cross_entropy", "adafocal"):
        assert 0 < results[name]["test"]["error"] <= 1 and results[name]["T"] > 0
        assert sum(line["loss"] == name and "epoch" in line for line in lines) == results[name]["epochs"] >= 1
    (failure,) = run("studies.gpu_cifar10", tmp_path, "--minutes", 0.1)
    assert failure["loss"] == "reading the images" and "FileNotFoundError" in failure["failure"]
