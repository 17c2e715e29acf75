"""Parameters of which `make test` takes only some."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_slow(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters, of which those that are not quick run in `make test-slow` only."""
    return [pytest.param(value, marks=[] if value in quick else [pytest.mark.slow]) for value in values]
