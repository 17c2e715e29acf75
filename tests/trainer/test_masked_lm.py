"""Masked language models: the memory and the figures of a large vocabulary, and T in the saved weights."""

import numpy as np
import pytest
import tiny_models
import torch
from metrics import reference
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, MobileBertConfig, MobileBertForMaskedLM

from benchmarks.common.memory import peak_bytes
from hf_focal import fit_temperature

VOCABULARY = 30_522  # of BERT
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@torch.no_grad()
def samples(model, count, length):
    """Rows whose masked tokens are a sixth, labeled so that T = 2 is right; of the others -100 is the label."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (count, length), generator=generator)
    labels = torch.full(ids.shape, -100)
    masked = torch.rand(ids.shape, generator=generator) < 1 / 6
    probabilities = (model(input_ids=ids).logits[masked] / 2).softmax(-1)
    labels[masked] = probabilities.multinomial(1, generator=generator)[:, 0]
    return [{"input_ids": row, "labels": row_labels} for row, row_labels in zip(ids, labels, strict=True)]


def trainer_of(folder, vocabulary, count, length, scale):
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=vocabulary, initializer_range=scale, **SIZES)).eval()
    rows = samples(model, count, length)
    return tiny_models.trainer_of(folder, model, eval_dataset=rows), rows


@torch.no_grad()
def masked_tokens(model, rows):
    """Logits (N, K), float64, and labels (N,)."""
    ids, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    return model(input_ids=ids).logits[labels != -100].double(), labels[labels != -100]


@pytest.mark.slow
def test_a_vocabulary_takes_little_memory_and_the_figures_are_right(tmp_path):
    trainer, rows = trainer_of(tmp_path, VOCABULARY, 40, 64, 2.0)
    actual, temperature = {}, []
    evaluation = peak_bytes(lambda: actual.update(trainer.evaluate()))
    fit = peak_bytes(lambda: temperature.append(trainer.fit_temperature()))
    assert 60 < evaluation / 2**20 < 300  # the logits of a batch are 60 MB
    assert 60 < fit / 2**20 < 300
    assert trainer.confusion is None and "eval_mean_iou" not in actual
    logits, labels = masked_tokens(trainer.model, rows)
    probabilities = reference.softmax(logits)
    confidence, correct = reference.top_label(probabilities, labels.numpy())
    assert actual["eval_num_samples"] == len(labels)
    assert actual["eval_ece"] == pytest.approx(reference.ece(confidence, correct), abs=1e-6)
    nll = -np.log(probabilities[range(len(labels)), labels])
    assert actual["eval_nll"] == pytest.approx(nll.mean(), rel=1e-5)
    assert actual["eval_loss"] == pytest.approx(nll.mean(), rel=1e-5)
    assert 0.1 < actual["eval_accuracy"] < 0.9 and actual["eval_accuracy"] == pytest.approx(correct.mean())
    curves = trainer.fit.curves
    expected = [torch.nn.functional.cross_entropy(logits / value, labels) for value in curves.temperatures[4::10]]
    np.testing.assert_allclose(curves.nll[4::10], expected, rtol=1e-5)
    assert temperature[0].value == curves.temperatures[curves.nll.argmin()] == pytest.approx(2, abs=0.3)


@pytest.mark.slow
def test_the_temperature_is_in_the_saved_weights(tmp_path):
    trainer, rows = trainer_of(tmp_path, 40, 60, 12, 1.0)
    before, labels = masked_tokens(trainer.model, rows)
    temperature = trainer.fit_temperature()
    assert temperature.value == pytest.approx(fit_temperature(before, labels, "nll").value, abs=0.1)
    trainer.save_calibrated()
    trainer.create_model_card()
    model = AutoModelForMaskedLM.from_pretrained(tmp_path)
    after, _ = masked_tokens(model, rows)
    torch.testing.assert_close(after, before / temperature.value, rtol=1e-5, atol=1e-5)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.config.calibration["temperature"] == temperature.value and "folded" not in model.config.calibration
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "It is folded into the weights" in card and "pipeline_tag: fill-mask" in card


def test_a_head_that_cannot_be_folded_leaves_t_beside_the_model(tmp_path, caplog):
    torch.manual_seed(0)
    sizes = {"intra_bottleneck_size": 16, "embedding_size": 16}
    model = MobileBertForMaskedLM(MobileBertConfig(vocab_size=40, **SIZES, **sizes)).eval()
    trainer = tiny_models.trainer_of(tmp_path, model, eval_dataset=samples(model, 60, 12))
    temperature = trainer.fit_temperature()
    trainer.save_calibrated()
    assert "not in the saved weights" in caplog.text
    assert "model must call its head once, got MobileBertForMaskedLM" in caplog.text
    assert (tmp_path / "temperature.json").is_file()
    calibration = AutoModelForMaskedLM.from_pretrained(tmp_path).config.calibration
    assert calibration["temperature"] == temperature.value and calibration["folded"] is False
