"""Training a language model without its logits gives the gradients of training it with them."""

import operator
from unittest import mock

import pytest
import torch
from packaging.version import Version
from tiny_models import settings
from torch import nn
from torch._dynamo.utils import counters
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_focal import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from hf_focal.losses import build_loss
from hf_focal.trainer import deferred_logits
from hf_focal.trainer.deferred_logits import DeferredLogits, deferred

VOCABULARY = 40
SEQ2SEQ = {
    **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (("layers", 1), ("ffn_dim", 16))},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16, "dropout": 0.0},
    **{"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
DECODER = {
    **{"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0},
}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
MODELS = {
    "marian": lambda: MarianMTModel(MarianConfig(**SEQ2SEQ, decoder_vocab_size=VOCABULARY, forced_eos_token_id=None)),
    "bart": lambda: BartForConditionalGeneration(BartConfig(**SEQ2SEQ)),
    "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**SEQ2SEQ)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **T5)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**DECODER)),
    "gemma2, a soft cap": lambda: Gemma2ForCausalLM(Gemma2Config(**DECODER, final_logit_softcapping=0.5)),
    "cohere, a scale": lambda: CohereForCausalLM(CohereConfig(**DECODER, logit_scale=0.3)),
    "granite, a divisor": lambda: GraniteForCausalLM(GraniteConfig(**DECODER, logits_scaling=3.0)),
}


@pytest.fixture
def never_computed():
    """The logits of a training step are not computed."""
    error = AssertionError("the logits were computed")
    with mock.patch.object(DeferredLogits, "tensor", side_effect=error):
        yield


def model_of(name):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model.train()


def batch():
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(2, VOCABULARY, (6, 5), generator=generator)
    labels[0, 3:] = labels[4, 2:] = -100
    return {"input_ids": torch.randint(2, VOCABULARY, (6, 5), generator=generator), "labels": labels}


def trainer_of(model, folder, loss="focal:gamma=2", **options):
    seq2seq = model.config.is_encoder_decoder
    kind, arguments = (
        (FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments) if seq2seq else (FocalTrainer, FocalTrainingArguments)
    )
    return kind(model, arguments(**settings(folder, loss=loss, **options)), train_dataset=[{}])


def gradients(trainer, **scaling):
    model = trainer.model
    model.zero_grad()
    loss = trainer.compute_loss(model, batch(), **scaling)
    loss.backward()
    return loss, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize(
    ("name", "loss"),
    [(name, "flsd53") for name in MODELS]
    + [("llama", loss) for loss in ("cross_entropy", "label_smoothing:alpha=0.1", "adafocal:bins=3")],
)
def test_gradients_are_those_of_the_logits(name, loss, tmp_path, never_computed):
    model, scaling = model_of(name), {"num_items_in_batch": torch.tensor(20.0)}
    expected_loss, expected = gradients(trainer_of(model, tmp_path, loss, linear_loss="off"), **scaling)
    trainer = trainer_of(model, tmp_path, loss, linear_loss="on")
    found_loss, found = gradients(trainer, **scaling)
    torch.testing.assert_close(found_loss, expected_loss, rtol=1e-12, atol=0)
    assert found.keys() == expected.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(found[weight], gradient, rtol=1e-9, atol=1e-13, msg=weight)
    assert "forward" not in vars(model.get_output_embeddings())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_a_compiled_backbone_trains_as_itself(name, tmp_path):
    """Compiled operations are the plain ones in another order: float64 weights differ by rounding alone."""
    torch.compiler.reset()
    counters.clear()
    found = []
    for options in ({}, {"torch_compile": True, "torch_compile_backend": "aot_eager"}):
        data = {key: torch.cat([value] * 4) for key, value in batch().items()}
        rows = [{key: value[row] for key, value in data.items()} for row in range(24)]
        trainer = trainer_of(
            model_of(name), tmp_path, linear_loss="on", per_device_train_batch_size=6, learning_rate=0.1, **options
        )
        trainer.train_dataset = rows
        with mock.patch.object(deferred_logits, "linear_loss", wraps=deferred_logits.linear_loss) as called:
            trainer.train()
        assert called.call_count == 4
        assert isinstance(trainer.model_wrapped, torch._dynamo.OptimizedModule) == bool(options)
        found.append(nn.utils.parameters_to_vector(trainer.model.parameters()).detach())
    # Not another one in each step. Older releases break the graphs more often.
    assert 1 <= counters["stats"]["unique_graphs"] <= (3 if Version(torch.__version__) >= Version("2.13") else 8)
    start = nn.utils.parameters_to_vector(model_of(name).parameters()).detach()
    assert (found[0] - start).abs().max() > 1e-3
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_the_sum_of_the_papers_code(tmp_path, never_computed):
    model = model_of("marian")
    for reduction in ("sum", "mean"):
        options = {"loss_reduction": reduction}
        expected, _ = gradients(trainer_of(model, tmp_path, linear_loss="off", **options))
        found, _ = gradients(trainer_of(model, tmp_path, **options))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


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


def test_a_model_that_does_something_unknown_gets_logits():
    torch.manual_seed(0)
    head, hidden = nn.Linear(4, 7).double(), torch.randn(3, 5, 4, dtype=torch.float64)
    expected = head(hidden)
    unknown = [
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
    for function in unknown:
        with deferred(head):
            found = function(head(hidden))
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, function(expected), rtol=1e-12, atol=1e-14)
    known = [
        lambda z: z + torch.arange(7.0) + torch.ones(1, 7),
        lambda z: z.float() * 0.5 / 4,
        lambda z: torch.tanh(z / 3.0) * 3.0,
        lambda z: z[..., :-1, :],
    ]
    for function in known:
        with deferred(head):
            found = function(head(hidden))
        assert isinstance(found, DeferredLogits)
        torch.testing.assert_close(found.tensor(), function(expected).double(), rtol=1e-6, atol=1e-7)


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
            found = call(head(hidden))
        found = found.tensor() if isinstance(found, DeferredLogits) else found
        torch.testing.assert_close(found, call(head(hidden)), rtol=1e-5, atol=1e-6, equal_nan=True)


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
    with pytest.raises(ValueError, match="linear_loss must be 'auto', 'on' or 'off', got 'yes'"):
        trainer_of(model_of("llama"), tmp_path, linear_loss="yes")


def test_logits_that_are_changed_in_place_are_those_of_the_loss():
    torch.manual_seed(0)
    head, hidden, labels = nn.Linear(4, 7).double(), torch.randn(3, 5, 4, dtype=torch.float64), torch.full((3, 5), 2)
    loss, expected = build_loss("focal:gamma=1"), head(hidden).detach().clone()
    expected[..., 0] = -1e9
    with deferred(head):
        logits = head(hidden)
        logits[..., 0] = -1e9  # as models forbid tokens
    torch.testing.assert_close(logits.loss(loss, labels), loss(expected, labels))
    assert isinstance(logits * 2, torch.Tensor)


def test_rows_are_those_of_the_loss():
    torch.manual_seed(0)
    head, hidden, labels = nn.Linear(4, 7), torch.randn(3, 5, 4), torch.randint(7, (3, 5))
    loss = build_loss("focal:gamma=1")
    with deferred(head):
        logits = head(hidden)
    rows = logits.loss(loss, labels, reduction="none")
    torch.testing.assert_close(rows, loss(head(hidden), labels, reduction="none"), rtol=1e-5, atol=1e-7)
