"""A pass of Trainer's evaluation loop: which batches and forward passes are measured, and which metrics are logged."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from ..errors import InputError
from ..utils.model_wrappers import unwrap
from .accumulators import Accumulator
from .batch_labels import check_same_rows, labels_of
from .training_callbacks import BUILT_IN

_logger = logging.getLogger(__name__)


@dataclass
class EvaluationPass:
    """The state of a pass, which the trainer holds because Trainer's loop passes no more arguments to its methods.

    Between passes, there is no accumulator. `evaluate` and `predict` set the other two before the loop begins.

    Attributes:
        accumulator: what the logits and labels are added to.
        labels_optional: whether a batch may have no labels, as in `predict`.
        updates_gamma: whether the evaluation measures the data for an update of γ that is due.
        unmeasured: the evaluated model and its batch, until the batch is measured.
    """

    accumulator: Accumulator | None = None
    labels_optional: bool = False
    updates_gamma: bool = False
    unmeasured: tuple[nn.Module, Mapping[str, Any]] | None = None

    @property
    def labels_required(self) -> bool:
        return self.accumulator is not None and not self.labels_optional

    def begin_batch(self, model: nn.Module, batch: Mapping[str, Any]) -> None:
        """Begin a step of the loop. Raises InputError for a batch without labels where they are required."""
        if self.labels_required:
            labels_of(batch, "the dataset to measure")
        measures = self.accumulator is not None and batch.get("labels") is not None
        self.unmeasured = (model, batch) if measures else None

    def batch_to_measure(self, model: nn.Module, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the batch of this step at the first pass of the evaluated model over it, and otherwise None.

        A `compute_loss` that a user overrides may call that of `FocalTrainer` more than once: with the batch, with the
        batch repeated, or for another model.
        """
        if self.unmeasured is None:
            return None
        evaluated, batch = self.unmeasured
        if unwrap(model) is not unwrap(evaluated):
            return None
        check_same_rows(inputs, batch)
        self.unmeasured = None
        return batch

    def end_batch(self, trainer_name: str) -> None:
        """End a step of the loop. Raises TypeError if its labeled batch was not measured."""
        is_unmeasured, self.unmeasured = self.unmeasured is not None, None
        if is_unmeasured and self.labels_required:
            raise TypeError(f"compute_loss of {trainer_name} must call super().compute_loss for metrics")


def add_metrics(returned: dict[str, Any], metrics: dict[str, float], prefix: str) -> None:
    """Add metrics, whose names have a prefix, to those that Trainer's loop returned.

    A metric of `compute_metrics` keeps its name, as in Trainer. The one that it hides is logged under `BUILT_IN`.
    Raises InputError if `compute_metrics` returned such a name itself.
    """
    keys = (name.removeprefix(f"{prefix}_") for name in metrics)
    if taken := [key for key in keys if f"{prefix}_{BUILT_IN}{key}" in returned]:
        expected = f"must not return {BUILT_IN + taken[0]!r}"
        raise InputError("compute_metrics", f"{expected}, which is the name of the trainer's own {taken[0]}")
    if metrics:  # Trainer's loss is a mean over batches, so ours replaces it
        returned.pop(f"{prefix}_loss", None)
    added = dict(metrics)
    for name in sorted(metrics.keys() & returned.keys()):
        value, key = returned[name], name.removeprefix(f"{prefix}_")
        if not _is_equal(value, metrics[name]):
            built_in = f"{prefix}_{BUILT_IN}{key}"
            added[built_in] = metrics[name]
            _logger.warning(
                "compute_metrics returned %s = %s, but the metric of that name is %.6g: it is logged as %s",
                *(key, f"{value:.6g}" if isinstance(value, int | float) else value, metrics[name], built_in),
            )
    returned.update(added | returned)


def _is_equal(value: Any, metric: float) -> bool:
    """Return whether what `compute_metrics` returned is a metric of ours; it may be no number, such as a mapping."""
    try:
        return np.allclose(value, metric, rtol=1e-4, atol=1e-6, equal_nan=True)
    except (TypeError, ValueError):
        return False
