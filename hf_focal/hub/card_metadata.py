"""The front matter of a card: what the Hub reads of a model, its data, and its results."""

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..calibration.calibration_fit import scaling_name
from ..metrics.metric_table import METRICS
from .card_contents import CardContents
from .hub_ids import hub_id

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCardData


def card_metadata(
    card: CardContents, base: Mapping[str, Any], language: str | list[str] | None, license: str | None
) -> "ModelCardData":
    """Return the front matter.

    It repeats the license of the `base` metadata and, of a model that was only corrected, the language.
    """
    from huggingface_hub import ModelCardData

    model, result = card.model, card.result
    if card.training is None:
        language = language or base.get("language")
    library = "hf_focal" if model.is_correction else "peft" if model.is_adapter else "transformers"
    return ModelCardData(
        model_name=model.name,
        language=language,
        license=license or base.get("license"),
        library_name=library,
        pipeline_tag=None if model.is_correction else model.task,
        base_model=hub_id(model.base) or base.get("base_model"),
        datasets=hub_id(card.data.dataset),
        tags=["hf_focal", "calibration", *(["temperature-scaling"] if result.temperature.is_fitted else [])],
        eval_results=_eval_results(card) or None,
    )


def _eval_results(card: CardContents) -> list["EvalResult"]:
    from huggingface_hub import EvalResult

    result, data = card.result, card.data
    optimistic = " (optimistic: T was fitted on these samples)" if data.same_samples else ""
    names = {key: metric.name[0].upper() + metric.name[1:] for key, metric in METRICS.items() if metric.in_card}
    values = [(key, name + optimistic, result.post.get(key)) for key, name in names.items()]
    if result.method is not None:
        before = f" before {scaling_name(result.method)}"
        changed = [key for key in names if key != "accuracy" or result.method != "temperature"]
        values += [(key, names[key] + before, result.pre.get(key)) for key in changed]
    common = {
        "task_type": card.model.task,
        "dataset_type": hub_id(data.test_id) or "unknown",
        "dataset_name": data.test_name or "unknown",
        "dataset_split": data.measured_on,
    }
    return [
        EvalResult(**common, metric_type=key, metric_name=name, metric_value=float(value))
        for key, name, value in values
        if value is not None and isfinite(value)
    ]
