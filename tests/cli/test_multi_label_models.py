"""The command line on models of several labels a sample, and of one logit."""

import json

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, pipeline

from hf_focal.cli.evaluate_and_calibrate import calibrate_model, evaluate_model
from hf_focal.experiments.data.tokenizer_training import train_word_tokenizer

WORDS = ["sun", "rain", "wind", "snow"]


@torch.no_grad()
def made(folder, num_labels):
    """An overconfident model, and a file of texts whose labels follow σ(z / 2)."""
    generator = torch.Generator().manual_seed(0)
    present = torch.rand(120, 4, generator=generator) < 0.5
    texts = [" ".join(["day", *[word for word, there in zip(WORDS, row, strict=True) if there]]) for row in present]
    tokenizer = train_word_tokenizer(texts, vocab_size=50)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    names = {"id2label": dict(enumerate(WORDS[:num_labels]))}
    config = BertConfig(
        vocab_size=60, **sizes, **names, initializer_range=1.0, problem_type="multi_label_classification"
    )
    model = BertForSequenceClassification(config).eval()
    z = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])
    scale, center = 3 / z.std(0), z.mean(0)
    model.classifier.weight.mul_(scale[:, None])
    model.classifier.bias.sub_(center).mul_(scale)
    z = (z - center) * scale
    labels = (torch.rand(z.shape, generator=generator) < torch.sigmoid(z / 2)).int()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    columns = {"text": texts, "labels": [[WORDS[i] for i in row.nonzero().flatten()] for row in labels]}
    columns |= {word: [int(row[i]) for row in labels] for i, word in enumerate(WORDS[:num_labels])}
    Dataset.from_dict(columns).to_parquet(folder / "data.parquet")
    return folder / "model", str(folder / "data.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(("num_labels", "column"), [(4, "labels"), (4, "wind,sun,rain,snow"), (1, "sun")])
def test_a_model_is_measured_and_calibrated(num_labels, column, tmp_path):
    model, data = made(tmp_path, num_labels)
    before = evaluate_model(model, data, label_column=column)
    assert before.pre["num_entries"] == 120 * num_labels and "micro_f1" in before.pre
    result = calibrate_model(model, data, label_column=column, output=tmp_path / "out")
    assert result.temperature.value > 1.2 and result.post["nll"] < before.pre["nll"]
    assert json.loads((tmp_path / "out" / "report" / "metrics.json").read_text())["pre"]["ece"] == before.pre["ece"]
    calibrated = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)("day sun rain")[0]
    tokens = pipeline("text-classification", model=str(model)).tokenizer("day sun rain", return_tensors="pt")
    with torch.no_grad():
        logits = BertForSequenceClassification.from_pretrained(model).eval()(**tokens).logits[0]
    expected = torch.sigmoid(logits / result.temperature.value)
    scores = {item["label"]: item["score"] for item in calibrated}
    assert [scores[word] for word in WORDS[:num_labels]] == pytest.approx(expected.tolist(), abs=1e-6)
