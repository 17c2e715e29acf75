"""Kinds of model heads: what their logits stand for, and the tasks that they imply."""

import sys
from enum import Enum
from typing import Any

from torch import nn
from transformers import (
    MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
    TimmWrapperConfig,
)

from ..calibration.folding import is_masked_language_model
from ..errors import InputError
from ..utils.constants import MULTI_LABEL
from ..utils.model_wrappers import unwrap
from .task import PIPELINES, TASKS, Task, task_of_class

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
    if is_listed(model, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING):
        # The list also has decoder-only speech models, whose decoder reads the audio before the text.
        return Head.TARGET_TOKENS if model.config.is_encoder_decoder else Head.NEXT_TOKENS
    if type(model).__name__ in _TO_TEXT and any(is_listed(model, mapping) for mapping in _OF_OTHER_INPUTS):
        return Head.TARGET_TOKENS
    # The names are for models with code from the Hub, which the mapping does not list.
    named = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in class_names(model))
    if named or is_listed(model, MODEL_FOR_CAUSAL_LM_MAPPING):
        return Head.NEXT_TOKENS
    if is_listed(model, MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING):
        return Head.PIXELS
    if is_listed(model, MODEL_FOR_QUESTION_ANSWERING_MAPPING) and not type(model).__name__.startswith("Lxmert"):
        return Head.SPANS
    if isinstance(model, PreTrainedModel) and is_masked_language_model(model):
        return Head.MASKED_TOKENS
    problem_type = getattr(getattr(model, "config", None), "problem_type", None)
    return Head.LABELS if problem_type == MULTI_LABEL else Head.CLASSES


def is_listed(model: nn.Module, mapping: Any) -> bool:
    """Return whether a model is of the class to which an Auto mapping of Transformers maps its configuration."""
    kinds = type(getattr(model, "config", None)).__mro__
    return any(isinstance(model, mapping.get(kind, ())) for kind in kinds)


def has_head(auto_class: Any, config: PreTrainedConfig) -> bool:
    """Return whether an Auto class, or the code that comes with a config, has a model for the config."""
    has_code = auto_class.__name__ in (getattr(config, "auto_map", None) or {})
    return has_code or type(config) in auto_class._model_mapping


def class_names(model: nn.Module) -> list[str]:
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
