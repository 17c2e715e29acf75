"""What `RunResult.details` may hold: a file of a result is checked against this before anything is drawn.

So a file that no report wrote is told by one line, and an error while a valid result is drawn is a bug, which keeps
its traceback.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST = 1e15  # of counts and of numbers that are drawn


def _fail(place: str, expected: str, value: Any) -> None:
    quoted = repr(value)
    raise ValueError(f"{place} must be {expected}, got {quoted[:80]}")


def text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        _fail(place, "a text", value)


def flag(value: Any, place: str) -> None:
    if not isinstance(value, bool):
        _fail(place, "true or false", value)


def number(value: Any, place: str) -> None:
    """Check a number that is drawn or printed; null stands for NaN."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        _fail(place, "a number", value)
    if not (math.isnan(value) or abs(value) <= _LARGEST):
        _fail(place, "a finite number", value)


def given_number(value: Any, place: str) -> None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        _fail(place, "a number", value)
    number(value, place)


def share(value: Any, place: str) -> None:
    number(value, place)
    if value is not None and not math.isnan(value) and not 0 <= value <= 1:
        _fail(place, "a number from 0 to 1", value)


def count(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        _fail(place, "a count", value)


def anything(value: Any, place: str) -> None:
    """Accept any JSON value, which is only copied or printed."""


Check = Callable[[Any, str], None]


def optional(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)


def each(check: Check, least: int = 0) -> Check:
    """Return a check of a list, each of whose items is checked."""

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple) or len(value) < least:
            _fail(place, f"a list of at least {least}" if least else "a list", value)
        for index, item in enumerate(value):
            check(item, f"{place}[{index}]")

    return checked


def named(check: Check) -> Check:
    """Return a check of a mapping from any text."""

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            _fail(place, "a mapping", value)
        for key, item in value.items():
            check(item, f"{place}.{key}")

    return checked


def entries(required: Mapping[str, Check], others: Mapping[str, Check] | None = None, columns: bool = False) -> Check:
    """Return a check of a mapping with these keys; with `columns`, all its lists must be equally long."""
    known = {**required, **(others or {})}

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            _fail(place, "a mapping", value)
        if missing := sorted(required.keys() - value.keys()):
            raise ValueError(f"{place} must have {', '.join(missing)}")
        for key, item in value.items():
            if key in known:
                known[key](item, f"{place}.{key}")
        lengths = {len(item) for item in value.values() if isinstance(item, list | tuple)}
        if columns and len(lengths) > 1:
            raise ValueError(f"{place} must have lists of equal length, got {sorted(lengths)}")

    return checked


def _bins(value: Any, place: str) -> None:
    sides = {"count": each(count, 1), "confidence": each(share), "accuracy": each(share)}
    entries({"edges": each(share, 2), **sides})(value, place)
    edges, sizes = value["edges"], {len(value[side]) for side in sides}
    if sizes != {len(edges) - 1} or None in edges or any(low >= high for low, high in itertools.pairwise(edges)):
        raise ValueError(f"{place} must have one edge more than bins, in order, and a value of each side for each bin")
    for index, size in enumerate(value["count"]):
        means = value["confidence"][index], value["accuracy"][index]
        if size and any(mean is None or math.isnan(mean) for mean in means):
            raise ValueError(f"{place} must have the mean confidence and the accuracy of bin {index}, got {means}")


def _labels(value: Any, place: str) -> None:
    lists = {"frequency": each(number), "f1": each(number), "before": each(number), "after": each(number)}
    lists |= {"name": each(text, 1), "temperature": each(number)}
    entries(lists, {"slope": each(number), "intercept": each(number), "worst": named(_two_bins)}, columns=True)(
        value, place
    )


def _two_bins(value: Any, place: str) -> None:
    each(_bins, 2)(value, place)


def _confusion(value: Any, place: str) -> None:
    if isinstance(value, Mapping) and "pairs" in value:
        pair = {"label": text, "prediction": text, "count": count, "samples": count}
        entries({"pairs": each(entries(pair))})(value, place)
        for row in value["pairs"]:
            if not 0 < row["count"] <= row["samples"]:
                raise ValueError(f"{place} must have pairs with a count up to their samples, got {row}")
        return
    entries({"names": each(text, 1), "counts": each(each(count))})(value, place)
    if {len(value["counts"]), *map(len, value["counts"])} != {len(value["names"])}:
        raise ValueError(f"{place} must have a row and a column for each of the {len(value['names'])} names")


def _history(value: Any, place: str) -> None:
    update = entries({"gammas": each(given_number, 1), "edges": each(share, 2), "epoch": given_number})
    each(update)(value, place)
    sizes = {(len(entry["gammas"]), len(entry["edges"]) - 1) for entry in value}
    if len(sizes) > 1 or any(gammas != bins for gammas, bins in sizes):
        raise ValueError(f"{place} must have a γ for each bin, and as many bins in each update")
    epochs = [0.0, *(entry["epoch"] for entry in value)]
    if any(None in entry["edges"] for entry in value) or any(a > b for a, b in itertools.pairwise(epochs)):
        raise ValueError(f"{place} must have edges, and epochs in order")


def _curves(value: Any, place: str) -> None:
    curve = entries({"answered": each(count, 1), "errors": each(count, 1)}, columns=True)
    entries({}, {"before": curve, "after": curve})(value, place)
    if extra := sorted(value.keys() - {"before", "after"}):
        raise ValueError(f"{place} must have before and after, got {', '.join(extra)}")
    for side, points in value.items():
        answered, errors = points["answered"], points["errors"]
        ordered = all(low < high for low, high in zip([0, *answered], answered, strict=False))
        if not ordered or any(wrong > size for wrong, size in zip(errors, answered, strict=True)):
            raise ValueError(f"{place}.{side} must have increasing numbers of answers, and at most as many errors")


_SCORES = entries({"nll": number, "brier": number, "ece": number})
_PAIRS = each(number, 2)
_CALIBRATION = entries(
    {
        "method": text,
        "before": _SCORES,
        "after": _SCORES,
        "num_samples": count,
        "changed_predictions": count,
        "decomposition": entries({"nll": _PAIRS, "brier": _PAIRS}),
    },
    {
        "chosen": text,
        "reason": text,
        "description": text,
        "changed_top_labels": count,
        "num_folds": count,
        "correction": entries({}, {"slope": number, "intercept": number, "slopes": each(number)}),
    },
)
_THRESHOLD_OF_LABEL = entries(
    {"name": text, "value": optional(share), "precision": number, "recall": number}, {"reason": optional(text)}
)
_THRESHOLD = {"value": given_number, "test_coverage": share, "test_precision": share, "goal": given_number}
_THRESHOLD |= {"target": text, "level": given_number, "num_samples": count, "chosen_on": text}
_GROUPS = {"name": each(text, 1), "num_samples": each(count)}
_GROUPS |= dict.fromkeys(("error", "gap", "ece", "ece_low", "ece_high"), each(number))
_BALANCE = entries(
    {"classes": count, "smallest": count, "largest": count},
    {"majority": text, "base_nll": given_number, "never": each(text)}
    | dict.fromkeys(("predicted", "found", "lost", "num_never", "samples_of_never"), count),
)


def _balance(value: Any, place: str) -> None:
    _BALANCE(value, place)
    if value.get("num_never") and not value.get("never"):
        raise ValueError(f"{place} must name the classes that are never predicted")
    if "found" in value and not {"lost", "majority"} <= value.keys():
        raise ValueError(f"{place} must have lost and majority beside found")


def _prior_shift(value: Any, place: str) -> None:
    lists = {"names": each(text, 1), "train_prior": each(given_number), "new_prior": each(given_number)}
    entries(lists, {"estimated_on": optional(text), "num_samples": count}, columns=True)(value, place)
    if value.get("estimated_on") and "num_samples" not in value:  # of version 0.2
        raise ValueError(f"{place} must say on how many samples the shares are estimated")


_DETAILS = entries(
    {},
    {
        **dict.fromkeys(("date", "model", "task", "measured_on", "fitted_on", "url"), text),
        **dict.fromkeys(("was_calibrated", "folded"), flag),
        "notes": each(text),
        "options": named(anything),
        "class_balance": _balance,
        "labels": _labels,
        "risk_coverage": _curves,
        "confusion": _confusion,
        "gamma_history": _history,
        "groups": entries(_GROUPS, columns=True),
        "calibration": _CALIBRATION,
        "thresholds": entries({"for": text, "link": text, "chosen_on": text, "labels": each(_THRESHOLD_OF_LABEL, 1)}),
        "threshold": entries(_THRESHOLD),
        "drift": entries(
            {"reference": text, "before": given_number, "now": given_number, "p_value": given_number}, {"bins": _bins}
        ),
        "prior_shift": _prior_shift,
    },
)
_METRICS = entries({}, dict.fromkeys(("error", "accuracy", "confidence"), share) | {"num_samples": given_number})


def check_result(values: Mapping[str, Any]) -> None:
    """Raise ValueError, or one of the errors of missing fields, unless these are the values of a `RunResult`."""
    for name in ("pre", "post"):
        _METRICS(values[name], name)
        _bins(values[f"{name}_bins"], f"{name}_bins")
    _DETAILS(values["details"], "details")
    size, balance = values["pre"].get("num_samples"), values["details"].get("class_balance")
    if size is not None and (size < 0 or (balance and balance["largest"] > size)):
        raise ValueError(f"pre.num_samples must be that of all classes, got {size}")
