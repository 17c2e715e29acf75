"""A fitted temperature moved into the weights of the model, so that nobody has to remember it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from ..metrics.input_checks import check_positive

if TYPE_CHECKING:
    from .temperature import Temperature

Model = TypeVar("Model", bound=Any)

# Where Transformers' classification models keep their heads; the first name that a model has is its head.
_HEADS = (
    ("classifier",),
    ("classification_head",),
    ("score",),
    ("logits_proj",),
    ("cls_classifier", "distillation_classifier"),  # distilled DeiT: the logits are the mean of the two
    # Of semantic segmentations: SegFormer, UperNet and BEiT; MobileNet and MobileViT; DPT.
    ("decode_head.classifier",),
    ("segmentation_head.classifier",),
    ("head.head",),
)
# The last layer of heads of several layers: RoBERTa and BART, OPT-like heads, Funnel, MobileNet.
_LAST_LAYERS = ("out_proj", "out", "linear_out", "convolution")
# Inputs on which predictions before and after are compared: features of a classifier's head, and pairs of tokens.
_NUM_FEATURES, _NUM_PAIRS = 1024, 128
_INSTEAD = "use apply_calibrated_generation, which changes no weights"


def fold_temperature(model: Model, temperature: "Temperature | float") -> Model:
    """Divide the logits by T by changing the model's weights, so that plain `from_pretrained` is calibrated.

    The logits become `logits / T` up to the rounding of the weights' dtype; the division itself is float32's at least.
    That keeps every prediction but near-ties: hardly any are lost in float32, but in half precision of 1,000 classes
    up to about 1 % are. A warning says which share of the predictions on random inputs changes; where it matters,
    load and save the model in float32.

    The temperature is recorded in `model.config.calibration`, with the figures of its fit (`{"temperature": T,
    "objective": ..., ...}`). Folding again records the product of the temperatures and nothing else: the figures of
    either fit are not those of the product.

    A classifier's last layer is divided; of a semantic segmentation, too, whose logits are interpolated afterwards,
    which is linear. For a model that generates, so is the head, or where embeddings share its weight the norm before
    it (the last hidden state is then divided, too, and the weights stay tied); `final_logits_bias` always. Whether
    that divides the logits is tried on two tokens first. `"folded": True` is recorded besides, by which
    `calibrated_generation` knows that nothing is left to do: plain `generate` is what
    `generate(**calibrated_generation(T))` was. A temperature that `apply_calibrated_generation` recorded is in no
    weight: T replaces it.

    Args:
        model: a Transformers model with a classification head: `classifier`, `classification_head`, `score` or
            `logits_proj`, a Linear or Conv2d or a head that ends in one, or the like of a semantic segmentation
            (`decode_head.classifier`, ...); or a `timm_model`; or one that generates from
            `input_ids`: a causal or a sequence-to-sequence language model. Changed in place.
        temperature: a `Temperature` or a number.

    Returns:
        The model.

    Raises:
        ValueError: a temperature that is not finite and positive, or that makes weights infinite in their dtype (which
            are left as they were, then); a model for regression, for several labels at once (its sigmoids are not what
            was fitted) or of a single label.
        TypeError: no config; no such head; a head whose last layer is not plain; weights that other layers share (a
            classifier's with embeddings), that are not floating (quantised), that are not in memory (offloaded), or
            that FSDP or DeepSpeed's ZeRO-3 cut up among processes. Of models that generate: adapters of PEFT that are
            not merged; logits that do not follow the weights (a soft-cap): `apply_calibrated_generation` is for those.
    """
    value = check_positive("temperature", temperature)
    if not hasattr(model, "config"):
        raise TypeError(f"model must be a Transformers model with a config, got {type(model).__name__}")
    _check_whole(model)
    generates = hasattr(model, "can_generate") and model.can_generate()
    if generates:
        _fold_generative(model, value)
    else:
        _fold_classifier(model, value)

    earlier = folded_temperature(getattr(model.config, "calibration", None), generates)
    if earlier is not None:
        model.config.calibration = {"temperature": earlier * value}
    else:
        figures = temperature.to_dict() if hasattr(temperature, "to_dict") else {}
        figures.pop("value", None)
        model.config.calibration = {"temperature": value, **figures}
    if generates:
        model.config.calibration["folded"] = True
    return model


def folded_temperature(calibration: Mapping[str, Any] | None, generates: bool) -> float | None:
    """Return the temperature that is in a model's weights, None where there is none.

    Args:
        calibration: `model.config.calibration`, if it has one.
        generates: whether the model is a language model: the config of one has a temperature that is in no weight,
            unless it is recorded as `folded`; that of a classifier is folded, unless it is recorded as not.
    """
    calibration = calibration or {}
    return calibration.get("temperature") if calibration.get("folded", not generates) else None


def _fold_classifier(model: Any, value: float) -> None:
    _check_classifier(model)
    layers = last_layers(model)
    parameters = [parameter for layer in layers for parameter in _parameters(layer)]
    _check_foldable(model, parameters)
    features = [_features(layer) for layer in layers]

    @torch.no_grad()
    def probe() -> torch.Tensor:
        logits = [layer(inputs) for layer, inputs in zip(layers, features, strict=True)]
        return torch.cat([values.flatten(2)[0].T if values.ndim > 2 else values for values in logits])

    _fold(parameters, value, 0, probe)


def _features(layer: Any) -> torch.Tensor:
    """Random inputs of a Linear layer, (N, C), or a picture of N of them for a Conv2d layer."""
    size = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    features = torch.randn(_NUM_FEATURES, size, generator=torch.Generator().manual_seed(0)).to(layer.weight)
    return features if isinstance(layer, nn.Linear) else features.T.reshape(1, size, 32, -1)


def _fold(tensors: Sequence[torch.Tensor], value: float, offset: int, probe: Callable[[], torch.Tensor]) -> None:
    """Divide in place, and warn where predictions change. What is not finite then raises, and nothing is changed.

    `probe` returns logits (..., K) on inputs that are the same each time.
    """
    if value == 1:
        return
    dtype, before, kept = tensors[0].dtype, probe(), [tensor.detach().clone() for tensor in tensors]
    _divide(tensors, value, offset)
    after = probe()
    if not all(map(_stays_finite, [before, *kept], [after, *tensors])):
        _restore(tensors, kept)
        raise ValueError(f"temperature must keep weights and logits finite in {dtype}, got {value!r}")
    changed = before.argmax(-1) != after.argmax(-1)
    if changed.any():
        share = 100 * float(changed.double().mean())
        warnings.warn(
            f"T = {value:.4g} in {dtype} weights changes {share:.2g} % of the predictions on {changed.numel():,} "
            "random inputs, by rounding" + (": float32 keeps them" if dtype.itemsize < 4 else ""),
            stacklevel=4,
        )


def _stays_finite(before: torch.Tensor, after: torch.Tensor) -> bool:
    return bool((after.isfinite() | ~before.isfinite()).all())


@torch.no_grad()
def _restore(tensors: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]) -> None:
    for tensor, values in zip(tensors, kept, strict=True):
        tensor.copy_(values)


def _check_classifier(model: Any) -> None:
    """Raise unless the model's probabilities are a softmax over at least two classes."""
    problem = getattr(model.config, "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"model must be a classifier of one label a sample, got problem_type {problem!r}")
    num_labels = getattr(model.config, "num_labels", None)
    if num_labels is not None and num_labels < 2:
        raise ValueError(f"model must have at least 2 labels, got num_labels {num_labels}")


def last_layers(model: Any) -> list[nn.Module]:
    """The layers whose output is the logits."""
    if hasattr(model, "timm_model"):
        found = model.timm_model.get_classifier()
        heads = list(found) if isinstance(found, tuple) else [found]
    else:
        names = next((names for names in _HEADS if _part(model, names[0]) is not None), ())
        heads = [_part(model, name) for name in names]
    if not heads:
        looked_for = ", ".join(name for names in _HEADS for name in names)
        raise TypeError(
            f"model must generate or have a classification head ({looked_for} or timm_model), "
            f"got {type(model).__name__}, which has none"
        )
    return [_last_layer(head, model) for head in heads]


def _part(model: Any, path: str) -> Any:
    """The module at a path such as "decode_head.classifier", None where there is none."""
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


def _last_layer(head: nn.Module, model: Any) -> nn.Module:
    if isinstance(head, nn.Sequential):
        layer = [layer for layer in head if not isinstance(layer, nn.Upsample)][-1]  # what is linear needs no T
    else:
        layer = next((getattr(head, name) for name in _LAST_LAYERS if hasattr(head, name)), head)
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise TypeError(
            "the head must be a Linear or Conv2d layer, or end in one "
            f"({', '.join(_LAST_LAYERS)}, or the last of a Sequential), got {type(head).__name__} of "
            f"{type(model).__name__}"
        )
    return layer


def _fold_generative(model: Any, value: float) -> None:
    name = type(model).__name__
    if hasattr(model, "peft_config"):
        raise TypeError(f"model must have its adapters merged, got a {name} with some: only they would be saved")
    head = model.get_output_embeddings()
    if model.main_input_name != "input_ids" or not isinstance(head, nn.Linear):
        raise TypeError(
            f"model must generate from input_ids, by a Linear head, got {name} with {model.main_input_name} and "
            f"{type(head).__name__}: {_INSTEAD}"
        )
    ids = torch.tensor([[0, 1]])
    before, peak, norm = _probe(model, head, ids)
    if len(_uses(model, [head.weight])) == 1:
        parameters = _parameters(head)
    elif norm is not None:
        parameters = _parameters(norm) + _parameters(head)[1:]
    else:
        raise TypeError(f"model must have a norm before a head that shares its weight, got {name}: {_INSTEAD}")
    _check_foldable(model, parameters)
    bias = getattr(model, "final_logits_bias", None)  # Marian's, BART's and their kin's: a buffer
    tensors = parameters if bias is None else [*parameters, bias]

    # Halving is exact in every dtype, which dividing by T is not: whether it halves the logits shows that the right
    # weights were found. Once more with large outputs of the head, as a soft-cap leaves small logits nearly alone.
    large = 1e4 / peak if peak > 0 else 1.0
    before_large, *_ = _probe(model, head, ids, large)
    kept = [tensor.detach().clone() for tensor in tensors]
    for offset, tolerance in ((0, 1e-5), (1, 2e-2)):  # Gemma's norms multiply by 1 + weight: there bfloat16 rounds
        try:
            _divide(tensors, 2, offset)
            halves = _is_half(_probe(model, head, ids)[0], before, tolerance)
            halves = halves and _is_half(_probe(model, head, ids, large)[0], before_large, tolerance)
        finally:
            _restore(tensors, kept)
        if halves:
            break
    else:
        raise TypeError(
            f"model must have logits that are proportional to its last norm or head, got {name}, whose are not (a "
            f"soft-cap, or layers between them): {_INSTEAD}"
        )
    pairs = torch.randint(head.out_features, (_NUM_PAIRS, 2), generator=torch.Generator().manual_seed(0))
    _fold(tensors, value, offset, lambda: _probe(model, head, pairs)[0])


@torch.no_grad()
def _probe(
    model: Any, head: nn.Module, ids: torch.Tensor, scale: float = 1.0
) -> tuple[torch.Tensor, float, nn.Module | None]:
    """Return the tokens' logits where the head's outputs are scaled, the largest output, and the norm before the head.

    The norm is the last layer that ran before the head and has a vector for its weight; None where none has.
    """
    ran: list[nn.Module] = []
    outputs: list[torch.Tensor] = []
    norms: list[nn.Module | None] = []

    def at_head(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        outputs.append(output)
        norms.append(ran[-1] if ran else None)
        return output * scale

    vectors = [module for module in model.modules() if getattr(getattr(module, "weight", None), "ndim", 0) == 1]
    hooks = [module.register_forward_hook(lambda module, *_: ran.append(module)) for module in vectors]
    hooks.append(head.register_forward_hook(at_head))
    training = [module for module in model.modules() if module.training]
    model.eval()  # without dropout, and nothing learns from the tokens
    try:
        ids = ids.to(model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids
        logits = model(**inputs, return_dict=True).logits
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True
    if len(outputs) != 1:
        raise TypeError(
            f"model must call its head once, got {type(model).__name__}, which does {len(outputs)} times: {_INSTEAD}"
        )
    return logits, float(outputs[0].abs().max()), norms[0]


def _is_half(logits: torch.Tensor, of: torch.Tensor, tolerance: float) -> bool:
    of = of.float()
    largest = float(of.nan_to_num(0, 0, 0).abs().max())  # tokens may be masked with -inf
    return torch.allclose(2 * logits.float(), of, rtol=0, atol=tolerance * largest)


def _parameters(layer: Any) -> list[nn.Parameter]:
    """The weight, and the bias where there is one."""
    bias = getattr(layer, "bias", None)
    return [layer.weight] if bias is None else [layer.weight, bias]


@torch.no_grad()
def _divide(tensors: Sequence[torch.Tensor], value: float, offset: int = 0) -> None:
    """Divide in place; the first, to which a layer adds `offset`, so that the sum is divided."""
    for tensor in tensors:
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        tensor.copy_((wide + offset) / value - offset)
        offset = 0


def _uses(model: Any, parameters: Sequence[torch.Tensor]) -> list[str]:
    """The names that the parameters go by in the model: of one that is shared, several."""
    own = {id(parameter) for parameter in parameters}
    return [name for name, parameter in model.named_parameters(remove_duplicate=False) if id(parameter) in own]


def _check_foldable(model: Any, parameters: Sequence[torch.Tensor]) -> None:
    uses = _uses(model, parameters)
    if len(uses) != len(parameters):
        raise TypeError(f"the weights that T is folded into must be their layer's own, got shared ones: {uses}")
    for parameter in parameters:
        if not parameter.is_floating_point() or parameter.dtype.itemsize < 2:
            raise TypeError(f"the weights that T is folded into must be floating, got {parameter.dtype}")
        if parameter.is_meta:
            raise TypeError("the weights that T is folded into must be in memory, got some on the meta device")


def _check_whole(model: Any) -> None:
    """Raise where FSDP or ZeRO-3 cut the model up among processes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    from torch.distributed.fsdp import FSDPModule

    # FSDP's parameters are whole for a while, but copies then. ZeRO-3 marks those that it cuts up with an id.
    if isinstance(model, FSDPModule) or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise TypeError(
            f"the model must be whole, got a {type(model).__name__} that FSDP or ZeRO-3 cut up among processes: "
            "save it, and fold what from_pretrained loads"
        )
