"""Which models cannot be trained with the losses here, or calibrated."""

import inspect
import re
from typing import Any

from torch import nn
from transformers import (
    MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING,
    MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING,
    PreTrainedModel,
)

from ..errors import InputError
from ..tasks.heads import Head, class_names, head_of, is_listed, without_adapter
from ..utils.constants import MULTI_LABEL
from ..utils.model_wrappers import unwrap

# Causal language models whose own loss expects shifted labels; the loss here would shift these labels again.
_UNSHIFTED = re.compile(
    "(Bart|BigBirdPegasus|Blenderbot|BlenderbotSmall|CpmAnt|MBart|Marian|Musicgen|MusicgenMelody|Mvp|PLBart|Pegasus|"
    "ProphetNet|TrOCR|Whisper)ForCausalLM|(XLMWith|XLNet)LMHeadModel"
)
# Models whose logits, if they have any, do not stand for the labels' classes.
_WITHOUT_SOFTMAX = re.compile(
    ".*For(CTC|RNNT|TDT|Decision|DepthEstimation|ImageMatting|ImageSuperResolution|KeypointDetection|KeypointMatching|"
    "MaskedImageModeling|NormalEstimation|ObjectDetection|PointmapEstimation|PoseEstimation|Prediction|"
    r"QuestionAnswering\w*|Regression|Retrieval|TableRecognition|TextRecognition|TextToSpeech|XVector)"
)


def check_correction(model: nn.Module, head: Head, method: str) -> None:
    """Raise InputError unless `fit_correction` can fit `method` to the logits of a model with this kind of head."""
    if head not in (Head.CLASSES, Head.LABELS):
        raise InputError("model", f"must classify samples or words, got {head}: use fit_temperature")
    name = type(without_adapter(model)).__name__
    if method not in ("none", "temperature") and name.endswith("ForMultipleChoice"):  # one logit for each choice
        raise InputError("method", f"must be 'temperature' for multiple choice, got {method!r} for {name}")


def check_model(model: Any) -> None:
    """Raise InputError unless the loss can tell which label each logit predicts, and the logits have a softmax over
    the labels' classes or a sigmoid for each label."""
    head = head_of(model)
    _check_adapter(unwrap(model), head)
    model = without_adapter(unwrap(model))
    _check_forward(model)
    _check_labels_of_logits(model, head)
    _check_probabilities(model, head)
    _check_own_loss(model)
    if head is not Head.LABELS:
        _check_problem_type(model, head)


def set_problem_type(model: Any) -> None:
    """Set the `problem_type` in the config of a sequence or image classifier with a softmax.

    Transformers sets it in the first forward pass with labels, but the trainers give the models no labels.
    """
    head = head_of(model)
    model = without_adapter(unwrap(model))
    name = type(model).__name__
    is_classifier = "ForSequenceClassification" in name or "ForImageClassification" in name
    if is_classifier and head is not Head.LABELS and isinstance(model, PreTrainedModel):
        model.config.problem_type = "single_label_classification"


def _check_adapter(model: Any, head: Head) -> None:
    """Raise `InputError` for adapters that are saved where nothing finds them, or that add tokens with logits."""
    adapter: Any = None if without_adapter(model) is model else getattr(model, "active_peft_config", None)
    if adapter is None:
        return
    if (names := model.active_adapters) != ["default"]:
        raise InputError(
            "model",
            f"must have one active adapter, named 'default', got {names}: PEFT saves others in subfolders, "
            "where from_pretrained does not look for them",
        )
    prefixed = adapter.is_prompt_learning and adapter.peft_type != "PREFIX_TUNING"
    if prefixed and head is Head.NEXT_TOKENS:
        raise InputError("model", f"must have no virtual tokens in front of its logits, got {adapter.peft_type.value}")


def _check_forward(model: Any) -> None:
    """Raise `InputError` for a forward pass that needs labels."""
    needed = inspect.signature(model.forward).parameters.get("labels")
    if needed is not None and needed.default is inspect.Parameter.empty and needed.kind is not needed.VAR_KEYWORD:
        raise InputError(
            "model",
            f"must have a forward pass without labels (labels=None), got {type(model).__name__}, which "
            "requires them: the trainer computes the loss from the logits and gives the model no labels",
        )


def _check_labels_of_logits(model: Any, head: Head) -> None:
    """Raise `InputError` if it is not known which labels the logits predict."""
    name = type(model).__name__
    if any(map(_UNSHIFTED.fullmatch, class_names(model))):
        raise InputError(
            "model",
            "must be a classifier, or a language model whose labels are its input_ids, not shifted, got " + name,
        )
    if head in (Head.CLASSES, Head.LABELS) and isinstance(model, PreTrainedModel) and model.can_generate():
        raise InputError(
            "model",
            f"must be a classifier or a language model of text, got {name}, which generates: it is not "
            "known which labels its logits predict",
        )


def _check_probabilities(model: Any, head: Head) -> None:
    """Raise `InputError` for a head that has no softmax over the labels' classes, and no sigmoid for each label."""
    name = type(model).__name__
    mask_models = (MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING, MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING)
    if any(is_listed(model, mapping) for mapping in mask_models):
        raise InputError(
            "model",
            f"must have logits of pixels (AutoModelForSemanticSegmentation), got {name}, which has masks: no "
            "pixel has a softmax that could be calibrated",
        )
    if head is not Head.SPANS and any(map(_WITHOUT_SOFTMAX.fullmatch, class_names(model))):
        raise InputError(
            "model",
            "must be a classifier, of sequences, tokens, images or pixels, or a language model, got "
            f"{name}: its head has no softmax over the labels' classes that could be calibrated",
        )


def _check_own_loss(model: Any) -> None:
    """Raise `InputError` for options that add a term only to the loss that the model itself computes."""
    name, config = type(model).__name__, getattr(model, "config", None)
    for class_name, option, required in (
        ("NllbMoeForConditionalGeneration", "output_router_logits", False),
        ("ProphetNetForConditionalGeneration", "disable_ngram_loss", True),
        (name, "z_loss_coefficient", 0),  # Bamba
    ):
        value = getattr(config, option, required)
        if name == class_name and value != required:
            raise InputError(
                f"model.config.{option}",
                f"must be {required}, got {value}: {name} adds that term only to its own loss",
            )


def _check_problem_type(model: Any, head: Head) -> None:
    """Raise `InputError` for a problem type, or a number of labels, without a softmax."""
    name = type(model).__name__
    config: Any = getattr(model, "config", None)
    pretrained = isinstance(model, PreTrainedModel)
    problem_type = getattr(config, "problem_type", None)
    if problem_type not in (None, "single_label_classification"):
        expected = f"'single_label_classification' or '{MULTI_LABEL}'"
        raise InputError("model.config.problem_type", f"must be {expected}, got {problem_type!r}")
    has_pixels = head is Head.PIXELS
    if (has_pixels or (pretrained and name.endswith("Classification"))) and config.num_labels < 2:
        kind = (
            "a sigmoid per pixel is not supported"
            if has_pixels
            else f"set model.config.problem_type = '{MULTI_LABEL}' for one logit"
        )
        raise InputError("model.config.num_labels", f"must be at least 2, got {config.num_labels}: {kind}")
