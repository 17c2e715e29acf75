"""Results of out-of-distribution detection, and of calibration on noisy data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hf_focal.reports.run_results import scaled
from hf_focal.validation import Array, check_positive

from ..metrics.ood_metrics import KINDS, detection_metrics, uncertainty

SIDES = ("pre", "post")  # before and after T


@dataclass(frozen=True)
class DetectionResult:
    """Metrics of a run's out-of-distribution detection, and of its calibration on noisy data.

    Attributes:
        loss: the loss, as `str(LossConfig)`.
        temperature: the T fitted on the in-distribution validation set; 1 if none was fitted.
        detection: name of the out-of-distribution set -> `"pre"` or `"post"` (before or after T) -> `"entropy"` or
            `"confidence"` (the score) -> the `detection_metrics`, fractions.
        shift: name of the noise -> a dict for each severity, with `"severity"` (0 is the original data) and, in
            `"pre"` and `"post"`, what `CalibrationMetrics.compute` returned before and after T. May be empty.
        in_distribution: `"pre"` and `"post"` -> the same for the in-distribution test set.
    """

    loss: str
    temperature: float
    detection: dict[str, dict[str, dict[str, dict[str, float]]]]
    shift: dict[str, list[dict[str, Any]]]
    in_distribution: dict[str, dict[str, float]]


def detection_by_score(in_logits: Array, out_logits: Mapping[str, Array], temperature: float) -> dict[str, dict]:
    """Return `DetectionResult.detection`, given logits (N, K), and those of out-of-distribution sets, (M, K) by name.

    Logits are those before T.
    """
    values = {"pre": 1.0, "post": check_positive("temperature", temperature)}

    def metrics(out: Array, side: str, kind: str) -> dict[str, float]:
        return detection_metrics(*(uncertainty(scaled(logits, values[side]), kind) for logits in (in_logits, out)))

    return {
        name: {side: {kind: metrics(out, side, kind) for kind in KINDS} for side in SIDES}
        for name, out in out_logits.items()
    }
