"""The front matter of a card: what the Hub reads about a model, its results, and its base model."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import one_line
from ..metrics.metric_table import METRICS
from ..utils.caller_warnings import warn
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
        before = f" before {result.scaling}"
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


def read_base_metadata(name: str | None) -> Mapping[str, Any]:
    """Return the metadata of the card of a base model, a Hub id or a folder; {} without a card, or without the Hub.

    A card in a folder that cannot be read is warned of.
    """
    from huggingface_hub import ModelCard, model_info

    # The base class of what the Hub's client raises without a connection, whatever library it uses for requests.
    from huggingface_hub.errors import HTTPError

    if name is None:
        return {}
    if (file := Path(name) / "README.md").is_file():
        try:
            return ModelCard(file.read_text(encoding="utf-8")).data.to_dict()
        except Exception as error:  # whatever the parser of YAML and that of cards raise
            warn(
                f"the new card takes no license and no language from {str(file)!r}, which cannot be read: "
                f"{one_line(error)}"
            )
            return {}
    if hub_id(name) is None:
        return {}
    try:
        data = model_info(name, timeout=10).card_data
    except (HTTPError, OSError):  # no connection, no such repository, or no access to it
        return {}
    return data.to_dict() if data else {}
