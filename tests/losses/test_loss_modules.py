import math

import pytest
import torch
import torch.nn.functional as F

from hf_focal.losses import MMCE, LabelSmoothing, Loss, build_loss, cross_entropy, focal, mmce

from . import reference

CONFIGS = ["label_smoothing", "brier", "mmce", "focal", "adafocal"]
every_config = pytest.mark.parametrize("config", CONFIGS)


def batch(dtype=torch.float32):
    logits = 2 * torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(12).reshape(2, 6) % 5
    labels[0, 3:] = -100
    return logits.to(dtype), labels


@every_config
@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_none_gives_rows_of_the_labels_shape_in_at_least_float32(config, dtype, result):
    logits, labels = batch(dtype)
    loss = build_loss(config)
    rows = loss(logits, labels, reduction="none")
    assert rows.shape == labels.shape and rows.dtype == result
    assert loss(logits, labels).dtype == result


@every_config
def test_mean_and_sum_are_those_of_the_rows_that_count(config):
    logits, labels = batch()
    loss = build_loss(config)
    rows = loss(logits, labels, reduction="none")
    torch.testing.assert_close(loss(logits, labels, reduction="sum"), rows.sum())
    torch.testing.assert_close(loss(logits, labels), rows.sum() / 9)
    assert torch.equal(loss(logits, labels), loss(logits, labels, reduction="mean"))


@every_config
@pytest.mark.parametrize("num_items", [36, 36.0, torch.tensor(36), torch.tensor(36.0)])
def test_num_items_divides_the_sum(config, num_items):
    logits, labels = batch()
    loss = build_loss(config)
    torch.testing.assert_close(loss(logits, labels, num_items=num_items), loss(logits, labels, reduction="sum") / 36)


# The MMCE of a batch is no sum over its rows.
@pytest.mark.parametrize("config", [config for config in CONFIGS if config != "mmce"])
def test_micro_batches_divided_by_all_items_add_up_to_the_mean(config):
    logits, labels = batch()
    logits.requires_grad_()
    loss = build_loss(config)
    whole = loss(logits, labels)
    parts = sum(loss(logits[i], labels[i], num_items=9) for i in range(2))
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (parts, whole)))


def test_the_mean_of_cross_entropy_is_torchs():
    logits, labels = batch()
    torch.testing.assert_close(
        build_loss("cross_entropy")(logits, labels), F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_is_cross_entropy_plus_lambda_times_the_term(weighted):
    logits, labels = batch()
    loss = build_loss({"name": "mmce", "lam": 3, "weighted": weighted})
    term = mmce(logits, labels, weighted=weighted)
    torch.testing.assert_close(loss(logits, labels), cross_entropy(logits, labels).sum() / 9 + 3 * term)


def definition(config, logits, targets):
    """Values of soft targets as their formulas say, by autograd."""
    s, (name, num_classes) = logits.softmax(-1), (config.partition(":")[0], logits.shape[-1])
    if name == "brier":
        return (s - targets).square().sum(-1)
    alpha = 0.1
    if config == "label_smoothing:alpha=0.1":
        targets = (1 - alpha) * targets + alpha / num_classes
    elif name == "label_smoothing":  # of a class: 1 - α for itself, α / (K - 1) for each other
        targets = (1 - alpha) * targets + alpha * (1 - targets) / (num_classes - 1)
    return reference.soft_target_focal(logits, targets, 2.0 if name == "focal" else 0.0)


SOFT = ["cross_entropy", "focal:gamma=2", "brier", "label_smoothing:alpha=0.1"]
SOFT += ["label_smoothing:alpha=0.1,convention=paper"]


@pytest.mark.parametrize("config", SOFT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_soft_targets_equal_autograd_of_the_definition(config, dtype):
    logits, targets = batch(dtype)[0].requires_grad_(), batch(torch.float64)[0].flip(-1).softmax(-1)
    exact = logits.detach().double().requires_grad_()
    ours, peer = build_loss(config)(logits, targets, reduction="none"), definition(config, exact, targets)
    assert ours.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    close = {"rtol": 1e-12, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(ours.double(), peer, **close)
    ours, peer = (torch.autograd.grad(v.sum(), z)[0].double() for v, z in ((ours, logits), (peer, exact)))
    torch.testing.assert_close(ours, peer, **{"rtol": 8e-3, "atol": 1e-6} if dtype == torch.bfloat16 else close)


@pytest.mark.parametrize("config", [*SOFT, "label_smoothing:alpha=0"])
def test_soft_targets_of_one_class_give_the_loss_of_the_label(config):
    logits, labels = batch(torch.float64)
    targets = F.one_hot(labels.where(labels >= 0, 0), 5).double().masked_fill((labels < 0).unsqueeze(-1), -100)
    logits.requires_grad_()
    loss = build_loss(config)
    soft, hard = (loss(logits, given, reduction="none") for given in (targets, labels))
    torch.testing.assert_close(soft, hard, rtol=1e-12, atol=1e-14)
    soft, hard = (torch.autograd.grad(rows.square().sum(), logits)[0] for rows in (soft, hard))
    torch.testing.assert_close(soft, hard, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("config", ["brier", "label_smoothing:alpha=0"])
def test_soft_targets_of_0_on_masked_classes_are_finite(config):
    logits = torch.tensor([[1.0, 0.0, -math.inf]], requires_grad=True)
    value = build_loss(config)(logits, torch.tensor([[0.7, 0.3, 0.0]]))
    value.backward()
    without = build_loss(config)(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.3]]))
    torch.testing.assert_close(value.detach(), without)
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("config", SOFT)
def test_soft_targets_of_ignored_rows_do_not_count(config):
    logits, _ = batch(torch.float64)
    targets = batch(torch.float64)[0].flip(-1).softmax(-1)
    kept = torch.ones(2, 6, dtype=torch.bool)
    kept[0, 3:] = False
    targets[~kept] = -100
    logits.requires_grad_()
    loss = build_loss(config)
    rows = definition(config, logits[kept], targets[kept])
    for ours, peer in (
        (loss(logits, targets), rows.mean()),
        (loss(logits, targets, reduction="sum"), rows.sum()),
        (loss(logits, targets, num_items=(targets != -100).sum() / 5), rows.sum() / 9),
    ):
        torch.testing.assert_close(ours, peer)
        torch.testing.assert_close(*(torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (ours, peer)))


@pytest.mark.parametrize("config", SOFT)
def test_soft_targets_that_are_no_distributions_are_refused(config):
    with pytest.raises(ValueError, match="targets must be distributions over the classes: non-negative with sum 1"):
        build_loss(config)(torch.zeros(1, 3), torch.tensor([[1.5, -0.5, 0.0]]))


@pytest.mark.parametrize("config", ["mmce", "dual_focal", "recall", "class_balanced:weights=1/1/1/1/1"])
def test_losses_without_soft_targets_say_which_have_them(config):
    logits, _ = batch()
    message = r"labels must be integer class indices, got torch\.float32, of the shape of logits: soft targets need "
    with pytest.raises(ValueError, match=message + "logits, and cross-entropy, focal loss of one gamma, label smooth"):
        build_loss(config)(logits, logits.softmax(-1))


def test_a_batch_whose_soft_targets_are_all_ignored_has_loss_and_gradient_0():
    logits = torch.ones(3, 4, requires_grad=True)
    loss = build_loss("focal")(logits, torch.full((3, 4), -100.0))
    loss.backward()
    assert loss == 0 and torch.equal(logits.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("config", ["flsd53", "adafocal"])
def test_soft_targets_have_no_probability_that_chooses_gamma(config):
    logits, _ = batch()
    with pytest.raises(ValueError, match=r"labels must be class indices for \w+Gamma, which chooses gamma"):
        build_loss(config)(logits, logits.softmax(-1))


def test_progress_reaches_the_schedule_and_only_the_schedule():
    logits, labels = batch()
    scheduled = build_loss("focal:schedule=5/3/2")
    assert scheduled.changes_during_training and build_loss("adafocal").changes_during_training
    for progress, gamma in ((0.0, 5.0), (0.5, 3.0), (1.0, 2.0)):
        scheduled.set_progress(progress)
        assert torch.equal(scheduled(logits, labels, reduction="none"), focal(logits, labels, gamma))
    for config in CONFIGS:
        loss = build_loss(config)
        before = loss(logits, labels)
        loss.set_progress(1.0)
        assert torch.equal(loss(logits, labels), before)
        assert loss.changes_during_training == (config == "adafocal")


@every_config
def test_losses_have_no_parameters_and_add_only_a_gamma_that_moves_to_a_checkpoint(config):
    loss = build_loss(config)
    assert list(loss.parameters()) == []
    state = loss.state_dict().get("_extra_state", {})
    assert state == (loss.policy.state_dict() if loss.changes_during_training else {})
    assert set(loss.state_dict()) <= {"_extra_state"}


def test_a_checkpoint_restores_the_gamma_that_moves():
    loss, resumed = (build_loss("adafocal:bins=2") for _ in range(2))
    loss.policy.update(torch.tensor([0.3, 0.9]), torch.tensor([0, 0]))
    resumed.load_state_dict(loss.state_dict())
    assert resumed.policy.gammas == loss.policy.gammas != [1.0, 1.0]


@every_config
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduction": "average"}, "reduction must be 'mean', 'sum' or 'none', got 'average'"),
        ({"reduction": "sum", "num_items": 3}, "reduction must be 'mean' with num_items, .* got 'sum'"),
        ({"reduction": "none", "num_items": 3}, "reduction must be 'mean' with num_items, .* got 'none'"),
        ({"num_items": -1}, "num_items must be at least 0, got -1"),
        ({"num_items": -0.5}, "num_items must be at least 0, got -0.5"),
        ({"num_items": float("nan")}, "num_items must be a finite number, got nan"),
        ({"num_items": "3"}, "num_items must be a finite number, got '3'"),
        ({"num_items": torch.tensor([3, 3])}, "num_items must be one number, got 2"),
    ],
)
def test_reductions_that_make_no_sense_are_refused(config, arguments, message):
    with pytest.raises(ValueError, match=message):
        build_loss(config)(*batch(), **arguments)


@every_config
@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.tensor([0, 5]), ValueError, r"labels must be within \[0, 5\) .* got 5"),
        (torch.tensor([0, -1]), ValueError, r"labels must be within \[0, 5\) .* got -1"),
        (torch.tensor([0.0, 1.0]), ValueError, "labels must be integer class indices, got torch.float32"),
        (torch.tensor([0, 1, 2]), ValueError, r"got labels \(3,\) for logits \(2, 5\)"),
        (torch.tensor([[0], [1]]), ValueError, r"got labels \(2, 1\) for logits \(2, 5\)"),
    ],
)
def test_labels_that_are_no_classes_are_refused(config, labels, error, message):
    with pytest.raises(error, match=message):
        build_loss(config)(torch.zeros(2, 5), labels)


def test_a_loss_without_rows_says_so():
    with pytest.raises(NotImplementedError):
        Loss()(torch.zeros(2, 3), torch.tensor([0, 1]))


def test_printing_a_loss_shows_its_gamma():
    assert "gamma=3.0" in repr(build_loss("focal:gamma=3"))
    assert "thresholds=[0.2]" in repr(build_loss("flsd53"))
    assert repr(build_loss("mmce:lam=8")) == "MMCE(lam=8.0, weighted=False, gather=False)"
    assert repr(build_loss("label_smoothing")) == "LabelSmoothing(alpha=0.05, convention='torch')"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LabelSmoothing(2.0), r"alpha must be within \[0, 1\), got 2.0"),
        (lambda: LabelSmoothing(0.1, "kapoor"), "convention must be 'torch' or 'paper', got 'kapoor'"),
        (lambda: MMCE(-5.0), "lam must be at least 0, got -5.0"),
    ],
)
def test_modules_refuse_options_out_of_range_when_they_are_made(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_soft_targets_are_not_for_inverse_focal_loss():
    logits, _ = batch()
    with pytest.raises(ValueError, match="gamma must be at least 0, got -2"):
        build_loss("inverse_focal")(logits, logits.softmax(-1))


@pytest.mark.parametrize("num_items", [torch.tensor(6), torch.tensor([6])])
@pytest.mark.parametrize("config", ["focal", "mmce"])
def test_a_tensor_of_one_number_of_items_leaves_a_scalar(config, num_items):
    logits, labels = batch()
    loss = build_loss(config)
    assert torch.equal(loss(logits, labels, num_items=num_items), loss(logits, labels, num_items=6))


@pytest.mark.parametrize("num_items", [0, 0.0, torch.tensor(0)])
def test_no_items_divide_by_1(num_items):
    loss = build_loss("focal")
    assert loss(torch.ones(2, 3), torch.full((2,), -100), num_items=num_items) == 0


@pytest.mark.parametrize("config", ["focal:gamma=2", "brier", "mmce", "label_smoothing", "recall", "flsd53"])
def test_what_losses_do_not_support_is_refused_in_a_sentence(config):
    loss, logits, labels = build_loss(config), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"logits must be floating point, got torch\.float8_e5m2"
    ):
        loss(logits.to(torch.float8_e5m2), labels)
    with pytest.raises(ValueError, match="labels must be on the device of logits, cpu, got meta"):
        loss(logits, labels.to("meta"))
