"""The guide on scores: its commands, its figures, and its converters on the output of the tools that it names."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from documented import ROOT, examples_of, run_example
from papers.data.tokenizer_training import train_word_tokenizer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from tiny_models import logits_of, rows, settings, tensors, tiny_bert
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from hf_focal import CalibrationMetrics, calibrate_scores, evaluate_scores
from hf_focal.cli.main import main

GUIDE = ROOT / "docs" / "guides" / "scores.md"
CONSOLE = re.findall(r"```console\n\$ hf-focal (.*?)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
NAMES = ["anger", "joy", "optimism", "sadness"]
WORDS = [a + b for a in "bdfgklmn" for b in "aeiou"]


def run_block(marker: str, names: dict) -> dict:
    """Run the guide's Python block that contains `marker`, and return its names."""
    (block,) = [block for block in examples_of(GUIDE) if marker in block]
    run_example(block, GUIDE, names)
    return names


def measured(logits, labels) -> dict[str, float]:
    metrics = CalibrationMetrics()
    metrics.update(np.asarray(logits, np.float64), np.asarray(labels))
    return metrics.compute()


@pytest.fixture(params=["generated", "real"])
def tweets(request):
    """Whether the tweets are those of the guide, and tables of training, validation, and test tweets."""
    if request.param == "real":
        folder = request.getfixturevalue("real_data") / "tweet_emotion"
        return True, [pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "validation", "test")]
    random = np.random.default_rng(0)
    tables = []
    for size in (300, 200, 200):
        labels = random.integers(4, size=size)
        topics = np.where(random.random(size) < 0.5, labels, random.integers(4, size=size))
        words = [np.repeat(random.choice(WORDS[10 * topic : 10 * topic + 10], 2), 3) for topic in topics]
        tables.append(pd.DataFrame({"text": map(" ".join, words), "label": labels}))
    return False, tables


@pytest.mark.slow
def test_the_commands_print_what_the_guide_shows(tweets, tmp_path, monkeypatch, capsys):
    as_in_the_guide, (train, validation, test) = tweets
    monkeypatch.chdir(tmp_path)
    classifier = make_pipeline(CountVectorizer(ngram_range=(1, 2)), MultinomialNB()).fit(train.text, train.label)
    names = {"pd": pd, "classifier": classifier, "names": NAMES, "validation": validation, "test": test}
    run_block("def save", names)
    assert [command.split()[0] for command, _ in CONSOLE] == ["calibrate", "apply", "apply", "evaluate"]
    for command, shown in CONSOLE:
        if "--onnx" in command and importlib.util.find_spec("onnx") is None:
            continue
        assert main(shlex.split(command)) == 0
        printed = capsys.readouterr().out.splitlines()
        if as_in_the_guide:
            assert [line for line in shown.splitlines() if line not in (*printed, "...")] == []
    run_block("Correction.load", names)
    assert names["result"].post["ece"] < names["result"].pre["ece"] / 2
    corrected = torch.from_numpy(names["corrected"]).softmax(1).numpy()
    written = pd.read_csv("corrected.csv")[[f"calibrated_{name}" for name in NAMES]]
    np.testing.assert_allclose(corrected, written, atol=1e-9)


@pytest.mark.parametrize("kind", ["probabilities", "percentages", "log-probabilities"])
def test_one_confidence_for_each_answer(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name in ("answers", "new"):
        confidences = random.beta(9, 1, 800).clip(0.01, 0.99).round(3)
        right = random.random(800) < 1 / (1 + np.exp(0.3 - 0.5 * np.log(confidences / (1 - confidences))))
        scores = {"percentages": 100 * confidences, "log-probabilities": np.log(confidences)}.get(kind, confidences)
        pd.DataFrame({"confidence": scores, "correct": right}).to_csv(f"{name}.csv", index=False)
    (block,) = re.findall(
        r"```\n(hf-focal calibrate --scores answers.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL
    )
    for command in block.splitlines():
        assert main(shlex.split(command.replace("--kind probabilities", f"--kind {kind}"))[1:]) == 0
    capsys.readouterr()
    trusted = pd.read_csv("trusted.csv")
    (column,) = [name for name in trusted if name.startswith("calibrated")]
    assert trusted["correct"].mean() < 0.75 and trusted[column].mean() == pytest.approx(
        trusted["correct"].mean(), abs=0.05
    )


@pytest.mark.slow
def test_what_a_trainer_predicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, data = tiny_bert(), rows(40)
    trainer = Trainer(model, TrainingArguments(**settings(tmp_path / "out"), report_to="none"))
    run_block("trainer.predict", {"np": np, "trainer": trainer, "data": data})
    assert main(["evaluate", "--scores", "predicted.npz", "--output", "measured"]) == 0
    found = json.loads(next((tmp_path / "measured").rglob("*.json")).read_text())["pre"]
    expected = measured(logits_of(model, data), tensors(data)[1])
    for name in ("nll", "ece", "brier", "error"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9), name


def test_the_log_probabilities_of_an_api():
    # As documented for chat completions; " A" and "A" are both tokens, and D is not among the most likely.
    listed = {"B": -0.4, " A": -1.6, "A": -2.0, "The": -3.0, " C": -4.5}
    top = [{"token": token, "logprob": value, "bytes": [*token.encode()]} for token, value in listed.items()]
    message = {"role": "assistant", "content": "B", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": {"content": [{**top[0], "top_logprobs": top}]}}
    response = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [{**choice, "finish_reason": "length"}]}
    letter_logits = run_block("def letter_logits", {"np": np})["letter_logits"]
    logits = letter_logits(json.loads(json.dumps(response)))
    np.testing.assert_allclose(logits, [np.log(np.exp(-1.6) + np.exp(-2.0)), -0.4, -4.5, -4.5])
    result = evaluate_scores({"logits": [logits, logits], "label": ["B", "A"]}, classes="ABCD")
    shares = np.exp(logits) / np.exp(logits).sum()
    assert result.pre["nll"] == pytest.approx(-np.log(shares[:2]).mean())


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    """The tokenizer, and the samples and results that lm_eval saved for a tiny model and a task in local files."""
    pytest.importorskip("lm_eval")
    folder, random = tmp_path_factory.mktemp("harness"), np.random.default_rng(0)
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer(WORDS)
    tokenizer.eos_token = "[UNK]"
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes))
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    with (folder / "quiz.jsonl").open("w") as file:
        for _ in range(80):
            # Questions of one length: the harness' cache mixes up "a" + "b c" and "a b" + "c".
            sizes = 4, *random.integers(1, 4, random.integers(3, 5))
            question, *choices = (" ".join(random.choice(WORDS, size)) for size in sizes)
            row = {"question": question, "choices": choices, "gold": int(random.integers(len(choices)))}
            file.write(json.dumps(row) + "\n")
    task = {
        "task": "quiz",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "quiz.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_bytes"}],
    }
    (folder / "quiz.yaml").write_text(json.dumps(task))  # JSON is YAML
    arguments = "run --model hf --model_args pretrained=model,dtype=float32 --tasks quiz --include_path . --device cpu"
    saved = "--batch_size 8 --log_samples --output_path results"
    command = [sys.executable, "-m", "lm_eval", *arguments.split(), *saved.split()]
    run = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    (samples,) = (folder / "results").rglob("samples_quiz_*.jsonl")
    (results,) = (folder / "results").rglob("results_*.json")
    return model.eval(), tokenizer, samples, json.loads(results.read_text())["results"]["quiz"]


@pytest.mark.full
@pytest.mark.slow
def test_samples_of_the_evaluation_harness(harness, tmp_path, monkeypatch):
    model, tokenizer, samples, results = harness
    monkeypatch.chdir(tmp_path)
    given = {"json": json, "np": np, "samples": samples, "tokenizer": tokenizer, "calibrate_scores": calibrate_scores}
    names = run_block("def lm_eval_scores", given)
    raw, by_bytes, by_tokens = (names[name] for name in ("raw", "by_bytes", "by_tokens"))
    for table, metric in ((raw, "acc"), (by_bytes, "acc_bytes")):
        assert 1 - evaluate_scores(table).pre["error"] == pytest.approx(results[f"{metric},none"])
    assert (tmp_path / "quiz_by_bytes" / "correction.json").is_file()
    documents = [json.loads(line)["doc"] for line in samples.open()]
    for document, likelihoods, per_token in zip(documents, raw["logits"], by_tokens["logits"], strict=True):
        assert likelihoods[len(document["choices"]) :] == [-np.inf] * (4 - len(document["choices"]))
        for choice, likelihood, mean in zip(document["choices"], likelihoods, per_token, strict=False):
            context, answer = (tokenizer(text)["input_ids"] for text in (document["question"], choice))
            with torch.no_grad():
                scores = model(torch.tensor([context + answer])).logits[0].double().log_softmax(-1)
            positions = range(len(context) - 1, len(context) + len(answer) - 1)
            expected = float(sum(scores[at, token] for at, token in zip(positions, answer, strict=True)))
            assert likelihood == pytest.approx(expected, abs=1e-4)
            assert mean == pytest.approx(expected / len(answer), abs=1e-4)
