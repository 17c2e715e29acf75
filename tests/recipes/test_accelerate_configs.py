"""The configurations in recipes/accelerate: known to accelerate, what their names say, and run where a CPU can."""

import json
import os
import subprocess
import sys
from pathlib import Path

import launched
import numpy as np
import pytest
from accelerate import FullyShardedDataParallelPlugin
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

CONFIGS = Path(__file__).parents[2] / "recipes" / "accelerate"


def config_file(name):
    return str(CONFIGS / f"{name}.yaml")


def merged(name, *options):
    """The arguments of `accelerate launch`, the file's and the command line's."""
    argv = ["--config_file", config_file(name), "--main_process_port", "0", *options, "script.py"]
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(argv))
    return args


def test_fsdp2_is_version_2_and_checkpoints_whole_weights(monkeypatch):
    for key, value in prepare_multi_gpu_env(merged("fsdp2")).items():
        monkeypatch.setenv(key, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.cpu_ram_efficient_loading is True
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert plugin.transformer_cls_names_to_wrap == ["BertLayer"]


@pytest.mark.parametrize(
    ("name", "stage", "saves_whole"), [("deepspeed_zero2", "2", None), ("deepspeed_zero3", "3", "true")]
)
def test_deepspeed_has_the_stage_of_its_name(name, stage, saves_whole):
    args = merged(name)
    args.deepspeed_fields_from_accelerate_config = ""
    command, environment = prepare_deepspeed_cmd_env(args)
    assert command is None  # torch's launcher: pdsh, the default, is for several machines
    assert environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == stage
    assert environment.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL") == saves_whole
    assert environment["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"] == "none"
    # Else accelerate would divide the loss once more than the Trainer does.
    assert "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" not in environment


def launch(name, folder, num_processes):
    """What launched.py found in so many CPU processes, started as on GPUs, but in float64."""
    folder.mkdir()
    options = ["--num_processes", str(num_processes), "--mixed_precision", "no", "--main_process_port", "0"]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "accelerate.commands.launch", "--config_file", config_file(name), *options),
            *(launched.__file__, folder, str(num_processes)),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    return launched.results(tmp_path_factory.mktemp("one"), 1)


@pytest.mark.parametrize(
    ("name", "distributed_type", "tolerance"),
    [
        ("multi_gpu", "MULTI_CPU", 1e-12),
        ("fsdp2", "FSDP", 1e-12),
        # DeepSpeed's optimizer steps are in float32.
        pytest.param("deepspeed_zero2", "DEEPSPEED", 1e-6, marks=pytest.mark.full),
        pytest.param("deepspeed_zero3", "DEEPSPEED", 1e-6, marks=pytest.mark.full),
    ],
)
@pytest.mark.slow
@pytest.mark.timeout(1000)  # the first start of DeepSpeed compiles
def test_two_processes_train_and_measure_as_one(name, distributed_type, tolerance, one_process, tmp_path):
    two = launch(name, tmp_path / "out", 2)
    assert two.keys() == one_process.keys()
    for loss, expected in one_process.items():
        actual = two[loss]
        assert actual["distributed_type"] == distributed_type
        assert bool(actual["sharded"]) == (name in ("fsdp2", "deepspeed_zero3"))
        assert actual["folds"] == (not actual["sharded"])
        np.testing.assert_allclose(actual["weights"], expected["weights"], rtol=0, atol=tolerance)
        assert actual["metrics"].keys() == expected["metrics"].keys()
        assert actual["metrics"]["eval_num_samples"] == 19
        for metric, value in expected["metrics"].items():
            if "preparation_time" not in metric:
                assert actual["metrics"][metric] == pytest.approx(value, rel=0, abs=10 * tolerance), metric
        assert actual["temperature"] == pytest.approx(expected["temperature"], rel=100 * tolerance)
