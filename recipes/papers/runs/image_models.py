"""Networks of the image classification recipe: arguments, and pixel formats."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoModelForImageClassification, PreTrainedModel, TimmWrapperConfig

from papers import checks as check
from papers.argument_fields import argument
from papers.data.pixel_format import PixelFormat
from papers.models import CIFAR_NETWORKS, cifar_config

# Networks of papers that timm has no name for -> one of its architectures, and what is different.
TIMM_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"resnet110": ("resnet50", {"layers": [3, 4, 26, 3]})}
CIFAR_NAMES = tuple(f"cifar_{name}" for name in CIFAR_NETWORKS)


def is_timm_model(name: str) -> bool:
    """Return whether timm has an architecture; False if timm cannot be imported."""
    try:
        import timm
    except Exception:  # not installed, or its torchvision does not match torch
        return False
    return timm.is_model(name)


@dataclass
class ImageModelArguments:
    """The network and its pixel format. The arguments of the format are for networks trained from scratch."""

    _argument_group_name = "model"
    model_name_or_path: str = argument(
        "cifar_resnet20",
        f"{', '.join(CIFAR_NAMES)}, {', '.join(TIMM_VARIANTS)}, or timm's, such as 'resnet18', trained "
        "from scratch; or the Hub id or folder of a pretrained network.",
    )
    image_size: int | None = argument(None, "Pixels per side. Default: 32, or timm's for its architectures.")
    crop_pct: float | None = argument(None, "That side as a share of the resized image's side. Default: 1, or timm's.")
    image_mean: list[float] | None = argument(None, "Mean of each channel, from 0 to 1.")
    image_std: list[float] | None = argument(None, "Standard deviation of each channel.")

    def __post_init__(self) -> None:
        check.at_least(1, self, "image_size")
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")
        for name in ("image_mean", "image_std"):
            values = getattr(self, name)
            if values is not None and (len(values) != 3 or min(values) < 0 or (name == "image_std" and 0 in values)):
                raise ValueError(f"{name} must be 3 numbers, for red, green and blue, got {values}")
        name = self.model_name_or_path
        if not (name in (*CIFAR_NAMES, *TIMM_VARIANTS) or self.is_pretrained or is_timm_model(name)):
            check.model_name(name, CIFAR_NAMES)
            raise ValueError(
                f"model_name_or_path must be {', '.join(CIFAR_NAMES)}, an architecture of timm, if timm can be "
                f"imported, a Hub id, or a folder, got {name!r}"
            )

    @property
    def is_pretrained(self) -> bool:
        return "/" in self.model_name_or_path or Path(self.model_name_or_path).is_dir()

    def pixel_format(self) -> PixelFormat:
        """Return the format of the images. Given arguments replace the defaults of a network trained from scratch."""
        if self.is_pretrained:
            return PixelFormat.from_pretrained(self.model_name_or_path)
        if self.model_name_or_path in CIFAR_NAMES:
            mean: Any = tuple(self.image_mean or (0.5, 0.5, 0.5))
            std: Any = tuple(self.image_std or (0.5, 0.5, 0.5))
            return PixelFormat(self.image_size or 32, self.crop_pct or 1.0, mean, std)
        from timm import get_pretrained_cfg

        name, _ = TIMM_VARIANTS.get(self.model_name_or_path, (self.model_name_or_path, {}))
        settings = get_pretrained_cfg(name).to_dict()
        settings |= {"input_size": (3, self.image_size, self.image_size)} if self.image_size else {}
        overrides = {"crop_pct": self.crop_pct, "mean": self.image_mean, "std": self.image_std}
        return PixelFormat.from_timm(settings | {key: value for key, value in overrides.items() if value})

    def new_model(self, labels: Mapping[str, Any]) -> PreTrainedModel:
        """Create or load the network, given what `label_options` returns."""
        name = self.model_name_or_path
        if self.is_pretrained:
            return AutoModelForImageClassification.from_pretrained(name, ignore_mismatched_sizes=True, **labels)
        if name in CIFAR_NAMES:
            return AutoModelForImageClassification.from_config(cifar_config(name.removeprefix("cifar_"), **labels))
        import timm
        from transformers import TimmWrapperForImageClassification

        # Networks with position embeddings must know the size; other networks take any size, but not this argument.
        name, sizes = TIMM_VARIANTS.get(name, (name, {}))
        fixed = timm.get_pretrained_cfg(name).fixed_input_size
        sizes = sizes | ({"img_size": self.image_size} if fixed and self.image_size is not None else {})
        model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture=name, model_args=sizes, **labels))
        # Transformers draws all convolutions and linear layers from N(0, 0.02); timm initializes them properly.
        initialized = timm.create_model(name, num_classes=labels["num_labels"], **sizes)
        model.timm_model.load_state_dict(initialized.state_dict())
        return model
