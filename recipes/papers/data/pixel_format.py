"""Size and normalization of a model's input images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig, AutoImageProcessor


@dataclass(frozen=True)
class PixelFormat:
    """Size and normalization of the square that a model takes from the middle of each image.

    `size` is the side of the square in pixels, and `crop_pct` this side divided by the length that an image's shorter
    side is resized to. `mean` and `std` are of red, green, and blue, for values from 0 to 1.
    """

    size: int
    crop_pct: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def stored_size(self) -> int:
        """The length in pixels that an image's shorter side is resized to."""
        return round(self.size / self.crop_pct)

    @classmethod
    def from_timm(cls, settings: Mapping[str, Any]) -> "PixelFormat":
        """Return the format that `settings`, a timm model's `pretrained_cfg`, describes.

        The margins around the square are rounded to whole pixels, because half pixels would be ambiguous: torchvision
        rounds them to even numbers, and other processors round them down.
        """
        size = settings["input_size"][-1]
        stored = size + 2 * round((size / (settings.get("crop_pct") or 1.0) - size) / 2)
        return cls(size, size / stored, tuple(settings["mean"]), tuple(settings["std"]))

    @classmethod
    def from_pretrained(cls, model_name_or_path: str) -> "PixelFormat":
        """Return the format of a saved model's image processor, which must normalize and not swap red and blue."""
        config = AutoConfig.from_pretrained(model_name_or_path)
        if config.model_type == "timm_wrapper":
            return cls.from_timm(config.pretrained_cfg)
        processor = AutoImageProcessor.from_pretrained(model_name_or_path)
        if not getattr(processor, "do_normalize", True) or getattr(processor, "do_flip_channel_order", False):
            raise ValueError(
                "model_name_or_path must be a model for normalized RGB images, got "
                f"{model_name_or_path!r}, whose {type(processor).__name__} does not normalize or swaps channels"
            )
        stored = processor.size.get("shortest_edge") or processor.size["height"]
        crop = getattr(processor, "crop_size", None)
        size = crop["height"] if crop and processor.do_center_crop else stored
        return cls(size, size / stored, tuple(processor.image_mean), tuple(processor.image_std))
