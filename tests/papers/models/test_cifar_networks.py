"""Networks for small images, against references in `torch.nn.functional` and formulas of their sizes."""

import copy
import math

import pytest
import torch
from papers.models import CifarDenseNetConfig, CifarResNetConfig, cifar_config
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForImageClassification

SMALL = {
    "basic": CifarResNetConfig(block="basic", layers=[1, 2], widths=[4, 6], stem_width=5, num_labels=3),
    "bottleneck": CifarResNetConfig(block="bottleneck", layers=[2, 1], widths=[4, 6], stem_width=16, num_labels=3),
    "2x2 pixels": CifarResNetConfig(block="basic", layers=[1, 1], widths=[4, 6], stem_width=5, pool_size=2),
    "dense": CifarDenseNetConfig(growth_rate=3, layers=[2, 3, 1], bottleneck=2, num_labels=3),
    "dense, four channels": CifarDenseNetConfig(num_channels=4, growth_rate=3, layers=[1, 2], compression=0.3),
}
EVERY_SMALL = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL.keys())


def make_model(config, dtype=torch.float32):
    """The model for inference, its batch norms far from the identity."""
    torch.manual_seed(0)
    model = AutoModelForImageClassification.from_config(copy.deepcopy(config))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.5)
            nn.init.normal_(module.running_mean, std=0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model.to(dtype).eval()


def images(config, batch_size=4, height=12, width=12, dtype=torch.float32):
    shape = (batch_size, config.num_channels, height, width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


class Reference:
    """The forward pass from a state dict alone: weights by their names, strides and paddings written out."""

    def __init__(self, state: dict[str, torch.Tensor], training: bool = False):
        self.state, self.training = state, training

    def conv(self, name, x, stride=1):
        weight = self.state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=1 if weight.shape[-1] == 3 else 0)

    def norm(self, name, x):
        mean, variance = self.state[f"{name}.running_mean"], self.state[f"{name}.running_var"]
        if self.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        mean, variance, weight, bias = (
            values[:, None, None]
            for values in (mean, variance, *(self.state[f"{name}.{w}"] for w in ("weight", "bias")))
        )
        return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias

    def head(self, x):
        size = math.isqrt(self.state["classifier.weight"].shape[1] // x.shape[1])
        pooled = F.adaptive_avg_pool2d(x, size).flatten(1)
        return pooled @ self.state["classifier.weight"].T + self.state["classifier.bias"]

    def block(self, name, x, stride, bottleneck):
        strides = [1, stride, 1] if bottleneck else [stride, 1]
        out = x
        for i, step in enumerate(strides):
            out = self.conv(f"{name}.residual.{3 * i}", out, step)
            out = self.norm(f"{name}.residual.{3 * i + 1}", out)
            out = F.relu(out) if i + 1 < len(strides) else out
        if f"{name}.shortcut.0.weight" in self.state:
            x = self.norm(f"{name}.shortcut.1", self.conv(f"{name}.shortcut.0", x, stride))
        return F.relu(out + x)

    def resnet(self, x, config):
        x = F.relu(self.norm("stem.1", self.conv("stem.0", x)))
        for stage, num_blocks in enumerate(config.layers):
            for i in range(num_blocks):
                stride = 2 if stage > 0 and i == 0 else 1
                x = self.block(f"stages.{stage}.{i}", x, stride, config.block == "bottleneck")
        return self.head(x)

    def densenet(self, x, config):
        x = self.conv("stem", x)
        for number, num_layers in enumerate(config.layers):
            if number > 0:
                name = f"stages.{2 * number - 1}"
                x = F.avg_pool2d(self.conv(f"{name}.2", F.relu(self.norm(f"{name}.0", x))), 2)
            for i in range(num_layers):
                name = f"stages.{2 * number}.{i}.growth"
                new = self.conv(f"{name}.2", F.relu(self.norm(f"{name}.0", x)))
                new = self.conv(f"{name}.5", F.relu(self.norm(f"{name}.3", new)))
                x = torch.cat([x, new], dim=1)
        return self.head(F.relu(self.norm(f"stages.{2 * len(config.layers) - 1}.0", x)))

    def __call__(self, x, config):
        return (self.resnet if config.model_type == "cifar_resnet" else self.densenet)(x, config)


def check_against_reference(config, height, width):
    model = make_model(config, torch.float64)
    pixels = images(config, height=height, width=width, dtype=torch.float64)
    with torch.no_grad():
        expected = Reference(model.state_dict())(pixels, config)
        torch.testing.assert_close(model(pixels).logits, expected, rtol=1e-10, atol=1e-10)
    assert expected.std(dim=0).min() > 1e-3  # the images do not look alike to it


@pytest.mark.parametrize("config", [cifar_config("resnet8", num_labels=10), *SMALL.values()])
@pytest.mark.parametrize(("height", "width"), [(12, 12), (9, 14)])
def test_logits_are_those_of_the_reference(config, height, width):
    check_against_reference(config, height, width)


@EVERY_SMALL
def test_training_is_the_reference(config):
    model = make_model(config, torch.float64).train()
    pixels = images(config, dtype=torch.float64).requires_grad_()
    state = {name: tensor.clone() for name, tensor in model.state_dict(keep_vars=True).items()}
    sources = [pixels, *model.parameters()]
    expected = Reference(state, training=True)(pixels, config)
    logits = model(pixels).logits
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(logits)
    references = torch.autograd.grad((expected * weights).sum(), sources)
    for got, reference in zip(torch.autograd.grad((logits * weights).sum(), sources), references, strict=True):
        assert reference.abs().max() > 0
        torch.testing.assert_close(got, reference, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_parameters", "num_layers"),
    [
        ("resnet8", 78_042, 8),
        ("resnet20", 272_474, 20),
        ("resnet50", 23_520_842, 50),
        ("resnet110", 45_864_522, 110),
        ("resnet50_2x2", 23_582_282, 50),
        ("resnet110_2x2", 45_925_962, 110),
        ("wide_resnet_26_10", 36_481_434, 26),
        ("densenet121", 6_956_298, 121),
    ],
)
def test_named_network_has_its_size(name, num_parameters, num_layers):
    config = cifar_config(name, num_labels=10)
    with torch.device("meta"):
        model = AutoModelForImageClassification.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    layers = [layer for layer, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len([layer for layer in layers if "shortcut" not in layer]) == num_layers
    # Images of CIFAR and Tiny ImageNet; the last feature maps of CIFAR's are 8x8 after two halvings, 4x4 after three.
    maps = []
    model.stages.register_forward_hook(lambda _, __, output: maps.append(output.shape[2:]))
    for size in (32, 64):
        assert model(torch.empty(2, 3, size, size, device="meta")).logits.shape == (2, 10)
        assert maps.pop() == (size // 2 ** (len(config.layers) - 1),) * 2


def test_a_named_configuration():
    config = cifar_config("resnet20", num_labels=7, num_channels=1, stem_width=8)
    assert (config.num_labels, config.num_channels, config.stem_width, config.layers) == (7, 1, 8, (3, 3, 3))
    with pytest.raises(ValueError, match=r"name must be one of resnet8, .*, got 'ResNet-50'; did you mean 'resnet50'"):
        cifar_config("ResNet-50")


@pytest.mark.parametrize("config", [SMALL["basic"], SMALL["dense"]], ids=["basic", "dense"])
def test_saved_and_loaded_by_the_auto_classes(config, tmp_path):
    model = make_model(config)
    model.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is type(config)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert type(loaded) is type(model) and not loaded.training
    state = loaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(loaded(images(config)).logits, model(images(config)).logits)
    other = AutoModelForImageClassification.from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
    assert other.classifier.weight.shape[0] == 5 and other.classifier.bias.abs().max() > 0
    assert all(torch.equal(v, state[k]) for k, v in other.state_dict().items() if "classifier" not in k)


@pytest.mark.parametrize("name", ["resnet20", "densenet121"])
def test_initial_weights(name):
    torch.manual_seed(0)
    model = AutoModelForImageClassification.from_config(cifar_config(name, num_labels=10))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            deviation = math.sqrt(2 / (module.out_channels * module.kernel_size[0] ** 2))
            assert module.weight.std().item() == pytest.approx(deviation, rel=5 / math.sqrt(2 * module.weight.numel()))
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all() and (module.bias == 0).all()
            assert (module.running_mean == 0).all() and (module.running_var == 1).all()
    bound = model.classifier.in_features**-0.5
    for parameter in model.classifier.parameters():
        assert 0.7 * bound < parameter.abs().max() <= bound
