"""DenseNets for small images [Huang et al., CVPR 2017], as in the official code of Mukhoti et al. (NeurIPS 2020)."""

import math

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModelForImageClassification, PreTrainedConfig

from papers.models.cifar_resnet import CifarPreTrainedModel


@strict
class CifarDenseNetConfig(PreTrainedConfig):
    """Configuration of a [`CifarDenseNetForImageClassification`]. The defaults are those of DenseNet-121.

    Args:
        num_channels: channels of the images.
        growth_rate: number of channels that each layer adds. The first convolution has twice this number of channels.
        layers: number of layers of each dense block.
        bottleneck: channels inside a layer, as a multiple of `growth_rate`.
        compression: share of the channels that a transition keeps, rounded down, but at least one; in (0, 1].
    """

    model_type = "cifar_densenet"

    num_channels: int = 3
    growth_rate: int = 32
    layers: list[int] | tuple[int, ...] = (6, 12, 24, 16)
    bottleneck: int = 4
    compression: float | int = 0.5


def _norm_conv(in_channels: int, channels: int, kernel_size: int) -> tuple[nn.BatchNorm2d, nn.ReLU, nn.Conv2d]:
    convolution = nn.Conv2d(in_channels, channels, kernel_size, padding=kernel_size // 2, bias=False)
    return nn.BatchNorm2d(in_channels), nn.ReLU(inplace=True), convolution


class _DenseLayer(nn.Module):
    """A layer that maps (batch, in_channels, h, w) to (batch, in_channels + growth_rate, h, w), new channels last."""

    def __init__(self, in_channels: int, growth_rate: int, bottleneck: int):
        super().__init__()
        inside = bottleneck * growth_rate
        self.growth = nn.Sequential(*_norm_conv(in_channels, inside, 1), *_norm_conv(inside, growth_rate, 3))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.cat([hidden, self.growth(hidden)], dim=1)


class CifarDenseNetForImageClassification(CifarPreTrainedModel):
    """Conv 3x3 → dense blocks with transitions between them → batch norm, ReLU → mean over the pixels → linear.

    A layer of a dense block is batch norm, ReLU, conv 1x1, batch norm, ReLU, conv 3x3; the layer's output is
    concatenated to its input. A transition is batch norm, ReLU, conv 1x1, and a mean over 2x2 pixels; if the height or
    width is odd, the last row or column is dropped. The head is `classifier`.
    """

    config_class = CifarDenseNetConfig

    def __init__(self, config: CifarDenseNetConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        channels = 2 * config.growth_rate
        self.stem = nn.Conv2d(config.num_channels, channels, 3, padding=1, bias=False)
        self.stages = nn.Sequential()
        for i, num_layers in enumerate(config.layers):
            if i:
                compressed = max(math.floor(channels * config.compression), 1)
                self.stages.append(nn.Sequential(*_norm_conv(channels, compressed, 1), nn.AvgPool2d(2)))
                channels = compressed
            block = nn.Sequential()
            for _ in range(num_layers):
                block.append(_DenseLayer(channels, config.growth_rate, config.bottleneck))
                channels += config.growth_rate
            self.stages.append(block)
        self.stages.append(nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, config.num_labels)
        self.post_init()


AutoConfig.register("cifar_densenet", CifarDenseNetConfig)
AutoModelForImageClassification.register(CifarDenseNetConfig, CifarDenseNetForImageClassification)
