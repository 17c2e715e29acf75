"""Decisions by the thresholds that a model's config or ``correction.json`` holds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from ..errors import InputError


def apply_thresholds(pipeline_output: Any, config: Any) -> Any:
    """Turn the output of a text or image classification pipeline into decisions.

    Args:
        pipeline_output: what the pipeline returned; for several labels, called with ``top_k=None``.
        config: the model's config, whose `thresholds` `hf-focal calibrate` stored, or this mapping.

    Returns:
        For each sample, the list of the labels whose probability reaches their threshold; for a softmax, the predicted
        label, or None to abstain. For the output of one sample that is not in a list, the same without the outer list.

    Raises:
        InputError: a config without thresholds; an output without the scores of all labels, with labels that the
            thresholds are not for, or that could be of one sample or of several.

    Examples:
        >>> from types import SimpleNamespace
        >>> from hf_focal import apply_thresholds
        >>> config = SimpleNamespace(thresholds={"values": {"spam": 0.9}, "link": "sigmoid"})
        >>> apply_thresholds([{"label": "spam", "score": 0.95}], config)
        [['spam']]
    """
    record = config if isinstance(config, Mapping) else getattr(config, "thresholds", None)
    if not isinstance(record, Mapping) or not isinstance(record.get("values"), Mapping):
        raise InputError("config", "must have thresholds, which hf-focal calibrate stores, got none")
    if not are_thresholds(record["values"]):
        raise InputError("config", f"must have thresholds within [0, 1], got {record['values']}")
    names = [*(record.get("labels") or () if record is config else getattr(config, "id2label", {}).values())]
    if record.get("link") == "softmax":
        names = names or [*record["values"]]  # a softmax has one threshold for every class
    if isinstance(pipeline_output, Mapping):
        return _decided([pipeline_output], record, names)
    items = list(pipeline_output)
    if items and isinstance(items[0], Mapping) and _is_one_sample(items, record, names):
        return _decided(items, record, names)
    return [_decided([item] if isinstance(item, Mapping) else item, record, names) for item in items]


def _is_one_sample(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether the items are labels of one sample, rather than the best label of each of several samples."""
    labels, scores = [item["label"] for item in items], [item["score"] for item in items]
    if len(items) < 2 or len({*labels}) < len(labels):
        return False
    if record.get("link") != "softmax":  # of several labels, the best one alone is never enough
        return not names or len(names) > 1
    is_sum = abs(sum(scores) - 1) < 1e-3
    if len(names) < 2 or sorted(labels) == sorted(names):
        return is_sum
    # The most probable of K classes has at least 1/K; several such labels may still be the first ones of one sample.
    if min(scores) < 1 / len(names) - 1e-6 or (sum(scores) < 1 + 1e-3 and scores == sorted(scores, reverse=True)):
        raise InputError(
            "pipeline_output",
            f"must have the scores of all {len(names)} labels of a sample, or the best label of each sample in a list "
            f"of its own, got {len(items)} labels that may be those of one sample: pass top_k=None",
        )
    return False


def _decided(items: Sequence[Mapping[str, Any]], record: Mapping[str, Any], names: Sequence[str]) -> Any:
    values, labels = record["values"], [item["label"] for item in items]
    if unknown := [label for label in labels if names and label not in names]:
        raise InputError("pipeline_output", f"must have labels among {[*names]}, got {unknown[0]!r}")
    if record.get("link") == "softmax":
        top = max(items, key=lambda item: item["score"])
        return top["label"] if top["score"] >= values.get(top["label"], math.inf) else None
    needed = len(names) or len({*values, *labels})
    if len({*labels}) < needed:
        raise InputError(
            "pipeline_output", f"must have the scores of all {needed} labels, got {len(items)}: pass top_k=None"
        )
    return [item["label"] for item in items if item["score"] >= values.get(item["label"], math.inf)]


def are_thresholds(values: Any) -> TypeGuard[Mapping[str, float]]:
    """Return whether a JSON value maps labels to numbers within [0, 1]."""
    return isinstance(values, Mapping) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 for value in values.values()
    )


def decide(probabilities: np.ndarray, record: Mapping[str, Any]) -> np.ndarray:
    """Decide by the thresholds of a record, as `apply_thresholds` does for the output of a pipeline.

    Args:
        probabilities: of each label, (N, L); of each class, for a softmax. Floats of any width.
        record: what `Thresholds.record` returned for these labels or classes.

    Returns:
        Whether each label applies, (N, L), never one without a threshold; for a softmax, whether the most probable
        class is the answer, (N,).
    """
    bounds = np.array([record["values"].get(name, math.inf) for name in record["labels"]])
    is_reached = probabilities >= bounds
    if record["link"] != "softmax":
        return is_reached
    return np.take_along_axis(is_reached, probabilities.argmax(1)[:, None], 1)[:, 0]
