"""The auxiliary loss of mixture-of-experts models: added once a step, however it is cut, and logged apart."""

import json

import pytest
import torch
import transformers
from auxiliary_case import TRAIN, mixtral, split_step
from language_models import IDS, padded, tokens_of, trainer_of, translations
from packaging.version import Version
from processes import output_of, start
from tiny_models import logged, sgd_step, weights
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
)

from hf_focal import build_loss, loss_func
from hf_focal.trainer.auxiliary_loss import AuxiliaryLoss
from hf_focal.trainer.loss_function import LossFunction
from hf_focal.trainer.model_checks import check_model


def stepped(model, rows, folder, **options):
    trainer = trainer_of(model, folder, train_dataset=rows, per_device_train_batch_size=8, **options)
    trainer.train()
    return trainer


def by_hand(model, parts, coefficient=10.0):
    """Loss and auxiliary loss of a step, the latter the mean over its micro-batches by their rows."""
    logits, labels = tokens_of(model, [row for part in parts for row in part])
    loss = F.cross_entropy(logits, labels)
    terms = [coefficient * model(**padded(part)).aux_loss for part in parts]
    rows = [len(tokens_of(model, part)[1]) for part in parts]
    return loss, sum(term * n for term, n in zip(terms, rows, strict=True)) / sum(rows)


def test_a_step_is_that_of_the_models_own_loss(tmp_path):
    expected = mixtral().train()
    loss = expected(**padded(TRAIN)).loss
    loss.backward()
    sgd_step(expected, 0.1)
    trainer = stepped(mixtral(), TRAIN, tmp_path)
    torch.testing.assert_close(weights(trainer.model), weights(expected), rtol=0, atol=1e-6)
    cross_entropy, auxiliary = (value.item() for value in by_hand(mixtral(), [TRAIN]))
    assert logged(trainer) == [pytest.approx(loss.item(), rel=1e-6)]
    assert logged(trainer, "aux_loss") == [pytest.approx(auxiliary, rel=1e-6)]
    rows = len(tokens_of(mixtral(), TRAIN)[1])
    summed = stepped(mixtral(), TRAIN, tmp_path, loss_reduction="sum", learning_rate=1e-6)
    assert logged(summed) == [pytest.approx(rows * (cross_entropy + auxiliary), rel=1e-6)]
    assert logged(summed, "aux_loss") == [pytest.approx(auxiliary, rel=1e-6)]


@pytest.mark.parametrize("linear_loss", ["on", "off", pytest.param("two processes", marks=pytest.mark.slow)])
def test_it_is_added_once_however_the_step_is_cut(linear_loss, tmp_path):
    expected, parts = mixtral(), [TRAIN[:2], TRAIN[2:4], TRAIN[4:6], TRAIN[6:]]
    loss, auxiliary = by_hand(expected, parts)
    (loss + auxiliary).backward()
    sgd_step(expected, 0.1)
    if linear_loss == "two processes":
        output_of(start("auxiliary_case.py", 2, tmp_path))
        steps = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    else:
        steps = [split_step(1, tmp_path, linear_loss=linear_loss)]
    for actual in steps:
        after = torch.tensor(actual["weights"], dtype=torch.float64)
        torch.testing.assert_close(after, weights(expected), rtol=0, atol=1e-6)
        assert actual["loss"] == pytest.approx(float(loss.detach() + auxiliary.detach()), rel=1e-6)
        assert actual["aux_loss"] == pytest.approx(float(auxiliary.detach()), rel=1e-6)


@pytest.mark.slow
def test_a_process_without_terms_takes_part_in_the_sums(tmp_path):
    output_of(start("uneven_auxiliary_loss.py", 2, tmp_path))
    found = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    expected = {"mean of some": 6.0, "state of some": [1.5, 0.25], "mean of none": None, "state of none": None}
    assert found == [expected, expected]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_soft_target_counts_as_one_item(reduction):
    class Model(torch.nn.Module):
        router_aux_loss_coef = 2.0

    outputs = {"logits": torch.randn(3, 4), "aux_loss": torch.tensor(0.5)}
    hard = torch.tensor([0, 3, 1])
    actual = [
        LossFunction(build_loss("cross_entropy"), reduction, auxiliary=AuxiliaryLoss(Model()))(outputs, labels, 3)
        for labels in (hard, F.one_hot(hard, 4).float())
    ]
    torch.testing.assert_close(*actual)
    auxiliary = actual[0] - F.cross_entropy(outputs["logits"], hard, reduction=reduction)
    assert auxiliary.item() == pytest.approx(1.0 if reduction == "mean" else 3.0, rel=1e-5)


@pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.18"),
    reason="SwitchTransformers of older releases fails on its own router logits",
)
def test_that_of_encoder_and_decoder_with_their_router_z_loss(tmp_path):
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
    sizes |= {"num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    sizes |= {"router_jitter_noise": 0.0, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    config = SwitchTransformersConfig(**IDS | sizes, router_z_loss_coef=0.5, router_aux_loss_coef=2.0)
    torch.manual_seed(0)
    model, rows = SwitchTransformersForConditionalGeneration(config), translations(8)

    def collate(rows):  # the model does not look into its configuration
        return padded(rows) | {"output_router_logits": True}

    with torch.no_grad():
        expected = model.eval()(**collate(rows))
    trainer = stepped(model, rows, tmp_path, data_collator=collate)
    assert logged(trainer) == [pytest.approx(float(expected.loss), rel=1e-5)]
    aux = expected.encoder_aux_loss + expected.decoder_aux_loss
    z = expected.encoder_z_loss + expected.decoder_z_loss
    assert logged(trainer, "aux_loss") == [pytest.approx(float(2 * aux + 0.5 * z), rel=1e-5)]


def test_evaluations_and_models_without_router_logits_have_none(tmp_path):
    trainer = trainer_of(mixtral(), tmp_path, train_dataset=TRAIN, eval_dataset=TRAIN)
    loss, _ = by_hand(trainer.model.eval(), [TRAIN])
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss.item(), rel=1e-6)
    trainer = stepped(mixtral(output_router_logits=False), TRAIN, tmp_path)
    assert logged(trainer, "aux_loss") == [] and logged(trainer) == [pytest.approx(loss.item(), rel=1e-6)]


def test_a_resumed_training_logs_what_an_uninterrupted_one_does(tmp_path):
    options = {"per_device_train_batch_size": 2, "save_strategy": "steps", "save_steps": 1, "logging_steps": 2}
    options["learning_rate"] = 1e-9  # Trainer does not restore the weights of experts
    whole, resumed = (trainer_of(mixtral(), tmp_path, train_dataset=TRAIN, **options) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    expected = logged(whole, "aux_loss")
    assert len(expected) == 2 and logged(resumed, "aux_loss") == pytest.approx(expected, rel=1e-6)


def test_outputs_that_cannot_be_added_are_refused():
    outputs = mixtral()(**{name: value for name, value in padded(TRAIN).items() if name != "labels"})
    with pytest.raises(ValueError, match=r"output_router_logits must be False for loss_func, got .* aux_loss"):
        loss_func("cross_entropy", shift_labels=True)(outputs, padded(TRAIN)["labels"])
    with pytest.raises(ValueError, match=r"model must have a router_aux_loss_coef, .* got none in Identity"):
        AuxiliaryLoss(torch.nn.Identity())(outputs, padded(TRAIN)["labels"], None, "mean")


@pytest.mark.parametrize(
    ("auto", "model_type", "options", "message"),
    [
        (AutoModelForSeq2SeqLM, "nllb-moe", {"output_router_logits": True}, "output_router_logits must be False, got"),
        (AutoModelForCausalLM, "bamba", {"z_loss_coefficient": 0.1}, "z_loss_coefficient must be 0, got 0.1"),
        (AutoModelForSeq2SeqLM, "prophetnet", {}, "disable_ngram_loss must be True, got False"),
    ],
)
def test_models_whose_loss_has_more_terms_are_refused(auto, model_type, options, message):
    model_class = auto._model_mapping[type(AutoConfig.for_model(model_type))]
    model = model_class.__new__(model_class)  # without its layers
    torch.nn.Module.__init__(model)
    model.config = AutoConfig.for_model(model_type, **options)
    with pytest.raises(ValueError, match=message):
        check_model(model)
