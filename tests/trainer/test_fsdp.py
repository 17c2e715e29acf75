"""Language models sharded by FSDP2 over two real processes and trained without their logits, against one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import launched_fsdp
import numpy as np
import pytest
from documented import ROOT
from torch.distributed.fsdp import FSDPModule


@pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reshard_after_forward"), reason="PyTorch 2.7 computes the logits under FSDP2"
)
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_two_processes_train_a_sharded_language_model_as_one(tmp_path, monkeypatch):
    folders = [str(ROOT / "tests"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    config = ["--config_file", str(ROOT / "recipes" / "accelerate" / "fsdp2.yaml"), "--num_processes", "2"]
    options = ["--mixed_precision", "no", "--main_process_port", "0"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", *config, *options]
    two = subprocess.run(
        [*launch, launched_fsdp.__file__, tmp_path, "2"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert two.returncode == 0, two.stdout
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    monkeypatch.setenv("FSDP_TRANSFORMER_CLS_TO_WRAP", "")  # which the script sets
    expected = launched_fsdp.results(tmp_path / "one", 1)
    for name, case in expected.items():
        own = found[name]
        assert own["sharded"] and not case["sharded"]
        assert own["deferred"] == case["deferred"] == (name != "gpt2 with logits")
        assert own["losses"] == pytest.approx(case["losses"], rel=1e-6) and len(case["losses"]) == 3
        assert own["metrics"] == pytest.approx(case["metrics"], rel=1e-9)
        tied = case["weights"].get("transformer.wte.weight")  # accelerate saves GPT-2's head beside its embeddings
        case["weights"] |= {} if tied is None else {"lm_head.weight": tied}
        assert own["weights"].keys() == case["weights"].keys()
        for weight, values in case["weights"].items():
            np.testing.assert_allclose(own["weights"][weight], values, rtol=0, atol=1e-12, err_msg=f"{name} {weight}")
