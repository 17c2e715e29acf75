"""Language models sharded over two real processes and trained without their logits, against one process."""

import json

import launched_sharded
import numpy as np
import pytest
from documented import ROOT
from launched_sharded import CASES, ZERO_CASES
from processes import launch, output_of, start
from torch.distributed.fsdp import FSDPModule


def assert_as_one_process(folder, sharded, cases, tolerance):
    """What the processes wrote is what one process finds in float64."""
    actual = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    expected = launched_sharded.results(folder / "one", None, cases)
    assert actual.keys() == expected.keys()
    for name, case in expected.items():
        process = actual[name]
        assert process["sharded"] == sharded and not case["sharded"]
        assert process["deferred"] == case["deferred"] == (name != "gpt2 with logits")
        assert process["computed"] == case["computed"] == (name == "unknown")
        assert (
            process["losses"] == pytest.approx(case["losses"], rel=max(tolerance, 1e-6)) and len(case["losses"]) == 3
        )
        assert process["metrics"] == pytest.approx(case["metrics"], rel=10 * tolerance, abs=10 * tolerance)
        expected_weights = case["weights"]
        actual_weights = {
            name: process["weights"][name] for name in process["weights"].keys() & expected_weights.keys()
        }
        for weight, values in expected_weights.items():
            if weight in actual_weights:
                message = f"{name} {weight}"
                np.testing.assert_allclose(actual_weights[weight], values, rtol=0, atol=tolerance, err_msg=message)
            else:  # shared, and saved under another name
                assert values in [expected_weights[other] for other in actual_weights], weight


@pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reshard_after_forward"), reason="PyTorch 2.7 computes the logits under FSDP2"
)
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_fsdp2_trains_a_language_model_as_one_process(tmp_path):
    config = ROOT / "recipes" / "accelerate" / "fsdp2.yaml"
    launch("launched_sharded.py", ["--config_file", str(config)], tmp_path, "fsdp2")
    assert_as_one_process(tmp_path, True, CASES, 1e-12)


@pytest.mark.parametrize("stage", ["2", "3"])
@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(700)  # the first start of DeepSpeed compiles
def test_zero_trains_a_language_model_as_one_process(stage, tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    output_of(start("launched_sharded.py", 2, tmp_path, stage))
    # Model and optimizer are in float32, whose sums depend on the CPU and its load: 32 units in the last place of 1.
    assert_as_one_process(tmp_path, stage == "3", ZERO_CASES, 32 * 2**-23)
