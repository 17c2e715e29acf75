"""`benchmarks/studies/thresholds.py`, and its committed figures."""

import json

import numpy as np
from documented import ROOT

from benchmarks.studies import thresholds


def test_each_setting_of_the_study_has_committed_figures():
    lines = (ROOT / "benchmarks" / "results" / "thresholds.jsonl").read_text(encoding="utf-8").splitlines()
    measured = [json.loads(line) for line in lines]
    for _, options, _ in thresholds.rows(2000):
        assert sum(options.items() <= line.items() for line in measured) >= 1, options


def test_flipped_labels_are_independent_samples_with_three_percent_wrong():
    z, y, _ = thresholds.independent(np.random.default_rng(0), 10_000)
    same, flipped, _ = thresholds.flipped(np.random.default_rng(0), 10_000)
    assert (z == same).all() and 0.025 < (y != flipped).mean() < 0.035
