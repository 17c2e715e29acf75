"""A loss that is registered from outside: one class is all it needs."""

import pytest
import torch

from hf_focal.losses import (
    LOSSES,
    Form,
    LossConfig,
    MarginLoss,
    SigmoidLoss,
    build_loss,
    linear_loss,
    option,
    register,
)
from hf_focal.losses.listing import describe_losses


class Poly1(MarginLoss):
    name, summary, source = "outside_poly1", "-log p + ε (1 - p)", "Leng et al. 2022"
    epsilon: float = option(1.0, "ε, the weight of 1 - p")

    def form(self, u, statistic, num_classes):
        wrong = torch.sigmoid(u)
        value = torch.nn.functional.softplus(u) + self.epsilon * wrong
        return Form(value, wrong * (1 + self.epsilon * torch.sigmoid(-u)))


@pytest.fixture(autouse=True, scope="module")
def registered():
    yield register(Poly1)
    del LOSSES["outside_poly1"]


def test_it_is_built_by_name_with_its_options():
    config = LossConfig.parse("outside_poly1:epsilon=2")
    assert str(config) == "outside_poly1:epsilon=2" and LossConfig.parse(config.to_dict()) == config
    assert str(LossConfig.parse("outside_poly1")) == "outside_poly1"
    assert repr(build_loss(config)) == "Poly1(epsilon=2.0)"
    with pytest.raises(ValueError, match="options of loss outside_poly1 must be among epsilon, got 'eps'"):
        LossConfig.parse("outside_poly1:eps=2")
    assert (
        "outside_poly1: -log p + ε (1 - p) (Leng et al. 2022)\n    epsilon: ε, the weight of 1 - p [1]"
        in describe_losses()
    )


def test_another_class_cannot_take_the_name_of_a_loss():
    class Focal(MarginLoss):
        name = "focal"

    with pytest.raises(ValueError, match=r"name must be new, got 'focal', the name of hf_focal\.losses"):
        register(Focal)
    assert LOSSES["focal"] is not Focal


@pytest.mark.parametrize("unusable", ["", "..", "../..", "a/b", "/tmp/x", "a,b", "a:b"])
def test_a_name_is_that_of_a_folder_and_of_a_specification(unusable):
    class Other(MarginLoss):
        name = unusable

    with pytest.raises(ValueError, match=r"name must have letters, digits, '_' and '-' only, got "):
        register(Other)
    assert unusable not in LOSSES


def test_annotations_may_be_strings():
    class Scaled(Poly1):
        name = "outside_scaled"
        steps: "int" = option(1, "a whole number")
        flag: "bool" = option(False, "a switch")

    register(Scaled)
    try:
        loss = build_loss("outside_scaled:epsilon=2,steps=3,flag=true")
        assert (loss.epsilon, loss.steps, loss.flag) == (2.0, 3, True)
    finally:
        del LOSSES["outside_scaled"]


def test_a_loss_with_tensors_of_its_own_is_refused():
    class WithBuffer(Poly1):
        name = "outside_buffer"

        def __post_init__(self):
            self.register_buffer("mean", torch.zeros(3))

    register(WithBuffer)
    try:
        with pytest.raises(ValueError, match=r"loss .*: state must be in get_extra_state, .* or buffers \['mean'\]"):
            build_loss("outside_buffer")
    finally:
        del LOSSES["outside_buffer"]


def test_a_loss_with_its_own_elementwise_is_not_computed_from_its_form_alone():
    class Doubled(Poly1):
        def elementwise(self, logits, labels):
            return 2 * super().elementwise(logits, labels)

    loss, plain = Doubled(), Poly1()
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(loss(logits, labels), 2 * plain(logits, labels))
    with pytest.raises(ValueError, match="loss must depend on one sample at a time"):
        linear_loss(torch.randn(5, 4), torch.randn(3, 4), labels, loss)
    with pytest.raises(ValueError, match="loss must be one that has a sigmoid link"):
        SigmoidLoss(loss)
