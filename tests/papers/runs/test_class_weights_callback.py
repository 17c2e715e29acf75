"""Records of `ClassWeightsCallback`."""

import math

import pytest
import torch
from papers.runs.class_weights_callback import ClassWeightsCallback, class_weight_history
from tiny_models import NUM_LABELS, BagOfWords, rows, settings, tiny_bert
from transformers import GPT2Config, GPT2LMHeadModel

from hf_focal import FocalTrainer, FocalTrainingArguments


def trained(folder, every, data=None, gamma=1.0, model=BagOfWords, **options):
    """A trainer with records, and the logits and labels that its loss got while training."""
    args = FocalTrainingArguments(**settings(folder, **options))
    data = rows(21) if data is None else data
    trainer = FocalTrainer(model=model(), args=args, train_dataset=data, eval_dataset=rows(9, seed=1))
    trainer.add_callback(ClassWeightsCallback(trainer, every, gamma))
    seen, compute = [], trainer.compute_loss

    def recorded(model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        loss, outputs = compute(model, inputs, True, num_items_in_batch)
        if torch.is_grad_enabled():
            seen.append((outputs["logits"].detach().double().flatten(0, -2), labels.flatten()))
        return (loss, outputs) if return_outputs else loss

    trainer.compute_loss = recorded
    trainer.train()
    return trainer, seen


def weights_of(batches, gamma):
    """Of each class, by the definition: mean of (1 - p)^γ, and the share of its rows that are not right."""
    logits, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    weights = {"focal": [], "recall": []}
    for label in range(NUM_LABELS):
        its = logits[labels == label]
        p = its.softmax(-1)[:, label]
        weights["focal"].append(((1 - p) ** gamma).mean().item() if len(its) else None)
        weights["recall"].append((its.argmax(-1) != label).double().mean().item() if len(its) else None)
    return weights


@pytest.mark.parametrize(("loss", "gamma"), [("recall:ema=0.5", 1.0), ("focal:schedule=5/3/2", 2.0)])
def test_each_record_is_of_the_rows_since_the_last(loss, gamma, tmp_path):
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    trainer, seen = trained(tmp_path, 2, gamma=gamma, loss=loss, eval_strategy="steps", eval_steps=1, **options)
    history = class_weight_history(trainer.state.log_history)
    # Steps of 2, 2 and 2 micro-batches, the last of an epoch of 1 row and 4.
    assert [record["step"] for record in history] == [2, 4, 6]
    assert [record["epoch"] for record in history] == pytest.approx([2 / 3, 4 / 3, 2])
    for index, record in enumerate(history):
        expected = weights_of(seen[4 * index : 4 * (index + 1)], gamma)
        for name in ("focal", "recall"):
            assert record[name] == pytest.approx(expected[name], rel=1e-9), (index, name)


def test_what_is_recorded_changes_neither_the_training_nor_what_is_printed(tmp_path, capsys):
    watched, _ = trained(tmp_path, 1, loss="recall:ema=0.5", model=tiny_bert)
    assert "class_weights" not in capsys.readouterr().out
    args = FocalTrainingArguments(**settings(tmp_path, loss="recall:ema=0.5"))
    plain = FocalTrainer(model=tiny_bert(), args=args, train_dataset=rows(21))
    plain.train()
    for mine, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(watched.loss.recall, plain.loss.recall)
    assert not watched.loss._forward_hooks
    assert class_weight_history(plain.state.log_history) == []


def test_less_than_a_step_is_refused():
    with pytest.raises(ValueError, match="every must be an integer of at least 1, got 0"):
        ClassWeightsCallback(None, 0)


def test_a_loss_without_logits_is_refused(tmp_path):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows(8)]
    args = FocalTrainingArguments(**settings(tmp_path))
    trainer = FocalTrainer(model=model, args=args, train_dataset=data)
    trainer.add_callback(ClassWeightsCallback(trainer, 1))
    with pytest.raises(
        ValueError, match=r"args\.linear_loss must be 'off' with ClassWeightsCallback.*, got '(auto|on)'"
    ):
        trainer.train()


def test_a_class_without_rows_has_no_weight_and_ignored_labels_are_none(tmp_path):
    data = [row | {"labels": -100 if row["labels"] == 2 else row["labels"]} for row in rows(16)]
    trainer, seen = trained(tmp_path, 1, data)
    first, second = class_weight_history(trainer.state.log_history)
    assert first["focal"][2] is second["recall"][2] is None
    assert not math.isnan(sum(value for value in first["focal"] + first["recall"] if value is not None))
    expected = weights_of(seen[:1], 1)["focal"]
    assert first["focal"] == [None if weight is None else pytest.approx(weight, rel=1e-9) for weight in expected]
