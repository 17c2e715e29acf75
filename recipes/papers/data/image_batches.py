"""Image classification datasets, augmented in batches on the training device.

A batch is moved to the device as uint8 pixels, which take a quarter of the memory of float32, with a crop box for each
image. There, `prepare_batch` crops and normalizes the images. An image's crop box depends only on the seed, the epoch,
and the image: resuming training, or changing the number of workers or processes, does not change the box.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image as PILImage
from torch import Tensor
from torch.nn import functional as F

from hf_focal.tasks.batches import open_image
from papers.data.pixel_format import PixelFormat

AUGMENTATIONS = ("none", "crop", "resized_crop")
_PADDING = 4  # zero pixels around an image for "crop"


def decode_images(split: Dataset, size: int) -> Tensor:
    """Decode a split's images as RGB, resize each one's shorter side to `size` (bilinear), and crop the middle square.

    Returns uint8 (N, size, size, 3). Raises `ValueError` if a value is not an image.
    """
    return _decode_all(split["image"], range(len(split)), size, size)


def _decode_all(images: Iterable[dict[str, Any]], rows: Sequence[int], size: int, seen: int) -> Tensor:
    decoded = np.empty((len(rows), size, size, 3), dtype=np.uint8)
    for i, (row, image) in enumerate(zip(rows, images, strict=True)):
        decoded[i] = _decode(image, size, seen, row)
    return torch.from_numpy(decoded)


def _decode(image: dict[str, Any], size: int, seen: int, row: int) -> PILImage.Image:
    """Decode an image, resize its shorter side to `size`, and crop a square of `size` × `size` pixels.

    The middle `seen` × `seen` pixels of this square are those that image processors would crop.
    """
    opened = open_image(image, row)
    width, height = opened.size
    if (width, height) == (size, size):
        return opened
    short = min(width, height)
    opened = opened.resize((int(size * width / short), int(size * height / short)), PILImage.BILINEAR)
    left, top = ((side - seen) // 2 - (size - seen) // 2 for side in opened.size)
    return opened.crop((left, top, left + size, top + size))


class ImageDataset(torch.utils.data.Dataset):
    """Images and labels that a `DataLoader` reads in whole batches, with `collate` as its `collate_fn`.

    Args:
        split: a split with the columns "image" and "labels" (`ClassLabel`).
        pixels: the model's pixel format. Without augmentation, the middle square of each image is used.
        augmentation: "crop" (a crop at a random position, up to 4 pixels beyond the edges, where pixels are 0),
            "resized_crop" (a random crop of 8% to 100% of the area, with an aspect ratio of 3:4 to 4:3), or "none".
            "crop" and "resized_crop" also flip half of the images, left to right.
        in_memory: whether to decode all images up front, instead of on access (in the workers of a `DataLoader`).
        seed: seed of the augmentation.
    """

    def __init__(
        self, split: Dataset, pixels: PixelFormat, *, augmentation: str = "none", in_memory: bool = True, seed: int = 0
    ):
        if augmentation not in AUGMENTATIONS:
            raise ValueError(f"augmentation must be one of {', '.join(AUGMENTATIONS)}, got {augmentation!r}")
        self.pixels, self.augmentation, self.seed = pixels, augmentation, seed
        self.labels = torch.from_numpy(split.select_columns("labels").with_format("numpy")["labels"][:]).long()
        self.images: Tensor | Dataset = split
        if in_memory:
            self.images = _decode_all(split["image"], range(len(split)), pixels.stored_size, pixels.size)
        sees_all = augmentation == "none" and pixels.stored_size == pixels.size
        # In shared memory, because workers may persist across epochs.
        self.boxes = None if sees_all else torch.empty(len(self), 4).share_memory_()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the crop boxes of an epoch. Call this when the epoch begins."""
        if self.boxes is not None:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
            stored, size = self.pixels.stored_size, self.pixels.size
            self.boxes.copy_(_random_boxes(self.augmentation, len(self), stored, size, generator))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[0] for name, values in self.__getitems__([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return a batch as tensors: ``pixel_values`` (B, S, S, 3), uint8; ``labels`` (B,), int64; and, unless
        whole images are used, the crop ``boxes`` (B, 4), float32."""
        batch = {"pixel_values": self._images(indices), "labels": self.labels[indices]}
        return batch if self.boxes is None else {**batch, "boxes": self.boxes[indices]}

    def _images(self, indices: Sequence[int]) -> Tensor:
        if isinstance(self.images, Tensor):
            return self.images[indices]
        images = self.images[list(indices)]["image"]
        return _decode_all(images, indices, self.pixels.stored_size, self.pixels.size)


def collate(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the batch unchanged: `ImageDataset` has already collated it."""
    return batch


def prepare_batch(batch: dict[str, Tensor], pixels: PixelFormat) -> dict[str, Tensor]:
    """Crop and normalize the images of a batch from `ImageDataset` for a model, on the device that the batch is on.

    Returns a copy of the batch without "boxes", whose "pixel_values" (B, 3, pixels.size, pixels.size) are float32,
    with channels last in memory.
    """
    batch = dict(batch)
    values = batch["pixel_values"].permute(0, 3, 1, 2).float()
    boxes = batch.pop("boxes", None)
    if boxes is not None:
        values = _cut_out(values, boxes, pixels.size).contiguous(memory_format=torch.channels_last)
    mean, std = (torch.tensor(x, device=values.device).mul_(255)[:, None, None] for x in (pixels.mean, pixels.std))
    return {**batch, "pixel_values": values.sub_(mean).div_(std)}


def _random_boxes(kind: str, count: int, stored: int, size: int, generator: torch.Generator) -> Tensor:
    """Draw boxes (count, 4), float32: center x, center y, width (negative to flip), and height in stored pixels."""
    middle = (stored - size) // 2 + size / 2  # so that the edges lie between pixels
    boxes = torch.tensor([middle, middle, size, size]).repeat(count, 1)
    if kind == "none":
        return boxes
    if kind == "crop":
        reach = (stored - size) // 2 + _PADDING
        boxes[:, :2] += torch.randint(-reach, reach + 1, (count, 2), generator=generator)
    else:
        area = torch.empty(count).uniform_(0.08, 1, generator=generator)
        half_aspect = torch.empty(count).uniform_(-0.5, 0.5, generator=generator).mul_(np.log(4 / 3)).exp_()
        boxes[:, 2:] = (stored * area.sqrt()[:, None] * torch.stack([half_aspect, 1 / half_aspect], 1)).clamp_(
            max=stored
        )
        boxes[:, :2] = boxes[:, 2:] / 2 + (stored - boxes[:, 2:]) * torch.rand(count, 2, generator=generator)
    boxes[:, 2] *= 1 - 2 * torch.randint(0, 2, (count,), generator=generator)
    return boxes


def _cut_out(values: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Crop a box from each image (B, C, S, S), and resize the crops to `size` (bilinear). Pixels outside are 0."""
    stored = values.shape[-1]
    middle, extent = 2 * boxes[:, :2] / stored - 1, boxes[:, 2:] / stored
    # Not affine_grid: it is a matrix product, which TF32 and autocast would round.
    steps = (2 * torch.arange(size, device=boxes.device) + 1) / size - 1
    x, y = (middle[:, [axis]] + extent[:, [axis]] * steps for axis in (0, 1))
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    return F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
