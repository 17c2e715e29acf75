"""docs/heads.md: every head of Transformers' Auto classes works, or gets the sentence that the page quotes."""

import re

import pytest
import torch
import transformers
from documented_heads import REFUSED, ROW, WORKS, shell
from tiny_models import logged, trainer_of
from transformers.models.auto import modeling_auto

from hf_focal import CalibrationMetrics
from hf_focal.tasks.heads import Head, head_of
from hf_focal.trainer import FocalSeq2SeqTrainer, loss_func
from hf_focal.trainer.model_checks import check_model, set_problem_type

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 30}


def test_every_auto_class_has_one_row():
    named = [auto for auto, *_ in [*ROW.findall(WORKS), *REFUSED]]
    assert len(named) == len(set(named))
    assert {name for name in vars(modeling_auto) if name.startswith("AutoModelFor")} <= set(named)


@pytest.mark.parametrize(("auto", "name"), [row[:2] for row in ROW.findall(WORKS)])
def test_what_works_is_not_refused(auto, name):
    model = shell(name)
    assert type(model.config) in getattr(transformers, auto)._model_mapping
    before = model.config.to_dict()
    check_model(model)
    assert model.config.to_dict() == before  # a check changes nothing
    set_problem_type(model)
    has_samples = "SequenceClassification" in name or "ForImageClassification" in name
    assert getattr(model.config, "problem_type", None) == ("single_label_classification" if has_samples else None)


@pytest.mark.parametrize(("name", "sentence"), [row[1:] for row in REFUSED])
def test_what_is_refused_gets_the_sentence(name, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_model(shell(name))
        loss_func("cross_entropy").logits_of({"last_hidden_state": None})  # as of a model without a head


@pytest.mark.parametrize("name", ["BertForMultipleChoice", "BertForNextSentencePrediction"])
def test_heads_of_other_shapes_train_and_are_measured(name, tmp_path):
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**SIZES, max_position_embeddings=16))
    shape, classes = ((3, 6), 3) if name == "BertForMultipleChoice" else ((6,), 2)

    def samples(count):
        return [{"input_ids": torch.randint(30, shape), "labels": torch.randint(classes, ())} for _ in range(count)]

    data = {"train_dataset": samples(8), "eval_dataset": samples(20)}
    trainer = trainer_of(tmp_path, model, loss="focal:gamma=2", max_steps=1, **data)
    trainer.train()
    assert trainer.evaluate()["eval_num_samples"] == trainer.fit_temperature().num_samples == 20
    trainer.save_calibrated()
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert f"AutoModel{name.removeprefix('Bert')}.from_pretrained(" in card and "pipeline(" not in card
    if name == "BertForMultipleChoice":
        with pytest.raises(ValueError, match="method must be 'temperature' for multiple choice, got 'vector'"):
            trainer.fit_correction(method="vector")
        assert trainer.fit_correction(method="temperature").num_samples == 20


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("GPT2LMHeadModel", Head.NEXT_TOKENS),
        ("MarianMTModel", Head.TARGET_TOKENS),
        ("UperNetForSemanticSegmentation", Head.PIXELS),
        ("BertForSequenceClassification", Head.CLASSES),
    ],
)
def test_classes_of_ones_own_are_what_they_are_derived_from(base, head):
    model = shell(base)
    derived = type("OfMyOwn", (type(model),), {}).__new__(type("OfMyOwn", (type(model),), {}))
    derived.__dict__.update(model.__dict__)
    assert head_of(derived) is head_of(model) is head


def test_a_decoder_alone_in_transformers_list_of_encoder_decoders():
    assert head_of(shell("Qwen2AudioForConditionalGeneration")) is Head.NEXT_TOKENS


@pytest.mark.parametrize("name", ["XLNetLMHeadModel", "MarianForCausalLM"])
def test_models_whose_labels_are_shifted_already(name):
    with pytest.raises(ValueError, match=f"labels are its input_ids, not shifted, got {name}$"):
        check_model(shell(name))


DECODER = {"vocab_size": 30, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def whisper():
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    layers = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 8, "max_source_positions": 6}
    suppressed = dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"))
    config = transformers.WhisperConfig(**DECODER, **heads, **layers, **suppressed, decoder_start_token_id=1)
    return transformers.WhisperForConditionalGeneration(config), (8, 12), "automatic-speech-recognition"


def captions():
    encoder = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    configs = (
        transformers.ViTConfig(image_size=8, patch_size=4, **encoder),
        transformers.GPT2Config(**DECODER, **dropout, n_embd=8, n_layer=1, n_head=2, n_positions=16),
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*configs)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return transformers.VisionEncoderDecoderModel(config), (3, 8, 8), "image-to-text"


@pytest.mark.parametrize("build", [whisper, captions])
def test_sounds_and_images_are_trained_and_measured_by_their_text(build, tmp_path):
    torch.manual_seed(0)
    model, shape, task = build()

    def samples(count):
        labels = torch.randint(3, 30, (count, 5))
        labels[::2, 3:] = torch.tensor([2, -100])  # shorter ones
        return [{model.main_input_name: torch.randn(shape), "labels": row} for row in labels]

    def model_outputs(rows):
        """The loss that the model itself computes, with its own decoder inputs, its logits, and the labels."""
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        with torch.no_grad():
            actual = model.eval()(**batch)
        return actual.loss.item(), actual.logits, batch["labels"]

    train, test = samples(8), samples(20)
    expected = model_outputs(train)[0]
    options = {"loss": "cross_entropy", "max_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 8}
    trainer = trainer_of(tmp_path, model, FocalSeq2SeqTrainer, train_dataset=train, eval_dataset=test, **options)
    trainer.train()
    losses = logged(trainer)
    assert losses[0] == pytest.approx(expected, rel=1e-5) and losses[1] < losses[0]
    metrics, (loss, logits, labels) = trainer.evaluate(), model_outputs(test)
    reference = CalibrationMetrics(classwise=False)
    reference.update(logits.double(), labels)
    assert metrics["eval_num_samples"] == 90 and metrics["eval_nll"] == pytest.approx(loss, rel=1e-5)
    assert metrics["eval_ece"] == pytest.approx(reference.compute()["ece"], abs=1e-5)
    temperature = trainer.fit_temperature()
    trainer.save_calibrated()  # T is beside the weights: the head has no input_ids to be checked with
    assert (tmp_path / "temperature.json").is_file()
    assert type(model).from_pretrained(tmp_path).config.calibration["temperature"] == temperature.value
    trainer.create_model_card()
    assert f"pipeline_tag: {task}\n" in (tmp_path / "README.md").read_text(encoding="utf-8")
