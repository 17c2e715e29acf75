"""The demo and its data: readable, learnable, and the same for the same seed."""

import csv
import re

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from hf_focal.cli.main import main
from hf_focal.demo import data
from hf_focal.demo.training import run_demo
from hf_focal.reports import RunResult


@pytest.mark.slow
def test_the_demo_trains_corrects_and_reports(tmp_path, capsys, monkeypatch):
    results = []
    monkeypatch.setattr(data, "SIZES", {"train": 60, "validation": 60, "test": 60})
    monkeypatch.setattr("hf_focal.demo.training.run_demo", lambda output_dir: results.extend(run_demo(output_dir, 1)))
    assert main(["demo", "--output_dir", str(tmp_path)]) == 0
    assert [result.loss for result in results] == ["cross_entropy", "flsd53"]
    printed = capsys.readouterr().out
    assert all(result.describe() in printed for result in results) and f"{tmp_path / 'report.html'}" in printed
    assert (tmp_path / "report.html").is_file()
    assert "\nNext: ask a model for a department" in printed and "Next: do the same with texts of your own" in printed
    for result in results:
        folder = tmp_path / result.loss
        assert RunResult.load(folder / "report" / "metrics.json").post["ece"] == result.post["ece"]
        saved = AutoModelForSequenceClassification.from_pretrained(folder)
        assert saved.config.calibration["temperature"] == result.temperature.value
        assert (folder / "README.md").is_file()
        answer = pipeline("text-classification", str(folder))("Please check the refund again.")
        assert answer[0]["label"] in saved.config.label2id


def test_the_same_seed_gives_the_same_files(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SIZES", {"train": 50, "validation": 20, "test": 20})
    for name in ("first", "second"):
        data.write_demo_data(tmp_path / name, seed=3)
    files = [{path.name: path.read_bytes() for path in (tmp_path / n).rglob("*.*")} for n in ("first", "second")]
    assert files[0] == files[1]
    assert {"train.csv", "validation.csv", "test.csv", "model.safetensors", "tokenizer.json"} <= files[0].keys()
    with (tmp_path / "first" / "train.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} == {"account", "billing", "delivery", "product", "returns"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "first" / "encoder")
    assert tokenizer.decode(tokenizer("This is my second message.")["input_ids"], skip_special_tokens=True)
    assert tokenizer.unk_token_id not in tokenizer(rows[0]["text"])["input_ids"]


def test_messages_are_mostly_easy_and_sometimes_ambiguous():
    """Counting the words of the departments' own vocabularies is right for most messages, and not for all."""
    topic_words = {name: set(text.split()) for name, text in data._WORDS.items()}
    right, messages = 0, data.generate_messages(1000, seed=9)
    for message in messages:
        words = re.findall(r"\w+", message["text"])
        counts = {name: sum(word in mine for word in words) for name, mine in topic_words.items()}
        right += max(counts, key=lambda name: counts[name]) == message["label"]
    assert right / len(messages) == pytest.approx(0.85, abs=0.1)
