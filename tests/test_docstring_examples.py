"""The examples in the docstrings of the public names run, and print what they show."""

import doctest

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from transformers import BertConfig, BertForSequenceClassification

import hf_focal
from hf_focal import fit_correction, read_scores
from hf_focal.scores.correction_files.correction_json import write_correction
from hf_focal.tasks import DataArguments

PUBLIC = {name: getattr(hf_focal, name) for name in hf_focal.__all__}
PUBLIC["DataArguments"] = DataArguments
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small classifier, texts, and overconfident scores, under the names in the examples."""
    folder, rng = tmp_path_factory.mktemp("examples"), np.random.default_rng(0)
    for name, texts in {"held_out": ["good fine", "bad poor"], "test": ["fine good", "poor bad"]}.items():
        rows = {"text": texts * 30, "label": ["positive", "negative"] * 30}
        Dataset.from_dict(rows).to_csv(folder / f"{name}.csv")
    tokenizer = train_word_tokenizer(["good fine", "bad poor"], vocab_size=10)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    names = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    limits = {"vocab_size": 10, "max_position_embeddings": 32}
    BertForSequenceClassification(BertConfig(**sizes, **limits, **names)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name in ("scores", "test_scores"):
        logits = 2 * rng.normal(size=200)
        labels = np.where(rng.random(200) < 1 / (1 + np.exp(-logits)), "dog", "cat")
        dog = 1 / (1 + np.exp(-2 * logits))
        pd.DataFrame({"prob_cat": 1 - dog, "prob_dog": dog, "label": labels}).to_csv(
            folder / f"{name}.csv", index=False
        )
    scores = read_scores(folder / "scores.csv")
    fit = fit_correction(scores.logits, scores.labels, method="temperature")
    write_correction(folder / "correction.json", fit, scores.classes, scores.schema)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_prints_what_it_shows(name, folder, tmp_path, monkeypatch, capsys):
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    if name == "export_correction":
        pytest.importorskip("onnx")
    (test,) = [t for t in doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name) if t.examples]
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
