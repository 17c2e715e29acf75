"""Images from their files to pixel values, against Pillow, NumPy and the image processors of Transformers."""

import io
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Image
from papers.data.image_batches import ImageDataset, collate, decode_images, prepare_batch
from papers.data.pixel_format import PixelFormat
from PIL import Image as PILImage
from transformers import BitImageProcessorPil

from hf_focal.tasks.dataset_loading import load_digits

MEAN, STD = (0.5, 0.25, 0.4), (0.2, 0.25, 0.5)
RNG = np.random.default_rng(0)


def noise(width, height, channels=3):
    return RNG.integers(0, 256, (height, width, channels)[: 2 if channels == 1 else 3], dtype=np.uint8)


def png(pixels, **options):
    file = io.BytesIO()
    image = pixels if isinstance(pixels, PILImage.Image) else PILImage.fromarray(pixels)
    image.save(file, format="PNG", **options)
    return file.getvalue()


def split_of(images, labels=None, names=("cat", "dog")):
    """A split with the columns "image" and "labels", of the bytes of images."""
    rows = {"image": [{"bytes": image, "path": None} for image in images]}
    rows["labels"] = [i % len(names) for i in range(len(images))] if labels is None else labels
    return Dataset.from_dict(rows, Features(image=Image(decode=False), labels=ClassLabel(names=list(names))))


def formatted(size, crop_pct=1.0):
    return PixelFormat(size, crop_pct, MEAN, STD)


def normalized(pixels):
    """(..., 3) of 0 … 255, in double precision."""
    return (np.asarray(pixels, dtype=np.float64) / 255 - MEAN) / STD


IMAGES = [png(noise(5, 4)) for _ in range(60)]
LABELS = ["dog", "cat", "cat"] * 20


@pytest.fixture
def write(tmp_path):
    """write(name, columns, features=None): a parquet file."""

    def write(name, columns, features=None):
        Dataset.from_dict(columns, features).to_parquet(tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize(("broken", "in_memory"), [(b"", False), (IMAGES[0][:-30], True), ("missing.png", False)])
def test_what_is_no_image_is_named_by_its_row(broken, in_memory):
    images = [{"bytes": image, "path": "1.png"} for image in IMAGES[:8]]
    images[5] = {"bytes": None, "path": broken} if isinstance(broken, str) else {"bytes": broken, "path": None}
    split = Dataset.from_dict({"image": images, "labels": [0] * 8}).cast_column("image", Image(decode=False))
    with pytest.raises(ValueError, match="image_column must hold images, got something else in row 5: "):
        ImageDataset(split, formatted(4), in_memory=in_memory).__getitems__([0, 5, 3])


def test_the_middle_square_of_what_is_not_square():
    wide, tall = noise(9, 4), noise(4, 10)
    decoded = decode_images(split_of([png(wide), png(tall)]), 4)
    np.testing.assert_array_equal(decoded[0], wide[:, 2:6])
    np.testing.assert_array_equal(decoded[1], tall[3:7])


def test_modes():
    color, gray, alpha = noise(6, 6), noise(6, 6, 1), noise(6, 6, 4)
    deep = RNG.integers(0, 2**16, (6, 6)).astype(np.uint16)
    palette = PILImage.fromarray(color).quantize(8)
    black_and_white = PILImage.fromarray(gray).convert("1")
    # Lying on its side, as cameras store it.
    orientation = PILImage.Exif()
    orientation[0x0112] = 6
    turned = png(color, exif=orientation)
    files = [png(gray), png(alpha), png(deep), png(palette), png(black_and_white), turned]
    decoded = decode_images(split_of(files), 6).numpy()
    expected = [
        gray[..., None].repeat(3, 2),
        alpha[..., :3],
        (deep // 256)[..., None].repeat(3, 2),
        palette.convert("RGB"),
        np.asarray(black_and_white)[..., None].repeat(3, 2) * 255,
        np.rot90(color, -1),
    ]
    for result, wanted in zip(decoded, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


SIZES = ((31, 31), (17, 17), (33, 21), (21, 34), (14, 29), (101, 16), (16, 16), (45, 19))


@pytest.mark.parametrize(("size", "crop_pct", "in_memory"), [(16, 1.0, True), (14, 0.875, False), (15, 0.95, True)])
def test_the_same_pixels_as_an_image_processor(size, crop_pct, in_memory):
    pixels = formatted(size, crop_pct)
    processor = BitImageProcessorPil(
        size={"shortest_edge": pixels.stored_size},
        crop_size={"height": size, "width": size},
        resample=PILImage.BILINEAR,
        image_mean=list(MEAN),
        image_std=list(STD),
    )
    images = [PILImage.fromarray(noise(*sides)) for sides in SIZES]
    dataset = ImageDataset(split_of(list(map(png, images))), pixels, in_memory=in_memory)
    actual = prepare_batch(dataset.__getitems__(range(len(SIZES))), pixels)["pixel_values"]
    expected = torch.stack([torch.as_tensor(processor(image)["pixel_values"][0]) for image in images])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("augmentation", "in_memory"), [("none", True), ("crop", False), ("resized_crop", True)])
def test_batches(augmentation, in_memory):
    split = split_of(IMAGES)
    dataset = ImageDataset(split, formatted(4), augmentation=augmentation, in_memory=in_memory)
    assert len(dataset) == 60
    batch = dataset.__getitems__([7, 3, 3])
    shapes = {"pixel_values": (torch.uint8, (3, 4, 4, 3)), "labels": (torch.int64, (3,))}
    if augmentation != "none":
        shapes["boxes"] = (torch.float32, (3, 4))
    assert {name: (values.dtype, tuple(values.shape)) for name, values in batch.items()} == shapes
    assert batch["labels"].tolist() == [1, 1, 1]
    for row, index in enumerate((7, 3, 3)):
        single = dataset[index]
        assert single.keys() == batch.keys()
        assert all(torch.equal(values, batch[name][row]) for name, values in single.items())
    expected = ImageDataset(split, formatted(4), augmentation=augmentation).__getitems__([7, 3, 3])
    assert all(torch.equal(batch[name], expected[name]) for name in shapes)
    assert collate(batch) is batch


def test_boxes_depend_on_the_seed_and_the_epoch_alone():
    dataset, same, other = (
        ImageDataset(split_of(IMAGES), formatted(4), augmentation="crop", seed=seed) for seed in (1, 1, 2)
    )
    first = dataset.boxes.clone()
    assert torch.equal(first, same.boxes)
    assert not torch.equal(first, other.boxes)
    same.set_epoch(3)
    dataset.set_epoch(1)
    assert not torch.equal(first, dataset.boxes)
    dataset.set_epoch(3)
    assert torch.equal(dataset.boxes, same.boxes)
    dataset.set_epoch(0)
    assert torch.equal(dataset.boxes, first)


def augmented(images, pixels, augmentation, seed=0):
    """The batch of all images, and its pixel values."""
    dataset = ImageDataset(split_of(images), pixels, augmentation=augmentation, seed=seed)
    batch = dataset.__getitems__(range(len(images)))
    return batch, prepare_batch(batch, pixels)


@pytest.mark.parametrize(("size", "crop_pct"), [(32, 1.0), (9, 0.8)])
def test_crop_is_padding_cutting_and_flipping(size, crop_pct):
    pixels = formatted(size, crop_pct)
    stored = pixels.stored_size
    images = [noise(stored, stored) for _ in range(40)]
    batch, result = augmented(list(map(png, images)), pixels, "crop")
    assert result.keys() == {"pixel_values", "labels"}
    margin, padding, shifts = (stored - size) // 2, stored, Counter()
    for image, box, actual in zip(images, batch["boxes"].tolist(), result["pixel_values"], strict=True):
        left, top = box[0] - size / 2, box[1] - size / 2
        assert (left, top, abs(box[2]), box[3]) == (int(left), int(top), size, size)
        shifts[left - margin] += 1
        shifts[top - margin] += 1
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        left, top = int(left) + padding, int(top) + padding
        cut = padded[top : top + size, left : left + size]
        cut = cut[:, ::-1] if box[2] < 0 else cut
        np.testing.assert_allclose(actual.permute(1, 2, 0), normalized(cut), rtol=0, atol=1e-5 * max(1, stored / 16))
    assert shifts.keys() == set(range(-(margin + 4), margin + 5))


@pytest.mark.parametrize("crop_pct", [1.0, 0.75])
def test_boxes_of_any_size_lie_within_the_image(crop_pct):
    pixels = formatted(6, crop_pct)
    stored = pixels.stored_size
    boxes = ImageDataset(split_of(IMAGES * 40), pixels, augmentation="resized_crop", in_memory=False).boxes.double()
    width, height = boxes[:, 2].abs(), boxes[:, 3]
    for middle, extent in ((boxes[:, 0], width), (boxes[:, 1], height)):
        assert (middle - extent / 2).min() >= -1e-5
        assert (middle + extent / 2).max() <= stored + 1e-5
    area, aspect = width * height / stored**2, width / height
    assert 0.08 - 1e-6 <= area.min() < 0.1 and 0.9 < area.max() <= 1 + 1e-6
    # Cutting what sticks out brings the sides nearer to each other.
    assert 3 / 4 - 1e-6 <= aspect.min() < 0.76 and 1.31 < aspect.max() <= 4 / 3 + 1e-6
    within = area < 0.7  # of which nothing sticks out
    counts = torch.histc(area[within], 5, 0.08, 0.7) / within.sum()
    assert (counts - 0.2).abs().max() < 0.05
    counts = torch.histc(aspect[within].log(), 4, -np.log(4 / 3), np.log(4 / 3)) / within.sum()
    assert (counts - 0.25).abs().max() < 0.06
    where = ((boxes[:, 0] - width / 2) / (stored - width))[within]
    assert (torch.histc(where, 5, 0, 1) / within.sum() - 0.2).abs().max() < 0.05


def test_boxes_of_any_size_show_what_is_there():
    """On a linear ramp bilinear interpolation is exact: a pixel's value is that of its place in the image."""
    stored = 24
    pixels = formatted(10, 10 / stored)
    assert pixels.stored_size == stored
    y, x = np.mgrid[:stored, :stored]
    ramp = np.stack([10 * x, 10 * y, 4 * x + 6 * y], 2).astype(np.uint8)
    batch, result = augmented([png(ramp)] * 50, pixels, "resized_crop")
    places = (np.arange(10) + 0.5) / 10 - 0.5
    for (middle_x, middle_y, width, height), actual in zip(
        batch["boxes"].tolist(), result["pixel_values"], strict=True
    ):
        at_x = (middle_x + width * places - 0.5)[None, :].repeat(10, 0)
        at_y = (middle_y + height * places - 0.5)[:, None].repeat(10, 1)
        inner = (at_x >= 0) & (at_x <= stored - 1) & (at_y >= 0) & (at_y <= stored - 1)  # the rim fades to 0
        expected = normalized(np.stack([10 * at_x, 10 * at_y, 4 * at_x + 6 * at_y], 2))
        np.testing.assert_allclose(actual.permute(1, 2, 0)[inner], expected[inner], rtol=0, atol=1e-4)
        assert inner.mean() > 0.5


def test_digits():
    from sklearn.datasets import load_digits as sklearn_digits

    splits = load_digits()
    assert {name: len(split) for name, split in splits.items()} == {"train": 797, "validation": 500, "test": 500}
    assert splits["train"].features["label"].names == [str(digit) for digit in range(10)]
    for split in splits.values():
        counts = Counter(split["label"])
        assert len(counts) == 10 and max(counts.values()) < 1.15 * min(counts.values())
    # All of scikit-learn's, each once: no image is in two splits but where it is twice among them.
    source = sklearn_digits()
    values = np.concatenate([decode_images(split, 8)[..., 0] for split in splits.values()])
    labels = np.concatenate([split["label"][:] for split in splits.values()])
    actual = Counter(zip((row.tobytes() for row in np.rint(values / 255 * 16).astype(np.uint8)), labels, strict=True))
    wanted = zip((row.tobytes() for row in source.images.astype(np.uint8)), source.target, strict=True)
    assert actual == Counter(wanted)
    assert max(actual.values()) == 1
    assert load_digits(seed=1)["test"]["label"][:] != splits["test"]["label"][:]


def test_workers_that_outlive_an_epoch_see_its_boxes():
    dataset = ImageDataset(split_of(IMAGES[:16]), formatted(4), augmentation="crop", in_memory=False)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, collate_fn=collate, num_workers=1, persistent_workers=True
    )
    for epoch in (0, 1, 2):
        dataset.set_epoch(epoch)
        boxes = torch.cat([batch["boxes"] for batch in loader])
        assert torch.equal(boxes, dataset.boxes)
        expected = ImageDataset(split_of(IMAGES[:16]), formatted(4), augmentation="crop")
        expected.set_epoch(epoch)
        assert torch.equal(boxes, expected.boxes)
