"""FocalTrainer and models for semantic segmentation: each pixel is a row, at the labels' height and width."""

import json

import pytest
import tiny_models
import torch
import torchmetrics.functional.classification as peer
import transformers
from processes import output_of, start
from segmentation_models import (
    HEIGHT,
    NUM_CLASSES,
    WIDTH,
    logits_of_pixels,
    pictures,
    pixels_of,
    tiny_segformer,
    train,
)
from tiny_models import assert_exact, logged, rows, sgd_step, tensors, tiny_bert, weights
from transformers import BertForTokenClassification

from hf_focal import CalibrationMetrics, build_loss, fit_temperature
from hf_focal.losses import class_balanced_weights

EVAL = pictures(7, seed=1)
UNLABELED = [{"pixel_values": row["pixel_values"]} for row in EVAL]
# Of networks that have learned next to nothing.
pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")


def trainer_of(folder, model=None, **options):
    defaults = {"train_dataset": pictures(8), "eval_dataset": EVAL, "learning_rate": 0.05}
    return tiny_models.trainer_of(folder, model or tiny_segformer(), **defaults | options)


# Training


@pytest.mark.parametrize("ignored", [255, 0])
def test_a_step_is_that_of_the_models_own_loss_however_it_is_cut(ignored, tmp_path):
    def model():
        return tiny_segformer(semantic_loss_ignore_index=ignored)

    data, expected = pictures(8, ignored=ignored), model()
    images, _ = pixels_of(data)
    expected(pixel_values=images, labels=torch.stack([row["labels"] for row in data]).long()).loss.backward()
    sgd_step(expected, 0.05)
    for options in ({}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}):
        trainer = trainer_of(tmp_path, model(), train_dataset=data, **options)
        trainer.train()
        assert_exact(weights(trainer.model), weights(expected))
    images, labels = pixels_of(EVAL)
    with torch.no_grad():  # interpolated in float64
        low = tiny_segformer().eval()(pixel_values=images, labels=labels.masked_fill(labels < 0, 255))
    assert low.logits.shape[-2:] == (HEIGHT // 2, WIDTH // 2)
    assert trainer_of(tmp_path).evaluate()["eval_loss"] == pytest.approx(float(low.loss), rel=0, abs=1e-12)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    two = start("segmentation_models.py", 2, tmp_path, 2)
    one = train(tmp_path / "one", 1)
    output_of(two)
    for rank in range(2):
        actual = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert actual["weights"] == pytest.approx(one["weights"], rel=0, abs=1e-12)
        assert actual["counts"] == one["counts"]
        for name in one["metrics"].keys() - {"epoch"}:
            assert actual["metrics"][name] == pytest.approx(one["metrics"][name], rel=0, abs=1e-9), name
        assert actual["temperature"] == one["temperature"]


def test_class_weights_and_gammas_are_those_of_pixels(tmp_path):
    data = pictures(8)
    trainer = trainer_of(tmp_path, train_dataset=data, loss="class_balanced")
    trainer.train()
    labels = pixels_of(data)[1]
    expected = class_balanced_weights(torch.bincount(labels[labels >= 0]).tolist())  # without ignored ones
    assert trainer.loss.weights == pytest.approx(expected)
    trainer = trainer_of(tmp_path, loss="adafocal:bins=3", eval_strategy="epoch", num_train_epochs=2)
    trainer.train()
    gammas = logged(trainer, "gamma_0")
    assert len(gammas) == 2 and gammas[-1] != 1


# Measuring


@torch.no_grad()
def reference(model, samples, temperature=1.0):
    logits, labels = logits_of_pixels(model.eval(), samples) / temperature, pixels_of(samples)[1]
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    return logits, labels, metrics.compute()


@pytest.mark.parametrize("samples", [EVAL, [{**row, "labels": row["labels"][::2, ::2]} for row in EVAL]])
def test_evaluate_measures_each_pixel(samples, tmp_path):
    """The labels have the images' size, or that of the logits, which are then not interpolated."""
    trainer = trainer_of(tmp_path, loss="focal:gamma=2", eval_dataset=samples)
    actual = trainer.evaluate()
    logits, labels, expected = reference(tiny_segformer(), samples)
    assert actual["eval_num_samples"] == (labels >= 0).sum() < labels.numel()
    for name in ("ece", "nll", "brier", "classwise_ece", "accuracy", "confidence_incorrect"):
        assert actual[f"eval_{name}"] == pytest.approx(expected[name], rel=0, abs=1e-12), name
    assert actual["eval_adaece"] == pytest.approx(expected["adaece"], rel=0, abs=2e-3)
    labeled = labels >= 0
    loss_rows = build_loss("focal:gamma=2")(logits[labeled], labels[labeled], reduction="none")
    assert actual["eval_loss"] == pytest.approx(float(loss_rows.mean()), rel=0, abs=1e-12)
    target, prediction = labels[labeled], logits[labeled].argmax(-1)
    mean_iou = peer.multiclass_jaccard_index(prediction, target, NUM_CLASSES)
    assert actual["eval_mean_iou"] == pytest.approx(float(mean_iou), rel=1e-6)
    recall = peer.multiclass_recall(prediction, target, NUM_CLASSES, average=None)
    assert trainer.confusion.by_class()["accuracy"].tolist() == pytest.approx(recall.tolist(), rel=1e-6)
    assert actual["eval_mean_accuracy"] == pytest.approx(float(recall.mean()), rel=1e-6)


def test_a_temperature_is_fitted_to_pixels_without_keeping_logits(tmp_path, monkeypatch):
    trainer = trainer_of(tmp_path)
    monkeypatch.setattr("hf_focal.trainer.focal_trainer.CollectedLogits", None)
    temperature = trainer.fit_temperature(objective="ece")
    logits, labels, expected = reference(tiny_segformer(), EVAL)
    assert temperature.value == fit_temperature(logits, labels, "ece").value != 1
    assert temperature.ece_before == pytest.approx(expected["ece"], abs=1e-6)
    before, after = trainer.measure(EVAL)
    assert not before.keep_samples and not after.keep_samples
    scaled = reference(tiny_segformer(), EVAL, temperature.value)[-1]
    assert after.compute()["ece"] == pytest.approx(scaled["ece"], rel=0, abs=1e-12)
    actual = trainer.evaluate()
    assert actual["eval_ece_corrected"] == pytest.approx(scaled["ece"], rel=0, abs=1e-12)
    assert "eval_mean_iou_corrected" not in actual


def test_labels_of_tokens_have_means_over_classes_and_labels_of_rows_have_none(tmp_path):
    torch.manual_seed(0)
    model = BertForTokenClassification(tiny_bert().config).double()
    ids, _ = tensors(rows(9))
    labels = torch.where(ids % 5 == 4, -100, ids % 5)
    data = [{"input_ids": row, "labels": target} for row, target in zip(ids, labels, strict=True)]
    trainer = tiny_models.trainer_of(tmp_path, model, eval_dataset=data)
    actual = trainer.evaluate()
    with torch.no_grad():
        prediction = model.eval()(input_ids=ids).logits.argmax(-1)
    labeled = labels >= 0
    expected = peer.multiclass_jaccard_index(prediction[labeled], labels[labeled], 4)
    assert actual["eval_mean_iou"] == pytest.approx(float(expected), rel=1e-6)
    assert trainer.measure(data)[0].keep_samples
    trainer = tiny_models.trainer_of(tmp_path)
    assert "eval_mean_iou" not in trainer.evaluate()
    assert trainer.confusion is None


# What is refused


def test_masks_and_sigmoids(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    masks = transformers.EomtForUniversalSegmentation(transformers.EomtConfig(**sizes, num_blocks=1, num_queries=3))
    with pytest.raises(ValueError, match=r"model must have logits of pixels .*, got EomtForUniversalSegmentation"):
        trainer_of(tmp_path, masks)
    with pytest.raises(ValueError, match=r"num_labels must be at least 2, got 1: a sigmoid per pixel"):
        trainer_of(tmp_path, tiny_segformer(num_labels=1))


def changed(change):
    return [{**row, "labels": change(row["labels"])} for row in EVAL]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (changed(lambda labels: labels.masked_fill(labels == 0, NUM_CLASSES)), r"within \[0, 4\) for 4 classes"),
        (changed(lambda labels: labels[0]), r"labels must be \(N, H, W\) for logits \(N, K, h, w\) in semantic segme"),
        (changed(lambda labels: labels.float()), r"labels must be integer class indices, got torch.float32"),
        (UNLABELED, "labels must be in the batch, got None"),
    ],
)
def test_labels_that_are_no_classes_of_pixels(train, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        trainer_of(tmp_path, train_dataset=train).train()
    with pytest.raises(ValueError, match="the dataset to measure must have a column 'label'"):
        trainer_of(tmp_path).evaluate(UNLABELED)
