"""The runtimes of `benchmarks/exactness/serving.py` agree on a tiny model."""

import shutil

import pytest
import torch
from packaging.version import Version
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.common.runtimes import FLOAT32, RUNTIMES
from hf_focal import Temperature, fold_correction

# Those that need no package of the extra `full` alone.
ALWAYS = ("torch.export", "torch.compile", "ONNX Runtime, float32")


@pytest.fixture(scope="module")
def calibrated():
    """A model with a folded temperature, its batches, and the corrected logits that they should have."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes, num_labels=3, initializer_range=0.5))
    batches, temperature = [], Temperature(2.5)
    for size, length in ((4, 9), (3, 5)):
        mask = torch.arange(length) < torch.randint(2, length + 1, (size, 1))
        inputs = {"input_ids": torch.randint(50, (size, length)), "attention_mask": mask.long()}
        batches.append(inputs)
    model.eval()
    with torch.no_grad():
        expected = [temperature.correction.apply(model(**inputs).logits.double()) for inputs in batches]
    return fold_correction(model, temperature), batches, expected


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow, *([] if name in ALWAYS else [pytest.mark.full])])
        for name in RUNTIMES
        if name != "PyTorch, float32"
    ],
)
def test_runtimes_compute_corrected_logits(name, calibrated, tmp_path):
    if ("Inductor" in name or "compile" in name) and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    if ("export" in name or "ONNX" in name) and Version(torch.__version__) < Version("2.9"):
        pytest.skip("older exporters refuse this model")
    model, batches, expected = calibrated
    with torch.no_grad():
        run = RUNTIMES[name](model, batches[0], tmp_path)
        for inputs, logits in zip(batches, expected, strict=True):
            error = float((run(inputs).double() - logits).abs().max() / logits.abs().max())
            assert error < (1e-5 if name in FLOAT32 else 0.15), error
            # A runtime that rounds to fewer digits does not give the very same logits.
            assert name in FLOAT32 or "default" in name or error > 1e-6
