"""The metric for `evaluate.load`, and the files of its Space."""

import doctest
import inspect
import math
import re
from pathlib import Path

import evaluate
import pytest
import torch
import yaml
from packaging.requirements import Requirement

from hf_focal.metrics import evaluate_module

from .reference import FUNCTIONS

NAMES = list(FUNCTIONS)
SPACE = Path(__file__).parents[2] / "spaces" / Path(evaluate_module()).name
LOGITS = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(50) % 6
LABELS[7] = -100


@pytest.mark.parametrize("name", NAMES)
def test_each_configuration_computes_what_its_function_does(name):
    metric, function = evaluate.load(evaluate_module(), name), FUNCTIONS[name]
    takes_bins = "num_bins" in inspect.signature(function).parameters
    samples = {"predictions": LOGITS.softmax(1).tolist(), "references": LABELS.tolist()}
    assert metric.compute(**samples)[name] == pytest.approx(function(LOGITS, LABELS), abs=1e-9)
    assert math.isnan(metric.compute(predictions=[[0.5, 0.5]], references=[-100])[name])
    for part in (slice(30), slice(30, None)):
        metric.add_batch(predictions=LOGITS[part].tolist(), references=LABELS[part].tolist())
    options = {"num_bins": 7} if takes_bins else {}
    actual = metric.compute(inputs="logits", **options)[name]
    assert actual == pytest.approx(function(LOGITS, LABELS, **options), abs=1e-12)
    assert ("num_bins:" in metric.inputs_description) == takes_bins
    assert f"{name}: a float" in metric.inputs_description and metric.description and metric.citation


def test_wrong_configurations_and_inputs_are_refused():
    for configuration in ([], ["accuracy"]):
        with pytest.raises(ValueError, match=f"config_name must be one of {', '.join(NAMES)}, got"):
            evaluate.load(evaluate_module(), *configuration)
    module = evaluate.load(evaluate_module(), "ece")
    with pytest.raises(ValueError, match='for logits, use inputs="logits"'):
        module.compute(predictions=LOGITS.tolist(), references=LABELS.tolist())
    with pytest.raises(ValueError, match='use inputs="probabilities"'):
        module.compute(predictions=LOGITS.softmax(1).tolist(), references=LABELS.tolist(), inputs="logits")


def test_the_card_of_the_space_describes_each_configuration_and_its_examples_run():
    _, front, text = (SPACE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert (SPACE / yaml.safe_load(front)["app_file"]).is_file()
    assert Requirement((SPACE / "requirements.txt").read_text(encoding="utf-8").strip()).name == "hf_focal"
    assert all(f"| `{name}` |" in text for name in NAMES)
    examples = re.sub("^```.*$", "", text, flags=re.MULTILINE)
    actual, report = doctest.DocTestParser().get_doctest(examples, {}, "card", "README.md", 0), []
    failed, attempted = doctest.DocTestRunner(verbose=False).run(actual, out=report.append)
    assert attempted >= 10 and failed == 0, "".join(report)
