"""`benchmarks/studies/zero_shot.py` on two sets."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.studies import zero_shot
from benchmarks.text_logits.load import load


def test_figures_are_those_of_the_logits(tmp_path, monkeypatch):
    monkeypatch.setattr(zero_shot, "SIZES", (20, 100))
    monkeypatch.setattr(zero_shot, "DRAWS", 1)
    table = zero_shot.sets()
    names = table.query("kind == 'zero_shot' and classes == 2").index[:2]
    monkeypatch.setattr(zero_shot, "sets", lambda: table.loc[names])
    arguments = ["zero_shot.py", "--json", str(tmp_path / "figures.json")]
    monkeypatch.setattr(sys, "argv", arguments)
    threads = torch.get_num_threads()
    zero_shot.main()
    torch.set_num_threads(threads)
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(figures["columns"][names[0]]).set_index(["method", "samples"])
    assert rows.loc[("none", 20), "error"] == pytest.approx(table.loc[names[0], "test_error"], abs=1e-4)
    assert rows.loc[("none", 20), "nll"] == pytest.approx(table.loc[names[0], "test_nll"], abs=1e-3)
    # Batch calibration, once more.
    logits = load(names[0])
    chosen = np.random.default_rng(0).permutation(len(logits.validation_labels))[:100]
    held_out, test = (
        np.exp(part - part.max(1, keepdims=True)) for part in (logits.validation_logits, logits.test_logits)
    )
    mean = (held_out / held_out.sum(1, keepdims=True))[chosen].mean(0)
    p = test / mean
    p /= p.sum(1, keepdims=True)
    nll = -np.log(p[np.arange(len(p)), logits.test_labels]).mean()
    assert rows.loc[("prior", 100), "nll"] == pytest.approx(nll, abs=1e-3)
