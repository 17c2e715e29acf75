"""What a model's configuration records of its probabilities: `config.calibration`, and what ends with the weights."""

from collections.abc import Mapping
from typing import Any

from ..utils.caller_warnings import warn
from .corrections import Correction

# Thresholds, whose precision or recall was shown for certain probabilities; the shares of classes for which these
# hold; and a correction for the options of questions, which was fitted to scores that the weights gave.
CONFIG_ENTRIES = ("thresholds", "prior_shift", "option_calibration")


def drop_calibration_entries(config: Any, *, quiet: bool = False) -> list[str]:
    """Remove the entries of `config` that hold for the model's earlier probabilities.

    Whatever changes weights, or the correction that `config.calibration` records, calls this.

    Args:
        config: a configuration of Transformers, or the values of its JSON file, as a dict. Changed in place.
        quiet: whether not to warn, because the caller reports what is removed.

    Returns:
        The names of the removed entries, each of which causes a warning.
    """
    entries = config if isinstance(config, dict) else vars(config)
    removed = [name for name in CONFIG_ENTRIES if entries.get(name) is not None]
    for name in CONFIG_ENTRIES:
        entries.pop(name, None)
    if removed and not quiet:
        names = " and ".join(f"config.{name}" for name in removed)
        warn(f"the model's probabilities have changed, so {names} no longer hold and are removed")
    return removed


def calibration_record(correction: Correction, folded: bool | None = None) -> dict[str, Any]:
    """Return what `config.calibration` records of a correction: `{"temperature": T}`, or its method, A, and b.

    "folded" is recorded only where it says something: False, or, for models that generate, True.
    """
    record = correction.to_dict()
    if "temperature" in record:
        del record["method"]
    return record if folded is None else record | {"folded": folded}


def record_fold(config: Any, folded: Correction, generates: bool) -> None:
    """Record a correction that was folded into a model in its configuration, combined with what was folded before.

    The entries of the configuration that held for the earlier probabilities are removed.
    """
    earlier = recorded_calibration(config)
    on_top = is_folded(earlier, generates)
    if folded.is_identity and (on_top or not earlier):
        return
    drop_calibration_entries(config)
    if not on_top:
        record = calibration_record(folded)
    elif _has_numbers(earlier):
        record = calibration_record(Correction.from_dict(earlier).then(folded))
    else:  # version 0.2 did not record A and b of vector and matrix scaling
        record = {"method": earlier["method"]}
    config.calibration = record | ({"folded": True} if generates else {})


def recorded_calibration(config: Any) -> dict[str, Any]:
    """Return a copy of `config.calibration`, or an empty dict if there is none.

    Anyone can write this field of a downloaded model. If it records no correction that could be real, it is removed
    from `config`, with a warning that quotes it.
    """
    record = getattr(config, "calibration", None)
    if not record and isinstance(record, dict | None):
        return {}
    try:
        if not isinstance(record, Mapping):
            raise ValueError("it is not a mapping")
        if not isinstance(record.get("folded", True), bool):
            raise ValueError(f"folded must be true or false, got {record['folded']!r}")
        if _has_numbers(record):
            Correction.from_dict(record)
        return dict(record)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        quoted = repr(record)
        quoted = quoted if len(quoted) < 200 else quoted[:200] + "..."
        warn(f"config.calibration is ignored, {quoted}: {error}")
        del config.calibration
        return {}


def _has_numbers(record: Mapping[str, Any]) -> bool:
    """Return False for folded vector or matrix scaling of version 0.2, which did not record its A and b."""
    return record.get("method") not in ("vector", "matrix") or "A" in record or record.get("folded") is False


def folded_temperature(record: Mapping[str, Any] | None, generates: bool) -> float | None:
    """Return the temperature that is in a model's weights according to its `recorded_calibration`, or None."""
    return record.get("temperature") if record and is_folded(record, generates) else None


def is_folded(record: Mapping[str, Any] | None, generates: bool) -> bool:
    """Return whether a correction that a model's `recorded_calibration` describes is in the weights.

    In a model that generates, it is only if "folded" is recorded as True; in any other, unless "folded" is False.
    """
    return bool(record and record.get("folded", not generates))
