"""Formats that a saved image processor may ask for."""

import pytest
from transformers import ConvNextConfig, ConvNextImageProcessorPil, MobileViTImageProcessorPil

from hf_focal.experiments.data.pixel_format import PixelFormat


def saved(folder, processor):
    ConvNextConfig().save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def test_the_format_is_that_of_the_processor(tmp_path):
    processor = ConvNextImageProcessorPil(size={"shortest_edge": 32}, image_mean=[0.4] * 3, image_std=[0.2] * 3)
    found = PixelFormat.of_pretrained(saved(tmp_path, processor))
    assert found == PixelFormat(32, 1.0, (0.4,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    "processor",
    [ConvNextImageProcessorPil(do_normalize=False), MobileViTImageProcessorPil(do_flip_channel_order=True)],
)
def test_other_channels_or_scales_are_refused(processor, tmp_path):
    with pytest.raises(
        ValueError, match=r"model_name_or_path must be a model for normalized RGB images, got '.*whose"
    ):
        PixelFormat.of_pretrained(saved(tmp_path, processor))
