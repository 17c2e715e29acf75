"""Canaries: what the package relies on in Transformers without a promise, one test for each line of the tables in
docs/architecture.md that no other test would notice at once."""

import inspect
import json
from dataclasses import fields

import pytest
import torch
import transformers
from tiny_models import EVAL, rows, settings, tiny_bert
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    MarianConfig,
    MixtralConfig,
    PreTrainedModel,
    ProgressCallback,
    SegformerConfig,
    SwitchTransformersConfig,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    UperNetConfig,
    WhisperConfig,
)
from transformers.modeling_outputs import MoeCausalLMOutputWithPast, QuestionAnsweringModelOutput, Seq2SeqMoEOutput
from transformers.trainer_pt_utils import LengthGroupedSampler

from hf_focal import FocalTrainer
from hf_focal.calibration.folding import is_masked_language_model
from hf_focal.tasks import heads
from hf_focal.tasks.input_errors import as_input_errors
from hf_focal.trainer import model_checks


def test_names_that_trainer_logs(tmp_path):
    options = {"eval_strategy": "epoch", "num_train_epochs": 1, "logging_steps": 1}
    arguments = TrainingArguments(**settings(tmp_path, **options))
    trainer = Trainer(tiny_bert(), arguments, train_dataset=rows(16), eval_dataset=EVAL)
    trainer.train()
    kinds = [
        ("loss" in entry, "learning_rate" in entry, "train_loss" in entry, "eval_loss" in entry)
        for entry in trainer.state.log_history
    ]
    steps, evaluation, summary = (True, True, False, False), (False, False, False, True), (False, False, True, False)
    assert kinds == [steps, steps, evaluation, summary]
    assert {"train_runtime", "train_loss"} <= trainer.state.log_history[-1].keys()


def test_trainer_pushes_checkpoints_in_one_method():
    """`FocalTrainer` overrides it, so that a push while training has only the model."""
    parameters = inspect.signature(Trainer._push_from_checkpoint).parameters
    assert [*parameters] == ["self", "checkpoint_folder"]
    assert parameters.keys() == inspect.signature(FocalTrainer._push_from_checkpoint).parameters.keys()
    assert "self._push_from_checkpoint(" in inspect.getsource(Trainer._save_checkpoint)


OWN_METHODS = {
    *("build_loss", "begin_training", "class_counts", "check_labels_seen", "prepare_labels", "measure"),
    *("measure_confidences", "collect", "fit_correction", "fit_temperature", "held_out_dataset", "save_calibrated"),
    *("finish", "report", "load_loss_state"),
}


def test_trainer_has_the_methods_that_are_overridden():
    methods = {name for name, value in vars(FocalTrainer).items() if callable(value) and not name.startswith("_")}
    assert all(callable(getattr(Trainer, name)) for name in methods - OWN_METHODS)
    assert not any(hasattr(Trainer, name) for name in OWN_METHODS)
    assert not any(hasattr(Trainer, name) for name in ("fit", "head", "link", "loss", "confusion", "data_seed"))


def test_the_order_of_a_sampler_by_length_comes_from_its_generator():
    orders = []
    for seed in (0, 0, 1):
        sampler = LengthGroupedSampler(2, lengths=[3, 1, 4, 1, 5, 9, 2, 6])
        sampler.generator = torch.Generator().manual_seed(seed)
        orders.append([*sampler])
    assert orders[0] == orders[1] != orders[2] and (sampler.batch_size, len(sampler.lengths)) == (2, 8)


def test_the_progress_bars_have_these_names():
    callback = ProgressCallback()
    assert callback.training_bar is None and callback.prediction_bar is None


def classes_of(pattern: str) -> list[str]:
    """The names of the classes of Transformers that a pattern matches."""
    return [name for name in dir(transformers) if pattern.fullmatch(name)]


def test_classes_whose_labels_are_not_shifted_still_have_these_names():
    names = classes_of(model_checks._UNSHIFTED)
    assert len(names) == 17 and {"MarianForCausalLM", "XLNetLMHeadModel", "WhisperForCausalLM"} <= {*names}
    assert all(hasattr(transformers, name) for name in heads._TO_TEXT)


ENDINGS = (
    *("CTC", "RNNT", "DepthEstimation", "ImageMatting", "ImageSuperResolution", "KeypointDetection"),
    *("KeypointMatching", "MaskedImageModeling", "ObjectDetection", "PoseEstimation", "Prediction"),
    *("QuestionAnswering", "Regression", "Retrieval", "TextToSpeech", "XVector"),
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_heads_without_a_softmax_still_have_these_names(ending):
    assert any(name.endswith(f"For{ending}") for name in classes_of(model_checks._WITHOUT_SOFTMAX))


@pytest.mark.parametrize(
    "ending",
    [
        *("ForSequenceClassification", "ForImageClassification", "ForTokenClassification", "ForMultipleChoice"),
        *("ForNextSentencePrediction", "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForSemanticSegmentation"),
    ],
)
def test_kinds_of_heads_still_have_these_names(ending):
    assert any(name.endswith(ending) for name in dir(transformers))


def test_masked_language_models_are_known_by_their_names():
    kinds = [kind for kind in MODEL_FOR_MASKED_LM_MAPPING.values() if not isinstance(kind, tuple)]
    named = [kind for kind in kinds if any(base.__name__.endswith("ForMaskedLM") for base in kind.__mro__)]
    assert len(named) >= 0.8 * len(kinds)
    assert is_masked_language_model(transformers.BertForMaskedLM(BertConfig(num_hidden_layers=0, vocab_size=9)))


@pytest.mark.parametrize(
    ("auto", "config", "has"),
    [
        (AutoModelForSequenceClassification, BertConfig, True),
        (AutoModelForTokenClassification, MarianConfig, False),
        (AutoModelForQuestionAnswering, WhisperConfig, False),
    ],
)
def test_an_auto_class_knows_its_configurations(auto, config, has, tmp_path):
    assert heads.has_head(auto, config()) == has
    if not has:
        config().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="Unrecognized configuration class"):
            auto.from_pretrained(tmp_path)
    config = BertConfig()
    config.auto_map = {"AutoModelForCausalLM": "own.Model"}
    assert heads.has_head(transformers.AutoModelForCausalLM, config)


def test_remote_code_is_asked_for_in_one_function(tmp_path):
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with (
        pytest.raises(ValueError, match="comes with Python code of its own: read it, and give --trust_remote_code"),
        as_input_errors("model", str(tmp_path)),
    ):
        transformers.AutoConfig.from_pretrained(tmp_path, trust_remote_code=False)


def test_models_without_dummy_inputs_of_their_own_inherit_those_of_the_base_class():
    assert type(tiny_bert()).dummy_inputs is PreTrainedModel.dummy_inputs
    assert T5ForConditionalGeneration.dummy_inputs is not PreTrainedModel.dummy_inputs


def test_names_in_configurations_and_models():
    assert {"encoder_layerdrop", "decoder_layerdrop"} <= MarianConfig().to_dict().keys()
    assert any(name.endswith("position_embeddings") for name, _ in tiny_bert().named_modules())
    assert BertConfig().max_position_embeddings == 512 and MixtralConfig().router_aux_loss_coef > 0
    moe = SwitchTransformersConfig()
    assert moe.router_z_loss_coef > 0 and moe.router_aux_loss_coef > 0
    assert SegformerConfig().semantic_loss_ignore_index == UperNetConfig().loss_ignore_index == 255


def test_fields_of_outputs_still_have_these_names():
    def names(kind):
        return {part.name for part in fields(kind)}

    assert {"start_logits", "end_logits"} <= names(QuestionAnsweringModelOutput)
    assert {"logits", "aux_loss"} <= names(MoeCausalLMOutputWithPast)
    assert {f"{side}_{kind}_loss" for side in ("encoder", "decoder") for kind in ("aux", "z")} <= names(
        Seq2SeqMoEOutput
    )


def test_fsdp2_makes_a_class_that_derives_from_the_model():
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    kind = type("FSDPLinear", (fsdp.FSDPModule, torch.nn.Linear), {})
    assert next(base for base in kind.__mro__ if not issubclass(base, fsdp.FSDPModule)) is torch.nn.Linear
