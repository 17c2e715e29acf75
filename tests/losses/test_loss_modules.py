import math

import pytest
import torch
import torch.nn.functional as F

from hf_focal.losses import build_loss, focal


def batch(dtype=torch.float32):
    logits = 2 * torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(12).reshape(2, 6) % 5
    labels[0, 3:] = -100
    return logits.to(dtype), labels


def test_the_mean_of_cross_entropy_is_torchs():
    logits, labels = batch()
    torch.testing.assert_close(
        build_loss("cross_entropy")(logits, labels), F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    )


@pytest.mark.parametrize("config", ["brier", "label_smoothing:alpha=0"])
def test_soft_targets_of_0_on_masked_classes_are_finite(config):
    logits = torch.tensor([[1.0, 0.0, -math.inf]], requires_grad=True)
    value = build_loss(config)(logits, torch.tensor([[0.7, 0.3, 0.0]]))
    value.backward()
    without = build_loss(config)(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.3]]))
    torch.testing.assert_close(value.detach(), without)
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("config", ["flsd53", "adafocal"])
def test_soft_targets_have_no_probability_that_chooses_gamma(config):
    logits, _ = batch()
    with pytest.raises(ValueError, match=r"labels must be class indices for \w+Gamma, which chooses gamma"):
        build_loss(config)(logits, logits.softmax(-1))
    with pytest.raises(ValueError, match="labels must be class indices for inverse focal loss, γ = -2, got soft"):
        build_loss("inverse_focal")(logits, logits.softmax(-1))


def test_progress_reaches_the_schedule_and_only_the_schedule():
    logits, labels = batch()
    scheduled = build_loss("focal:schedule=5/3/2")
    assert scheduled.changes_during_training and build_loss("adafocal").changes_during_training
    for progress, gamma in ((0.0, 5.0), (0.5, 3.0), (1.0, 2.0)):
        scheduled.set_progress(progress)
        assert torch.equal(scheduled(logits, labels, reduction="none"), focal(logits, labels, gamma))


def test_a_checkpoint_restores_the_gamma_that_moves():
    loss, resumed = (build_loss("adafocal:bins=2") for _ in range(2))
    loss.policy.update(torch.tensor([0.3, 0.9]), torch.tensor([0, 0]))
    resumed.load_state_dict(loss.state_dict())
    assert resumed.policy.gammas == loss.policy.gammas != [1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduction": "average"}, "reduction must be 'mean', 'sum' or 'none', got 'average'"),
        ({"reduction": "none", "num_items": 3}, "reduction must be 'mean' with num_items, .* got 'none'"),
        ({"num_items": -1}, "num_items must be at least 0, got -1"),
        ({"num_items": float("nan")}, "num_items must be a finite number, got nan"),
        ({"num_items": torch.tensor([3, 3])}, "num_items must be one number, got 2"),
    ],
)
def test_reductions_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_loss("mmce")(*batch(), **arguments)


def test_num_items_count_soft_targets_as_samples():
    logits = batch()[0]
    targets = logits.flip(-1).softmax(-1)
    targets[0, 3:] = -100
    loss = build_loss("focal:gamma=2")
    torch.testing.assert_close(loss(logits, targets, num_items=9), loss(logits, targets))
