"""Kinds of model heads: what their logits stand for, and which models cannot be calibrated."""

import inspect
import re
import sys
from enum import Enum
from typing import Any

from torch import nn
from transformers import (
    MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING,
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
    TimmWrapperConfig,
)

from ..calibration.folding import is_masked_language_model
from ..utils.constants import MULTI_LABEL
from ..utils.model_wrappers import unwrap
from ..validation import InputError
from .task import PIPELINES, TASKS, Task, task_of_class

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
# Speech and image encoder-decoders that are known to predict label i at position i, as decoder inputs are shifted.
_TO_TEXT = ("WhisperForConditionalGeneration", "VisionEncoderDecoderModel")
_OF_OTHER_INPUTS = (MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)


class Head(Enum):
    """What a model's logits (N, ..., K) stand for, and which labels they predict."""

    CLASSES = "classes"  # classes of samples or tokens, each with one label
    LABELS = "labels"  # labels of samples, several or one, each with a sigmoid
    PIXELS = "pixels"  # classes of pixels: logits (N, K, h, w) for labels (N, H, W), which often have more pixels
    NEXT_TOKENS = "next tokens"  # tokens of a vocabulary; position i predicts label i + 1
    TARGET_TOKENS = "target tokens"  # tokens of a vocabulary; position i predicts label i
    SPANS = "spans"  # positions: logits (N, 2, L) of starts and ends for labels (N, 2)
    MASKED_TOKENS = "masked tokens"  # tokens of a vocabulary; each position predicts its own label

    @property
    def generates(self) -> bool:
        return self in (Head.NEXT_TOKENS, Head.TARGET_TOKENS)

    @property
    def has_classwise_metrics(self) -> bool:
        """Whether to measure each class: False for a vocabulary (too many classes) and for positions (not classes)."""
        return not self.generates and self not in (Head.MASKED_TOKENS, Head.SPANS)


def head_of(model: Any) -> Head:
    """Return the kind of a model's head, by Transformers' Auto classes, the class name, and the config."""
    model = without_adapter(model)
    if _is_listed(model, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING):
        # The list also has decoder-only speech models, whose decoder reads the audio before the text.
        return Head.TARGET_TOKENS if model.config.is_encoder_decoder else Head.NEXT_TOKENS
    if type(model).__name__ in _TO_TEXT and any(_is_listed(model, mapping) for mapping in _OF_OTHER_INPUTS):
        return Head.TARGET_TOKENS
    # The names are for models with code from the Hub, which the mapping does not list.
    named = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in _class_names(model))
    if named or _is_listed(model, MODEL_FOR_CAUSAL_LM_MAPPING):
        return Head.NEXT_TOKENS
    if _is_listed(model, MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING):
        return Head.PIXELS
    if _is_listed(model, MODEL_FOR_QUESTION_ANSWERING_MAPPING) and not type(model).__name__.startswith("Lxmert"):
        return Head.SPANS
    if isinstance(model, PreTrainedModel) and is_masked_language_model(model):
        return Head.MASKED_TOKENS
    problem_type = getattr(getattr(model, "config", None), "problem_type", None)
    return Head.LABELS if problem_type == MULTI_LABEL else Head.CLASSES


def _is_listed(model: nn.Module, mapping: Any) -> bool:
    """Return whether a model is of the class to which an Auto mapping of Transformers maps its configuration."""
    kinds = type(getattr(model, "config", None)).__mro__
    return any(isinstance(model, mapping.get(kind, ())) for kind in kinds)


def has_head(auto_class: Any, config: PreTrainedConfig) -> bool:
    """Return whether an Auto class, or the code that comes with a config, has a model for the config."""
    has_code = auto_class.__name__ in (getattr(config, "auto_map", None) or {})
    return has_code or type(config) in auto_class._model_mapping


def _class_names(model: nn.Module) -> list[str]:
    """Return the names of a model's classes, by which Transformers tells kinds of heads apart. The class of any other
    module may have any name, so this list is then empty."""
    return [kind.__name__ for kind in type(model).__mro__] if isinstance(model, PreTrainedModel) else []


def without_adapter(model: Any) -> Any:
    """Return the model inside its wrappers (see `unwrap`) and its PEFT adapter."""
    model, peft = unwrap(model), sys.modules.get("peft")  # already imported if the model has an adapter
    return unwrap(model.get_base_model()) if peft is not None and isinstance(model, peft.PeftModel) else model


def label_names_of(model: Any) -> list[str]:
    """Return the names of a model's classes or labels in the order of its logits, or [] if they have none."""
    names = getattr(getattr(without_adapter(model), "config", None), "id2label", {})
    return [names[index] for index in sorted(names)]


def task_of_config(config: PreTrainedConfig, task: str | None = None) -> Task:
    """Return the task of a model, one of `TASKS`: the one named `task` if given, or else that of its architecture.

    Raises:
        InputError: `task` is unknown, or the architecture is for none of `TASKS`.
    """
    if task is not None:
        if task not in TASKS:
            raise InputError("task", f"must be one of {', '.join(TASKS)}, got {task!r}")
        return TASKS[task]
    if isinstance(config, TimmWrapperConfig):
        return TASKS["image-classification"]
    name = (config.architectures or [""])[0] or ""  # a broken config may have null

    def is_in(mapping: Any) -> bool:
        return getattr(mapping.get(type(config), None), "__name__", None) == name

    if config.is_encoder_decoder and is_in(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING):
        return TASKS["seq2seq-lm"]
    if is_in(MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING):  # some are called ...ForSequenceClassification
        return TASKS["audio-classification"]
    listed = task_of_class(name)
    if listed is not None and listed.name in TASKS:
        return listed
    if name.endswith("Segmentation"):
        why = "which labels pixels: for semantic segmentation, use FocalTrainer, with `measure` and `fit_temperature`"
    else:
        why = f"whose config names {name or 'no architecture: give task'}"
    raise InputError(
        "model",
        f"must classify texts, images, audio, or words, or be a language model, got {config.name_or_path!r}, {why}",
    )


def task_of_model(model: Any, head: Head) -> Task:
    """Return the task of a model that a trainer trained. Raises `InputError` if its class implies none."""
    name = type(model).__name__
    if name.endswith("ForSequenceClassification") and model.main_input_name in ("input_values", "input_features"):
        return TASKS["audio-classification"]
    if head is Head.TARGET_TOKENS:
        input_tasks = {"input_ids": "translation", "pixel_values": "image-to-text"}
        return PIPELINES[input_tasks.get(model.main_input_name, "automatic-speech-recognition")]
    task = TASKS["causal-lm"] if head is Head.NEXT_TOKENS else task_of_class(name)
    if task is None:
        raise InputError("tasks", f"must be given for a {name}, such as 'text-classification', got None")
    return task


def check_correction(model: nn.Module, head: Head, method: str) -> None:
    """Raise InputError unless `fit_correction` can fit `method` to the logits of a model with this kind of head."""
    if head not in (Head.CLASSES, Head.LABELS):
        raise InputError("model", f"must classify samples or words, got {head}: use fit_temperature")
    name = type(without_adapter(model)).__name__
    if method not in ("none", "temperature") and name.endswith("ForMultipleChoice"):  # one logit for each choice
        raise InputError("method", f"must be 'temperature' for multiple choice, got {method!r} for {name}")


def check_model(model: Any) -> None:
    """Raise InputError unless the loss can tell which label each logit predicts, and the logits have a softmax over
    the labels' classes or a sigmoid for each label. Set the `problem_type` of sequence and image classifiers."""
    head = head_of(model)
    _check_adapter(unwrap(model), head)
    model = without_adapter(unwrap(model))
    _check_forward(model)
    _check_labels_of_logits(model, head)
    _check_probabilities(model, head)
    _check_own_loss(model)
    if head is not Head.LABELS:
        _check_problem_type(model, head)


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
    if any(map(_UNSHIFTED.fullmatch, _class_names(model))):
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
    if any(_is_listed(model, mapping) for mapping in mask_models):
        raise InputError(
            "model",
            f"must have logits of pixels (AutoModelForSemanticSegmentation), got {name}, which has masks: no "
            "pixel has a softmax that could be calibrated",
        )
    if head is not Head.SPANS and any(map(_WITHOUT_SOFTMAX.fullmatch, _class_names(model))):
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
    """Raise `InputError` for a problem type, or a number of labels, without a softmax; set the problem type."""
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
    if pretrained and ("ForSequenceClassification" in name or "ForImageClassification" in name):
        # Transformers sets it in the first forward pass with labels, but the models get no labels here.
        config.problem_type = "single_label_classification"
