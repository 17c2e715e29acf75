"""Images with a class for each pixel: their splits, and the samples that a model for semantic segmentation sees.

A mask is an image of one channel whose values are class numbers 0 … K-1, and 255 where a pixel does not count
(Cityscapes' ``labelTrainIds``). Crops and flips depend on the seed, the epoch and the image alone: a resumed training,
any number of workers and any number of processes see the same ones.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from PIL import Image as PILImage
from torch import Tensor
from transformers import AutoImageProcessor

from ...cli.column_selection import Column
from ...cli.input_encoding import open_image
from .dataset_splits import check_disjoint, cut_validation, read_splits, select_splits

IGNORED = 255


def load_mask_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    *,
    image_column: str = "image",
    mask_column: str = "mask",
    test_split: str = "test",
    validation_size: int | None = None,
    seed: int = 42,
) -> DatasetDict:
    """Load the train, validation and test splits of a dataset for semantic segmentation.

    Args:
        dataset_name: an id on the Hub, or a folder that `load_dataset` understands; it must have the splits "train"
            and `test_split`. Give this or `train_file`.
        dataset_config_name: its configuration.
        train_file, validation_file, test_file: parquet files (or csv, json, jsonl whose images are paths).
        image_column, mask_column: columns of images: files' bytes or paths to them.
        test_split: the split of `dataset_name` that is the test set: "validation" where the labels of "test" are
            secret.
        validation_size: training rows that become "validation" where none is given; a tenth of them if None.
        seed: of that cut.

    Returns:
        `DatasetDict` of "train", "validation" and "test", whose columns are "image" and "mask", undecoded.

    Raises:
        FileNotFoundError, ValueError: as `load_splits`, of images.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(dataset_name, dataset_config_name, files, test_split=test_split)
    columns = (
        Column("image_column", image_column, "image", "images"),
        Column("mask_column", mask_column, "mask", "images"),
    )
    splits = select_splits(raw, sources, *columns)
    check_disjoint(splits, sources, "images", "image")
    return cut_validation(splits, sources["train"], validation_size, seed)


@dataclass(frozen=True)
class ImageFormat:
    """What a model sees of an image: all of it.

    Attributes:
        size: (height, width) that images and masks are resized to, None for those they have.
        mean, std: of red, green and blue, for values from 0 to 1.
    """

    size: tuple[int, int] | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def of_pretrained(cls, model_name_or_path: str, size: tuple[int, int] | None = None) -> "ImageFormat":
        """Of a saved model, as its image processor has it, at another size if one is given.

        Raises:
            ValueError: images are not RGB scaled by mean and deviation (MobileViT), or, where no size is given,
                resized to a size that depends on theirs.
        """
        processor = AutoImageProcessor.from_pretrained(model_name_or_path)
        if not processor.do_normalize or getattr(processor, "do_flip_channel_order", False):
            raise ValueError(
                "model_name_or_path must be a model of red, green and blue scaled by mean and deviation, got "
                f"{model_name_or_path!r} with {type(processor).__name__}"
            )
        if size is None and processor.do_resize:
            size = (processor.size.get("height"), processor.size.get("width"))
            if None in size:
                raise ValueError(
                    f"image_size must be given for {model_name_or_path!r}, got None: its own is {processor.size}"
                )
        return cls(size, tuple(processor.image_mean), tuple(processor.image_std))


def count_classes(split: Dataset, num_classes: int, source: str, size: tuple[int, int] | None = None) -> np.ndarray:
    """How many pixels each class has in a split (K,), int64; every mask is looked at.

    Args:
        split: of `load_mask_splits`.
        num_classes: K.
        source: what an error calls the split.
        size: (height, width) that images are resized to; without it all of the split must have the same.

    Raises:
        ValueError: something is no image; a mask has several channels, values that are neither below K nor 255, or
            another size than its image; images of several sizes; no pixel that counts.
    """
    counts, seen = np.zeros(num_classes, np.int64), size
    for row, (image, mask) in enumerate(zip(split["image"], split["mask"], strict=True)):
        values = _values(mask, row, source)
        with _opened("image_column", image, row, source) as header:
            shape = header.size[::-1]
        if values.shape != shape:
            raise ValueError(
                f"mask_column must hold masks of their images' height and width, got {values.shape} for {shape} in "
                f"row {row} of {source}"
            )
        if size is None and seen not in (None, shape):
            raise ValueError(
                f"image_size must be given for images of several sizes, got None: {seen} and {shape} in {source}"
            )
        seen = shape
        found = np.bincount(values.ravel(), minlength=IGNORED + 1)
        wrong = np.flatnonzero(found[num_classes:IGNORED]) + num_classes
        if len(wrong) or len(found) > IGNORED + 1:
            raise ValueError(
                f"mask_column must hold class numbers below {num_classes}, or {IGNORED} for pixels that do not count, "
                f"got {wrong[0] if len(wrong) else values.max()} in row {row} of {source}"
            )
        counts += found[:num_classes]
    if not counts.any():
        raise ValueError(f"mask_column must hold classes, got {IGNORED} alone in {source}")
    return counts


@contextmanager
def _opened(argument: str, image: dict[str, Any], row: int, source: str) -> Iterator[PILImage.Image]:
    """The image, of which only what is asked for is read."""
    try:
        yield PILImage.open(image["path"] or "" if image["bytes"] is None else io.BytesIO(image["bytes"]))
    except (OSError, PILImage.DecompressionBombError) as error:
        raise ValueError(f"{argument} must hold images, got something else in row {row} of {source}") from error


def _values(mask: dict[str, Any], row: int, source: str) -> np.ndarray:
    """Class numbers (H, W), int64."""
    with _opened("mask_column", mask, row, source) as opened:
        values = np.asarray(opened)
    if values.ndim != 2:
        raise ValueError(
            f"mask_column must hold images of one channel, the number of the class, got mode {opened.mode!r} in row "
            f"{row} of {source}"
        )
    return values.astype(np.int64)


class MaskDataset(torch.utils.data.Dataset):
    """Images and masks, each decoded when it is asked for, as a model and `FocalTrainer` take them.

    Args:
        split: of `load_mask_splits`.
        pixels: what the model sees.
        crop_size: (height, width) of a part that is cut out at random; None for all of the image.
        flip: whether half of the images are mirrored, left to right.
        seed: of cuts and flips.
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
        # Shared with workers, which may outlive an epoch.
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Have the images cut and flipped anew; to be called as an epoch begins."""
        self.epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """``pixel_values`` (3, H, W), float32, and ``labels`` (H, W), int64, 255 where they do not count."""
        row = self.split[index]
        image = open_image(row["image"], index)
        mask = PILImage.fromarray(_values(row["mask"], index, "the split").astype(np.uint8))
        if self.pixels.size is not None:
            size = self.pixels.size[::-1]
            image, mask = image.resize(size, PILImage.BILINEAR), mask.resize(size, PILImage.NEAREST)
        values, labels = self._cut(index, np.asarray(image), np.asarray(mask))
        mean, std = (np.array(x, np.float32) for x in (self.pixels.mean, self.pixels.std))
        scaled = (values.astype(np.float32) / 255 - mean) / std
        return {
            "pixel_values": torch.from_numpy(scaled).permute(2, 0, 1).contiguous(),
            "labels": torch.from_numpy(labels.astype(np.int64)),
        }

    def _cut(self, index: int, values: np.ndarray, labels: np.ndarray) -> Sequence[np.ndarray]:
        rng = np.random.default_rng((self.seed, int(self.epoch), index))
        if self.crop_size is not None:
            check_crop(self.crop_size, labels.shape)
            top, left = (rng.integers(side - cut + 1) for side, cut in zip(labels.shape, self.crop_size, strict=True))
            inside = slice(top, top + self.crop_size[0]), slice(left, left + self.crop_size[1])
            values, labels = values[inside], labels[inside]
        if self.flip and rng.random() < 0.5:
            values, labels = values[:, ::-1], labels[:, ::-1]
        return values, labels


def check_crop(crop_size: tuple[int, int], size: tuple[int, int]) -> None:
    """Raise where a part to be cut out, (height, width), is larger than the image."""
    if crop_size[0] > size[0] or crop_size[1] > size[1]:
        raise ValueError(f"crop_size must be at most {size}, the images' height and width, got {crop_size}")
