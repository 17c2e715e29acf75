"""Extractive question answering: starts and ends are samples of a softmax over the positions."""

import pytest
import tiny_models
import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoModelForQuestionAnswering,
    BertConfig,
    BertForQuestionAnswering,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    XLNetConfig,
    XLNetForQuestionAnsweringSimple,
)

from hf_focal import CalibrationMetrics, build_loss
from hf_focal.tasks.heads import Head
from hf_focal.trainer.streamed_evaluation import StreamedEvaluation

SHARED = {"vocab_size": 30, "max_position_embeddings": 16}
BERT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
BERT |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DISTILBERT = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
DISTILBERT |= {"dropout": 0.0, "attention_dropout": 0.0, "qa_dropout": 0.0}
MODELS = {
    "bert": lambda: BertForQuestionAnswering(BertConfig(**SHARED | BERT)),
    "distilbert": lambda: DistilBertForQuestionAnswering(DistilBertConfig(**SHARED | DISTILBERT)),
}


def model_of(name):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with torch.no_grad():
        model.qa_outputs.weight.mul_(60)  # confidences that differ
        model.qa_outputs.bias.normal_()
    return model.eval()


def test_a_batch_without_samples_of_its_own_is_measured_as_nothing():
    evaluations = [StreamedEvaluation(build_loss("cross_entropy"), 15, None, Head.SPANS, True) for _ in range(2)]
    logits = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padded = F.pad(logits, (0, 8), value=-torch.inf)
    labels = torch.tensor([[1, 3], [2, 2], [0, -100]])
    for evaluation in evaluations:
        evaluation.update(padded, labels)
    evaluations[1].update(padded[:0], labels[:0])
    assert evaluations[0].compute() == evaluations[1].compute()
    assert evaluations[0].compute()["num_samples"] == 5


def rows(count, seed=0):
    """Texts of 4 to 12 tokens. Of every fifth the answer is beyond the sequence, of every seventh negative: at 0."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(count):
        length = int(torch.randint(4, 13, (1,), generator=generator))
        start, end = sorted(torch.randint(length, (2,), generator=generator).tolist())
        start, end = (40, 50) if number % 5 == 2 else (-1, -1) if number % 7 == 3 else (start, end)
        ids = torch.randint(3, 30, (length,), generator=generator)
        samples.append({"input_ids": ids, "start_positions": start, "end_positions": end})
    return samples


def padded(rows):
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row["input_ids"]) for row in rows], batch_first=True)
    positions = {name: torch.tensor([row[name] for row in rows]) for name in ("start_positions", "end_positions")}
    return {"input_ids": ids, "attention_mask": mask, **positions}


def trainer_of(model, folder, **options):
    data = {"train_dataset": rows(16), "eval_dataset": rows(19, seed=1), "data_collator": padded}
    return tiny_models.trainer_of(folder, model, learning_rate=0.1, **data, **options)


@torch.no_grad()
def samples(model, data, batch_size=8):
    """Logits (M, 16) of the starts and ends that count, with -inf beyond their batch, and their labels (M,)."""
    parts, labels = [], []
    for first in range(0, len(data), batch_size):
        batch = padded(data[first : first + batch_size])
        outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        for side in ("start", "end"):
            positions = batch[f"{side}_positions"].clamp(min=0)
            logits = getattr(outputs, f"{side}_logits")
            selected = positions < logits.shape[1]
            parts.append(F.pad(logits[selected], (0, 16 - logits.shape[1]), value=-torch.inf))
            labels.append(positions[selected])
    return torch.cat(parts), torch.cat(labels)


@pytest.mark.parametrize("name", MODELS)
def test_cross_entropy_is_the_models_own_loss(name, tmp_path):
    model = model_of(name)
    trainer = trainer_of(model, tmp_path, remove_unused_columns=False)
    model_loss = model(**padded(rows(16))).loss
    actual = trainer.compute_loss(model.train(), trainer.prepare_labels(padded(rows(16))))
    torch.testing.assert_close(actual, model_loss, rtol=1e-12, atol=0)
    actual.backward()
    gradients = {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    model_loss.backward()
    for key, gradient in gradients.items():
        torch.testing.assert_close(dict(model.named_parameters())[key].grad, gradient, rtol=1e-9, atol=1e-13, msg=key)


@pytest.mark.parametrize(
    ("name", "loss"),
    [("bert", "focal:gamma=2"), ("distilbert", "label_smoothing:alpha=0.1"), ("bert", "adafocal:bins=3")],
)
def test_it_trains_and_measures(name, loss, tmp_path):
    model = model_of(name)
    trainer = trainer_of(model, tmp_path, loss=loss)
    before = model.qa_outputs.weight.detach().clone()
    trainer.train()
    assert not torch.equal(before, model.qa_outputs.weight)
    metrics = trainer.evaluate()
    logits, labels = samples(model.eval(), rows(19, seed=1))
    p = logits.softmax(-1)
    expected = {
        "nll": F.cross_entropy(logits, labels).item(),
        "brier": (p - F.one_hot(labels, 16)).square().sum(-1).mean().item(),
        "error": (p.argmax(-1) != labels).double().mean().item(),
    }
    reference = CalibrationMetrics(15, classwise=False)
    reference.update(logits, labels)
    expected |= {key: reference.compute()[key] for key in ("ece", "adaece", "num_samples")}
    for key, value in expected.items():
        assert metrics[f"eval_{key}"] == pytest.approx(value, rel=1e-6), key
    if loss.startswith("focal"):
        label_p = p.gather(1, labels[:, None])
        assert metrics["eval_loss"] == pytest.approx(float((-((1 - label_p) ** 2) * label_p.log()).mean()), rel=1e-9)
        tuples = trainer_of(model, tmp_path, loss=loss)
        model.config.return_dict = False
        assert tuples.evaluate()["eval_loss"] == metrics["eval_loss"]
        assert len(tuples.predict(rows(5)).predictions) == 2
    assert metrics["eval_loss"] < 1e3  # smoothing does not reach the padding


def test_models_without_a_limit_are_measured_and_too_long_sequences_are_told(tmp_path):
    sizes = {"vocab_size": 30, "d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8}
    model = XLNetForQuestionAnsweringSimple(XLNetConfig(**sizes)).double()
    assert model.config.max_position_embeddings == -1
    trainer = trainer_of(model, tmp_path, per_device_eval_batch_size=2)
    assert trainer.evaluate()["eval_num_samples"] > 0
    assert trainer.fit_temperature().num_samples > 0
    relative = model_of("bert")
    relative.config.max_position_embeddings = 9
    with pytest.raises(ValueError, match="eval_dataset must be sequences of at most 9 tokens to be measured, got 1"):
        trainer_of(relative, tmp_path).evaluate()


@pytest.mark.slow
def test_the_temperature_is_in_the_saved_model(tmp_path):
    model = model_of("bert")
    trainer, data = trainer_of(model, tmp_path), rows(19, seed=1)
    for row in data[::2]:  # answers as the model predicts them, so that T is inside the grid
        outputs = model(input_ids=row["input_ids"][None])
        row |= {f"{side}_positions": int(outputs[f"{side}_logits"].argmax()) for side in ("start", "end")}
    trainer.eval_dataset = data
    temperature = trainer.fit_temperature()
    logits, labels = samples(model, data)
    grid = torch.arange(1, 101, dtype=torch.float64) / 10
    nll = torch.stack([F.cross_entropy(logits / value, labels) for value in grid])
    assert temperature.value == pytest.approx(float(grid[nll.argmin()])) and 1 < temperature.value < 10
    assert temperature.nll_after == pytest.approx(float(nll.min()), rel=1e-6)
    assert trainer.evaluate()["eval_nll_corrected"] == pytest.approx(float(nll.min()), rel=1e-6)
    trainer.save_calibrated()
    loaded = AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    assert loaded.config.calibration["temperature"] == temperature.value
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    actual, plain = loaded(input_ids=ids), model(input_ids=ids)
    for side in ("start_logits", "end_logits"):
        torch.testing.assert_close(actual[side], plain[side] / temperature.value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["recall", "class_balanced:beta=0.9"])
def test_losses_over_classes_are_refused(loss, tmp_path):
    with pytest.raises(ValueError, match=r"args\.loss must not weight classes for extractive question answering"):
        trainer_of(model_of("bert"), tmp_path, loss=loss)
