"""What is saved beside a model of images, so that whoever loads it makes the same pixel values of them."""

from typing import Any

from transformers import BitImageProcessorPil

from ..data.pixel_format import PixelFormat


def image_processor(pixels: PixelFormat) -> BitImageProcessorPil:
    """The image processor that is saved beside a model."""
    return BitImageProcessorPil(
        size={"shortest_edge": pixels.stored_size},
        crop_size={"height": pixels.size, "width": pixels.size},
        resample=2,  # bilinear
        image_mean=list(pixels.mean),
        image_std=list(pixels.std),
    )


def timm_settings(pixels: PixelFormat) -> dict[str, Any]:
    """What the image processor of a timm model goes by, of its `pretrained_cfg`."""
    return {
        "input_size": [3, pixels.size, pixels.size],
        "crop_pct": pixels.size / (pixels.stored_size + 1e-6),  # timm rounds the quotient of both down
        "crop_mode": "center",
        "mean": list(pixels.mean),
        "std": list(pixels.std),
        "interpolation": "bilinear",
    }
