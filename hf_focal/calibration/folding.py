"""Folding of a temperature, or of vector or matrix scaling, into a model's weights."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from ..validation import check_positive
from .corrections import (
    AffineScaling,
    Correction,
    Temperature,
    calibration_record,
    folded_temperature,
    recorded_calibration,
)
from .last_layers import last_layers

Model = TypeVar("Model", bound=Any)

_MULTI_LABEL = "multi_label_classification"
# Numbers of random inputs for comparing predictions before and after T: inputs of a classifier's head, token pairs.
_NUM_FEATURES, _NUM_PAIRS = 1024, 128
_INSTEAD = "divide its logits by T instead, in generation with apply_calibrated_generation"


def fold_temperature(model: Model, temperature: Temperature | float) -> Model:
    """Divide a model's logits by T by changing its weights, so that plain `from_pretrained` loads a calibrated model.

    Predictions change only in near-ties, by rounding: hardly ever in float32, but up to about 1% of all predictions in
    half precision with 1,000 classes. If predictions on random inputs change, a warning reports their share.

    In a classifier, the weights of the last layer are divided by T; in a language model, those of the head, and
    `final_logits_bias`. If the head is tied to the embeddings, the norm before the head is divided instead of the
    head's weight, so that head and embeddings stay tied. For a language model, a trial on two tokens first checks that
    this divides the logits.

    T is recorded in `model.config.calibration` with the ECE and NLL of its fit; folding again records only the product
    of the temperatures. If the model generates, `"folded": True` is also recorded, so `calibrated_generation` does not
    apply T again. T replaces a temperature recorded by `apply_calibrated_generation`, which is not in the weights.

    Args:
        model: a Transformers classifier (of texts, images, tokens, or pixels) whose head is, or ends in, a Linear or
            Conv2d layer; a `timm_model`; or a causal, sequence-to-sequence, or masked language model. Changed in
            place. In a PEFT classifier, the adapter's own copy of the head is divided; the base model does not change.
        temperature: a `Temperature` or a number.

    Raises:
        ValueError: a temperature that is not finite and positive, or that makes weights infinite in their dtype (the
            model is then unchanged); a model for regression.
        TypeError: no config or no supported head; weights that are shared, quantized, offloaded, or sharded; a PEFT
            classifier without its own copy of the head, or a language model with unmerged adapters; logits that are
            not proportional to the weights (a soft cap). For such logits, use `apply_calibrated_generation`.
    """
    value = check_positive("temperature", temperature)
    generates = _check_whole(model)
    if generates or is_masked_language_model(model):
        _fold_language_model(model, value)
    else:
        _fold_classifier(model, value, getattr(temperature, "values", ()))

    earlier = folded_temperature(recorded_calibration(model.config), generates)
    if earlier is not None:
        correction = Temperature(earlier * value)  # values per label are no longer known
    else:
        correction = temperature if isinstance(temperature, Temperature) else Temperature(value)
    model.config.calibration = calibration_record(correction, True if generates else None)
    return model


def fold_calibration(model: Model, correction: Correction | float, example: Mapping[str, Any] | None = None) -> Model:
    """Fold a correction into a model's weights, so that plain `from_pretrained` loads a calibrated model.

    A temperature is folded by `fold_temperature`. Vector and matrix scaling are for classifiers: with A, T, and b from
    the `AffineScaling` and `A' = A (I - 11ᵀ/K) / T`, the last layer's weight W becomes A' W and its bias c becomes
    A' c + b, computed in float64. The method and NLL of the fit are recorded in `model.config.calibration`. Some
    heads, such as Llama's, have no bias: then b is left out with a warning, and it is better to fit with `bias=False`.

    Args:
        model: as for `fold_temperature`. Changed in place.
        correction: a `Temperature`, a number, or what `fit_vector_scaling` or `fit_matrix_scaling` returned.

    Raises:
        ValueError, TypeError: as in `fold_temperature`; for vector and matrix scaling, also a language model, a model
            without a single softmax over classes, or a model with a different number of classes than the correction.
    """
    if not isinstance(correction, AffineScaling):
        assert not isinstance(correction, Correction) or isinstance(correction, Temperature)
        return fold_temperature(model, correction)
    if _check_whole(model):
        raise TypeError(f"model must be a classifier for {correction.method} scaling, got {type(model).__name__}")
    _check_classifier(model, 0)
    if model.config.problem_type == _MULTI_LABEL or hasattr(model, "qa_outputs"):
        raise TypeError(
            f"model must have one softmax over classes for {correction.method} scaling, got {type(model).__name__}"
        )
    layers = last_layers(model)
    tensors = [parameter for layer in layers for parameter in _parameters(layer)]
    _check_foldable(model, tensors)
    num_classes = len(correction.bias)
    if any(len(tensor) != num_classes for tensor in tensors):
        raise ValueError(f"correction must have the model's {len(tensors[0])} classes, got one of {num_classes}")
    if len(tensors) < 2 * len(layers) and correction.bias.any():
        warnings.warn(
            f"the head of {type(model).__name__} has no bias, so the bias of the {correction.method} scaling is left "
            "out: fit with bias=False",
            stacklevel=2,
        )
    folded = [correction.fold_rows(tensor).to(tensor) for tensor in tensors]
    if not all(tensor.isfinite().all() for tensor in folded):
        raise ValueError(f"correction must keep weights finite in {tensors[0].dtype}, got {correction}")
    _restore(tensors, folded)
    model.config.calibration = calibration_record(correction)
    return model


def is_masked_language_model(model: Any) -> bool:
    return any(kind.__name__.endswith("ForMaskedLM") for kind in type(model).__mro__)


def _fold_classifier(model: Any, value: float, values: Sequence[float] = ()) -> None:
    _check_classifier(model, len(values))
    layers = last_layers(model)
    parameters = [parameter for layer in layers for parameter in _parameters(layer)]
    _check_foldable(model, parameters)
    features = [_features(layer) for layer in layers]

    @torch.no_grad()
    def probe() -> torch.Tensor:
        logits = [layer(inputs) for layer, inputs in zip(layers, features, strict=True)]
        return torch.cat([values.flatten(2)[0].T if values.ndim > 2 else values for values in logits])

    _fold(parameters, torch.tensor(values) if values else value, 0, probe, model.config)


def _features(layer: Any) -> torch.Tensor:
    """Return random inputs for a layer: (N, C) if it is Linear, or an image of N pixels if it is a Conv2d."""
    size = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    features = torch.randn(_NUM_FEATURES, size, generator=torch.Generator().manual_seed(0)).to(layer.weight)
    return features if isinstance(layer, nn.Linear) else features.T.reshape(1, size, 32, -1)


def _fold(
    tensors: Sequence[torch.Tensor], value: Any, offset: int, probe: Callable[[], torch.Tensor], config: Any = None
) -> None:
    """Divide `tensors` in place as `_divide` does, and warn if predictions change.

    `probe` returns the logits (..., K) of fixed inputs. If tensors or logits overflow, restore the tensors and raise.
    """
    if isinstance(value, float) and value == 1:
        return
    dtype, before, kept = tensors[0].dtype, probe(), [tensor.detach().clone() for tensor in tensors]
    _divide(tensors, value, offset)
    after = probe()
    pairs = zip([before, *kept], [after, *tensors], strict=True)
    if any((old.isfinite() & ~new.isfinite()).any() for old, new in pairs):
        _restore(tensors, kept)
        raise ValueError(f"temperature must keep weights and logits finite in {dtype}, got {value!r}")
    if getattr(config, "problem_type", None) == _MULTI_LABEL:
        return  # no T changes the signs of the logits
    changed = before.argmax(-1) != after.argmax(-1)
    if changed.any():
        share = 100 * float(changed.double().mean())
        warnings.warn(
            f"T = {value:.4g} in {dtype} weights changes {share:.2g}% of the predictions on {changed.numel():,} "
            "random inputs, by rounding" + (": float32 keeps them" if dtype.itemsize < 4 else ""),
            stacklevel=4,
        )


@torch.no_grad()
def _restore(tensors: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]) -> None:
    for tensor, values in zip(tensors, kept, strict=True):
        tensor.copy_(values)


def _check_classifier(model: Any, num_temperatures: int) -> None:
    """Raise unless the model's probabilities are a softmax over at least two classes, or one sigmoid per label. With
    sigmoids, `num_temperatures` may be the number of labels; otherwise it must be 0, which stands for a single T."""
    problem = getattr(model.config, "problem_type", None)
    if problem == _MULTI_LABEL:
        if num_temperatures not in (0, model.config.num_labels):
            raise ValueError(f"temperature must have {model.config.num_labels} values, got {num_temperatures}")
        return
    if num_temperatures:
        raise ValueError(f"temperature must be one number for a softmax, got {num_temperatures} values")
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"model must be a classifier, got problem_type {problem!r}")
    num_labels = getattr(model.config, "num_labels", None)
    if num_labels is not None and num_labels < 2:
        raise ValueError(f"model must have at least 2 labels, got num_labels {num_labels}")


def _fold_language_model(model: Any, value: float) -> None:
    name = type(model).__name__
    if hasattr(model, "peft_config"):
        raise TypeError(f"model must have its adapters merged, got a {name} with some: only they would be saved")
    head = model.get_output_embeddings()
    if model.main_input_name != "input_ids" or not isinstance(head, nn.Linear):
        raise TypeError(
            f"model must predict tokens from input_ids, by a Linear head, got {name} with {model.main_input_name} and "
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
    bias = getattr(model, "final_logits_bias", None)  # a buffer of Marian, BART, and similar
    tensors = parameters if bias is None else [*parameters, bias]

    # Halving is exact in every dtype, unlike dividing by T. If halving the weights halves the logits, these are the
    # right weights. The trial is repeated with large head outputs, because a soft cap hardly changes small logits.
    large = 1e4 / peak if peak > 0 else 1.0
    before_large, *_ = _probe(model, head, ids, large)
    kept = [tensor.detach().clone() for tensor in tensors]
    pairs = torch.randint(head.out_features, (_NUM_PAIRS, 2), generator=torch.Generator().manual_seed(0))
    for offset, tolerance in ((0, 1e-5), (1, 2e-2)):  # Gemma's norms multiply by 1 + weight, which bfloat16 rounds
        try:
            _divide(tensors, 2, offset)
            halves = _is_half(_probe(model, head, ids)[0], before, tolerance)
            halves = halves and _is_half(_probe(model, head, ids, large)[0], before_large, tolerance)
        finally:
            _restore(tensors, kept)
        if halves:
            _fold(tensors, value, offset, lambda: _probe(model, head, pairs)[0])
            return
    raise TypeError(
        f"model must have logits that are proportional to its last norm or head, got {name}, whose are not (a "
        f"soft-cap, or layers between them): {_INSTEAD}"
    )


@torch.no_grad()
def _probe(
    model: Any, head: nn.Module, ids: torch.Tensor, scale: float = 1.0
) -> tuple[torch.Tensor, float, nn.Module | None]:
    """Return the tokens' logits, the largest absolute output of the head, and the norm before the head.

    The logits are computed from the head's outputs times `scale`; the largest output is that before this scaling. The
    norm is the last layer before the head that has a vector as its weight, or None if there is no such layer.
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
    model.eval()  # without dropout or updates of running statistics
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
            f"model must call its head once, got {type(model).__name__}, which has {len(outputs)} calls: {_INSTEAD}"
        )
    return logits, float(outputs[0].abs().max()), norms[0]


def _is_half(logits: torch.Tensor, of: torch.Tensor, tolerance: float) -> bool:
    of = of.float()
    largest = float(of.nan_to_num(0, 0, 0).abs().max())  # tokens may be masked with -inf
    return torch.allclose(2 * logits.float(), of, rtol=0, atol=tolerance * largest)


def _parameters(layer: Any) -> list[nn.Parameter]:
    """Return a layer's weight, and its bias if it has one."""
    bias = getattr(layer, "bias", None)
    return [layer.weight] if bias is None else [layer.weight, bias]


@torch.no_grad()
def _divide(tensors: Sequence[torch.Tensor], value: Any, offset: int = 0) -> None:
    """Divide tensors in place by `value`: one number, or a tensor with a number for each row.

    The layer of the first tensor adds `offset` to this tensor, so the sum of the two is what is divided.
    """
    for tensor in tensors:
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        by = value.to(wide).view(-1, *[1] * (wide.ndim - 1)) if isinstance(value, torch.Tensor) else value
        tensor.copy_((wide + offset) / by - offset)
        offset = 0


def _uses(model: Any, parameters: Sequence[torch.Tensor]) -> list[str]:
    """Return all names of the parameters in the model's layers. A parameter that layers share has several names.

    Only modules without submodules count, because BERT's head registers the bias of its last layer a second time.
    """
    own = {id(parameter) for parameter in parameters}
    layers = [
        item for item in model.named_modules(remove_duplicate=False) if not any(True for _ in item[1].children())
    ]
    of_layers = [(path, *item) for path, layer in layers for item in layer.named_parameters()]
    return [f"{path}.{name}" for path, name, parameter in of_layers if id(parameter) in own]


def check_copied(model: Any, names: Sequence[str]) -> None:
    """Raise `TypeError` unless the parameters `names` are those of an adapter's own copies (`modules_to_save`)."""
    if not all(".modules_to_save." in name for name in names):
        name = type(model).__name__
        raise TypeError(f"the adapter must have a copy of the head (modules_to_save), got a {name} without one")


def _check_foldable(model: Any, parameters: Sequence[torch.Tensor]) -> None:
    uses = _uses(model, parameters)
    if len(uses) != len(parameters):
        raise TypeError(f"the weights that T is folded into must be their layer's own, got shared ones: {uses}")
    if hasattr(model, "peft_config"):
        check_copied(model, uses)
    for parameter in parameters:
        if not parameter.is_floating_point() or parameter.dtype.itemsize < 2:
            raise TypeError(f"the weights that T is folded into must be floating, got {parameter.dtype}")
        if parameter.is_meta:
            raise TypeError("the weights that T is folded into must be in memory, got some on the meta device")


def _check_whole(model: Any) -> bool:
    """Return whether the model generates; raise `TypeError` if it has no config, or if FSDP or ZeRO-3 shards it."""
    if not hasattr(model, "config"):
        raise TypeError(f"model must be a Transformers model with a config, got {type(model).__name__}")
    generates = hasattr(model, "can_generate") and model.can_generate()
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return generates
    from torch.distributed.fsdp import FSDPModule

    # FSDP's unsharded parameters are temporary copies. ZeRO-3 marks sharded parameters with an id.
    if isinstance(model, FSDPModule) or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise TypeError(
            f"the model must be whole, got a {type(model).__name__} sharded by FSDP or ZeRO-3: save it, and "
            "fold what from_pretrained loads"
        )
    return generates
