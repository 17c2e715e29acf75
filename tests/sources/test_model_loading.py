"""Loading a model's config and weights; files that no model can be loaded from are in `test_broken_models`."""

import json
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from checkpoints import SIZES, WORDS, save_tokenizer
from datasets import Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification
from transformers.utils import peft_utils

from hf_focal import InputError, calibrate_model, evaluate_model
from hf_focal.sources import model_loading
from hf_focal.sources.model_loading import label_notes, load_config, match_padding


def test_an_adapter_that_cannot_be_loaded_is_refused(tmp_path, monkeypatch):
    BertConfig().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"has an adapter_config\.json without the adapter's weights: remove it"):
        load_config(str(tmp_path), False)
    (tmp_path / "adapter_model.safetensors").touch()
    monkeypatch.setattr(model_loading, "is_peft_available", lambda: False)
    with pytest.raises(InputError, match="has an adapter, which needs PEFT"):
        load_config(str(tmp_path), False)
    monkeypatch.setattr(model_loading, "is_peft_available", lambda: True)
    monkeypatch.setattr(model_loading, "check_peft_version", lambda min_version: None)
    assert load_config(str(tmp_path), False).model_type == "bert"


def test_an_adapter_that_could_not_be_saved_again_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    BertConfig().save_pretrained(tmp_path)
    for name in ("model.safetensors", "adapter_model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "adapter_config.json").write_text("{}")
    monkeypatch.setattr(model_loading, "is_peft_available", lambda: True)
    monkeypatch.setattr(peft_utils, "is_peft_available", lambda: True)
    monkeypatch.setattr(peft_utils.importlib.metadata, "version", lambda name: "0.1")
    with pytest.raises(InputError, match="PEFT you are using is not compatible, please use a version >= "):
        load_config(str(tmp_path), False)


def test_a_model_of_timm_needs_timm(tmp_path, monkeypatch):
    config = {"model_type": "timm_wrapper", "architecture": "resnet18", "num_classes": 2, "label_names": ["a", "b"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(model_loading, "is_timm_available", lambda: False)
    with pytest.raises(InputError, match=r"is one of timm, which is not installed: pip install timm"):
        load_config(str(tmp_path), False)
    monkeypatch.setattr(model_loading, "is_timm_available", lambda: True)
    assert load_config(str(tmp_path), False).model_type == "timm_wrapper"


@pytest.mark.parametrize("has_config", [False, True])
def test_an_adapter_without_its_model_is_refused(has_config, tmp_path):
    if has_config:
        BertConfig().save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(InputError, match=r"model must be a whole model, .* has only a PEFT adapter: load it"):
        load_config(str(tmp_path), False)


def test_a_config_names_its_labels_in_order(tmp_path):
    BertConfig().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": {"0": "a", "5": "b"}}))
    with pytest.raises(InputError, match="id2label must name the labels 0, 1, "):
        load_config(str(tmp_path), False)


def test_labels_in_the_order_of_texts_are_put_in_order(tmp_path):
    BertConfig(num_labels=12).save_pretrained(tmp_path)
    path, names = tmp_path / "config.json", {str(number): f"class {number}" for number in range(12)}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": dict(sorted(names.items()))}))
    assert [*load_config(str(tmp_path), False).id2label.items()] == [(int(key), name) for key, name in names.items()]


def rewrite_labels(folder, **labels):
    """Replace the labels in a config.json by others."""
    path = folder / "config.json"
    entries = json.loads(path.read_text())
    entries = {key: value for key, value in entries.items() if key not in ("id2label", "label2id")}
    path.write_text(json.dumps(entries | labels))


NAMES = ["contradiction", "neutral", "entailment"]
LABEL2ID = {name: number for number, name in enumerate(NAMES)}
UNNAMED = {str(number): f"LABEL_{number}" for number in range(3)}


@pytest.mark.parametrize("labels", [{}, {"id2label": None}, {"id2label": UNNAMED}, {"num_labels": 3}])
def test_labels_have_the_names_of_label2id_if_id2label_has_none(labels, tmp_path):
    tokenizer = save_tokenizer(tmp_path / "model")
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=30, num_labels=3, **SIZES)).eval()
    model.save_pretrained(tmp_path / "model")
    rewrite_labels(tmp_path / "model", label2id=LABEL2ID, **labels)
    assert load_config(str(tmp_path / "model"), False).id2label == dict(enumerate(NAMES))
    texts = [" ".join([*WORDS[i : i + 4], WORDS[-i]]) for i in range(12)]
    with torch.no_grad():
        logits = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits
    predicted = [NAMES[number] for number in logits.argmax(1)]
    Dataset.from_dict({"text": texts, "label": predicted}).to_parquet(tmp_path / "data.parquet")
    result = calibrate_model(str(tmp_path / "model"), str(tmp_path / "data.parquet"), output=str(tmp_path / "out"))
    assert result.pre["error"] == 0
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved["id2label"] == {str(number): name for number, name in enumerate(NAMES)}
    assert saved["label2id"] == LABEL2ID


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"label2id": {"a": 0, "b": 2}},
        {"label2id": {"a": 0, "b": 0}},
        {"label2id": {"a": "0", "b": "1"}},
        {"label2id": {"a": 0, "b": 1, "c": 2}, "num_labels": 2},
        {"label2id": {"LABEL_0": 0, "LABEL_1": 1}},
    ],
)
def test_a_label2id_that_does_not_name_all_labels_names_none(labels, tmp_path):
    BertConfig().save_pretrained(tmp_path)
    rewrite_labels(tmp_path, **labels)
    assert load_config(str(tmp_path), False).id2label == {0: "LABEL_0", 1: "LABEL_1"}


@pytest.mark.parametrize("label2id", [{"a": [0], "b": 1}, ["a", "b"]])
def test_a_damaged_label2id_names_none_or_is_refused(label2id, tmp_path):
    BertConfig().save_pretrained(tmp_path)
    rewrite_labels(tmp_path, label2id=label2id)
    with suppress(InputError):  # by old versions of Transformers
        assert load_config(str(tmp_path), False).id2label == {0: "LABEL_0", 1: "LABEL_1"}


@pytest.mark.parametrize(
    ("label2id", "notes"),
    [
        (LABEL2ID, []),
        ({name.upper(): number for name, number in LABEL2ID.items()}, []),
        ({"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, []),
        ({"yes": 2, "no": 0}, []),
        ({"entailment": 0, "neutral": 1}, ["the label 'entailment' is 2 in id2label, and 0 in label2id"]),
        ({"Neutral": 2}, ["the label 'Neutral' is 1 in id2label, and 2 in label2id"]),
        ({"neutral": [1]}, ["the label 'neutral' is 1 in id2label, and [1] in label2id"]),
    ],
)
def test_a_label2id_that_contradicts_id2label_is_noted(label2id, notes):
    found = label_notes(SimpleNamespace(id2label=dict(enumerate(NAMES)), label2id=label2id))
    assert [note.split(": ", 1)[1].split(";")[0] for note in found] == notes


def test_the_contradiction_is_in_the_result(decoder):
    model, folder, data = decoder
    model.config.id2label, model.config.label2id = {0: "a", 1: "b"}, {"a": 1, "b": 0}
    model.save_pretrained(folder)
    notes = [note for note in evaluate_model(folder, data).notes if "contradicts itself" in note]
    assert len(notes) == 1 and notes[0].endswith("labels are taken from id2label")


@pytest.fixture
def decoder(tmp_path):
    """A classifier whose head reads the last token that is no padding, its tokenizer, and texts of many lengths."""
    texts = [" ".join(["sun", "rain", "wind"][: 1 + i % 3] * (1 + i % 4)) for i in range(24)]
    tokenizer = train_word_tokenizer(texts, vocab_size=50)
    tokenizer.save_pretrained(tmp_path / "model")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": 60, "num_key_value_heads": 2, "num_labels": 2, "initializer_range": 0.5}
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(LlamaConfig(pad_token_id=tokenizer.pad_token_id, **sizes)).eval()
    Dataset.from_dict({"text": texts, "label": [i % 2 for i in range(24)]}).to_parquet(tmp_path / "data.parquet")
    return model, tmp_path / "model", str(tmp_path / "data.parquet")


def test_a_decoder_without_a_padding_token_gets_that_of_its_tokenizer(decoder):
    model, folder, data = decoder
    model.save_pretrained(folder)
    expected = evaluate_model(folder, data, batch_size=1)
    model.config.pad_token_id = None
    model.save_pretrained(folder)
    assert evaluate_model(folder, data, batch_size=8).pre["nll"] == pytest.approx(expected.pre["nll"], rel=1e-6)


@pytest.mark.parametrize("scale", [1, 1e-6])
def test_a_decoder_with_another_padding_token_is_refused(decoder, scale):
    model, folder, data = decoder
    model.score.weight.data *= scale
    padding = model.config.pad_token_id
    model.config.pad_token_id = 40
    model.save_pretrained(folder)
    with pytest.raises(InputError, match=f"pad_token_id 40 and whose tokenizer has {padding}"):
        evaluate_model(folder, data, batch_size=8)


def test_the_same_padding_token_changes_nothing(decoder):
    model, _, _ = decoder
    before = model.config.to_dict()
    match_padding("decoder", model, train_word_tokenizer(["sun rain"], vocab_size=50))
    assert model.config.to_dict() == before


def test_architectures_of_a_damaged_config_are_refused(tmp_path):
    config = BertConfig().to_dict() | {"architectures": [3]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"architectures.*\[3\]"):
        load_config(str(tmp_path), False)
