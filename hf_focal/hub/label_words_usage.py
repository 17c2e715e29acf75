"""Python code for the section "Use" of the card of a language model that scores label words after a prompt."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_ENVIRONMENT.filters |= {"python": repr, "quoted": partial(json.dumps, ensure_ascii=False)}


def correction_usage(
    model: str,
    prompt: str,
    fields: Sequence[str],
    labels: Sequence[str],
    classes: Sequence[str],
    settings: Mapping[str, Any],
    *,
    is_folder: bool = False,
) -> str:
    """Return code that applies ``correction.json`` to the language model's scores.

    `model` is the language model's name, and `is_folder` whether that is the name of a local folder. `fields` are
    those of the prompt, and `settings` are further arguments of `label_scores`, without those that are not set.
    """
    return _ENVIRONMENT.get_template("label_words_correction.py.jinja").render(
        model=model,
        is_folder=is_folder,
        prompt=prompt,
        example=_example(fields),
        labels=[*labels],
        classes=classes,
        settings=[(name, value) for name, value in settings.items() if value],
        one_logit=settings["one_logit"],
    )


def classifier_usage(
    name: str, fields: Sequence[str], classes: Sequence[str], *, one_logit: bool, is_folded: bool
) -> str:
    """Return code that loads the saved classifier, and adds the offsets that its head lacks unless it `is_folded`."""
    is_id = "/" in name
    return _ENVIRONMENT.get_template("label_words_classifier.py.jinja").render(
        is_id=is_id,
        model=name if is_id else f"your-username/{name}",
        example=_example(fields),
        classes=classes,
        one_logit=one_logit,
        is_folded=is_folded,
    )


def _example(fields: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(fields, "A text to classify.")
