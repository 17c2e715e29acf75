"""Formats that a saved image processor may ask for."""

import pytest
from papers.data.pixel_format import PixelFormat
from transformers import ConvNextConfig, ConvNextImageProcessorPil, MobileViTImageProcessorPil


def saved(folder, processor):
    ConvNextConfig().save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def test_the_format_is_that_of_the_processor(tmp_path):
    processor = ConvNextImageProcessorPil(size={"shortest_edge": 32}, image_mean=[0.4] * 3, image_std=[0.2] * 3)
    actual = PixelFormat.from_pretrained(saved(tmp_path, processor))
    assert actual == PixelFormat(32, 1.0, (0.4,) * 3, (0.2,) * 3)


def test_flipped_channels_are_refused(tmp_path):
    processor = MobileViTImageProcessorPil(do_flip_channel_order=True)
    with pytest.raises(
        ValueError, match=r"model_name_or_path must be a model for normalized RGB images, got '.*whose"
    ):
        PixelFormat.from_pretrained(saved(tmp_path, processor))


@pytest.mark.parametrize(("size", "crop_pct", "stored"), [(224, 0.875, 256), (96, 0.9, 106)])
def test_a_crop_has_whole_pixels_on_both_sides(size, crop_pct, stored):
    settings = {"input_size": (3, size, size), "crop_pct": crop_pct, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    assert PixelFormat.from_timm(settings).stored_size == stored
    saved = settings | {"crop_pct": size / (stored + 1e-6)}  # as timm's processor is told
    assert PixelFormat.from_timm(saved).stored_size == stored
