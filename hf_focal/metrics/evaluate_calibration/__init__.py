"""A metric for the `evaluate` library."""

from pathlib import Path


def evaluate_module() -> str:
    """Return the path of the metric's folder; ``evaluate.load(evaluate_module(), "ece")`` needs no network access.

    The second argument of `evaluate.load` is the configuration, such as "ece": the key of a metric in
    `hf_focal.metrics.metric_table.METRICS` that has a `function`.
    """
    return str(Path(__file__).parent)
