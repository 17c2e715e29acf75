"""`benchmarks/speed/scaling.py` with tiny sizes, and the bytes that two real processes send."""

import json
import math
import subprocess
import sys

import pytest
from documented import ROOT

SCRIPT = ("-m", "benchmarks.speed.scaling")


@pytest.mark.slow
def test_figures_of_tiny_sizes_and_bytes_of_two_processes(tmp_path):
    figures, image = tmp_path / "scaling.json", tmp_path / "scaling.png"
    sizes = ["--samples", "100", "200", "400", "--classes", "2", "5", "10", "--processes", "2"]
    command = [sys.executable, *SCRIPT, *sizes, "--json", figures, "--figure", image]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=500)
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert image.stat().st_size > 10_000
    assert len(found["lines"]) == 6 * len({line["name"] for line in found["lines"]}) == 60
    assert all(line["cpu_seconds"] > 0 and line["peak_bytes"] > 0 for line in found["lines"])
    assert all(math.isfinite(line[value]) for line in found["exponents"] for value in ("cpu_seconds", "peak_bytes"))
    peaks = [line["peak_bytes"] for line in found["lines"] if line["name"] == "F.cross_entropy"]
    assert peaks[2] - peaks[1] == pytest.approx(3 * 200 * 10 * 4, rel=0.2)  # log_softmax, its gradient, the logits'

    sent = {(line["name"], line["samples"], line["classes"]): line["bytes"] for line in found["sent_bytes"]}
    steps = {name.removeprefix("training step, "): sent[name, 16, 10] for name, _, _ in sent if "step" in name}
    assert steps["Trainer"] == 0
    assert steps["flsd53"] == 8  # the number of labels
    assert steps["recall"] == 8 + 2 * 10 * 8  # and hits and samples of each class
    for name, each_sample in (("FocalTrainer.evaluate", 4 + 4), ("fit_temperature, collected", 4 + 4 * 10 + 8 + 8)):
        # Scores, and for a fit the labels and the numbers of the rows.
        added = sent[name, 8_192, 10] - sent[name, 4_096, 10]  # one half by each process; besides, counts of batches
        assert added == pytest.approx(each_sample * 2_048, rel=0.2), name
    more_classes = sent["Trainer.evaluate", 4_096, 1_000] - sent["Trainer.evaluate", 4_096, 10]
    assert more_classes == 2_048 * 990 * 4
