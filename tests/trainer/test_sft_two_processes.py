"""FocalSFTTrainer in two real processes, which `accelerate launch` starts, against one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.full


def test_two_processes_train_and_measure_as_one(tmp_path):
    import launched_sft

    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    # Without --multi_gpu, as with --cpu, the launcher would start one process; the script itself says that it is the
    # CPU's, so that gloo connects the two.
    options = ["--multi_gpu", "--num_processes", "2", "--main_process_port", "0", "--mixed_precision", "no"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_machines", "1", "--dynamo_backend", "no"]
    two = subprocess.run(
        [*launch, *options, launched_sft.__file__, tmp_path, "2"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert two.returncode == 0, two.stdout
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    expected = launched_sft.results(tmp_path / "one", 1)
    assert [case["deferred"] for case in expected.values()] == [True, True, False]
    for name, case in expected.items():
        own = found[name]
        np.testing.assert_allclose(own["weights"], case["weights"], rtol=0, atol=1e-12, err_msg=name)
        assert own["losses"] == pytest.approx(case["losses"], rel=1e-9) and len(case["losses"]) == 2
        assert own["metrics"] == pytest.approx(case["metrics"], rel=1e-9)
        assert own["temperature"] == case["temperature"] and own["deferred"] == case["deferred"]
