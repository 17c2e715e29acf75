"""The diffs of docs/architecture.md apply to this code, and do what the page says."""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import pytest
from documented import ROOT
from transformers import BertConfig, BertForMultipleChoice

from hf_focal.experiments.data.tokenizer_training import train_word_tokenizer

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TRY = {
    "losses": """
import torch
from hf_focal import build_loss
from hf_focal.losses import linear_loss

torch.manual_seed(0)
logits = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
labels = torch.randint(5, (20,))
labels[3] = -100
loss = build_loss("poly1:epsilon=2")
expected_logits = logits.detach().clone().requires_grad_()
p = expected_logits.softmax(-1)[torch.arange(20), labels.clamp(min=0)]
expected = ((2 * (1 - p) - p.log()) * (labels != -100)).sum() / 19
expected.backward()
value = loss(logits, labels)
value.backward()
torch.testing.assert_close(value, expected)
torch.testing.assert_close(logits.grad, expected_logits.grad)
hidden, weight = torch.randn(20, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
torch.testing.assert_close(linear_loss(loss, hidden, weight, labels), loss(hidden @ weight.T, labels))
""",
    "metrics": """
import torch
from hf_focal import CalibrationMetrics
from hf_focal.metrics.functional import expected_calibration_error, overconfidence_error

logits, labels = 5 * torch.eye(4)[torch.arange(40) % 4], torch.arange(40) % 4
wrong = labels.clone()
wrong[::2] = (wrong[::2] + 1) % 4
assert overconfidence_error(logits, labels) == 0 < expected_calibration_error(logits, labels)
assert overconfidence_error(logits, wrong) == expected_calibration_error(logits, wrong) > 0.4
metrics = CalibrationMetrics()
metrics.update(logits, wrong)
assert metrics.compute()["overconfidence"] == overconfidence_error(logits, wrong)
low, high = metrics.bootstrap(num_resamples=100)["overconfidence"]
assert low < metrics.compute()["overconfidence"] < high
""",
}


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the code with all diffs applied."""
    folder = tmp_path_factory.mktemp("changed")
    for name in ("hf_focal", "recipes"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for diff in re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL):
        subprocess.run(["git", "apply", "--unidiff-zero", "-"], cwd=folder, input=diff, text=True, check=True)
    return folder


@pytest.mark.parametrize("part", TRY)
def test_the_diff_does_what_the_page_says(part, changed):
    run(changed, "-c", TRY[part])


def test_the_recipe_trains_and_reports(changed):
    colours = ["red", "blue", "green", "white"]
    tokenizer = train_word_tokenizer([" ".join(colours)], vocab_size=10)
    tokenizer.save_pretrained(changed / "model")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertForMultipleChoice(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(changed / "model")
    draw = random.Random(0)
    files = []
    for split in ("train", "validation", "test"):
        rows = []
        for _ in range(16):
            choices = draw.sample(colours, 3)
            label = draw.randrange(3)
            rows.append({"question": choices[label], "choices": choices, "label": label})
        (changed / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        files += [f"--{split}_file", f"{split}.jsonl"]
    command = ["recipes/multiple_choice.py", "--model_name_or_path", "model", *files, "--output_dir", "out"]
    losses = ["--compare", "cross_entropy,poly1:epsilon=1"]
    printed = run(changed, *command, *losses, "--max_steps", "2", "--report_to", "none", "--use_cpu", "true")
    assert "| poly1:epsilon=1 |" in printed
    figures = json.loads((changed / "out" / "poly1_epsilon_1" / "report" / "metrics.json").read_text("utf-8"))
    assert 0 <= figures["pre"]["overconfidence"] <= figures["pre"]["ece"] + 1e-12


def test_what_the_page_names_is_there():
    for name in re.findall(r"`((?:hf_focal|trainer|losses|reports)/[\w/]+\.py)`", PAGE):
        assert (ROOT / name).is_file() or (ROOT / "hf_focal" / name).is_file(), name
