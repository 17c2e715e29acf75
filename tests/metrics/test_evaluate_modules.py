"""The modules for `evaluate.load`, and what a Space needs besides: a card, a page, requirements."""

import inspect
import json
import math
import os
import re
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

SCRIPT = Path(__file__).with_name("launched_modules.py")
PACKAGE = Path(hf_focal.__file__).parent
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
EVERY_MODULE = pytest.mark.parametrize("name", FUNCTIONS)
SECTIONS = ["Metric Description", "How to Use", "Inputs", "Output Values", "Examples", "Limitations and Bias"]
SECTIONS += ["Citation", "Further References"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `launched_modules.py` found, without network, in copies: of each module its folder and nothing else."""
    folder = tmp_path_factory.mktemp("spaces")
    for name in FUNCTIONS:
        shutil.copytree(evaluate_module(name), folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path_factory.mktemp("home")
    environment = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment |= {"HF_HOME": str(home), "HF_MODULES_CACHE": str(home / "modules")}
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], env=os.environ | environment, capture_output=True, text=True, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def card(name):
    return Card((Path(evaluate_module(name)) / "README.md").read_text(encoding="utf-8"))


class Card:
    """A README: its front matter, and its sections by their titles."""

    def __init__(self, text):
        _, front, self.text = text.split("---\n", 2)
        self.front = yaml.safe_load(front)
        _, *parts = re.split(r"^##+ (.*)\n", self.text, flags=re.MULTILINE)
        self.sections = dict(zip(parts[::2], parts[1::2], strict=True))

    def names(self, section):
        return re.findall(r"^- `(\w+)`", self.sections[section], flags=re.MULTILINE)


@EVERY_MODULE
def test_a_copy_computes_what_the_function_does(name, found):
    options = {"num_bins": 7} if "num_bins" in inspect.signature(FUNCTIONS[name]).parameters else {}
    assert [loaded.lower() for loaded in found[name]["classes"]] == [name.replace("_", "")] * 2
    assert found[name]["value"] == pytest.approx(FUNCTIONS[name](LOGITS, LABELS), abs=1e-9)
    assert found[name]["value_of_options"] == pytest.approx(FUNCTIONS[name](LOGITS, LABELS, **options), abs=1e-12)
    assert math.isnan(found[name]["without_labels"])


@EVERY_MODULE
def test_path_is_a_folder_with_the_module(name):
    path = evaluate_module(name)
    assert isinstance(path, str) and os.path.isfile(os.path.join(path, f"{name}.py"))


@EVERY_MODULE
def test_the_front_matter_is_that_of_a_space(name, card, found):
    keys = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "pinned"}
    assert card.front.keys() == keys | {"tags", "description"}
    assert (card.front["sdk"], card.front["app_file"], card.front["pinned"]) == ("gradio", "app.py", False)
    assert card.front["sdk_version"].startswith("3.")  # `evaluate` calls what Gradio 4 no longer has
    assert PROJECT["project"]["requires-python"] == f">={card.front['python_version']}"
    assert card.front["tags"] == ["evaluate", "metric"]
    assert card.front["description"] == found[name]["description"]
    assert card.text.startswith(f"\n# Metric Card for {card.front['title']}\n")


@EVERY_MODULE
def test_the_card_says_what_goes_in_and_what_comes_out(name, card, found):
    assert list(card.sections) == SECTIONS
    options = [option for option in ("num_bins", "inputs") if option in inspect.signature(FUNCTIONS[name]).parameters]
    assert found[name]["features"] == ["predictions", "references"]
    assert card.names("Inputs") == ["predictions", "references", *options]
    arguments, returned = found[name]["inputs_description"].split("Returns:")
    assert re.findall(r"^    (\w+):", arguments, flags=re.MULTILINE) == card.names("Inputs")
    assert re.findall(r"^    (\w+):", returned, flags=re.MULTILINE) == card.names("Output Values") == [name]
    default = inspect.signature(FUNCTIONS[name]).parameters.get("num_bins")
    assert ("15 by default" in card.sections["Inputs"]) == (default is not None and default.default == 15)


@EVERY_MODULE
def test_the_examples_of_the_card_give_what_it_says(name, card, found):
    examples = found[name]["examples"]
    assert examples["failed"] == 0, examples["report"]
    assert examples["attempted"] == card.text.count(">>> ") >= 10
    assert f'evaluate.load(evaluate_module("{name}"))' in card.sections["How to Use"]
    assert card.sections["Examples"].count(f">>> round({name}.compute(") >= 3


@EVERY_MODULE
def test_the_citation_is_that_of_the_module(name, card, found):
    entries = re.search(r"```bibtex\n(.*)```", card.sections["Citation"], flags=re.DOTALL)[1]
    titles = re.findall(r"^  title = {(.*)},$", entries, flags=re.MULTILINE)
    assert len(titles) == entries.count("@") and entries.count("{") == entries.count("}")
    assert any(title.split(":")[0] in found[name]["citation"] for title in titles)


@EVERY_MODULE
def test_the_page_shows_the_card_and_computes(name, card, found):
    page, labels = found[name]["page"], torch.tensor([1, 0])
    assert page["headers"] == ["predictions", "references"]
    assert page["article"] == card.text
    assert page["description"].startswith(card.front["description"])
    scores = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)
    assert page["result"] == {name: pytest.approx(FUNCTIONS[name](scores, labels, inputs="probabilities"), abs=1e-12)}


@EVERY_MODULE
def test_the_requirements_are_this_package(name):
    requirement = Requirement((Path(evaluate_module(name)) / "requirements.txt").read_text(encoding="utf-8").strip())
    assert requirement.name == PROJECT["project"]["name"]
    assert requirement.extras == {"evaluate"} <= PROJECT["project"]["optional-dependencies"].keys()


def test_everything_of_the_modules_is_packaged():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hf_focal"]
    packaged = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    folders = [Path(evaluate_module(name)) for name in FUNCTIONS]
    assert {folder / file for folder in folders for file in ("README.md", "requirements.txt")} <= packaged
    assert all((folder / "app.py").is_file() and (folder / "__init__.py").is_file() for folder in folders)
