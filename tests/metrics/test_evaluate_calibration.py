"""The metric for `evaluate.load`, and what its Space needs besides: a card, a page, requirements."""

import inspect
import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement

import hf_focal
from hf_focal import metrics as hf
from hf_focal.metrics import evaluate_module

SCRIPT = Path(__file__).with_name("launched_metric.py")
PACKAGE = Path(hf_focal.__file__).parent
FOLDER = Path(evaluate_module())
SPACE = Path(__file__).parents[2] / "spaces" / FOLDER.name
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
LOGITS = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(50) % 6
LABELS[7] = -100
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
SECTIONS = ["Metric Description", "How to Use", "Inputs", "Output Values", "Examples", "Limitations and Bias"]
SECTIONS += ["Citation", "Further References"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The output of `launched_metric.py` for the files of a Space, without network."""
    folder = tmp_path_factory.mktemp("space") / FOLDER.name
    for source in (FOLDER, SPACE):
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    home = tmp_path_factory.mktemp("home")
    environment = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment |= {"HF_HOME": str(home), "HF_MODULES_CACHE": str(home / "modules")}
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, *FUNCTIONS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def card():
    """The front matter and the text of the README."""
    _, front, text = (SPACE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), text


@pytest.mark.slow
def test_each_configuration_computes_what_its_function_does(found):
    assert list(found["metrics"]) == list(FUNCTIONS)
    for name, function in FUNCTIONS.items():
        metric, takes_bins = found["metrics"][name], "num_bins" in inspect.signature(function).parameters
        assert metric["value"] == pytest.approx(function(LOGITS, LABELS), abs=1e-9)
        options = {"num_bins": 7} if takes_bins else {}
        assert metric["value_of_options"] == pytest.approx(function(LOGITS, LABELS, **options), abs=1e-12)
        assert math.isnan(metric["without_labels"])
        assert metric["features"] == ["predictions", "references"]
        assert ("num_bins:" in metric["inputs_description"]) == takes_bins
        assert f"{name}: a float" in metric["inputs_description"]
        assert metric["description"] and metric["citation"]


@pytest.mark.slow
def test_an_unknown_configuration_is_refused(found):
    assert found["errors"] == [
        f"config_name must be one of {', '.join(FUNCTIONS)}, got {name!r}" for name in ("default", "accuracy")
    ]


@pytest.mark.slow
def test_the_card_has_the_sections_of_a_metric_and_its_examples_give_what_it_says(found, card):
    front, text = card
    keys = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "pinned"}
    assert front.keys() == keys | {"tags", "description"}
    assert (front["sdk"], front["app_file"], front["pinned"]) == ("gradio", "app.py", False)
    assert PROJECT["project"]["requires-python"] == f">={front['python_version']}"
    assert front["tags"] == ["evaluate", "metric"]
    assert text.startswith(f"\n# Metric Card for {front['title']}\n")
    assert [line.lstrip("# ") for line in text.splitlines() if line.startswith("##")] == SECTIONS
    assert all(f"| `{name}` |" in text for name in FUNCTIONS)
    assert found["examples"]["failed"] == 0, found["examples"]["report"]
    assert found["examples"]["attempted"] == text.count(">>> ") >= 10


def test_the_metric_is_packaged_and_its_space_requires_this_package():
    requirement = Requirement((SPACE / "requirements.txt").read_text(encoding="utf-8").strip())
    assert requirement.name == PROJECT["project"]["name"]
    # Hatchling packages every file of the folder.
    assert "/hf_focal" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert FOLDER.is_relative_to(PACKAGE) and (SPACE / "app.py").is_file()
    assert (FOLDER / f"{FOLDER.name}.py").is_file() and (FOLDER / "__init__.py").is_file()
