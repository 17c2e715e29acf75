"""Sigmoid heads: several labels per sample, or one logit."""

import pytest
import torch
import torch.nn.functional as F
from tiny_models import StopAt, rows, settings, tiny_bert, weights

from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss

MULTI = {"problem_type": "multi_label_classification"}


def data(count, seed=0, num_labels=4):
    """Rows whose labels depend on their tokens; every fifth row has an unknown label."""
    samples = []
    for index, row in enumerate(rows(count, seed)):
        labels = torch.tensor([float(row["input_ids"][k] % 2) for k in range(num_labels)], dtype=torch.float64)
        if index % 5 == 0 and num_labels > 1:
            labels[1] = float("nan")
        samples.append({"input_ids": row["input_ids"], "labels": labels if num_labels > 1 else labels[0]})
    return samples


def trainer_of(folder, model, samples=None, **options):
    held_out = data(40, 1, model.config.num_labels)
    samples = data(16, 0, model.config.num_labels) if samples is None else samples
    return FocalTrainer(
        model, FocalTrainingArguments(**settings(folder, **options)), train_dataset=samples, eval_dataset=held_out
    )


@pytest.mark.parametrize("num_labels", [4, 1])
@pytest.mark.parametrize("text", ["cross_entropy", "focal:gamma=2,alpha=0.25"])
def test_a_step_is_that_of_the_loss_however_it_is_cut(text, num_labels, tmp_path):
    model = tiny_bert(num_labels=num_labels, **MULTI)
    samples = data(16, 0, num_labels)
    ids, labels = (torch.stack([row[name] for row in samples]) for name in ("input_ids", "labels"))
    logits = model.eval()(input_ids=ids).logits
    build_loss(text, "sigmoid")(logits, labels.view_as(logits)).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    for cut in ({"per_device_train_batch_size": 16}, {"gradient_accumulation_steps": 8}):
        options = {"per_device_train_batch_size": 2, "loss": text} | cut
        trainer = trainer_of(tmp_path, tiny_bert(num_labels=num_labels, **MULTI), samples, **options)
        trainer.train()
        torch.testing.assert_close(weights(trainer.model), weights(model), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_labels", [4, 1])
def test_evaluations_measure_every_label_before_and_after_its_temperature(num_labels, tmp_path):
    trainer = trainer_of(tmp_path, tiny_bert(num_labels=num_labels, **MULTI))
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_nll"]) and "eval_macro_ece" in metrics
    fitted = trainer.fit_temperature(objective="nll", per_label=True)
    assert len(fitted.values) == num_labels
    assert trainer.evaluate()["eval_nll_post_t"] == pytest.approx(fitted.nll_after)


def test_class_balanced_counts_the_ones_of_each_label(tmp_path):
    trainer = trainer_of(tmp_path, tiny_bert(**MULTI), loss="class_balanced")
    trainer.train()
    counts = sum((row["labels"] == 1).double() for row in data(16))
    expected = (1 / counts) / (1 / counts).mean()
    assert torch.tensor(trainer.loss.of_entries.weights) == pytest.approx(expected)


def test_adafocal_moves_its_bins_and_a_resumed_training_ends_like_one_that_was_not_interrupted(tmp_path):
    options = {"loss": "adafocal:bins=5", "num_train_epochs": 3, "save_strategy": "epoch"}
    whole = trainer_of(tmp_path / "whole", tiny_bert(**MULTI), **options)
    whole.train()
    assert len(set(whole.loss.policy.gammas)) > 1
    stopped = trainer_of(tmp_path / "cut", tiny_bert(**MULTI), **options)
    stopped.add_callback(StopAt(4))
    stopped.train()
    resumed = trainer_of(tmp_path / "cut", tiny_bert(**MULTI), **options)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.loss.policy.gammas == whole.loss.policy.gammas


def test_the_loss_without_an_option_is_the_models_own(tmp_path):
    model = tiny_bert(**MULTI)
    samples = [row for row in data(16) if not row["labels"].isnan().any()]
    ids, labels = (torch.stack([row[name] for row in samples]) for name in ("input_ids", "labels"))
    expected = F.binary_cross_entropy_with_logits(model.eval()(input_ids=ids).logits, labels)
    trainer = trainer_of(tmp_path, model, samples, per_device_train_batch_size=16)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-4)


def test_the_card_has_the_labels_with_their_temperatures(tmp_path):
    model = tiny_bert(**MULTI, id2label=dict(enumerate(["art", "sport", "war", "money"])))
    trainer = trainer_of(tmp_path, model)
    fitted = trainer.fit_temperature(per_label=True)
    trainer.save_calibrated()
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for name, value in zip(["art", "sport", "war", "money"], fitted.values, strict=True):
        (row,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
        assert row.endswith(f" {value:.2f} |")
    assert f"{fitted.num_samples} labels of the validation split" in card
    assert "(report/reliability_labels.png)" in card and (tmp_path / "report" / "reliability_labels.png").exists()


def test_one_temperature_a_label_needs_labels(tmp_path):
    args = FocalTrainingArguments(**settings(tmp_path))
    trainer = FocalTrainer(tiny_bert(), args, train_dataset=rows(8), eval_dataset=rows(8, seed=1))
    with pytest.raises(ValueError, match="per_label must be False for a model with a softmax, got True"):
        trainer.fit_temperature(per_label=True)
