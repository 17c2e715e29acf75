"""ResNets for small images [He et al., CVPR 2016, section 4.2; wide ones: Zagoruyko and Komodakis, BMVC 2016], as in
the official code of Mukhoti et al. (NeurIPS 2020)."""

import math
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModelForImageClassification, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention
from transformers.utils import can_return_tuple

_EXPANSIONS = {"basic": 1, "bottleneck": 4}


@strict
class CifarResNetConfig(PreTrainedConfig):
    """Configuration of a [`CifarResNetForImageClassification`]. The defaults are those of ResNet-50.

    Args:
        num_channels: channels of the images.
        block: "basic" (two 3x3 convolutions) or "bottleneck" (convolutions of 1x1, 3x3, and 1x1, of which the last has
            four times as many channels as the others).
        layers: number of blocks of each stage.
        widths: channels of each stage, or, for bottlenecks, those inside a block, a quarter of its output channels.
        stem_width: channels of the first convolution.
        pool_size: height and width of the pooled feature maps. The head takes all pixels of the pooled maps.
    """

    model_type = "cifar_resnet"

    num_channels: int = 3
    block: str = "bottleneck"
    layers: list[int] | tuple[int, ...] = (3, 4, 6, 3)
    widths: list[int] | tuple[int, ...] = (64, 128, 256, 512)
    stem_width: int = 64
    pool_size: int = 1


class CifarPreTrainedModel(PreTrainedModel):
    """Base class of networks for small images, which compute `classifier(pool(stages(stem(images))))`."""

    main_input_name = "pixel_values"
    input_modalities = ("image",)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):  # as PyTorch does
            init.kaiming_uniform_(module.weight, a=math.sqrt(5))
            init.uniform_(module.bias, -(module.in_features**-0.5), module.in_features**-0.5)
        else:  # batch norms: weight 1, bias 0
            super()._init_weights(module)

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, **kwargs: Any
    ) -> ImageClassifierOutputWithNoAttention:
        """Classify images, floating (batch, num_channels, height, width), in any memory format.

        With labels, int64 (batch,), the output has the cross-entropy that Transformers' classifiers compute, besides
        `logits`, (batch, num_labels).
        """
        hidden = self.stages(self.stem(pixel_values))
        logits = self.classifier(self.pool(hidden).flatten(1))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)


def _conv_norm(in_channels: int, channels: int, kernel_size: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution = nn.Conv2d(in_channels, channels, kernel_size, stride, padding=kernel_size // 2, bias=False)
    return convolution, nn.BatchNorm2d(channels)


class _Block(nn.Module):
    """A residual block, (batch, in_channels, h, w) → (batch, width × expansion, ⌈h / stride⌉, ⌈w / stride⌉).

    The expansion is 1 for basic blocks and 4 for bottlenecks.
    """

    def __init__(self, block: str, in_channels: int, width: int, stride: int):
        super().__init__()
        channels = width * _EXPANSIONS[block]
        if block == "basic":
            layers = [_conv_norm(in_channels, width, 3, stride), _conv_norm(width, channels, 3)]
        else:
            layers = [
                _conv_norm(in_channels, width, 1),
                _conv_norm(width, width, 3, stride),
                _conv_norm(width, channels, 1),
            ]
        activated = [module for pair in layers for module in (*pair, nn.ReLU(inplace=True))]
        self.residual = nn.Sequential(*activated[:-1])
        same = stride == 1 and in_channels == channels
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(in_channels, channels, 1, stride))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.residual(hidden).add_(self.shortcut(hidden)).relu_()


class CifarResNetForImageClassification(CifarPreTrainedModel):
    """Conv 3x3, batch norm, ReLU → stages of residual blocks → mean over the pixels → linear.

    The stem (the first convolution) keeps the height and width of the image, and each stage except the first halves
    them. A block ends with a ReLU. If a block changes the shape, its shortcut is a 1x1 convolution with a batch norm.
    If `pool_size` is above 1, the mean is over each of `pool_size` × `pool_size` parts. The head is `classifier`.
    """

    config_class = CifarResNetConfig

    def __init__(self, config: CifarResNetConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.stem = nn.Sequential(*_conv_norm(config.num_channels, config.stem_width, 3), nn.ReLU(inplace=True))
        self.stages = nn.Sequential()
        channels = config.stem_width
        for stage, (num_blocks, width) in enumerate(zip(config.layers, config.widths, strict=True)):
            blocks = nn.Sequential()
            for i in range(num_blocks):
                blocks.append(_Block(config.block, channels, width, stride=2 if stage and not i else 1))
                channels = width * _EXPANSIONS[config.block]
            self.stages.append(blocks)
        self.pool = nn.AdaptiveAvgPool2d(config.pool_size)
        self.classifier = nn.Linear(channels * config.pool_size**2, config.num_labels)
        self.post_init()


AutoConfig.register("cifar_resnet", CifarResNetConfig)
AutoModelForImageClassification.register(CifarResNetConfig, CifarResNetForImageClassification)
