"""Results of out-of-distribution detection."""

import pytest
import torch
from papers.metrics.ood_metrics import KINDS, detection_metrics, uncertainty
from papers.runs.detection_results import detection_by_score


def normal(*shape, scale=1.0, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_detection_is_the_metrics_before_and_after_the_temperature(dtype):
    inside, outside = normal(900, 5, scale=3).to(dtype), normal(700, 5, scale=2, seed=1).to(dtype)
    detection = detection_by_score(inside, {"other": outside, "same": inside}, 2.5)
    for side, temperature in (("pre", 1), ("post", 2.5)):
        for kind in KINDS:
            scores = [uncertainty(logits.float() / temperature, kind) for logits in (inside, outside)]
            assert detection["other"][side][kind] == detection_metrics(*scores)
            assert detection["same"][side][kind]["auroc"] == 0.5
    assert detection["other"]["pre"] != detection["other"]["post"]
    with pytest.raises(ValueError, match="temperature must be finite and positive, got 0"):
        detection_by_score(inside, {}, 0)
