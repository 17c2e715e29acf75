"""Lookup of a classifier's last layers, whose outputs are the logits."""

from typing import Any

from torch import nn

# Attributes of Transformers' classification models that hold their heads; the first one that a model has is used.
_HEADS = (
    ("classifier",),
    ("classification_head",),
    ("score",),
    ("logits_proj",),
    ("cls_classifier", "distillation_classifier"),  # distilled DeiT: the logits are the mean of the two
    # Semantic segmentation: SegFormer, UperNet and BEiT; MobileNet and MobileViT; DPT.
    ("decode_head.classifier",),
    ("segmentation_head.classifier",),
    ("head.head",),
    ("qa_outputs",),  # extractive question answering: starts and ends
    ("cls.seq_relationship",),  # next-sentence prediction
)
# Names of the last layer in heads with several layers: RoBERTa and BART, OPT-like heads, Funnel, MobileNet.
_LAST_LAYERS = ("out_proj", "out", "linear_out", "convolution")


def last_layers(model: Any) -> list[nn.Module]:
    """Return the layers whose outputs are the logits. Raise `TypeError` if the model has no supported last layer."""
    if hasattr(model, "timm_model"):
        found = model.timm_model.get_classifier()
        heads = list(found) if isinstance(found, tuple) else [found]
    else:
        names = next((names for names in _HEADS if _part(model, names[0]) is not None), ())
        if names == ("cls.seq_relationship",) and _part(model, "cls.predictions") is not None:
            names = ()  # a model for pre-training, which predicts tokens as well
        heads = [_part(model, name) for name in names]
    if not heads:
        looked_for = ", ".join(name for names in _HEADS for name in names)
        raise TypeError(
            f"model must generate or have a classification head ({looked_for} or timm_model), "
            f"got {type(model).__name__}"
        )
    return [_last_layer(head, model) for head in heads]


def may_have_bias(model: Any) -> bool:
    """Return False if a last layer of the model has no bias, into which a correction's bias could be folded."""
    try:
        return all(layer.bias is not None for layer in last_layers(model))
    except TypeError:  # no head that anything can be folded into
        return True


def _part(model: Any, path: str) -> Any:
    """Return the module at a path such as "decode_head.classifier", or None if the model has no such module."""
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


def _last_layer(head: Any, model: Any) -> nn.Module:
    if hasattr(model, "peft_config") and hasattr(head, "modules_to_save"):  # PEFT's module with copies
        head = head.modules_to_save[head.active_adapters[0]]
    if isinstance(head, nn.Sequential):
        layer = [layer for layer in head if not isinstance(layer, nn.Upsample)][-1]  # upsampling is linear
    else:
        layer = next((getattr(head, name) for name in _LAST_LAYERS if hasattr(head, name)), head)
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise TypeError(
            "the head must be a Linear or Conv2d layer, or end in one "
            f"({', '.join(_LAST_LAYERS)}, or the last of a Sequential), got {type(head).__name__} of "
            f"{type(model).__name__}"
        )
    return layer
