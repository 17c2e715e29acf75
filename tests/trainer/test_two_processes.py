"""Two real processes give what one gives."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("two_processes.py")


def start(folder, num_processes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(num_processes), "--master_port", port]
    return subprocess.Popen(
        [sys.executable, *(launcher if num_processes > 1 else []), SCRIPT, folder, str(num_processes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result(folder, num_processes, process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return json.loads((folder / f"{num_processes}.json").read_text(encoding="utf-8"))


def test_weights_metrics_and_temperature_are_those_of_one_process(tmp_path):
    processes = [start(tmp_path, count) for count in (1, 2)]
    one, two = (result(tmp_path, count, process) for count, process in zip((1, 2), processes, strict=True))
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(two["logits"], one["logits"], rtol=0, atol=1e-10)
    assert two["gammas"] == one["gammas"] == [5, 5, 3, 3, 3, 2]
    assert two["temperature"]["value"] == one["temperature"]["value"]
    assert two["temperature"]["num_samples"] == 21
    sizes = {name: value for name, value in one["metrics"].items() if "num_samples" in name}
    assert sizes == {"eval_21_num_samples": 21, "eval_9_num_samples": 9, "eval_3_num_samples": 3}
    assert two["metrics"].keys() == one["metrics"].keys()
    for name, value in one["metrics"].items():
        if "preparation_time" not in name:
            assert two["metrics"][name] == pytest.approx(value, rel=0, abs=1e-12), name
