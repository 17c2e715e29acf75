"""The command line on models of several labels per sample, and of one logit."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from slow_variants import some_slow
from transformers import BertConfig, BertForSequenceClassification, pipeline

from hf_focal import InputError, Temperature, calibrate_model, evaluate_model
from hf_focal.cli.main import main
from hf_focal.reports import RunResult

WORDS = ["sun", "rain", "wind", "snow"]


@torch.no_grad()
def made(folder, num_labels, pairs=False):
    """An overconfident model of texts, or of pairs of a text and a query, and data whose labels follow σ(z / 2)."""
    generator = torch.Generator().manual_seed(0)
    present = torch.rand(120, 4, generator=generator) < 0.5
    texts = [" ".join(["day", *[word for word, there in zip(WORDS, row, strict=True) if there]]) for row in present]
    queries = [f"is {WORDS[row % 4]} there" for row in range(len(texts))] if pairs else None
    tokenizer = train_word_tokenizer([*texts, *(queries or [])], vocab_size=50)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    names = {"id2label": dict(enumerate(WORDS[:num_labels]))}
    config = BertConfig(
        vocab_size=60, **sizes, **names, initializer_range=1.0, problem_type="multi_label_classification"
    )
    model = BertForSequenceClassification(config).eval()
    z = model(**tokenizer(texts, queries, padding=True, return_tensors="pt")).logits
    scale, center = 3 / z.std(0), z.mean(0)
    model.classifier.weight.mul_(scale[:, None])
    model.classifier.bias.sub_(center).mul_(scale)
    z = (z - center) * scale
    labels = (torch.rand(z.shape, generator=generator) < torch.sigmoid(z / 2)).int()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    columns = {"text": texts, "labels": [[WORDS[i] for i in row.nonzero().flatten()] for row in labels]}
    columns |= {"query": queries} if pairs else {}
    columns |= {word: [int(row[i]) for row in labels] for i, word in enumerate(WORDS[:num_labels])}
    Dataset.from_dict(columns).to_parquet(folder / "data.parquet")
    return folder / "model", str(folder / "data.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(("num_labels", "column"), [(4, "labels"), (4, "wind,sun,rain,snow"), (1, "sun")])
def test_a_model_is_measured_and_calibrated(num_labels, column, tmp_path):
    model, data = made(tmp_path, num_labels)
    before = evaluate_model(model, data, label_column=column)
    assert before.pre["num_entries"] == 120 * num_labels and "micro_f1" in before.pre
    assert [note for note in before.notes if "samples with the same value stay together" not in note] == []
    result = calibrate_model(model, data, label_column=column, method="temperature", output=tmp_path / "out")
    assert result.temperature.value > 1.2 and result.post["nll"] < before.pre["nll"]
    saved = json.loads((tmp_path / "out" / "report" / "metrics.json").read_text())
    assert saved["pre"]["ece"] == pytest.approx(before.pre["ece"], rel=1e-12)
    calibrated = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)("day sun rain")[0]
    tokens = pipeline("text-classification", model=str(model)).tokenizer("day sun rain", return_tensors="pt")
    with torch.no_grad():
        logits = BertForSequenceClassification.from_pretrained(model).eval()(**tokens).logits[0]
    expected = torch.sigmoid(logits / result.temperature.value)
    scores = {item["label"]: item["score"] for item in calibrated}
    assert [scores[word] for word in WORDS[:num_labels]] == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_default_is_auto_as_for_tables(tmp_path):
    model, data = made(tmp_path, 4)
    chosen = calibrate_model(model, data, label_column="labels").fit.cross_fit
    expected = calibrate_model(model, data, label_column="labels", method="auto").fit.cross_fit
    assert chosen == expected and set(chosen.scores) > {"none", "temperature", "platt", "platt per label"}
    for options in ({"per_label": True}, {"max_samples": 9}):
        result = calibrate_model(model, data, label_column="labels", **options)
        assert result.fit.cross_fit is None and result.temperature is not None


def test_columns_without_the_names_of_labels_are_said(tmp_path):
    model, data = made(tmp_path, 2)
    Dataset.from_parquet(data).rename_columns({"sun": "a", "rain": "b"}).to_parquet(tmp_path / "other.parquet")
    config = json.loads((model / "config.json").read_text())
    config["id2label"] = dict(reversed(config["id2label"].items()))  # as a person may write it
    (model / "config.json").write_text(json.dumps(config))
    result = evaluate_model(model, str(tmp_path / "other.parquet"), label_column="a,b")
    expected = "no column of dataset 'other.parquet' has a label's name: they are taken in the order 'sun', 'rain'"
    assert result.notes[0] == expected
    assert result.pre == evaluate_model(model, data, label_column="rain,sun").pre


@pytest.mark.slow
def test_a_cross_encoder_with_one_logit(tmp_path, capsys):
    model, data = made(tmp_path, 1, pairs=True)
    columns = ["--label_column", "sun", "--text_pair_column", "query"]
    options = ["--dataset", data, *columns, "--output", str(tmp_path / "out")]
    assert main(["calibrate", str(model), *options, "--per_label"]) == 0
    fitted = Temperature.load(tmp_path / "out" / "temperature.json")
    assert len(fitted.values) == 1 and fitted.values[0] > 1.2
    assert "on the 120 labels of" in capsys.readouterr().out
    pair = {"text": "day sun rain", "text_pair": "is sun there"}
    scores = [
        pipeline("text-classification", model=str(folder), function_to_apply=applied)(pair)["score"]
        for folder, applied in ((tmp_path / "out", None), (model, "none"))
    ]
    assert scores[0] == pytest.approx(torch.sigmoid(torch.tensor(scores[1]) / fitted.values[0]).item(), abs=1e-6)


@pytest.mark.slow
def test_one_temperature_a_label_is_on_the_card_and_in_the_weights(tmp_path):
    model, data = made(tmp_path, 4)
    result = calibrate_model(model, data, label_column="labels", per_label=True, output=tmp_path / "out")
    read = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    assert read.temperature == result.temperature and len(result.temperature.values) == 4
    logits, corrected = (
        pipeline("text-classification", model=str(folder), top_k=None, function_to_apply="none")("day sun rain")[0]
        for folder in (model, tmp_path / "out")
    )
    before, after = ({item["label"]: item["score"] for item in items} for items in (logits, corrected))
    ratios = [before[word] / after[word] for word in WORDS]
    assert ratios == pytest.approx(result.temperature.values, rel=1e-4)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for word, value in zip(WORDS, result.temperature.values, strict=True):
        (row,) = [line for line in card.splitlines() if line.startswith(f"| {word} |")]
        assert row.endswith(f" {value:.2f} |")
    assert "(report/reliability_labels.png)" in card and "one for each label" in card
    assert (tmp_path / "out" / "report" / "reliability_labels.png").stat().st_size > 10_000
    again = calibrate_model(tmp_path / "out", data, label_column="labels")
    (note,) = [note for note in again.notes if "already calibrated" in note]
    assert "its weights have one T for each label" in note and "together" not in note


@pytest.mark.parametrize(
    ("problem_type", "options", "message"),
    [
        ("choices", {"method": "auto"}, "method must be 'temperature' for a head of multiple choice"),
        (None, {"per_label": True}, "per_label needs a model whose problem_type is 'multi_label_classification'"),
        ("multi", {"per_label": True, "objective": "ece"}, "per_label must come with objective 'nll' and method"),
        ("multi", {"method": "vector"}, "method must be 'none', 'temperature', 'platt', or 'auto' for a model with a"),
        (None, {"method": "platt"}, "method 'platt' needs problem_type 'multi_label_classification', got None"),
    ],
)
def test_what_a_model_cannot_have_is_refused_before_it_is_loaded(problem_type, options, message, tmp_path):
    names = {"architectures": ["BertForSequenceClassification"], "num_labels": 4}
    if problem_type == "choices":
        names, problem_type = {"architectures": ["BertForMultipleChoice"]}, None
        options = options | {"question_column": "q"}
    problem_type = problem_type and "multi_label_classification"
    BertConfig(**names, problem_type=problem_type).save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        calibrate_model(tmp_path / "model", str(tmp_path / "no.csv"), **options)


@pytest.mark.parametrize("kind", some_slow(["int64", "float32", "bool"], quick=["int64"]))
def test_lists_of_0_and_1_are_one_value_for_each_label(kind, tmp_path):
    model, data = made(tmp_path, 4)
    rows = pd.read_parquet(data)
    rows["hot"] = [np.array(values, dtype=kind) for values in rows[WORDS].to_numpy()]
    rows.to_parquet(data)
    expected = evaluate_model(model, data, label_column=",".join(WORDS)).pre
    assert evaluate_model(model, data, label_column="hot").pre == expected
