"""Losses under mixed precision, compilation and activation checkpointing."""

from dataclasses import fields

import pytest
import torch
from tiny_models import EVAL, BagOfWords, logged, logits_of, tensors, tiny_bert, trainer_of, untimed, weights

from hf_focal import FocalTrainer, FocalTrainingArguments

# One whose γ depends on the sample, one whose γ changes, one of a whole batch, one with class weights.
LOSSES = ("flsd53", "adafocal", "mmce", "recall")
# Transformers' new name and its old one.
CHECKPOINTING = next(
    field.name
    for field in fields(FocalTrainingArguments)
    if field.name in ("activation_checkpointing", "gradient_checkpointing")
)


def trained(folder, model, loss, **options):
    """A trainer after two epochs of two steps; AdaFocal's γ move between them. The metrics of its evaluation."""
    trainer = trainer_of(folder, model, loss=loss, num_train_epochs=2, learning_rate=0.05, **options)
    trainer.train()
    return trainer, untimed(trainer.evaluate())


@pytest.fixture
def dtypes(monkeypatch):
    """The dtypes that every call of a loss got and gave, and whether bfloat16 holds the logits without rounding."""
    seen, build_loss = set(), FocalTrainer.build_loss

    def recorded(trainer):
        build_loss(trainer)
        inner = trainer.loss.elementwise

        def elementwise(logits, labels):
            values = inner(logits, labels)
            seen.add((logits.dtype, torch.equal(logits.bfloat16().to(logits.dtype), logits), values.dtype))
            return values

        trainer.loss.elementwise = elementwise

    monkeypatch.setattr(FocalTrainer, "build_loss", recorded)
    return seen


@pytest.mark.parametrize("loss", LOSSES)
def test_autocast_to_bfloat16(loss, dtypes, tmp_path):
    full, expected = trained(tmp_path, tiny_bert().float(), loss)
    assert dtypes == {(torch.float32, False, torch.float32)}
    dtypes.clear()
    mixed, metrics = trained(tmp_path, tiny_bert().float(), loss, bf16=True)
    # accelerate hands the model's bfloat16 logits on as float32.
    assert dtypes == {(torch.float32, True, torch.float32)}
    assert weights(mixed.model).dtype == torch.float32
    assert logged(mixed) == pytest.approx(logged(full), rel=0.02)
    start = weights(tiny_bert().float())
    moved, expected_move = weights(mixed.model) - start, weights(full.model) - start
    assert expected_move.norm() > 0.01
    assert (moved - expected_move).norm() < 0.02 * expected_move.norm()
    for name in ("eval_loss", "eval_nll", "eval_brier", "eval_confidence"):
        assert metrics[name] == pytest.approx(expected[name], rel=0.02), name


@pytest.mark.parametrize("loss", LOSSES)
def test_an_evaluation_of_a_bfloat16_model(loss, dtypes, tmp_path):
    trainer = trainer_of(tmp_path, tiny_bert().float(), loss=loss, bf16_full_eval=True)
    metrics = trainer.evaluate()
    assert dtypes == {(torch.bfloat16, True, torch.float32)}
    # The logits themselves are bfloat16's; what is computed from them is as exact as from any other logits.
    logits = logits_of(tiny_bert().bfloat16(), EVAL)
    nll = torch.nn.functional.cross_entropy(logits.double(), tensors(EVAL)[1])
    assert metrics["eval_nll"] == pytest.approx(nll.item(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_a_compiled_model_trains_as_itself(loss, tmp_path):
    torch.compiler.reset()
    plain, expected = trained(tmp_path, BagOfWords(), loss)
    # Needs no C++ compiler, which "inductor" would.
    compiled, metrics = trained(tmp_path, BagOfWords(), loss, torch_compile=True, torch_compile_backend="aot_eager")
    assert isinstance(compiled.model_wrapped, torch._dynamo.OptimizedModule)
    torch.testing.assert_close(weights(compiled.model), weights(plain.model), rtol=0, atol=1e-12)
    assert metrics == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_recomputed_activations_change_nothing(loss, tmp_path):
    calls = {False: 0, True: 0}

    def model(checkpointed):
        def count(*_):
            calls[checkpointed] += 1

        bert = tiny_bert()
        bert.bert.encoder.layer[0].attention.register_forward_hook(count)
        return bert

    plain, expected = trained(tmp_path, model(False), loss)
    saving, metrics = trained(tmp_path, model(True), loss, **{CHECKPOINTING: True})
    assert calls[True] == calls[False] + 4  # once more for each step
    assert torch.equal(weights(saving.model), weights(plain.model))
    assert metrics == expected
