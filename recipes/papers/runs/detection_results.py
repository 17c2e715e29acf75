"""Results of out-of-distribution detection, and of calibration on corrupted data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hf_focal.reports.run_results import scaled
from hf_focal.validation import Array, check_positive

from ..metrics.ood_metrics import KINDS, detection_metrics, roc_curve, uncertainty

SIDES = ("pre", "post")  # before and after T


@dataclass(frozen=True)
class DetectionResult:
    """Metrics of a run's out-of-distribution detection, and of its calibration on corrupted data.

    Attributes:
        loss: the loss, as `str(LossConfig)`.
        temperature: the T fitted on the in-distribution validation set; 1 if none was fitted.
        detection: name of the out-of-distribution set -> `"pre"` or `"post"` (before or after T) -> `"entropy"` or
            `"confidence"` (the score) -> the `detection_metrics`, fractions.
        curves: name of the out-of-distribution set -> `"pre"` or `"post"` -> the `roc_curve` of the entropy.
        shift: name of the corruption -> a dict for each severity, with `"severity"` (0 is the original data) and, in
            `"pre"` and `"post"`, what `CalibrationMetrics.compute` returned before and after T. May be empty.
        in_distribution: `"pre"` and `"post"` -> the same for the in-distribution test set.
    """

    loss: str
    temperature: float
    detection: dict[str, dict[str, dict[str, dict[str, float]]]]
    curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]
    shift: dict[str, list[dict[str, Any]]]
    in_distribution: dict[str, dict[str, float]]

    @classmethod
    def measure(
        cls, loss: str, temperature: float, in_logits: Array, out_logits: Mapping[str, Array], **values: Any
    ) -> "DetectionResult":
        """Make a result from in-distribution logits (N, K) and those of each out-of-distribution set, (M, K) by name.

        `values` are the fields `shift` and `in_distribution`.
        """
        temperature = check_positive("temperature", temperature)
        scores = _scores(in_logits, temperature)
        detection, curves = {}, {}
        for name, logits in out_logits.items():
            out_scores = _scores(logits, temperature)
            detection[name] = {
                side: {kind: detection_metrics(scores[side, kind], out_scores[side, kind]) for kind in KINDS}
                for side in SIDES
            }
            curves[name] = {side: roc_curve(scores[side, "entropy"], out_scores[side, "entropy"]) for side in SIDES}
        return cls(loss, temperature, detection, curves, **values)


def _scores(logits: Array, temperature: float) -> dict[tuple[str, str], np.ndarray]:
    sides = {"pre": torch.as_tensor(logits), "post": scaled(logits, temperature)}
    return {(side, kind): uncertainty(z, kind) for side, z in sides.items() for kind in KINDS}
