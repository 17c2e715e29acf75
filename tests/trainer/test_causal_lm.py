"""What FocalTrainer computes with causal language models: position i predicts label i + 1.

Trainer leaves each row's first label out of its count of a step's items for classes named ...ForCausalLM, and counts
it for GPT2LMHeadModel.
"""

import math

import pytest
import torch
from language_models import (
    BART,
    IDS,
    LOSSES,
    assert_same_change,
    build,
    mean_loss,
    padded,
    step_by_hand,
    texts,
    tokens_of,
    trainer_of,
    weights,
)
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianForCausalLM,
    MarianMTModel,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    XLNetConfig,
    XLNetLMHeadModel,
)

from hf_focal import CalibrationMetrics, FocalTrainer, FocalTrainingArguments, fit_temperature
from hf_focal.tasks.heads import Head, head_of

FAMILIES = ("gpt2", "llama")
TRAIN, EVAL = texts(11), texts(13, seed=1)


def test_tokens_that_count():
    # All labels but the first of each row, and those of prompts.
    expected = sum(sum(label != -100 for label in row["labels"][1:]) for row in TRAIN)
    assert len(tokens_of(build("gpt2"), TRAIN)[1]) == expected


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_the_mean_over_all_predicted_tokens_however_it_is_cut(family, loss, tmp_path):
    expected = build(family)
    step_by_hand(expected, loss, TRAIN)
    with torch.no_grad():
        value = float(mean_loss(loss, *tokens_of(build(family), TRAIN)))
    for batch_size, accumulation in ((11, 1), (6, 2), (3, 4)):
        model = build(family)
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        trainer = trainer_of(model, tmp_path, loss=loss, train_dataset=TRAIN, **options)
        trainer.train()
        assert trainer.state.global_step == 1
        assert_same_change(model, expected, before=weights(build(family)))
        assert trainer.state.log_history[0]["loss"] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_models_own_loss_is_that_of_cross_entropy(family):
    model = build(family)
    with torch.no_grad():
        own = model(**padded(TRAIN)).loss
        assert float(mean_loss("cross_entropy", *tokens_of(model, TRAIN))) == pytest.approx(float(own), rel=1e-6)


def metrics_of(model, rows, temperature=1.0):
    metrics = CalibrationMetrics(classwise=False)
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), rows)
    metrics.update(logits / temperature, labels)
    return {name: value for name, value in metrics.compute().items() if not math.isnan(value)}


@pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_and_temperature_are_those_of_the_predicted_tokens(family, tmp_path):
    model = build(family)
    trainer = trainer_of(model, tmp_path, loss="flsd53", train_dataset=TRAIN, eval_dataset=EVAL)
    metrics, expected = trainer.evaluate(), metrics_of(model, EVAL)
    assert {"nll", "ece", "accuracy"} <= expected.keys()
    for name, value in expected.items():
        assert metrics[f"eval_{name}"] == pytest.approx(value, rel=0, abs=1e-6), name
    with torch.no_grad():
        logits, labels = tokens_of(model, EVAL)
    assert metrics["eval_loss"] == pytest.approx(float(mean_loss("flsd53", logits, labels)), rel=1e-6)
    temperature = trainer.fit_temperature(objective="ece")
    assert temperature.value == fit_temperature(logits, labels, "ece").value
    assert temperature.num_samples == len(labels)
    metrics, after = trainer.evaluate(), metrics_of(model, EVAL, temperature.value)
    for name in ("ece", "nll"):
        assert metrics[f"eval_{name}_post_t"] == pytest.approx(after[name], rel=0, abs=1e-6)
    before, measured = trainer.measure(EVAL)
    assert before.compute()["ece"] == metrics["eval_ece"]
    assert measured.compute()["ece"] == metrics["eval_ece_post_t"]


def test_rows_without_labels_are_refused(tmp_path):
    unlabelled = [{"input_ids": row["input_ids"]} for row in TRAIN]
    trainer = trainer_of(build("gpt2"), tmp_path, train_dataset=unlabelled)
    with pytest.raises(ValueError, match="labels must be in the batch, got None"):
        trainer.train()


@pytest.mark.parametrize("family", ["xlnet", "marian"])
def test_models_whose_labels_are_shifted_already(family, tmp_path):
    if family == "xlnet":
        model = XLNetLMHeadModel(XLNetConfig(vocab_size=24, d_model=8, n_layer=1, n_head=2, d_inner=8))
    else:  # the decoder alone
        model = MarianForCausalLM(MarianConfig(**BART | IDS, decoder_vocab_size=24))
    with pytest.raises(ValueError, match=f"labels are its input_ids, not shifted, got {type(model).__name__}$"):
        FocalTrainer(model=model, args=FocalTrainingArguments(str(tmp_path), use_cpu=True))


def test_a_decoder_alone_in_transformers_list_of_encoder_decoders():
    small = {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    text = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **small},
        text_config={"model_type": "qwen2", "vocab_size": 24, **text},
    )
    assert head_of(Qwen2AudioForConditionalGeneration(config)) is Head.NEXT_TOKENS
    assert head_of(build("marian")) is Head.TARGET_TOKENS


def test_classes_of_ones_own_are_what_they_are_derived_from():
    class Own(GPT2LMHeadModel):
        pass

    class OwnTranslator(MarianMTModel):
        pass

    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1}
    assert head_of(Own(GPT2Config(vocab_size=10, **sizes))) is Head.NEXT_TOKENS
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    config = MarianConfig(vocab_size=10, decoder_vocab_size=10, d_model=8, pad_token_id=0, **layers)
    assert head_of(OwnTranslator(config)) is Head.TARGET_TOKENS
