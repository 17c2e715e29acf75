"""Models of the image classification recipe: arguments, pixel formats, and networks to train from scratch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoModelForImageClassification, PreTrainedModel, TimmWrapperConfig

from ..data.pixel_format import PixelFormat
from ..models import CIFAR_NETWORKS, cifar_config
from . import recipe_checks as check

# Networks of papers that timm has no name for -> one of its architectures, and what is different.
TIMM_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"resnet110": ("resnet50", {"layers": [3, 4, 26, 3]})}
CIFAR_NAMES = tuple(f"cifar_{name}" for name in CIFAR_NETWORKS)


@dataclass
class ImageModelArguments:
    """The model and its pixel format. The arguments of the format are only for models trained from scratch."""

    _argument_group_name = "model"
    model_name_or_path: str = field(
        default="cifar_resnet20",
        metadata={
            "help": f"{', '.join(CIFAR_NAMES)}, {', '.join(TIMM_VARIANTS)} or a timm architecture ('resnet18'), "
            "trained from scratch; or an image classifier to fine-tune (a Hub id such as 'timm/resnet18.a1_in1k', or "
            "a folder)."
        },
    )
    image_size: int | None = field(
        default=None, metadata={"help": "Pixels per side. Default: 32, or timm's for its architectures."}
    )
    crop_pct: float | None = field(
        default=None, metadata={"help": "That side as a share of the resized image's side. Default: 1, or timm's."}
    )
    image_mean: list[float] | None = field(default=None, metadata={"help": "Mean of each channel, from 0 to 1."})
    image_std: list[float] | None = field(default=None, metadata={"help": "Standard deviation of each channel."})

    def __post_init__(self) -> None:
        check.at_least(1, self, "image_size")
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")
        for name in ("image_mean", "image_std"):
            values = getattr(self, name)
            if values is not None and (len(values) != 3 or min(values) < 0 or (name == "image_std" and 0 in values)):
                raise ValueError(f"{name} must be 3 numbers, for red, green and blue, got {values}")
        if is_timm_architecture(self.model_name_or_path):
            return
        check.model_name(self.model_name_or_path, CIFAR_NAMES)
        given = [name for name in ("image_size", "crop_pct", "image_mean", "image_std") if getattr(self, name)]
        if given and self.model_name_or_path not in CIFAR_NAMES:
            raise ValueError(
                f"{given[0]} must not be given for a pretrained model, which has its own, got "
                f"{getattr(self, given[0])} and {self.model_name_or_path!r}"
            )

    def from_scratch(self) -> bool:
        """Return whether the model is trained from scratch."""
        return self.model_name_or_path in CIFAR_NAMES or is_timm_architecture(self.model_name_or_path)

    def pixel_format(self) -> PixelFormat:
        """Return the model's pixel format. For a model trained from scratch, given arguments replace the defaults."""
        name = self.model_name_or_path
        if not self.from_scratch():
            return PixelFormat.of_pretrained(name)
        mean: Any = tuple(self.image_mean or (0.5, 0.5, 0.5))
        std: Any = tuple(self.image_std or (0.5, 0.5, 0.5))
        if name in CIFAR_NAMES:
            return PixelFormat(self.image_size or 32, self.crop_pct or 1.0, mean, std)
        from timm import get_pretrained_cfg

        settings = get_pretrained_cfg(TIMM_VARIANTS.get(name, (name,))[0]).to_dict()
        settings |= {"input_size": (3, self.image_size, self.image_size)} if self.image_size else {}
        given = {"crop_pct": self.crop_pct, "mean": self.image_mean, "std": self.image_std}
        return PixelFormat.of_timm(settings | {key: value for key, value in given.items() if value})


def is_timm_architecture(name: str) -> bool:
    """Return whether timm knows an architecture of this name, or one that differs from it by its arguments.

    Raises:
        ValueError: `name` might be a timm architecture, but timm cannot be imported.
    """
    if "/" in name or name in CIFAR_NAMES or Path(name).exists():
        return False
    try:
        import timm
    except Exception as error:  # not installed, or its torchvision does not match torch
        check.model_name(name, CIFAR_NAMES)
        raise ValueError(
            f"model_name_or_path must be {', '.join(CIFAR_NAMES)}, a Hub id of two parts or a folder, got {name!r}; "
            f"timm, which might know it, cannot be imported: {error}"
        ) from error
    return name in TIMM_VARIANTS or timm.is_model(name)


def new_image_model(name: str, labels: Mapping[str, Any], image_size: int | None = None) -> PreTrainedModel:
    """Create a network with random weights.

    Args:
        name: one of `CIFAR_NAMES` or `TIMM_VARIANTS`, or a timm architecture.
        labels: what `label_options` returns.
        image_size: height and width of the images in pixels; None for the architecture's default.
    """
    if name in CIFAR_NAMES:
        return AutoModelForImageClassification.from_config(cifar_config(name.removeprefix("cifar_"), **labels))
    import timm
    from transformers import TimmWrapperForImageClassification

    # Networks with position embeddings must know the size; other networks take any size, but not this argument.
    name, sizes = TIMM_VARIANTS.get(name, (name, {}))
    fixed = timm.get_pretrained_cfg(name).fixed_input_size
    sizes = sizes | ({"img_size": image_size} if fixed and image_size is not None else {})
    model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture=name, model_args=sizes, **labels))
    # The Transformers library draws all convolutions and linear layers from N(0, 0.02); timm initializes them
    # properly.
    initialized = timm.create_model(name, num_classes=labels["num_labels"], **sizes)
    model.timm_model.load_state_dict(initialized.state_dict())
    return model
