"""Named networks for small images: the networks of Mukhoti et al. (NeurIPS 2020) and two smaller ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

from papers import checks as check
from papers.models.cifar_densenet import CifarDenseNetConfig
from papers.models.cifar_resnet import CifarResNetConfig

_basic = partial(CifarResNetConfig, block="basic", stem_width=16)
_bottleneck = partial(CifarResNetConfig, block="bottleneck", widths=(64, 128, 256, 512), stem_width=64)

# The number in a name counts the layers with weights, except shortcuts. ResNet-110 has bottlenecks, as in Mukhoti et
# al. (He et al. use basic blocks). The networks of Mukhoti et al. for Tiny ImageNet pool to 2x2 pixels. ResNet-20 is
# that of He et al., but with 1x1 convolutions in the shortcuts.
CIFAR_NETWORKS: dict[str, Callable[..., CifarResNetConfig | CifarDenseNetConfig]] = {
    "resnet8": partial(_basic, layers=(1, 1, 1), widths=(16, 32, 64)),
    "resnet20": partial(_basic, layers=(3, 3, 3), widths=(16, 32, 64)),
    "resnet50": partial(_bottleneck, layers=(3, 4, 6, 3)),
    "resnet110": partial(_bottleneck, layers=(3, 4, 26, 3)),
    "resnet50_2x2": partial(_bottleneck, layers=(3, 4, 6, 3), pool_size=2),
    "resnet110_2x2": partial(_bottleneck, layers=(3, 4, 26, 3), pool_size=2),
    "wide_resnet_26_10": partial(_basic, layers=(4, 4, 4), widths=(160, 320, 640)),
    "densenet121": partial(CifarDenseNetConfig, growth_rate=32, layers=(6, 12, 24, 16)),
}


def cifar_config(name: str, **config_kwargs: Any) -> CifarResNetConfig | CifarDenseNetConfig:
    """Return the configuration of one of `CIFAR_NETWORKS`, for `AutoModelForImageClassification.from_config`.

    `config_kwargs` are other arguments of the configuration, such as `num_labels`.
    """
    check.choice("name", name, list(CIFAR_NETWORKS))
    return CIFAR_NETWORKS[name](**config_kwargs)
