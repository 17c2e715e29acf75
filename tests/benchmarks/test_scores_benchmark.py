"""`benchmarks/speed/scores.py` with tiny sizes: each tool in a process of its own, and the same ECE."""

import pytest

from benchmarks.common.processes import run_module
from benchmarks.speed import scores


@pytest.mark.slow
def test_our_tools_run_in_processes_of_their_own(tmp_path):
    scores.write_tables(tmp_path, 2000, 4)
    tools = ("evaluate", "pandas_and_metrics", "calibrate", "apply")
    runs = {tool: run_module("benchmarks.speed.scores", "--tool", tool, "--folder", str(tmp_path)) for tool in tools}
    assert all(run["seconds"] > 0 and run["peak_bytes"] > 2**24 for run in runs.values())
    assert runs["evaluate"]["result"]["ece"] == pytest.approx(runs["pandas_and_metrics"]["result"]["ece"], abs=1e-9)
    assert runs["calibrate"]["result"]["ece"] < runs["evaluate"]["result"]["ece"]
    assert runs["apply"]["result"] == {"rows": 2000}
