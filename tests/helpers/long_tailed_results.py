"""Results of a classifier of long-tailed data."""

import torch

from hf_focal.calibration import fit_temperature
from hf_focal.reports import RunResult

COUNTS = [500, 101, 100, 20, 19, 1]
LOGITS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 6
LOGITS[torch.arange(60), LABELS] += 1


def result_of(loss, recall, counts=COUNTS, **details):
    details |= {"class_counts": counts, "class_recall": recall}
    return RunResult.measure(loss, fit_temperature(LOGITS, LABELS, "ece"), LOGITS, LABELS, details=details)
