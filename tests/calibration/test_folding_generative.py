"""Folding a temperature into tiny random models that generate: logits, beam search and refusals.

`test_round_trip.py` has the same models, through save_pretrained and back.
"""

import copy

import pytest
import torch
import transformers
from tiny_generators import GEMMA, LLAMA, MODELS, TIED, UNTIED, VOCABULARY, build, inputs, logits_of
from torch import nn
from torch.distributed.fsdp import FSDPModule

from hf_focal import Temperature, calibrated_generation, fold_correction
from hf_focal.calibration import apply_calibrated_generation


def beams_of(model, **options):
    output = model.generate(
        **inputs(model),
        num_beams=4,
        max_new_tokens=6,
        length_penalty=0.6,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return output.sequences.tolist(), output.sequences_scores


def same_scores(got, expected):
    return torch.allclose(got[1], expected[1], atol=1e-3)


def assert_same_beams(got, expected):
    torch.testing.assert_close(got[1], expected[1], rtol=1e-5, atol=1e-5)
    assert got[0] == expected[0]


def assert_divided(after, before, value, tolerance=1e-5):
    torch.testing.assert_close(after, before / value, rtol=0, atol=tolerance * float(before.abs().max()))


def tied_names(model):
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def assert_untouched(model, state):
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not hasattr(model.config, "calibration")
    assert not any(module._forward_hooks for module in model.modules())


# One for each form of norm and head; `test_round_trip.py` has all.
FORMS = ["marian", "marian-two-vocabularies", "mbart", "t5", "t5-untied", "phi", "granite", "gemma"]


@pytest.mark.parametrize("name", FORMS)
def test_a_folded_model_generates_with_its_temperature(name):
    model = build(name).train()
    model.lm_head.eval()
    training = {module: module.training for module in model.modules()}
    kept, divided = copy.deepcopy(model).eval(), MODELS[name][2]
    before, shared = logits_of(kept), tied_names(model)
    if name == "marian-two-vocabularies" and not shared:  # some releases of Transformers do not tie this head
        divided = "lm_head.weight"
    assert fold_correction(model, 1.7) is model

    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, kept.state_dict()[key])}
    assert divided in changed and len(changed) <= 3
    assert tied_names(model) == shared
    assert {module: module.training for module in model.modules()} == training
    assert not any(module._forward_hooks for module in model.modules())

    model.eval()
    assert_divided(logits_of(model), before, 1.7)
    assert torch.equal(logits_of(model).argmax(-1), before.argmax(-1))
    expected = beams_of(kept, **calibrated_generation(1.7))
    assert calibrated_generation(model) == {}
    assert_same_beams(beams_of(model), expected)
    assert not same_scores(beams_of(kept), expected)


def test_folding_again_records_the_product():
    model = build("llama")
    before = logits_of(model)
    fold_correction(model, Temperature(1.5, "nll", 0.03, 0.02, 0.6, 0.5, 900, 15))
    assert model.config.calibration == {"temperature": 1.5, "folded": True}
    fold_correction(model, Temperature(2.0, "ece", 0.02, 0.01, 0.5, 0.4, 800, 15))
    assert model.config.calibration == {"temperature": 3.0, "folded": True}
    assert_divided(logits_of(model), before, 3.0)


def test_a_recorded_temperature_is_replaced_and_does_not_count_twice():
    model = build("marian")
    before = logits_of(model)
    expected = beams_of(model, **calibrated_generation(2.0))
    apply_calibrated_generation(model, Temperature(5.0, "nll", 0.03, 0.02, 0.6, 0.5, 900, 15))
    assert not same_scores(beams_of(model), expected)
    fold_correction(model, 2.0)
    assert model.config.calibration == {"temperature": 2.0, "folded": True}
    assert_divided(logits_of(model), before, 2.0)
    assert_same_beams(beams_of(model), expected)  # by the replaced generate, which finds nothing left to do


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.03), (torch.float64, 1e-6)])
def test_other_precisions(dtype, tolerance):
    model = build("gemma", dtype)
    before = logits_of(model)
    assert_divided(logits_of(fold_correction(model, 1.7)), before, 1.7, tolerance)


@pytest.mark.parametrize("tied", [TIED, UNTIED])
def test_soft_caps_are_refused(tied):
    name = "Gemma2ForCausalLM"
    model = build(name, **GEMMA, **tied, final_logit_softcapping=30.0)
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(TypeError, match=rf"got {name}, whose are not \(a soft-cap.*divide its logits by T instead"):
        fold_correction(model, 2.0)
    assert_untouched(model, state)


def test_gemma2_without_its_soft_cap_is_folded():
    model = build("Gemma2ForCausalLM", **GEMMA, final_logit_softcapping=None)
    before = logits_of(model)
    assert_divided(logits_of(fold_correction(model, 2.0)), before, 2.0)


def test_a_layer_between_norm_and_head_is_refused_only_where_it_is_not_linear():
    # OPT-350m's form: the last norm is in the last layer, and a projection follows.
    shape = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = build("OPTForCausalLM", **shape, word_embed_proj_dim=8, do_layer_norm_before=False)
    before = logits_of(model)
    assert_divided(logits_of(fold_correction(model, 2.0)), before, 2.0)

    model.model.decoder.project_out.register_forward_hook(lambda module, args, output: output.tanh())
    with pytest.raises(TypeError, match="proportional to its last norm or head, got OPTForCausalLM"):
        fold_correction(model, 2.0)
    assert model.config.calibration["temperature"] == 2.0


@pytest.mark.parametrize("name", ["llama", "llama-tied"])
def test_an_additive_term_that_nobody_knows_is_refused_unless_it_masks(name):
    model = build(name)
    term = torch.zeros(VOCABULARY)

    def add(module, args, output):
        output.logits = output.logits + term

    model.register_forward_hook(add)
    term[5] = 0.1
    with pytest.raises(TypeError, match="proportional"):
        fold_correction(model, 2.0)
    term[5] = -torch.inf
    before = logits_of(model)
    after = logits_of(fold_correction(model, 2.0))
    assert_divided(after[..., 6:], before[..., 6:], 2.0)


def test_what_cannot_be_saved_or_divided_is_refused():
    model = build("gpt2")
    model.peft_config = {}
    with pytest.raises(TypeError, match="must have its adapters merged, got a GPT2LMHeadModel"):
        fold_correction(model, 2.0)
    del model.peft_config
    model.transformer.ln_f = nn.Identity()
    model.transformer.h[0].ln_1 = model.transformer.h[0].ln_2 = nn.Identity()
    with pytest.raises(TypeError, match="must have a norm before a head that shares its weight, got GPT2LMHeadModel"):
        fold_correction(model, 2.0)

    model = build("gpt2")
    model.transformer.h[0].ln_1.weight = model.transformer.ln_f.weight
    with pytest.raises(TypeError, match=r"must be their layer's own, got shared ones: .*ln_1.*ln_f"):
        fold_correction(model, 2.0)

    model = build("gpt2")
    model.lm_head = nn.Sequential(model.lm_head)
    with pytest.raises(TypeError, match="by a Linear head, got GPT2LMHeadModel with input_ids and Sequential: divide"):
        fold_correction(model, 2.0)


def test_other_inputs_are_refused():
    shape = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    shape |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    model = build("WhisperForConditionalGeneration", **shape)
    with pytest.raises(TypeError, match=r"from input_ids.*got WhisperForConditionalGeneration with input_features"):
        fold_correction(model, 2.0)


def test_quantized_and_offloaded_weights_are_refused():
    model = build("llama")
    floating = model.lm_head.weight
    model.lm_head.forward = lambda hidden: hidden @ floating.T  # as quantized layers compute
    model.lm_head.weight = nn.Parameter(floating.detach().to(torch.int8), requires_grad=False)
    with pytest.raises(TypeError, match=r"lm_head is torch\.nn\.modules\.linear\.Linear: fold before you quantize"):
        fold_correction(model, 2.0)
    model.lm_head.weight = nn.Parameter(floating.detach().to(torch.float8_e4m3fn), requires_grad=False)
    with pytest.raises(TypeError, match="fold before you quantize"):
        fold_correction(model, 2.0)
    model.lm_head.weight = nn.Parameter(floating.detach().to("meta"))
    with pytest.raises(TypeError, match="must be in memory, got some on the meta device"):
        fold_correction(model, 2.0)


@pytest.mark.parametrize(("name", "cut_up_by"), [("llama", "fsdp"), ("BertForSequenceClassification", "zero3")])
def test_models_cut_up_among_processes_are_refused_before_anything_runs(name, cut_up_by, monkeypatch):
    shape = {key: LLAMA[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads")}
    model = build(name, **(shape if name.startswith("Bert") else {}))
    model.forward = None  # would wait for the other processes
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    if cut_up_by == "fsdp":
        model.__class__ = type(f"FSDP{type(model).__name__}", (FSDPModule, type(model)), {})
    else:
        next(model.parameters()).ds_id = 0
    with pytest.raises(TypeError, match=r"must be whole, got .* sharded by FSDP or ZeRO-3"):
        fold_correction(model, 2.0)


def test_tokens_that_rounding_changes_are_counted():
    torch.manual_seed(0)
    sizes = {"n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=5000, **sizes)).bfloat16()
    with pytest.warns(
        UserWarning, match=r"T = 1.3 in torch.bfloat16 weights changes .* of the predictions on 256 rand"
    ):
        fold_correction(model, 1.3)
    before = model.transformer.ln_f.weight.clone()
    with pytest.raises(ValueError, match="correction must keep weights and logits finite"):
        fold_correction(model, 1e-39)
    assert torch.equal(model.transformer.ln_f.weight, before)
    assert model.config.calibration == {"temperature": 1.3, "folded": True}
