import os
import subprocess
import sys

import pytest
import torch

from hf_focal import metrics as hf
from hf_focal.metrics import evaluate_module

LOGITS = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(50) % 6

FUNCTIONS = {
    "ece": hf.expected_calibration_error,
    "adaece": hf.adaptive_calibration_error,
    "classwise_ece": hf.classwise_calibration_error,
    "mce": hf.maximum_calibration_error,
    "ace": hf.average_calibration_error,
    "rmsce": hf.root_mean_squared_calibration_error,
    "nll": hf.negative_log_likelihood,
    "brier": hf.brier_score,
}
WITHOUT_BINS = {"nll", "brier"}

# `evaluate` reads its settings at import, so each load needs a process of its own.
SCRIPT = """
import os, torch, evaluate
from hf_focal.metrics import evaluate_module
logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
labels = torch.arange(50) % 6
labels[7] = -100
for name in ("ece", "adaece", "classwise_ece", "mce", "ace", "rmsce", "nll", "brier"):
    path = evaluate_module(name)
    module = evaluate.load(path)
    print(name + "_class", type(module).__name__, type(evaluate.load(os.path.join(path, name + ".py"))).__name__)
    assert ("num_bins" in module.inputs_description) == (name not in ("nll", "brier")), module.inputs_description
    assert name + ": a float" in module.inputs_description and module.description and module.citation
    print(name, module.compute(predictions=logits.softmax(1).tolist(), references=labels.tolist())[name])
    module.add_batch(predictions=logits[:30].tolist(), references=labels[:30].tolist())
    module.add_batch(predictions=logits[30:].tolist(), references=labels[30:].tolist())
    options = {} if name in ("nll", "brier") else {"num_bins": 7}
    print(name + "_options", module.compute(inputs="logits", **options)[name])
"""


def test_load_and_compute_without_network(tmp_path):
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    printed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    labels = LABELS.clone()
    labels[7] = -100
    for name, function in FUNCTIONS.items():
        options = {} if name in WITHOUT_BINS else {"num_bins": 7}
        assert printed[f"{name}_class"].lower() == " ".join([name.replace("_", "")] * 2)
        assert float(printed[name]) == pytest.approx(function(LOGITS, labels), abs=1e-9)
        assert float(printed[f"{name}_options"]) == pytest.approx(function(LOGITS, labels, **options), abs=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_path_is_a_folder_with_the_module(name):
    path = evaluate_module(name)
    assert isinstance(path, str) and os.path.isfile(os.path.join(path, f"{name}.py"))
