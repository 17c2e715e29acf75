"""Training a language model without its logits gives the gradients of training it with them."""

import copy
import operator
from unittest import mock

import language_models
import pytest
import torch
from language_models import IDS, LLAMA, VOCABULARY
from packaging.version import Version
from tiny_models import assert_exact, weights
from torch import nn
from torch._dynamo.utils import counters
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
)

from hf_focal.losses import build_loss
from hf_focal.trainer import deferred_logits
from hf_focal.trainer.deferred_logits import DeferredLogits, deferred

DECODER = IDS | LLAMA | {"num_key_value_heads": 1, "head_dim": 4}
ADDED = {
    "gemma2, a soft cap": lambda: Gemma2ForCausalLM(Gemma2Config(**DECODER, final_logit_softcapping=0.5)),
    "cohere, a scale": lambda: CohereForCausalLM(CohereConfig(**DECODER, logit_scale=0.3)),
    "granite, a divisor": lambda: GraniteForCausalLM(GraniteConfig(**DECODER, logits_scaling=3.0)),
}
MODELS = ("marian", "bart", "mbart", "t5", "gpt2", "llama", *ADDED)


@pytest.fixture
def never_computed():
    """The logits of a training step are not computed."""
    error = AssertionError("the logits were computed")
    with mock.patch.object(DeferredLogits, "tensor", side_effect=error):
        yield


def model_of(name):
    torch.manual_seed(0)
    model = ADDED[name]().double() if name in ADDED else language_models.build(name)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model.train()


def batch():
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(2, VOCABULARY, (6, 5), generator=generator)
    labels[0, 3:] = labels[4, 2:] = -100
    return {"input_ids": torch.randint(2, VOCABULARY, (6, 5), generator=generator), "labels": labels}


def trainer_of(model, folder, loss="focal:gamma=2", **options):
    return language_models.trainer_of(model, folder, **{"loss": loss, "train_dataset": [{}]} | options)


def gradients(trainer, **scaling):
    model = trainer.model
    model.zero_grad()
    loss = trainer.compute_loss(model, batch(), **scaling)
    loss.backward()
    return loss, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize(
    ("name", "loss", "reduction"),
    [
        *((name, "flsd53", "mean") for name in MODELS),
        *(("llama", loss, "mean") for loss in ("cross_entropy", "label_smoothing:alpha=0.1", "adafocal:bins=3")),
        ("marian", "flsd53", "sum"),
    ],
)
def test_gradients_are_those_of_the_logits(name, loss, reduction, tmp_path, never_computed):
    model, scaling = model_of(name), {"num_items_in_batch": torch.tensor(20.0)}
    options = {"loss_reduction": reduction}
    expected_loss, expected = gradients(trainer_of(model, tmp_path, loss, linear_loss="off", **options), **scaling)
    actual_loss, actual = gradients(trainer_of(model, tmp_path, loss, linear_loss="on", **options), **scaling)
    torch.testing.assert_close(actual_loss, expected_loss, rtol=1e-12, atol=0)
    assert actual.keys() == expected.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(actual[weight], gradient, rtol=1e-9, atol=1e-13, msg=weight)
    assert "forward" not in vars(model.get_output_embeddings())


@pytest.mark.parametrize("name", ["marian", "llama", *ADDED])  # one for each operation behind the head
@pytest.mark.slow
def test_a_compiled_backbone_trains_as_itself(name, tmp_path):
    """Compiled operations are the plain ones in another order: float64 weights differ by rounding alone."""
    torch.compiler.reset()
    counters.clear()
    data = {key: torch.cat([value] * 4) for key, value in batch().items()}
    rows = [{key: value[row] for key, value in data.items()} for row in range(24)]
    actual = []
    for options in ({}, {"torch_compile": True, "torch_compile_backend": "aot_eager"}):
        options |= {"linear_loss": "on", "per_device_train_batch_size": 6, "data_collator": None}
        trainer = trainer_of(model_of(name), tmp_path, train_dataset=rows, **options)
        with mock.patch.object(deferred_logits, "linear_loss", wraps=deferred_logits.linear_loss) as called:
            trainer.train()
        assert called.call_count == 4
        assert isinstance(trainer.model_wrapped, torch._dynamo.OptimizedModule) == ("torch_compile" in options)
        actual.append(weights(trainer.model))
    # Not another one in each step. Older releases break the graphs more often.
    assert 1 <= counters["stats"]["unique_graphs"] <= (3 if Version(torch.__version__) >= Version("2.13") else 8)
    assert (actual[0] - weights(model_of(name))).abs().max() > 1e-3
    assert_exact(*actual)


def test_evaluation_computes_logits(tmp_path):
    trainer = trainer_of(model_of("llama"), tmp_path)
    trainer.model.eval()
    _, outputs = trainer.compute_loss(trainer.model, batch(), return_outputs=True)
    assert isinstance(outputs["logits"], torch.Tensor)


def test_mixed_precision_reaches_the_loss(tmp_path, never_computed):
    model = model_of("t5").float()
    losses = []
    for linear_loss in ("off", "on"):
        trainer = trainer_of(model, tmp_path, linear_loss=linear_loss)
        # As accelerate's wrapper of the model's forward does: it ends before the loss is computed.
        forward = model.forward
        with mock.patch.object(model, "forward", torch.autocast("cpu", torch.bfloat16)(forward)):
            losses.append(gradients(trainer)[0])
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(*losses, rtol=2e-3, atol=0)


def test_half_precision_of_the_launcher_computes_no_logits(tmp_path, never_computed):
    model = model_of("gpt2").float()
    trainer = trainer_of(model, tmp_path, bf16=True)
    wrapped = trainer.accelerator.prepare_model(model)  # its outputs become float32
    loss = trainer.compute_loss(wrapped, batch())
    assert loss.dtype == torch.float32
    loss.backward()


def head_and_hidden():
    torch.manual_seed(0)
    return nn.Linear(4, 7).double(), torch.rand(3, 5, 4, dtype=torch.float64)


UNKNOWN = [
    lambda z: z - 1.0,
    lambda z: torch.relu(z),
    lambda z: torch.tanh(torch.tanh(z)),
    lambda z: z * torch.arange(7.0),
    lambda z: z / torch.full((7,), 2.0),
    lambda z: z * 2 + torch.arange(7.0),
    lambda z: z + torch.ones(3, 5, 7),
    lambda z: z[:, 1],
    lambda z: z[..., :3],
    lambda z: z.log_softmax(-1),
    lambda z: torch.cat([z, z], -1),
    lambda z: torch.softmax(input=z, dim=-1),
    lambda z: 1.0 - z,
    lambda z: 2 * z,
    lambda z: torch.tanh(z / 3.0) * -3.0,
]
KNOWN = [
    lambda z: z + torch.arange(7.0) + torch.ones(1, 7),
    lambda z: z.float() * 0.5 / 4,
    lambda z: torch.tanh(z / 3.0) * 3.0,
    lambda z: z[..., :-1, :],
]


def test_deferred_logits_can_be_copied():
    head, hidden = head_and_hidden()
    torch.testing.assert_close(copy.copy(DeferredLogits(hidden, head)) + 0.5, head(hidden) + 0.5)


def test_a_model_that_does_something_unknown_gets_logits():
    head, hidden = head_and_hidden()
    for function in (*UNKNOWN, *KNOWN):
        with deferred(head):
            actual = function(head(hidden))
        assert isinstance(actual, DeferredLogits if function in KNOWN else torch.Tensor)
        actual = actual.tensor() if function in KNOWN else actual
        torch.testing.assert_close(actual, function(head(hidden)).double(), rtol=1e-6, atol=1e-7)


UNARY = [operator.abs, operator.neg, operator.pos]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
BINARY += [operator.matmul, operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le]


@pytest.mark.parametrize("function", [*UNARY, *BINARY], ids=lambda function: function.__name__)
def test_operators_are_those_of_the_computed_logits(function):
    torch.manual_seed(0)
    head, hidden, other = nn.Linear(4, 7), torch.rand(7, 4), torch.rand(7, 7) + 0.5
    calls = [function] if function in UNARY else [lambda z: function(z, other), lambda z: function(other, z)]
    for call in calls:
        with deferred(head):
            actual = call(head(hidden))
        actual = actual.tensor() if isinstance(actual, DeferredLogits) else actual
        torch.testing.assert_close(actual, call(head(hidden)), rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_loss_is_that_of_rows_and_of_logits_that_are_changed_in_place():
    head, hidden = head_and_hidden()
    loss, labels, expected = build_loss("focal:gamma=1"), torch.full((3, 5), 2), head(hidden).detach().clone()
    with deferred(head):
        logits = head(hidden)
    torch.testing.assert_close(
        logits.loss(loss, labels, reduction="none"), loss(expected, labels, reduction="none"), rtol=1e-5, atol=1e-7
    )
    logits[..., 0] = expected[..., 0] = -1e9  # as models forbid tokens
    torch.testing.assert_close(logits.loss(loss, labels), loss(expected, labels))
    assert isinstance(logits * 2, torch.Tensor)


def test_the_head_is_whole_after_an_error():
    head = nn.Linear(2, 3)
    with pytest.raises(RuntimeError, match="boom"), deferred(head):
        raise RuntimeError("boom")
    assert isinstance(head(torch.zeros(1, 2)), torch.Tensor)


def test_auto_gives_way_and_on_says_why(tmp_path):
    mmce = trainer_of(model_of("llama"), tmp_path, "mmce:lam=2")
    torch.testing.assert_close(gradients(mmce)[0], gradients(mmce)[0])
    with pytest.raises(ValueError, match=r"linear_loss must be 'auto' or 'off' here, got 'on': the loss mmce"):
        trainer_of(model_of("llama"), tmp_path, "mmce:lam=2", linear_loss="on")
    model = model_of("llama")
    model.lm_head = nn.Sequential(model.lm_head)
    with pytest.raises(ValueError, match=r"not a plain nn\.Linear"):
        trainer_of(model, tmp_path, linear_loss="on")
    assert trainer_of(model, tmp_path).train_dataset
