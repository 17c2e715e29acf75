"""Results of out-of-distribution detection."""

import numpy as np
import pytest
import torch
from papers.metrics.ood_metrics import KINDS, detection_metrics, roc_curve, uncertainty
from papers.runs.detection_results import DetectionResult


def normal(*shape, scale=1.0, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_measure_is_the_metrics_before_and_after_the_temperature(dtype):
    inside, outside = normal(900, 5, scale=3).to(dtype), normal(700, 5, scale=2, seed=1).to(dtype)
    more = {"shift": {}, "in_distribution": {"pre": {}, "post": {}}}
    result = DetectionResult.measure("brier", 2.5, inside, {"other": outside, "same": inside}, **more)
    assert (result.loss, result.temperature, result.in_distribution) == ("brier", 2.5, more["in_distribution"])
    for side, temperature in (("pre", 1), ("post", 2.5)):
        for kind in KINDS:
            scores = [uncertainty(logits.float() / temperature, kind) for logits in (inside, outside)]
            assert result.detection["other"][side][kind] == detection_metrics(*scores)
            assert result.detection["same"][side][kind]["auroc"] == 0.5
        scores = [uncertainty(logits.float() / temperature) for logits in (inside, outside)]
        np.testing.assert_array_equal(roc_curve(*scores), result.curves["other"][side])
    assert result.detection["other"]["pre"] != result.detection["other"]["post"]
    with pytest.raises(ValueError, match="temperature must be finite and positive, got 0"):
        DetectionResult.measure("brier", 0, inside, {}, **more)
