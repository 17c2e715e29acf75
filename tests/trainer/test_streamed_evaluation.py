"""Evaluations of many tokens, whose confidences are too many to keep."""

import numpy as np
import pytest
import torch

from hf_focal import build_loss
from hf_focal.tasks.heads import Head
from hf_focal.trainer import streamed_evaluation
from hf_focal.trainer.accumulators import rows_by_process
from hf_focal.trainer.streamed_evaluation import StreamedEvaluation, kept_samples


@pytest.mark.parametrize(("most", "keeps_all"), [(1000, True), (100, False)])
def test_a_histogram_replaces_many_tokens(monkeypatch, most, keeps_all):
    monkeypatch.setattr(streamed_evaluation, "MAX_KEPT_TOKENS", most)
    torch.manual_seed(0)
    head = Head.NEXT_TOKENS
    actual = []
    for keep_samples in (kept_samples(head), True):
        evaluation = StreamedEvaluation(build_loss("cross_entropy"), 15, None, head, keep_samples)
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            logits = 3 * torch.randn(4, 15, 20, generator=generator)
            evaluation.update(logits, torch.randint(20, (4, 15), generator=generator))
        actual.append(evaluation.compute())
    assert evaluation.before.has_samples
    limited, exact = actual
    assert ("adaece_error" in limited) == (not keeps_all)
    for name in ("ece", "nll", "accuracy", "loss"):
        assert limited[name] == pytest.approx(exact[name], abs=1e-12)
    assert limited["aurc"] == pytest.approx(exact["aurc"], abs=1e-4)


def test_samples_that_adafocal_or_a_report_needs_are_kept():
    assert kept_samples(Head.CLASSES) is True
    assert kept_samples(Head.NEXT_TOKENS, has_adafocal=True) is True
    assert kept_samples(Head.PIXELS) is False


def test_rows_are_in_the_order_of_the_processes():
    """Of 9 rows, two processes take batches of 2 in turn, and the last has one row; row 2 has no label."""
    first = [(2, np.arange(2)), (2, np.arange(2)), (1, np.arange(1))]
    second = [(2, np.array([1])), (2, np.arange(2))]
    assert rows_by_process([first, second]).tolist() == [0, 1, 4, 5, 8, 3, 6, 7]
    assert rows_by_process([[]]).tolist() == []
