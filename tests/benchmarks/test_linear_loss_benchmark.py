"""`benchmarks/speed/linear_loss.py --sharded` with tiny sizes, on two real processes."""

import json
import subprocess
import sys

import pytest
from documented import ROOT

SCRIPT = ("-m", "benchmarks.speed.linear_loss")


@pytest.mark.slow
def test_a_sharded_head_is_measured_beside_a_whole_one(tmp_path):
    figures, (tokens, vocabulary, hidden) = tmp_path / "figures.json", (1024, 4000, 16)
    sizes = ["--tokens", str(tokens), "--vocabularies", str(vocabulary), "--hidden", str(hidden)]
    command = [sys.executable, *SCRIPT, "--sharded", *sizes, "--threads", "1", "--rounds", "1", "--json", figures]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=500)
    lines = {line["name"]: line for line in json.loads(figures.read_text(encoding="utf-8"))["losses"]}
    names = ["F.linear + F.cross_entropy", "ours: cross_entropy", "ours: focal:gamma=3"]
    assert list(lines) == [f"{name}{which}" for name in names for which in ("", ", sharded")]
    assert all(line["processes"] == 2 and line["milliseconds"] > 0 for line in lines.values())
    logits, weight = (4 * vocabulary * size / 2**20 for size in (tokens, hidden))
    for name in names:
        whole, sharded = lines[name]["peak_MiB"], lines[f"{name}, sharded"]["peak_MiB"]
        assert whole == pytest.approx((3 if name.startswith("F.") else 1) * logits, rel=0.2)
        assert whole + 0.5 * weight < sharded < whole + 4 * weight  # the gathered weight, and half of its gradient
