"""Numbers and intervals as texts."""

import math
from collections.abc import Mapping

from ...metrics.metric_table import METRICS

MISSING = "–"  # not measured, or NaN
_MOST_DECIMALS = 15  # of a float


def sentence(text: str) -> str:
    """Capitalize the first letter. Unlike `str.capitalize`, keep the case of the others."""
    return f"{text[:1].upper()}{text[1:]}"


def format_number(value: float | None, factor: float, decimals: int) -> str:
    """Format a value times a factor; None and NaN become `MISSING`."""
    return MISSING if value is None or math.isnan(value) else f"{factor * value:.{decimals}f}"


def differing_decimals(first: float, second: float, fewest: int) -> int:
    """Return how many decimals, at least `fewest`, show that two different shares, as percentages, are different."""
    shown = (n for n in range(fewest, _MOST_DECIMALS) if f"{100 * first:.{n}f}" != f"{100 * second:.{n}f}")
    return fewest if first == second else next(shown, _MOST_DECIMALS)


def format_interval(bounds: tuple[float, float] | None, factor: float, decimals: int) -> str:
    """Format an interval, to be put after a number, as " [low, high]"; return "" if `bounds` is None."""
    return "" if bounds is None else f" [{', '.join(format_number(bound, factor, decimals) for bound in bounds)}]"


def format_metric(key: str, metrics: Mapping[str, float]) -> str:
    """Format a metric with the factor and the decimals of its entry in `METRICS`."""
    return format_number(metrics.get(key), METRICS[key].factor, METRICS[key].decimals)


def metric_interval(key: str, intervals: Mapping[str, tuple[float, float]]) -> str:
    """Format the interval of a metric, if tables show it and it is known, as " [low, high]"; otherwise return ""."""
    metric = METRICS[key]
    return format_interval(intervals.get(key), metric.factor, metric.decimals) if metric.has_interval else ""
