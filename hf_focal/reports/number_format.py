"""Numbers and intervals as texts."""

import math

MISSING = "–"  # not measured, or NaN


def format_number(value: float | None, factor: float, decimals: int) -> str:
    """Format a value times a factor; None and NaN become `MISSING`."""
    return MISSING if value is None or math.isnan(value) else f"{factor * value:.{decimals}f}"


def format_interval(bounds: tuple[float, float] | None, factor: float, decimals: int) -> str:
    """Format an interval, to be put after a number, as " [low, high]"; return "" if `bounds` is None."""
    return "" if bounds is None else f" [{', '.join(format_number(bound, factor, decimals) for bound in bounds)}]"
