"""The server of the page on serving, run as the page shows it, and asked by many clients at once."""

import asyncio
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import trained_models
from datasets import Dataset
from local_server import running_server
from papers.data.tokenizer_training import train_word_tokenizer
from scipy.special import softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from hf_focal import calibrate_model
from hf_focal.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```py\n(from fastapi.*?)```", PAGE, flags=re.DOTALL)
NUM_REQUESTS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the page's serve.py, and the calibrated model that it loads, whose threshold some texts reach."""
    folder = tmp_path_factory.mktemp("server")
    case = trained_models.build("texts", folder)
    calibrate_model(case.folder, str(case.validation), precision=0.4, output=folder / "calibrated", **case.options)
    config = json.loads((folder / "calibrated" / "config.json").read_text(encoding="utf-8"))
    config["thresholds"]["values"] = dict.fromkeys(config["thresholds"]["values"], 0.75)
    (folder / "calibrated" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "serve.py").write_text(CODE, encoding="utf-8")
    return folder


@pytest.fixture
def url(folder):
    """The address of a running server, which is stopped in the end."""
    pytest.importorskip("httpx")
    command = [sys.executable, "-m", "uvicorn", "serve:app", "--host", "127.0.0.1"]
    with running_server(command, "/openapi.json", folder / "log.txt", cwd=folder) as url:
        yield url
    assert "Finished server process" in (folder / "log.txt").read_text()


def asked_at_once(url, texts):
    import httpx

    async def ask():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120, trust_env=False) as client:
            replies = [client.post("/classify", json={"text": text}) for text in texts]
            return await asyncio.gather(*replies)

    return [reply.raise_for_status().json() for reply in asyncio.run(ask())]


@pytest.mark.full
@pytest.mark.slow
def test_no_reply_to_200_requests_at_once_is_wrong(folder, url):
    rows = Dataset.from_parquet(str(folder / "train.parquet"))
    texts = [f"{rows['premise'][i % len(rows)]} {rows['hypothesis'][i // 2 % len(rows)]}" for i in range(NUM_REQUESTS)]
    assert len({*texts}) == NUM_REQUESTS
    replies = asked_at_once(url, texts)
    model = AutoModelForSequenceClassification.from_pretrained(folder / "calibrated").eval()
    tokenizer, names = AutoTokenizer.from_pretrained(folder / "calibrated"), model.config.id2label
    with torch.no_grad():
        probabilities = [model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0] for text in texts]
    thresholds, abstained = model.config.thresholds["values"], 0
    for reply, expected in zip(replies, probabilities, strict=True):
        given = torch.tensor([reply["probabilities"][names[index]] for index in range(len(names))])
        torch.testing.assert_close(given, expected, rtol=0, atol=1e-6)
        top = names[int(expected.argmax())]
        answers = float(expected.max()) >= thresholds[top]
        assert reply["answer"] == (top if answers else "abstain")
        abstained += not answers
    assert 0.1 * NUM_REQUESTS < abstained < 0.9 * NUM_REQUESTS


def tiny_model(folder, num_labels=1, **options):
    """A tiny text model with random weights, and its tokenizer, in the folder `calibrated`."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=20, **sizes, num_labels=num_labels, initializer_range=1.0, **options)
    model = BertForSequenceClassification(config).eval()
    tokenizer = train_word_tokenizer(["good fine nice bad poor awful"], vocab_size=20)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "calibrated")
    return model, tokenizer


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(("offset", "answer"), [(-0.01, ["LABEL_0"]), (0.01, "abstain")])
def test_one_logit_is_answered_only_above_its_threshold(offset, answer, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    model, tokenizer = tiny_model(tmp_path, problem_type="multi_label_classification")
    with torch.no_grad():
        probability = float(model(**tokenizer("good fine", return_tensors="pt")).logits.sigmoid())
    model.config.thresholds = {"link": "sigmoid", "values": {"LABEL_0": probability + offset}}
    model.save_pretrained(tmp_path / "calibrated")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "serve"}
    exec(compile(CODE, "serve.py", "exec"), names)
    reply = asyncio.run(names["classify"]("good fine"))
    assert reply == {"answer": answer, "probabilities": {"LABEL_0": pytest.approx(probability, abs=1e-6)}}


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("problem_type", ["single_label_classification", "multi_label_classification"])
def test_a_cross_encoder_returns_logits_of_several_labels(problem_type, tmp_path):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model, tokenizer = tiny_model(tmp_path, num_labels=3, problem_type=problem_type)
    with torch.no_grad():
        logits = model(**tokenizer("good", "fine nice", return_tensors="pt")).logits[0]
    scores = cross_encoder(str(tmp_path / "calibrated"), device="cpu").predict([("good", "fine nice")])[0]
    torch.testing.assert_close(torch.tensor(scores), logits, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.slow
def test_the_export_and_the_commands_of_the_page_run(folder, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(folder)
    for name, file in (("train", "held_out"), ("test", "test")):
        rows = Dataset.from_parquet(f"{name}.parquet")
        labels = [rows.features["label"].int2str(label) for label in rows["label"]]
        texts = [f"{first} {second}" for first, second in zip(rows["premise"], rows["hypothesis"], strict=True)]
        Dataset.from_dict({"text": texts, "label": labels}).to_csv(f"{file}.csv")
    (export,) = re.findall(r"```py\n(import torch\n.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(export, "export.py", "exec"), {})
    commands = re.findall(r"^hf-focal (.*--onnx.*)$", PAGE, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["evaluate", "calibrate"]
    for command in commands:
        assert main(command.split()) == 0
    assert "int8.onnx" in capsys.readouterr().out
    written = {path.name for path in (folder / "calibrated_int8").iterdir()}
    assert {"model.onnx", "config.json", "tokenizer.json", "report"} <= written


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scikit-learn", "torch"])
def test_setfit_saves_a_corrected_head(kind, tmp_path, monkeypatch):
    setfit = pytest.importorskip("setfit")
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    tiny_model(tmp_path)
    body = SentenceTransformer(str(tmp_path / "calibrated"), device="cpu")  # the encoder, with mean pooling
    words = np.array(["good", "fine", "nice", "bad", "poor", "awful"])
    random = np.random.default_rng(0)
    drawn = random.integers(6, size=(300, 4))
    labels = ((drawn < 3).sum(1) + random.normal(size=300) > 2).astype(int)
    texts = [" ".join(words[row]) for row in drawn]
    head = LogisticRegression(max_iter=1000).fit(body.encode(texts[:100]), labels[:100])
    head.coef_, head.intercept_ = 5 * head.coef_, 5 * head.intercept_  # overconfident
    if kind == "torch":
        weights = torch.from_numpy(np.concatenate([-head.coef_, head.coef_]) / 2).float()
        offsets = torch.from_numpy(np.concatenate([-head.intercept_, head.intercept_]) / 2).float()
        head = setfit.SetFitHead(in_features=weights.shape[1], out_features=2, device="cpu")
        head.linear.weight.data, head.linear.bias.data = weights, offsets
    model = setfit.SetFitModel(model_body=body, model_head=head)
    before = np.asarray(model.predict_proba(texts).detach(), float)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```py\n(from hf_focal import calibrate_scores.*?)```", PAGE, flags=re.DOTALL)
    if kind == "torch":
        code = re.sub(
            r"(?s)model.model_head.coef_.*?model.save", "model.model_head.temperature *= T\nmodel.save", code
        )
    names = {"model": model, "texts": texts[100:], "labels": labels[100:]}
    exec(compile(code, "setfit.py", "exec"), names)
    assert names["T"] > 2
    after = setfit.SetFitModel.from_pretrained("calibrated_setfit").predict_proba(texts)
    expected = softmax(np.log(np.maximum(before, 1e-12)) / names["T"], 1)
    # The overconfident head magnifies the rounding of the float32 embeddings, which depends on the CPU.
    np.testing.assert_allclose(np.asarray(after.detach()), expected, rtol=0, atol=1e-4)
