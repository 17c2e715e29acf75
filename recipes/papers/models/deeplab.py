"""DeepLabV3 [Chen et al. 2017, arXiv:1706.05587] on a backbone of timm, Tian et al. 2021's segmentation network."""

from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModelForSemanticSegmentation, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SemanticSegmenterOutput
from transformers.utils import can_return_tuple


@strict
class DeepLabV3Config(PreTrainedConfig):
    """Configuration of a [`DeepLabV3ForSemanticSegmentation`]. The defaults are those of the paper, on a ResNet-18.

    Args:
        backbone: an architecture of timm whose features can be taken with `output_stride`, such as "resnet18".
        output_stride: the height of an image divided by that of its features: 8, 16, or 32.
        atrous_rates: the dilation of each of the 3x3 convolutions.
        hidden_size: channels of each branch and of their projection.
        semantic_loss_ignore_index: the label of pixels that do not count.
    """

    model_type = "timm_deeplabv3"

    backbone: str = "resnet18"
    output_stride: int = 16
    atrous_rates: list[int] | tuple[int, ...] = (6, 12, 18)
    hidden_size: int = 256
    semantic_loss_ignore_index: int = 255

    def validate_sizes(self) -> None:
        if self.output_stride not in (8, 16, 32):
            raise ValueError(f"output_stride must be 8, 16 or 32, got {self.output_stride}")
        if min(self.hidden_size, *self.atrous_rates) < 1:
            raise ValueError(
                f"hidden_size and atrous_rates must be at least 1, got {self.hidden_size} and {self.atrous_rates}"
            )


class DeepLabV3ForSemanticSegmentation(PreTrainedModel):
    """Backbone → five branches (1x1, three dilated 3x3, the mean of the image) → 1x1 projection → 1x1 classifier.

    The weights are random. In training, a batch must have at least two images, because the branch of the mean has one
    value per image to normalize. The head is `classifier`. Needs timm.
    """

    config_class = DeepLabV3Config
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: DeepLabV3Config):
        import timm

        super().__init__(config)
        self.backbone = timm.create_model(
            config.backbone, features_only=True, output_stride=config.output_stride, out_indices=(-1,)
        )
        channels = self.backbone.feature_info.channels()[-1]
        self.branches = nn.ModuleList(
            [
                _conv_norm_relu(channels, config.hidden_size, 1),
                *(_conv_norm_relu(channels, config.hidden_size, 3, rate) for rate in config.atrous_rates),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), *_conv_norm_relu(channels, config.hidden_size, 1)),
            ]
        )
        self.projection = _conv_norm_relu(len(self.branches) * config.hidden_size, config.hidden_size, 1)
        self.classifier = nn.Conv2d(config.hidden_size, config.num_labels, 1)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                init.zeros_(module.bias)
        else:  # batch norms: weight 1, bias 0
            super()._init_weights(module)

    @can_return_tuple
    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, **kwargs: Any
    ) -> SemanticSegmenterOutput:
        """Classify the pixels of images, floating (batch, 3, height, width).

        The output has `logits`, (batch, num_labels, ⌈height / output_stride⌉, ⌈width / output_stride⌉), and, with
        labels, int64 (batch, height, width), the mean cross-entropy of the pixels, with logits interpolated to the
        size of the labels.
        """
        (features,) = self.backbone(pixel_values)
        *parts, mean = [branch(features) for branch in self.branches]
        hidden = self.projection(torch.cat([*parts, mean.expand_as(parts[0])], 1))
        logits = self.classifier(hidden)
        loss = None
        if labels is not None:
            upsampled = F.interpolate(logits, labels.shape[-2:], mode="bilinear", align_corners=False)
            loss = F.cross_entropy(upsampled, labels, ignore_index=self.config.semantic_loss_ignore_index)
        return SemanticSegmenterOutput(loss=loss, logits=logits)


def _conv_norm_relu(in_channels: int, channels: int, kernel_size: int, rate: int = 1) -> nn.Sequential:
    padding = rate * (kernel_size // 2)
    convolution = nn.Conv2d(in_channels, channels, kernel_size, padding=padding, dilation=rate, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))


# The code is also copied beside saved weights, and loaded from there.
AutoConfig.register("timm_deeplabv3", DeepLabV3Config, exist_ok=True)
AutoModelForSemanticSegmentation.register(DeepLabV3Config, DeepLabV3ForSemanticSegmentation, exist_ok=True)
