"""A fitted temperature moved into the weights of the classifier, so that nobody has to remember it."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from .metrics._checks import check_positive

if TYPE_CHECKING:
    from .temperature import Temperature

# Where Transformers' classification models keep their heads; the first name that a model has is its head.
_HEADS = (
    ("classifier",),
    ("classification_head",),
    ("score",),
    ("logits_proj",),
    ("cls_classifier", "distillation_classifier"),  # distilled DeiT: the logits are the mean of the two
)
# The last layer of heads of several layers: RoBERTa and BART, OPT-like heads, Funnel.
_LAST_LAYERS = ("out_proj", "out", "linear_out")


def fold_temperature(model, temperature: "Temperature | float"):
    """Divide the classifier's weight and bias by T, so that plain `from_pretrained` gives calibrated probabilities.

    Every prediction stays what it was; the logits become `logits / T` up to the rounding of the weights' dtype. The
    temperature is recorded in `model.config.calibration`, with the figures of its fit (`{"temperature": T,
    "objective": ..., ...}`). Folding again records the product of the temperatures and nothing else: the figures of
    either fit are not those of the product.

    Args:
        model: a Transformers model with a classification head: `classifier`, `classification_head`, `score` or
            `logits_proj`, a Linear or Conv2d or a head that ends in one; or a `timm_model`. Changed in place.
        temperature: a `Temperature` or a number.

    Returns:
        The model.

    Raises:
        ValueError: a temperature that is not finite and positive; a model for regression, for several labels at once
            (its sigmoids are not what was fitted) or of a single label.
        TypeError: no config; no such head; a head whose last layer is not plain; weights that other layers share (tied
            embeddings), that are not floating (quantised), or that FSDP or DeepSpeed's ZeRO-3 cut up among processes.
    """
    value = check_positive("temperature", temperature)
    _check_classifier(model)
    layers = _last_layers(model)
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias) if parameter is not None]
    _check_foldable(model, parameters)
    with torch.no_grad():
        for parameter in parameters:
            parameter.div_(value)

    earlier = getattr(model.config, "calibration", None)
    if earlier:
        model.config.calibration = {"temperature": earlier["temperature"] * value}
    else:
        figures = temperature.to_dict() if hasattr(temperature, "to_dict") else {}
        figures.pop("value", None)
        model.config.calibration = {"temperature": value, **figures}
    return model


def _check_classifier(model) -> None:
    """Raise unless the model's probabilities are a softmax over at least two classes."""
    if not hasattr(model, "config"):
        raise TypeError(f"model must be a Transformers model with a config, got {type(model).__name__}")
    problem = getattr(model.config, "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"model must be a classifier of one label a sample, got problem_type {problem!r}")
    num_labels = getattr(model.config, "num_labels", None)
    if num_labels is not None and num_labels < 2:
        raise ValueError(f"model must have at least 2 labels, got num_labels {num_labels}")


def _last_layers(model) -> list[nn.Module]:
    """The layers whose output is the logits."""
    if hasattr(model, "timm_model"):
        found = model.timm_model.get_classifier()
        heads = list(found) if isinstance(found, tuple) else [found]
    else:
        names = next((names for names in _HEADS if hasattr(model, names[0])), ())
        heads = [getattr(model, name) for name in names]
    if not heads:
        looked_for = ", ".join(name for names in _HEADS for name in names)
        raise TypeError(
            f"model must have a classification head ({looked_for} or timm_model), "
            f"got {type(model).__name__}, which has none"
        )
    return [_last_layer(head, model) for head in heads]


def _last_layer(head: nn.Module, model) -> nn.Module:
    if isinstance(head, nn.Sequential):
        layer = head[-1]
    else:
        layer = next((getattr(head, name) for name in _LAST_LAYERS if hasattr(head, name)), head)
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise TypeError(
            "the head must be a Linear or Conv2d layer, or end in one "
            f"({', '.join(_LAST_LAYERS)}, or the last of a Sequential), got {type(head).__name__} of "
            f"{type(model).__name__}"
        )
    return layer


def _check_foldable(model, parameters: list[nn.Parameter]) -> None:
    if _is_cut_up(model, parameters):
        raise TypeError(
            f"the model must be whole, got a {type(model).__name__} that FSDP or ZeRO-3 cut up among processes: "
            "save it, and fold what from_pretrained loads"
        )
    own = {id(parameter) for parameter in parameters}
    uses = [name for name, parameter in model.named_parameters(remove_duplicate=False) if id(parameter) in own]
    if len(uses) != len(parameters):
        raise TypeError(f"the head's weights must be its own, but they are shared: {uses}")
    for parameter in parameters:
        if not parameter.is_floating_point():
            raise TypeError(f"the head's weights must be floating, got {parameter.dtype}")


def _is_cut_up(model, parameters: list[nn.Parameter]) -> bool:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule

    # FSDP's parameters are whole for a while, but copies then. ZeRO-3 marks those that it cuts up with an id.
    return isinstance(model, FSDPModule) or any(hasattr(parameter, "ds_id") for parameter in parameters)
