"""Checks of numbers that are given as arguments."""

import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Any


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def finite(name: str, value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    require(number, f"{name} must be a finite number, got {value!r}")
    return float(value)


def at_least_0(name: str, value: Any) -> float:
    require(finite(name, value) >= 0, f"{name} must be at least 0, got {value!r}")
    return float(value)


def within_0_1(name: str, value: Any) -> float:
    require(0 <= finite(name, value) <= 1, f"{name} must be within [0, 1], got {value}")
    return float(value)


def increasing(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))
