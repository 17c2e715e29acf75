"""Datasets for semantic segmentation: splits of images and masks, with random crops and flips for training.

A mask is an image with one channel whose values are class numbers 0 … K-1, or 255 for pixels that are ignored
(Cityscapes' ``labelTrainIds``). Crops and flips depend only on the seed, the epoch, and the image: they do not change
when training is resumed or when the number of workers or processes changes.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image as PILImage
from torch import Tensor
from transformers import AutoImageProcessor

from hf_focal.tasks.batches import open_image

IGNORED = 255


@dataclass(frozen=True)
class ImageFormat:
    """Size and normalization of a model's input images.

    Attributes:
        size: (height, width) that images and masks are resized to; None keeps their size.
        mean, std: mean and standard deviation of red, green, and blue, for values from 0 to 1.
    """

    size: tuple[int, int] | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def of_pretrained(cls, model_name_or_path: str, size: tuple[int, int] | None = None) -> "ImageFormat":
        """Read the format from a saved model's image processor.

        Args:
            model_name_or_path: an id on the Hub or a folder.
            size: (height, width) to use instead of the processor's size.

        Raises:
            ValueError: the model does not take normalized RGB images (an example is MobileViT), or no size is given
                and the processor's size depends on the image.
        """
        processor = AutoImageProcessor.from_pretrained(model_name_or_path)
        if not processor.do_normalize or getattr(processor, "do_flip_channel_order", False):
            raise ValueError(
                "model_name_or_path must be a model of normalized RGB images, got "
                f"{model_name_or_path!r} with {type(processor).__name__}"
            )
        if size is None and processor.do_resize:
            size = (processor.size.get("height"), processor.size.get("width"))
            if None in size:
                raise ValueError(
                    f"image_size must be given for {model_name_or_path!r}, whose size varies ({processor.size})"
                )
        return cls(size, tuple(processor.image_mean), tuple(processor.image_std))


def count_classes(split: Dataset, num_classes: int, source: str, size: tuple[int, int] | None = None) -> np.ndarray:
    """Count the pixels of each class in a split, and check all images and masks of the split.

    Args:
        split: a split with the columns "image" and "mask".
        num_classes: number of classes, K.
        source: name of the split in error messages.
        size: (height, width) that images are resized to; if None, all images of the split must have the same size.

    Returns:
        The counts, int64 (K,).

    Raises:
        ValueError: a file is not an image; a mask has several channels, values other than 0 … K-1 and 255, or not the
            image's size; images differ in size although `size` is None; or all pixels are ignored.
    """
    counts, seen = np.zeros(num_classes, np.int64), size
    for index, (image, mask) in enumerate(zip(split["image"], split["mask"], strict=True)):
        values = _values(mask, index, source)
        with _opened("image_column", image, index, source) as header:
            shape = header.size[::-1]
        if values.shape != shape:
            raise ValueError(
                f"mask_column must hold masks of their images' height and width, got {values.shape} for {shape} in "
                f"sample {index} of {source}"
            )
        if size is None and seen not in (None, shape):
            raise ValueError(
                f"image_size must be given for images of several sizes, {seen} and {shape} in {source}, got None"
            )
        seen = shape
        found = np.bincount(values.ravel(), minlength=IGNORED + 1)
        wrong = np.flatnonzero(found[num_classes:IGNORED]) + num_classes
        if len(wrong) or len(found) > IGNORED + 1:
            raise ValueError(
                f"mask_column must hold class numbers below {num_classes}, or {IGNORED} for ignored pixels, "
                f"got {wrong[0] if len(wrong) else values.max()} in sample {index} of {source}"
            )
        counts += found[:num_classes]
    if not counts.any():
        raise ValueError(f"mask_column must hold classes, got only {IGNORED} in {source}")
    return counts


@contextmanager
def _opened(argument: str, image: dict[str, Any], index: int, source: str) -> Iterator[PILImage.Image]:
    """Open an image without decoding it."""
    try:
        yield PILImage.open(image["path"] or "" if image["bytes"] is None else io.BytesIO(image["bytes"]))
    except (OSError, PILImage.DecompressionBombError) as error:
        raise ValueError(f"{argument} must hold images, sample {index} of {source} cannot be read as one") from error


def _values(mask: dict[str, Any], index: int, source: str) -> np.ndarray:
    """Decode a mask into an int64 array (H, W)."""
    with _opened("mask_column", mask, index, source) as opened:
        values = np.asarray(opened)
    if values.ndim != 2:
        raise ValueError(
            f"mask_column must hold images with one channel, the class numbers, got mode {opened.mode!r} in sample "
            f"{index} of {source}"
        )
    return values.astype(np.int64)


class MaskDataset(torch.utils.data.Dataset):
    """Images and masks as inputs and labels of a model. Each sample is decoded on access.

    Args:
        split: a split with the columns "image" and "mask".
        pixels: format of the model's inputs.
        crop_size: (height, width) of random crops; None to use whole images.
        flip: whether to flip half of the images horizontally.
        seed: seed of crops and flips.
    """

    def __init__(
        self,
        split: Dataset,
        pixels: ImageFormat,
        *,
        crop_size: tuple[int, int] | None = None,
        flip: bool = False,
        seed: int = 0,
    ):
        self.split, self.pixels, self.crop_size, self.flip, self.seed = split, pixels, crop_size, flip, seed
        # In shared memory: data loader workers may live longer than an epoch.
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Draw new crops and flips. Call this when an epoch begins."""
        self.epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return ``pixel_values``, float32 (3, H, W), and ``labels``, int64 (H, W), where 255 marks ignored pixels."""
        sample = self.split[index]
        image = open_image(sample["image"], index)
        mask = PILImage.fromarray(_values(sample["mask"], index, "the split").astype(np.uint8))
        if self.pixels.size is not None:
            size = self.pixels.size[::-1]
            image, mask = image.resize(size, PILImage.BILINEAR), mask.resize(size, PILImage.NEAREST)
        values, labels = self._crop_and_flip(index, np.asarray(image), np.asarray(mask))
        mean, std = (np.array(x, np.float32) for x in (self.pixels.mean, self.pixels.std))
        scaled = (values.astype(np.float32) / 255 - mean) / std
        return {
            "pixel_values": torch.from_numpy(scaled).permute(2, 0, 1).contiguous(),
            "labels": torch.from_numpy(labels.astype(np.int64)),
        }

    def _crop_and_flip(self, index: int, values: np.ndarray, labels: np.ndarray) -> Sequence[np.ndarray]:
        rng = np.random.default_rng((self.seed, int(self.epoch), index))
        if self.crop_size is not None:
            if self.crop_size[0] > labels.shape[0] or self.crop_size[1] > labels.shape[1]:
                raise ValueError(
                    f"crop_size must be at most {labels.shape}, the images' height and width, got {self.crop_size}"
                )
            top, left = (rng.integers(side - cut + 1) for side, cut in zip(labels.shape, self.crop_size, strict=True))
            inside = slice(top, top + self.crop_size[0]), slice(left, left + self.crop_size[1])
            values, labels = values[inside], labels[inside]
        if self.flip and rng.random() < 0.5:
            values, labels = values[:, ::-1], labels[:, ::-1]
        return values, labels
