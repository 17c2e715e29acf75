"""Sigmoid heads: several labels per sample, or one logit."""

import pytest
import tiny_models
import torch
from tiny_models import StopAt, assert_exact, logged, rows, sgd_step, tiny_bert, weights
from torch.nn import functional as F

from hf_focal import build_loss


def data(count, seed=0, num_labels=4):
    """Rows whose labels depend on their tokens; every fifth row has an unknown label."""
    samples = []
    for index, row in enumerate(rows(count, seed)):
        labels = torch.tensor([float(row["input_ids"][k] % 2) for k in range(num_labels)], dtype=torch.float64)
        if index % 5 == 0 and num_labels > 1:
            labels[1] = float("nan")
        samples.append({"input_ids": row["input_ids"], "labels": labels if num_labels > 1 else labels[0]})
    return samples


def model_of(num_labels=4, **options):
    return tiny_bert(num_labels=num_labels, problem_type="multi_label_classification", **options)


def trainer_of(folder, num_labels=4, **options):
    held_out, samples = data(40, 1, num_labels), data(16, 0, num_labels)
    defaults = {"train_dataset": samples, "eval_dataset": held_out, "model": model_of(num_labels)}
    return tiny_models.trainer_of(folder, **defaults | options)


@pytest.mark.parametrize(("num_labels", "text"), [(4, "focal:gamma=2,alpha=0.25"), (1, "cross_entropy")])
def test_a_step_is_that_of_the_loss_however_it_is_cut(num_labels, text, tmp_path):
    model, samples = model_of(num_labels), data(16, 0, num_labels)
    ids, labels = (torch.stack([row[name] for row in samples]) for name in ("input_ids", "labels"))
    logits = model.eval()(input_ids=ids).logits
    loss = build_loss(text, "sigmoid")(logits, labels.view_as(logits))
    if num_labels == 1:
        expected = F.binary_cross_entropy_with_logits(logits, labels.view_as(logits))
        assert float(loss) == pytest.approx(float(expected), rel=1e-9)
    loss.backward()
    sgd_step(model)
    for cut in ({"per_device_train_batch_size": 16}, {"gradient_accumulation_steps": 8}):
        options = {"per_device_train_batch_size": 2, "loss": text} | cut
        trainer = trainer_of(tmp_path, num_labels, **options)
        trainer.train()
        assert_exact(weights(trainer.model), weights(model))
        assert logged(trainer) == [pytest.approx(float(loss), rel=1e-6)]


@pytest.mark.parametrize("num_labels", [4, 1])
def test_evaluations_measure_every_label_before_and_after_its_temperature(num_labels, tmp_path):
    trainer = trainer_of(tmp_path, num_labels)
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_nll"]) and "eval_macro_ece" in metrics
    fitted = trainer.fit_temperature(objective="nll", per_label=True)
    assert len(fitted.values) == num_labels
    assert trainer.evaluate()["eval_nll_corrected"] == pytest.approx(fitted.nll_after)


def test_class_balanced_counts_the_ones_of_each_label(tmp_path):
    trainer = trainer_of(tmp_path, loss="class_balanced")
    trainer.train()
    counts = sum((row["labels"] == 1).double() for row in data(16))
    assert torch.tensor(trainer.loss.entry_loss.weights) == pytest.approx((1 / counts) / (1 / counts).mean())


def test_adafocal_moves_its_bins_and_a_resumed_training_ends_like_one_that_was_not_interrupted(tmp_path):
    options = {"loss": "adafocal:bins=5", "num_train_epochs": 3, "save_strategy": "epoch"}
    whole = trainer_of(tmp_path / "whole", **options)
    whole.train()
    assert len(set(whole.loss.policy.gammas)) > 1
    trainer_of(tmp_path / "cut", callbacks=[StopAt(4)], **options).train()
    resumed = trainer_of(tmp_path / "cut", **options)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.loss.policy.gammas == whole.loss.policy.gammas


def test_the_card_has_the_labels_with_their_temperatures(tmp_path):
    names = ["art", "sport", "war", "money"]
    trainer = trainer_of(tmp_path, model=model_of(id2label=dict(enumerate(names))))
    fitted = trainer.fit_temperature(per_label=True)
    trainer.save_calibrated()
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for name, value in zip(names, fitted.values, strict=True):
        (row,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
        assert row.endswith(f" {value:.2f} |")
    assert f"{fitted.num_samples} labels of the validation split" in card
    assert "(report/reliability_labels.png)" in card and (tmp_path / "report" / "reliability_labels.png").exists()


@pytest.mark.parametrize(("num_labels", "count", "bins"), [(4, 20, 76), (1, 20, 20)])
def test_each_known_label_counts_for_adafocals_bins(num_labels, count, bins, tmp_path):
    held_out = data(count, 1, num_labels)  # of four labels, 4 of 80 are unknown
    options = {"calibration_dataset": held_out, "per_device_eval_batch_size": 8}
    trainer_of(tmp_path, num_labels, loss=f"adafocal:bins={bins}", **options).train()
    message = f"at least one labeled sample for each of the {bins + 1} bins, got {bins}"
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, num_labels, loss=f"adafocal:bins={bins + 1}", **options).train()


def test_the_default_of_fit_and_finish_is_auto(tmp_path):
    trainer = trainer_of(tmp_path)
    assert trainer.fit_correction().reason.endswith(trainer.fit_correction(method="auto").reason)
    assert trainer.fit_correction(per_label=True).method == "temperature"
    trainer.fit = None
    trainer.finish(data(40, 2))
    assert trainer.fit.reason == trainer.fit_correction(method="auto").reason != ""
