"""Losses that weigh rows by their class: recall loss and class-balanced loss."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import recall_score
from sklearn.utils.class_weight import compute_class_weight

from hf_focal.losses import (
    ClassBalanced,
    RecallLoss,
    batch_losses,
    build_loss,
    class_balanced_weights,
    focal,
    hits_and_counts,
)

K = 5
SHAPES = {"classes": (40,), "tokens": (4, 10), "pixels": (2, 4, 5)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])


def batch(shape=(40,), dtype=torch.float64, seed=0):
    """Logits that favor their label, of which class 3 has none and every seventh row is ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, K, generator=generator, dtype=torch.float64)
    labels = torch.randint(K, shape, generator=generator)
    labels[labels == 3] = 1
    logits.scatter_add_(-1, labels.unsqueeze(-1), torch.ones_like(logits))
    labels.view(-1)[::7] = -100
    return logits.to(dtype), labels


def recall(logits, labels):
    """By scikit-learn, (K,), 0 for a class without rows."""
    labeled = labels.flatten() != -100
    labels, predictions = labels.flatten()[labeled].numpy(), logits.double().flatten(0, -2).argmax(-1)[labeled].numpy()
    return torch.tensor(recall_score(labels, predictions, labels=range(K), average=None, zero_division=0.0))


def weighted(logits, labels, weights, gamma=0.0):
    weights = torch.as_tensor(weights).to(focal(logits, labels, gamma).dtype)
    return focal(logits, labels, gamma) * weights[labels.clamp(min=0)]


def stepped(loss, *batches):
    """The loss after steps of one batch each."""
    for logits, labels in batches:
        loss(logits, labels)
        loss.end_step()
    return loss


# Recall loss


@pytest.mark.parametrize(
    ("shape", "dtype", "gamma"),
    [((40,), torch.float64, 2), ((4, 10), torch.float32, 0), ((2, 4, 5), torch.bfloat16, 2)],
)
def test_rows_are_weighted_by_what_their_class_lacks_in_recall(shape, dtype, gamma):
    logits, labels = batch(shape, dtype)
    rows = RecallLoss(gamma=gamma)(logits, labels, reduction="none")
    assert rows.shape == labels.shape and rows.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(rows, weighted(logits, labels, 1 - recall(logits, labels), gamma), rtol=1e-6, atol=0)
    assert (rows[labels == -100] == 0).all() and (rows > 0).any()


def test_a_row_with_equal_logits_is_predicted_as_the_first_class():
    logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 2])
    assert hits_and_counts(logits, labels).tolist() == [[1, 0, 0], [1, 1, 2]]
    rows = RecallLoss()(logits, labels, reduction="none")
    assert rows.tolist() == pytest.approx([0, np.log(3), np.log(3), np.log(3)])


@every_shape
def test_the_average_moves_once_a_step_and_only_where_a_class_has_rows(shape):
    loss, alpha = RecallLoss(ema=0.3), 0.3
    expected = torch.zeros(K, dtype=torch.float64)
    for seed in range(4):
        logits, labels = batch(shape, seed=seed)
        if seed == 2:
            labels[labels == 0] = -100
        rows = loss(logits, labels, reduction="none")
        torch.testing.assert_close(rows, weighted(logits, labels, 1 - expected))
        present = torch.bincount(labels[labels >= 0], minlength=K) > 0
        assert present.tolist() == [seed != 2, True, True, False, True]
        expected = torch.where(present, alpha * recall(logits, labels) + (1 - alpha) * expected, expected)
        loss.end_step()
        torch.testing.assert_close(loss.recall, expected, rtol=1e-14, atol=0)
        assert loss.recall[3] == 0


def test_the_average_does_not_depend_on_how_a_step_is_cut():
    logits, labels = batch((60,))
    whole = stepped(RecallLoss(ema=0.3), batch(seed=1), (logits, labels))
    cut = stepped(RecallLoss(ema=0.3), batch(seed=1))
    parts = [
        cut(part, part_labels, reduction="none")
        for part, part_labels in zip(logits.split([7, 40, 13]), labels.split([7, 40, 13]), strict=True)
    ]
    rows = stepped(RecallLoss(ema=0.3), batch(seed=1))(logits, labels, reduction="none")
    torch.testing.assert_close(torch.cat(parts), rows, rtol=1e-15, atol=0)
    cut.end_step()
    assert torch.equal(cut.recall, whole.recall)
    cut.end_step()  # of no rows
    assert torch.equal(cut.recall, whole.recall)


@pytest.mark.parametrize("measuring", ["no_grad", "inference_mode", "eval"])
def test_what_is_measured_moves_no_average(measuring):
    loss = stepped(RecallLoss(ema=0.3), batch(seed=1))
    before = loss.recall.clone()
    if measuring == "eval":
        loss.eval()
        rows = loss(*batch(seed=2), reduction="none")
        loss.train()
    else:
        with getattr(torch, measuring)():
            rows = loss(*batch(seed=2), reduction="none")
    torch.testing.assert_close(rows.clone(), weighted(*batch(seed=2), 1 - before))
    loss.end_step()
    assert torch.equal(loss.recall, before)


@pytest.mark.parametrize("config", ["recall", "recall:ema=0.3"])
def test_what_is_measured_waits_for_no_other_process(config, monkeypatch):
    collected = []
    monkeypatch.setattr(batch_losses, "num_processes", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", collected.append)
    loss = build_loss(config)
    with torch.no_grad():
        loss(*batch())
    loss.eval()(*batch())
    assert collected == []
    for _ in range(3):
        loss.train()(*batch())
    loss.end_step()
    assert len(collected) == (1 if loss.ema else 3)


def test_a_checkpoint_restores_the_average():
    whole = stepped(RecallLoss(ema=0.3), *(batch(seed=seed) for seed in range(4)))
    first = stepped(RecallLoss(ema=0.3), *(batch(seed=seed) for seed in range(2)))
    resumed = RecallLoss(ema=0.3)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    stepped(resumed, *(batch(seed=seed) for seed in range(2, 4)))
    assert torch.equal(resumed.recall, whole.recall)
    resumed.load_state_dict(RecallLoss(ema=0.3).state_dict())
    assert resumed.recall is None
    with pytest.raises(ValueError, match=r"recall must be within \[0, 1\], got 2"):
        resumed.load_state_dict({"_extra_state": {"recall": [0.5, 2]}})


def test_other_classes_than_before_are_refused():
    loss = stepped(RecallLoss(ema=0.3), batch())
    with pytest.raises(ValueError, match="logits must have 5 classes as before, got 4"):
        loss(torch.zeros(2, 4), torch.tensor([0, 1]))


# Class-balanced loss


def test_inverse_frequency_is_scikit_learns_balanced_weight():
    labels = np.repeat(np.arange(4), [50, 20, 7, 1])
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    assert class_balanced_weights([50, 20, 7, 1]) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999, 1.0])
def test_weights_are_inverse_effective_numbers_with_mean_1_over_the_rows(beta):
    counts = np.array([5000, 700, 1, 0, 83])
    effective = counts if beta == 1 else (1 - beta ** counts.astype(float)) / (1 - beta)
    weights = np.array(class_balanced_weights(counts.tolist(), beta))
    assert weights[3] == 0
    present = counts > 0
    assert weights[present] * effective[present] == pytest.approx(weights[0] * effective[0], rel=1e-12)
    assert counts @ weights == pytest.approx(counts.sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "dtype", "gamma"),
    [((40,), torch.float64, 2), ((4, 10), torch.float32, 0), ((2, 4, 5), torch.bfloat16, 2)],
)
def test_rows_are_weighted_by_their_class(shape, dtype, gamma):
    logits, labels = batch(shape, dtype)
    loss = ClassBalanced(gamma=gamma)
    with pytest.raises(ValueError, match=r"weights must be given or counted from the training samples .*, got None"):
        loss(logits, labels)
    loss.set_class_counts([30, 20, 10, 0, 1])
    expected = weighted(logits, labels, loss.weights, gamma)
    torch.testing.assert_close(loss(logits, labels, reduction="none"), expected, rtol=1e-6, atol=0)
    fixed = build_loss({"name": "class_balanced", "gamma": gamma, "weights": loss.weights})
    assert torch.equal(fixed(logits, labels, reduction="none"), loss(logits, labels, reduction="none"))


def test_classes_behind_the_last_with_training_rows_weigh_nothing():
    logits, labels = batch()
    loss = ClassBalanced()
    loss.set_class_counts([30, 20, 10])
    rows = loss(logits, labels, reduction="none")
    assert (labels == 4).any() and (rows[labels == 4] == 0).all()
    loss.set_class_counts([1] * 6)
    with pytest.raises(
        ValueError, match="the classes of the training samples must be 5, as the logits' classes, got 6"
    ):
        loss(logits, labels)
    with pytest.raises(ValueError, match="weights must be 5, as the logits' classes, got 2"):
        build_loss("class_balanced:weights=1/2")(logits, labels)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_a_class_of_weight_0_counts_for_nothing_however_wrong_its_rows(gamma):
    loss = ClassBalanced(gamma=gamma, weights=[0.0, 1.0, 2.0])
    labels = torch.tensor([0, 1, 2])

    def rows_and_gradient(label_logit):
        logits = torch.tensor([[label_logit, 1.0, 0.5], [0.3, 0.2, -1.0], [1.0, 0.0, 0.1]], dtype=torch.float64)
        logits.requires_grad_()
        rows = loss(logits, labels, reduction="none")
        (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
        return rows.detach(), gradient

    # The limit: the label's logit falls, its cross-entropy grows beyond all bounds, and weight 0 leaves nothing of it.
    far, masked = rows_and_gradient(-1e4), rows_and_gradient(-torch.inf)
    for values in (*far, *masked):
        assert values[0].eq(0).all() and values.isfinite().all()
    for near, limit in zip(far, masked, strict=True):
        torch.testing.assert_close(limit, near)


def test_a_class_that_is_always_right_in_recall_weighs_nothing_where_a_row_is_masked():
    loss = RecallLoss(ema=1.0)
    loss.set_extra_state({"recall": [1.0, 0.5]})
    logits = torch.tensor([[-torch.inf, 1.0], [2.0, 1.0]], requires_grad=True)
    total = loss(logits, torch.tensor([0, 1]))
    total.backward()
    assert total.item() == pytest.approx(0.5 * np.log1p(np.e) / 2)
    assert logits.grad[0].eq(0).all() and logits.grad.isfinite().all()


def test_a_checkpoint_restores_the_weights():
    loss, resumed = ClassBalanced(beta=0.9), ClassBalanced(beta=0.9)
    resumed.load_state_dict(json.loads(json.dumps(loss.state_dict())))
    assert resumed.weights is None
    loss.set_class_counts([3, 2, 1, 1, 5])
    resumed.load_state_dict(json.loads(json.dumps(loss.state_dict())))
    assert resumed.weights == loss.weights
    fixed = ClassBalanced(weights=(1.0, 2.0))
    fixed.load_state_dict(loss.state_dict())
    assert list(fixed.weights) == [1, 2]


@pytest.mark.parametrize(
    ("counts", "beta", "message"),
    [
        ([0, 0], 1, "counts must be one number of samples per class, some above 0"),
        ([3, -1], 1, "counts must be one number"),
        ([3, 1], 1.5, r"beta must be within \[0, 1\], got 1.5"),
    ],
)
def test_counts_that_are_none_are_refused(counts, beta, message):
    with pytest.raises(ValueError, match=message):
        class_balanced_weights(counts, beta)
