"""`benchmarks/speed/large_tables.py` with tiny sizes."""

import json
import subprocess
import sys

import pytest
from documented import ROOT

SCRIPT = ("-m", "benchmarks.speed.large_tables")


@pytest.mark.slow
def test_figures_of_tiny_tables(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, *SCRIPT, "--rows", "2000", "--methods", "evaluate", "measure", "--shards", "2"]
    command += ["--workers", "1", "2"]
    subprocess.run(
        [*command, "--folder", tmp_path, "--json", figures], check=True, capture_output=True, cwd=ROOT, timeout=500
    )
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert [line["what"] for line in found["lines"] if line["what"] != "Polars, ECE alone"] == ["evaluate", "measure"]
    assert all(line["cpu_seconds"] > 0 for line in found["lines"])
    assert found["merges"][0]["rows"] == 320_000
    assert len(found["cluster"]) == 9
    hours = [line["hours"] for line in found["cluster"] if line["rows"] == 10**10]
    assert hours[0] > hours[1] > hours[2]
    assert [(pool["workers"], pool["rows"], len(pool["worker_cpu_seconds"])) for pool in found["pools"]] == [
        *[(1, 2000, 1), (2, 2000, 1)]  # one file, for one worker
    ]
    assert found["pools"][0]["speedup_cpu"] == found["pools"][0]["speedup_wall"] == 1
