"""Runs to compare with printed values."""

import pytest


@pytest.fixture
def run():
    """Makes a run's record."""

    def run(ece=0.1, error=0.2, post=None, temperature=1.0, equal_mass=None):
        after = {"ece": ece if post is None else post, "error": error}
        return {
            "before": {"ece": ece, "error": error, "top5_accuracy": None},
            "after": after,
            "temperature": {"value": temperature},
            "equal_mass": equal_mass,
        }

    return run
