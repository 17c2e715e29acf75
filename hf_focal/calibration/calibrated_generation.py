"""Temperature in generation: beam search on softmax(z / T), re-normalised at every step.

Beam search takes log_softmax of the logits before anything else is done to them, and Transformers' `temperature` only
has an effect where `do_sample` is on; a temperature that is put among the processors alone multiplies the scores of
all hypotheses by the same number, and changes nothing. What is needed is that the scores are normalised again after
they were divided by T: `log_softmax(log_softmax(z) / T) = log_softmax(z / T)`. These are two things that `generate`
takes as arguments; `apply_calibrated_generation` has a model's own `generate` pass them.

A model carries its temperature in `config.calibration`: `save_pretrained` refuses a `temperature` at the top of the
config, and in the generation config without `do_sample`, and a generation config holds no processors. Where weights
may change, `fold_temperature` makes that superfluous: what it saves generates so by itself.
"""

import functools
from collections.abc import Iterable
from typing import Any

from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, TemperatureLogitsWarper

from ..metrics.input_checks import check_positive
from .folding import folded_temperature
from .temperature import Temperature

__all__ = ["apply_calibrated_generation", "calibrated_generation"]


def calibrated_generation(source: Temperature | float | PreTrainedModel) -> dict[str, Any]:
    """Return the arguments of `generate` for generating from softmax(z / T).

    ```python
    model.generate(**inputs, num_beams=4, **calibrated_generation(1.3))
    trainer.predict(dataset, **calibrated_generation(model))
    ```

    The scores of beam search are then sums of log softmax(z / T), with a length penalty as ever. Other arguments that
    change scores act before T does. Where they forbid tokens (`min_length`, `no_repeat_ngram_size`, forced tokens),
    the probabilities of the others sum to 1, as without temperature they do only with `renormalize_logits=True`: pass
    that at T = 1 too where temperatures are compared. Greedy search generates the same as without. Sampling is from
    softmax(z / T); a `temperature` of its own acts on top, as it does on calibrated logits.

    Args:
        source: T, or a model that has it in `config.calibration["temperature"]`. One that is recorded as `folded`
            into the weights is left alone.

    Returns:
        `logits_processor`, to which more can be appended, and `renormalize_logits`. Nothing for T = 1 and for a model
        without a temperature: generation stays what it is.

    Raises:
        ValueError: a temperature that is not finite and positive.
    """
    if hasattr(source, "config"):
        calibration = getattr(source.config, "calibration", None) or {}
        folded = folded_temperature(calibration, generates=True) is not None
        value = 1.0 if folded else calibration.get("temperature", 1.0)
        temperature = check_positive("config.calibration['temperature']", value)
    else:
        temperature = check_positive("temperature", source)
    if temperature == 1:
        return {}
    return {
        "logits_processor": LogitsProcessorList([TemperatureLogitsWarper(temperature)]),
        "renormalize_logits": True,
    }


def apply_calibrated_generation(
    model: PreTrainedModel, temperature: Temperature | float | None = None
) -> PreTrainedModel:
    """Make plain `model.generate(...)` generate from softmax(z / T), with the T of `model.config.calibration`.

    T is read at each call. Call this again on what `from_pretrained` loads: the config is saved with the model, the
    method is not. A call that brings a temperature of its own, from `calibrated_generation`, has that in place of the
    model's.

    Only this object's `generate` is replaced, which is what Transformers itself does to a model whose repository has
    a `custom_generate`. (A callable for `custom_generate` would not do: `generate` then drops `synced_gpus`, and
    processes that hold one model together would wait for each other for ever.)

    Args:
        model: changed in place.
        temperature: where given, it is recorded in `model.config.calibration` with the figures of its fit, in place of
            what is there. On a model that has one folded in it acts on top, as it does where it was fitted to that
            model; the folded one is no longer recorded, then.

    Returns:
        The model.

    Raises:
        TypeError: a model that cannot generate.
        ValueError: a temperature that is not finite and positive.
    """
    if not hasattr(model, "generate"):
        raise TypeError(f"model must have a method generate, got {type(model).__name__}")
    if temperature is not None:
        figures = temperature.to_dict() if hasattr(temperature, "to_dict") else {}
        figures.pop("value", None)
        model.config.calibration = {"temperature": check_positive("temperature", temperature), **figures}
    calibrated_generation(model)  # raises now rather than when it generates
    model.generate = functools.partial(_generate, model)
    return model


def _generate(
    model: PreTrainedModel,
    inputs: Any = None,
    generation_config: Any = None,
    logits_processor: Iterable[LogitsProcessor] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    processors = list(logits_processor or [])
    if not any(isinstance(processor, TemperatureLogitsWarper) for processor in processors):
        calibrated = calibrated_generation(model)
        processors = [*calibrated.pop("logits_processor", []), *processors]
        kwargs |= calibrated
    generate = functools.partial(type(model).generate, model, inputs, generation_config)
    return generate(LogitsProcessorList(processors), *args, **kwargs)
