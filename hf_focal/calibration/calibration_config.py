"""Entries of a model's configuration that hold for its probabilities, and so end when its weights change."""

import warnings
from typing import Any

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
        warnings.warn(
            f"the model's probabilities have changed, so {names} no longer hold and are removed", stacklevel=3
        )
    return removed
