"""Folding of a correction into a model's weights, so that plain `from_pretrained` loads a calibrated model.

A fold is believed only after a trial: the model runs on a small batch before and after, and the new logits must be the
correction of the old ones. If they are not, the weights are restored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..utils.caller_warnings import warn
from ..utils.constants import MULTI_LABEL
from ..utils.model_wrappers import unwrap
from .calibration_record import record_fold
from .corrections import Correction, ModelT
from .fitted_temperature import Temperature, as_correction
from .trial_runs import TrialModel, close, is_quantized, large_power, scaled_alike

# Random inputs for comparing predictions before and after: of a classifier's head, and of a language model.
_NUM_FEATURES, _NUM_TOKENS = 1024, 256
_LARGEST_CHANGE = 1e-2  # of a probability by rounding, before a warning
# How far logits may be off after a fold, as a share of the largest, by bytes of a weight. Some norms of float64 models
# compute in float32.
_TOLERANCE = {2: 5e-2, 4: 1e-4, 8: 1e-4}
_ADVICE = "divide its logits by T instead, in generation with apply_calibrated_generation"


class RoundingWarning(UserWarning):
    """A fold changes predictions or probabilities because the weights' dtype rounds."""


class _FoldTarget(NamedTuple):
    """Where a correction goes: `tensors` of `layers`; to the first tensor, its layer adds `offset`."""

    layers: list[nn.Module]
    tensors: list[Tensor]
    offset: int = 0


def fold_correction(
    model: ModelT, correction: Correction | Temperature | float, example: Mapping[str, Any] | None = None
) -> ModelT:
    """Fold a correction into a model's weights, so that plain `from_pretrained` loads a calibrated model.

    The last layers are found by running the model on a small batch. After the fold, the model runs on it again: if its
    logits are not the correction of those before, within the precision of the weights, the weights are restored.

    In a classifier, the last layer's weight W becomes A W and its bias c becomes A c + b, computed in float64 unless
    the correction is one T. Some heads, such as Llama's, have no bias: then the b of vector and matrix scaling is left
    out with a warning, and it is better to fit with `bias=False`. In a language model, T divides the weights of the
    head, and `final_logits_bias`. If the head is tied to the embeddings, the norm before the head is divided instead
    of the head's weight, so that head and embeddings stay tied.

    With a T, predictions change only in near-ties, by rounding: hardly ever in float32, but up to about 1% of all
    predictions in half precision with 1,000 classes. If predictions on random inputs change, a warning reports their
    share.

    The correction is recorded in `model.config.calibration`, combined with those folded before it. If the model
    generates, `"folded": True` is also recorded, so `calibrated_generation` does not apply T again. T replaces a
    temperature recorded by `apply_calibrated_generation`, which is not in the weights.

    The entries of the configuration that held for the earlier probabilities (`config.thresholds`,
    `config.prior_shift`, and `config.option_calibration`) are removed, with a warning.

    Args:
        model: a Transformers classifier (of texts, images, sounds, tokens, or pixels), whose logits are those of a
            Linear or Conv2d layer, or the sum of two; or a causal, sequence-to-sequence, or masked language model,
            for one T. Changed in place and returned, without `torch.compile` or `DataParallel` around it. In a PEFT
            classifier, the adapter's own copy of the head is changed; the base model does not change.
        correction: a `Correction`, or what `fit_temperature` returned, or a number T.
        example: inputs of a classifier for the trial, such as one batch of data. By default, random ones are made from
            the model's config, which is not possible for every model.

    Raises:
        InputError: a temperature that is not finite and positive; a correction that makes weights infinite in their
            dtype, or that is for another number of classes; a model for regression.
        TypeError: no config; logits that are not those of the last layers, or no batch to try; weights that are
            shared, quantized, offloaded, or sharded; a head without a bias, which Platt scaling or an offset needs; a
            PEFT classifier without its own copy of the head, or a language model with unmerged adapters. The model is
            then unchanged. For a language model, use `apply_calibrated_generation` instead.

    Examples:
        >>> from hf_focal import Temperature, fold_correction
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=10, **sizes))
        >>> fold_correction(model, Temperature(1.5)).config.calibration["temperature"]
        1.5
    """
    correction, model = as_correction(correction), unwrap(model)
    target, trial, probe, folded = _find_target(check_whole(model), correction, example)
    _fold_into_target(target, trial, probe, folded)
    record_fold(model.config, folded, can_generate(model))
    return model


def check_foldable(model: Any) -> None:
    """Raise what `fold_correction` raises for a model that can take no temperature; the model stays as it is."""
    _find_target(check_whole(model), Correction(), None)


def _find_target(
    model: Any, correction: Correction, example: Mapping[str, Any] | None
) -> tuple[_FoldTarget, TrialModel, Callable[[], Tensor], Correction]:
    """Return where a correction goes, a trial of the model, what gives logits of random inputs, and the correction.

    The correction's b is 0 if the model cannot take it.
    """
    if can_generate(model) or is_masked_language_model(model):
        if correction.method != "temperature" or correction.T is None:
            raise TypeError(f"model must be a classifier for {correction.method} scaling, got {type(model).__name__}")
        return *_language_model_target(model), correction
    _check_classifier(model, correction)
    target, trial, probe = _classifier_target(model, example)
    if any(correction.size not in (None, len(tensor)) for tensor in target.tensors):
        size = len(target.tensors[0])
        raise InputError("correction", f"must have the model's {size} classes, got one of {correction.size}")
    if correction.method != "temperature" and any(layer.bias is None for layer in target.layers):
        correction = _drop_bias(correction, type(model).__name__)
    return target, trial, probe, correction


def _drop_bias(correction: Correction, name: str) -> Correction:
    if correction.method in ("bias", "platt"):
        part = "intercept" if correction.method == "platt" else "offset"
        raise TypeError(f"model must have a head with a bias, which takes the {part}, got {name}")
    if isinstance(correction.b, Tensor):
        warn(
            f"the head of {name} has no bias, so the bias of the {correction.method} scaling is left out: fit with "
            "bias=False"
        )
    return replace(correction, b=0.0)


def has_bias(model: Any, example: Mapping[str, Any] | None = None) -> bool:
    """Return False if a classifier's last layer has no bias, into which a correction's offset could be folded."""
    try:
        return all(layer.bias is not None for layer in TrialModel(check_whole(model), example).logit_layers())
    except TypeError:  # nothing can be folded anyway
        return True


def can_generate(model: Any) -> bool:
    return hasattr(model, "can_generate") and model.can_generate()


def is_masked_language_model(model: Any) -> bool:
    return any(kind.__name__.endswith("ForMaskedLM") for kind in type(model).__mro__)


def _fold_into_target(
    target: _FoldTarget, trial: TrialModel, probe: Callable[[], Tensor], correction: Correction
) -> None:
    """Correct the tensors in place, and warn if predictions change by rounding.

    `probe` returns logits (..., K) of random inputs. If tensors or logits overflow, or if the trial's logits are not
    the correction of those before, restore the tensors and raise.
    """
    if correction.is_identity:
        return
    tensors, dtype = target.tensors, target.tensors[0].dtype
    before, probed, originals = trial.logits(), probe(), [tensor.detach().clone() for tensor in tensors]
    expected = correction.apply(before.double().cpu())
    try:
        _replace_rows(tensors, correction.fold_rows, target.offset)
        after, changed = trial.logits(), probe()
        pairs = zip([probed, before, *originals], [changed, after, *tensors], strict=True)
        if any((old.isfinite() & ~new.isfinite()).any() for old, new in pairs):
            raise InputError("correction", f"must keep weights and logits finite in {dtype}, got {correction}")
        if not close(after.double().cpu(), expected, _TOLERANCE[dtype.itemsize]):
            raise TypeError(
                f"model must have logits that a change of its last layers corrects, got {trial.name}, whose logits on "
                "a trial batch were not those expected"
            )
    except BaseException:
        _restore(tensors, originals)
        raise
    problem, name = getattr(trial.model.config, "problem_type", None), str(correction)
    if problem == MULTI_LABEL:
        wanted = correction.apply(probed.double().cpu())
        off = float((torch.sigmoid(changed.double().cpu()) - torch.sigmoid(wanted)).abs().max())
        if off > _LARGEST_CHANGE:
            warn(
                f"{name} in {dtype} weights gives probabilities that are off by up to {off:.2g} on random "
                "inputs, by rounding: float32 keeps them",
                RoundingWarning,
            )
    if correction.method != "temperature" or problem == MULTI_LABEL:
        return  # predictions are meant to change, or are the signs of the logits, which no T changes
    moved = probed.argmax(-1) != changed.argmax(-1)
    if moved.any():
        share = 100 * float(moved.double().mean())
        warn(
            f"{name} in {dtype} weights changes {share:.2g}% of the predictions on {moved.numel():,} random "
            "inputs, by rounding" + (": float32 keeps them" if dtype.itemsize < 4 else ""),
            RoundingWarning,
        )


@torch.no_grad()
def _replace_rows(tensors: Sequence[Tensor], rows: Callable[[Tensor], Tensor], offset: int) -> None:
    """Replace tensors in place by their `rows`. The layer of the first one adds `offset` to it."""
    for tensor in tensors:
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        tensor.copy_(rows(wide + offset) - offset if offset else rows(wide))
        offset = 0


@torch.no_grad()
def _restore(tensors: Sequence[Tensor], originals: Sequence[Tensor]) -> None:
    for tensor, values in zip(tensors, originals, strict=True):
        tensor.copy_(values)


# Classifiers


def _classifier_target(
    model: Any, example: Mapping[str, Any] | None
) -> tuple[_FoldTarget, TrialModel, Callable[[], Tensor]]:
    trial = TrialModel(model, example)
    layers = trial.logit_layers()
    _check_unquantized(model, layers)
    tensors = [parameter for layer in layers for parameter in _parameters(layer)]
    _check_foldable(model, tensors)
    features = [_random_features(layer) for layer in layers]

    @torch.no_grad()
    def probe() -> Tensor:
        logits = [layer(inputs) for layer, inputs in zip(layers, features, strict=True)]
        return torch.cat([values.flatten(2)[0].T if values.ndim > 2 else values for values in logits])

    return _FoldTarget(layers, tensors), trial, probe


def _check_classifier(model: Any, correction: Correction) -> None:
    """Raise unless the model's probabilities are a softmax over at least two classes, or one sigmoid per label, and
    the correction has as many classes or labels."""
    problem, num_labels = (getattr(model.config, name, None) for name in ("problem_type", "num_labels"))
    mixes = correction.method in ("vector", "matrix")
    if (mixes and problem == MULTI_LABEL) or (correction.size and hasattr(model, "qa_outputs")):
        name = type(model).__name__
        raise TypeError(f"model must have one softmax over classes for {correction.method} scaling, got {name}")
    if problem == MULTI_LABEL:
        return
    if correction.method == "temperature" and correction.T is None:
        raise InputError("temperature", f"must be one number for a softmax, got {correction.size} values")
    if correction.method == "platt":
        raise InputError("model", f"must have problem_type {MULTI_LABEL!r} for Platt scaling, got {problem!r}")
    if problem not in (None, "single_label_classification"):
        raise InputError("model", f"must be a classifier, got problem_type {problem!r}")
    if num_labels is not None and num_labels < 2:
        raise InputError("model", f"must have at least 2 labels, got num_labels {num_labels}")


def _random_features(layer: Any) -> Tensor:
    """Return random inputs for a layer: (N, C) if it is Linear, or an image of N pixels if it is a Conv2d."""
    size = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    features = torch.randn(_NUM_FEATURES, size, generator=torch.Generator().manual_seed(0)).to(layer.weight)
    return features if isinstance(layer, nn.Linear) else features.T.reshape(1, size, 32, -1)


# Language models


def _language_model_target(model: Any) -> tuple[_FoldTarget, TrialModel, Callable[[], Tensor]]:
    """Find the weights of the head or, if the embeddings share them, of the norm before the head."""
    name = type(model).__name__
    if hasattr(model, "peft_config"):
        raise TypeError(
            f"model must have its adapters merged, got a {name} with some: only the adapters would be saved"
        )
    head = model.get_output_embeddings()
    _check_unquantized(model, [head])
    if model.main_input_name != "input_ids" or not isinstance(head, nn.Linear):
        raise TypeError(
            f"model must predict tokens from input_ids, by a Linear head, got {name} with {model.main_input_name} and "
            f"{type(head).__name__}: {_ADVICE}"
        )
    trial = TrialModel(model)
    norm = _norm_before(trial, head)
    if len(_uses(model, [head.weight])) == 1:
        layers: list[nn.Module] = [head]
        parameters = _parameters(head)
    elif norm is not None:
        layers, parameters = [norm, head], _parameters(norm) + _parameters(head)[1:]
    else:
        raise TypeError(f"model must have a norm before a head that shares its weight, got {name}: {_ADVICE}")
    _check_foldable(model, parameters)
    bias = getattr(model, "final_logits_bias", None)  # a buffer of Marian, BART, and similar
    tensors: list[Tensor] = parameters if bias is None else [*parameters, bias]

    shape = _NUM_TOKENS // (length := trial.inputs["input_ids"].shape[1]), length
    tokens = torch.randint(head.out_features, shape, generator=torch.Generator().manual_seed(0))
    random = {name: torch.ones_like(tokens) if "mask" in name else tokens for name in trial.inputs}

    # Halving is exact in every dtype, unlike dividing by T. If halving the weights halves the logits, these are the
    # right weights. The trial is repeated with large head outputs, because a soft cap hardly changes small logits.
    large: dict[nn.Module, float] = {head: large_power(trial.largest_output([head]))}
    before, before_large = trial.logits(), trial.logits(large)
    originals = [tensor.detach().clone() for tensor in tensors]
    for offset, tolerance in ((0, 1e-5), (1, 2e-2)):  # Gemma's norms multiply by 1 + weight, which bfloat16 rounds
        try:
            _replace_rows(tensors, lambda tensor: tensor / 2, offset)
            halves = scaled_alike(trial.logits(), before, 0.5, tolerance)
            halves = halves and scaled_alike(trial.logits(large), before_large, 0.5, tolerance)
        finally:
            _restore(tensors, originals)
        if halves:
            return _FoldTarget(layers, tensors, offset), trial, TrialModel(model, random).logits
    raise TypeError(
        f"model must have logits that are proportional to its last norm or head, got {name}, whose are not (a "
        f"soft-cap, or layers between them): {_ADVICE}"
    )


def _norm_before(trial: TrialModel, head: nn.Module) -> nn.Module | None:
    """Return the last layer before the head that has a vector as its weight, such as a norm, or None."""
    ran = [
        item for item in trial.run_order() if item is head or getattr(getattr(item, "weight", None), "ndim", 0) == 1
    ]
    if ran.count(head) != 1:
        calls = f"{trial.name}, which has {ran.count(head)} calls"
        raise TypeError(f"model must call its head once, got {calls}: {_ADVICE}")
    before = ran[: ran.index(head)]
    return before[-1] if before else None


# Weights


def _parameters(layer: Any) -> list[Tensor]:
    """Return a layer's weight, and its bias if it has one."""
    bias = getattr(layer, "bias", None)
    return [layer.weight] if bias is None else [layer.weight, bias]


def _uses(model: Any, parameters: Sequence[Tensor]) -> list[str]:
    """Return all names of the parameters in the model's layers. A parameter that layers share has several names.

    Only modules without submodules count, because BERT's head registers the bias of its last layer a second time.
    """
    parameter_ids = {id(parameter) for parameter in parameters}
    layers = [
        item for item in model.named_modules(remove_duplicate=False) if not any(True for _ in item[1].children())
    ]
    layer_parameters = [(path, *item) for path, layer in layers for item in layer.named_parameters()]
    return [f"{path}.{name}" for path, name, parameter in layer_parameters if id(parameter) in parameter_ids]


def _check_unquantized(model: Any, layers: Sequence[nn.Module]) -> None:
    for layer in filter(is_quantized, layers):
        path = next((path for path, module in model.named_modules() if module is layer), type(layer).__name__)
        weight = getattr(layer, "weight", None)
        kind = type(weight) if isinstance(weight, Tensor) and type(weight) is not nn.Parameter else type(layer)
        name = f"{kind.__module__}.{kind.__name__}"
        raise TypeError(
            f"model must have a head that is not quantized, got {type(model).__name__} whose {path} is {name}: fold "
            f"before you quantize, or leave the head as it is (modules_to_not_convert=[{path!r}] in most quantization "
            "configs, llm_int8_skip_modules in that of bitsandbytes)"
        )


def check_copied(model: Any, names: Sequence[str]) -> None:
    """Raise `TypeError` unless the parameters `names` are those of an adapter's own copies (`modules_to_save`)."""
    if not all(".modules_to_save." in name for name in names):
        name = type(model).__name__
        raise TypeError(f"the adapter must have a copy of the head (modules_to_save), got a {name} without one")


def _check_foldable(model: Any, parameters: Sequence[Tensor]) -> None:
    uses = _uses(model, parameters)
    if len(uses) != len(parameters):
        raise TypeError(f"the weights to fold into must be their layer's own, got shared ones: {uses}")
    if hasattr(model, "peft_config"):
        check_copied(model, uses)
    for parameter in parameters:
        if not parameter.is_floating_point() or parameter.dtype.itemsize < 2:
            raise TypeError(f"the weights to fold into must be floating, got {parameter.dtype}")
        if parameter.is_meta:
            raise TypeError("the weights to fold into must be in memory, got some on the meta device")


def check_whole(model: Any) -> Any:
    """Return a model without wrappers; raise `TypeError` if it has no config, or if FSDP or ZeRO-3 shards it."""
    wrapped, model = model, unwrap(model)
    if not hasattr(model, "config"):
        raise TypeError(f"model must be a Transformers model with a config, got {type(model).__name__}")
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return model
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    # FSDP's unsharded parameters are temporary copies. ZeRO-3 marks sharded parameters with an id.
    sharded = any(isinstance(module, FSDPModule | FullyShardedDataParallel) for module in wrapped.modules())
    if sharded or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise TypeError(
            f"the model must be whole, got a {type(model).__name__} sharded by FSDP or ZeRO-3: save it, and "
            "fold what from_pretrained loads"
        )
    return model
