"""`benchmarks/gpu.py`, on the CPU with tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.slow
def test_all_that_needs_no_gpu(tmp_path):
    figures, table = tmp_path / "gpu.json", tmp_path / "gpu.md"
    command = [sys.executable, SCRIPT, "--device", "cpu", "--sizes", "tiny", "--json", figures, "--markdown", table]
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    lines = json.loads(figures.read_text(encoding="utf-8"))["lines"]
    assert {line["section"] for line in lines} == {"loss", "head", "metrics", "stream", "images"}
    assert all(line["milliseconds"] > 0 for line in lines)
    if hasattr(torch.nn.functional, "linear_cross_entropy"):
        assert "focal of the tokens of F.linear_cross_entropy" in {line["name"] for line in lines}
    compiled = [line for line in lines if line["name"] == "ours, compiled: focal:gamma=3"]
    assert [line["error"] < 1e-6 for line in compiled] == [True, False]  # float32, bfloat16
    assert len(table.read_text(encoding="utf-8").splitlines()) == 4 + len(lines)
