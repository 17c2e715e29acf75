"""`--dynamics` of the recipes: what is measured, where the figures are, and who refuses it."""

import importlib.util
import sys
from pathlib import Path

import pytest

from hf_focal.reports import RunResult

FIGURES = {"dynamics.png", "dynamics_train.png", "dynamics_test.png", "dynamics_gradients.png"}


def recipe_of(name):
    path = Path(__file__).parents[2] / "recipes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"dynamics_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def command_line(folder, **options):
    values = {
        "output_dir": folder,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 32,
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
        "dynamics": "true",
    } | options
    return [part for name, value in values.items() for part in (f"--{name}", str(value))]


def test_texts_one_figure_a_run_and_one_of_all(tmp_path):
    sizes = {"num_generated": 120, "validation_size": 60, "max_length": 40, "vocab_size": 300}
    layers = {"embedding_size": 8, "num_filters": 8, "num_layers": 1}
    compare = {"compare": "cross_entropy,focal:gamma=3"}
    recipe_of("text_classification").main(command_line(tmp_path, **sizes, **layers, **compare))
    for run in ("cross_entropy", "focal_gamma_3"):
        assert {path.name for path in (tmp_path / run / "report").iterdir()} >= FIGURES
        history = RunResult.load(tmp_path / run / "report" / "metrics.json").details["dynamics_history"]
        assert [entry["epoch"] for entry in history] == [0, 1, 2]
        assert all({"train_nll", "test_nll", "gradient_norm"} <= set(entry) for entry in history)
        assert sum(history[-1]["test_bins"]["count"]) == 6  # a twentieth
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {"dynamics.png", "dynamics_gradients.png"}


def test_images_as_training_sees_them(tmp_path):
    options = {"model_name_or_path": "cifar_resnet8", "num_train_epochs": 1, "per_device_train_batch_size": 128}
    (result,) = recipe_of("image_classification").main(command_line(tmp_path, **options))
    history = result.details["dynamics_history"]
    assert [entry["epoch"] for entry in history] == [0, 1]
    assert history[1]["train_nll"] < history[0]["train_nll"]
    assert {path.name for path in (tmp_path / "report").iterdir()} >= FIGURES


def test_a_recipe_without_it_writes_none(tmp_path):
    sizes = {"num_generated": 60, "validation_size": 30, "max_length": 20, "vocab_size": 300, "num_train_epochs": 1}
    layers = {"embedding_size": 8, "num_filters": 8, "num_layers": 1, "dynamics": "false"}
    (result,) = recipe_of("text_classification").main(command_line(tmp_path, **sizes, **layers))
    assert result.details["dynamics_history"] == []
    assert not {path.name for path in (tmp_path / "report").iterdir()} & FIGURES


def test_translation_refuses_it(tmp_path):
    with pytest.raises(ValueError, match="dynamics"):
        recipe_of("translation").main(command_line(tmp_path, bleu_temperatures=1))
