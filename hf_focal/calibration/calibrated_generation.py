"""Generation from softmax(z / T), with a beam search that renormalizes its scores at every step.

Beam search starts from the log_softmax of the logits. By itself, a temperature among the logits processors only
multiplies the scores of all hypotheses by the same number, so the scores must be renormalized after the division:
`log_softmax(log_softmax(z) / T) = log_softmax(z / T)`. The temperature is stored in `config.calibration`, because
`save_pretrained` refuses it elsewhere. `fold_correction` makes all of this unnecessary.
"""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..utils.model_wrappers import unwrap
from ..validation import check_positive
from .calibration_record import calibration_record, is_folded, recorded_calibration
from .fitted_temperature import Temperature, as_correction

if TYPE_CHECKING:  # fitting and folding do not need Transformers
    from transformers import LogitsProcessor, PreTrainedModel


def calibrated_generation(source: "Temperature | float | PreTrainedModel") -> dict[str, Any]:
    """Return the arguments that make `generate` use softmax(z / T).

    ```python
    model.generate(**inputs, num_beams=4, **calibrated_generation(1.3))
    trainer.predict(dataset, **calibrated_generation(model))
    ```

    The scores of beam search are then sums of log softmax(z / T). Other arguments that change scores act before T.
    With the returned arguments, `generate` also renormalizes the scores after it forbids tokens (`min_length`,
    `no_repeat_ngram_size`, forced tokens); without them, it does not. So for a comparison with T = 1, pass
    `renormalize_logits=True` in that run. Greedy search is not affected. A sampling `temperature` acts on top of T.

    Args:
        source: T, or a model whose `config.calibration["temperature"]` is used unless this T is already in the weights
            (`config.calibration["folded"]`).

    Returns:
        A dict with `logits_processor`, to which more processors can be appended, and `renormalize_logits`; an empty
        dict if there is no T or T = 1.

    Examples:
        >>> from hf_focal import calibrated_generation
        >>> sorted(calibrated_generation(1.3))
        ['logits_processor', 'renormalize_logits']
    """
    source = unwrap(source)
    if hasattr(source, "config"):
        record = recorded_calibration(source.config)
        temperature = 1.0 if is_folded(record, generates=True) else record.get("temperature", 1.0)
    else:
        temperature = check_positive("temperature", source)
    if temperature == 1:
        return {}
    from transformers import LogitsProcessorList, TemperatureLogitsWarper

    return {
        "logits_processor": LogitsProcessorList([TemperatureLogitsWarper(temperature)]),
        "renormalize_logits": True,
    }


def apply_calibrated_generation(
    model: "PreTrainedModel", temperature: Temperature | float | None = None
) -> "PreTrainedModel":
    """Make plain `model.generate(...)` generate from softmax(z / T), with the T of `model.config.calibration`.

    T is read from the config at each call. The config is saved with the model, but the changed method is not, so call
    this function again after `from_pretrained`. If a call of `generate` gets the result of `calibrated_generation` as
    arguments, it uses the T of that result instead.

    Only this object's `generate` is replaced, as Transformers does for models whose repository has a
    `custom_generate`. Do not pass a callable as the argument `custom_generate` instead: `generate` then drops
    `synced_gpus`, and processes that share a sharded model deadlock.

    Args:
        model: changed in place, and returned without `torch.compile` or `DataParallel` around it.
        temperature: recorded in `model.config.calibration`, replacing any temperature recorded there. It acts on top
            of a temperature that is folded into the weights.
    """
    model = unwrap(model)
    if not hasattr(model, "generate"):
        raise TypeError(f"model must have a method generate, got {type(model).__name__}")
    if temperature is not None:
        model.config.calibration = calibration_record(as_correction(temperature))
    calibrated_generation(model)  # raises now rather than during generation
    model.generate = functools.partial(_generate, model)
    return model


def _generate(
    model: "PreTrainedModel",
    inputs: Any = None,
    generation_config: Any = None,
    logits_processor: "Iterable[LogitsProcessor] | None" = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    from transformers import LogitsProcessorList, TemperatureLogitsWarper

    processors = list(logits_processor or [])
    if not any(isinstance(processor, TemperatureLogitsWarper) for processor in processors):
        calibrated = calibrated_generation(model)
        processors = [*calibrated.pop("logits_processor", []), *processors]
        kwargs |= calibrated
    kwargs["logits_processor"] = LogitsProcessorList(processors)
    generate = functools.partial(type(model).generate, model)
    if inputs is None and not args:  # PEFT's encoder-decoders take keywords only
        return generate(**kwargs, **({} if generation_config is None else {"generation_config": generation_config}))
    return generate(inputs, generation_config, kwargs.pop("logits_processor"), *args, **kwargs)
