"""A ResNet for small images, in PyTorch alone."""

import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3, and 1x1, the last with four times as many channels (He et al., CVPR 2016)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.layers = nn.ModuleList(convolution(*size) for size in sizes)
        same = channels == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else convolution(channels, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.layers
        return F.relu(third(F.relu(second(F.relu(first(x))))) + self.shortcut(x))


def convolution(channels: int, width: int, kernel: int, stride: int) -> nn.Module:
    layer = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(width))


def resnet(layers: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, num_labels: int = 10) -> nn.Module:
    """Return a ResNet of bottlenecks for images (N, 3, 32, 32); the defaults are those of ResNet-50."""
    blocks: list[nn.Module] = [convolution(3, width, 3, 1), nn.ReLU()]
    channels = width
    for stage, count in enumerate(layers):
        for block in range(count):
            blocks.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_labels))
