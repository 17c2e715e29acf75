"""Generated shapes, and segmentation data from files to batches."""

import io
import itertools

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Image
from papers.data.generated_shapes import SHAPE_NAMES, generate_shapes
from papers.data.segmentation_masks import ImageFormat, MaskDataset, count_classes
from PIL import Image as PILImage
from transformers import SegformerImageProcessorPil

AS_IT_IS = ImageFormat(None, (0.5, 0.25, 0.4), (0.2, 0.25, 0.5))
RNG = np.random.default_rng(0)


def png(values, mode=None):
    file = io.BytesIO()
    image = PILImage.fromarray(values)
    (image if mode is None else image.convert(mode)).save(file, format="PNG")
    return {"bytes": file.getvalue(), "path": None}


def decoded(image):
    return np.asarray(PILImage.open(io.BytesIO(image["bytes"])))


def noise(height=6, width=8):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def classes(height=6, width=8, num_classes=4):
    values = RNG.integers(0, num_classes, (height, width), dtype=np.uint8)
    values[0, 0] = 255
    return values


def split_of(images, masks, columns=("image", "mask")):
    rows = dict(zip(columns, (images, masks), strict=True))
    return Dataset.from_dict(rows, Features(dict.fromkeys(columns, Image(decode=False))))


# Generated


def test_shapes_are_as_frequent_as_documented():
    masks = np.stack([decoded(mask) for mask in generate_shapes(400, seed=1)["mask"]])
    shares = np.bincount(masks.ravel(), minlength=len(SHAPE_NAMES)) / masks.size
    assert shares == pytest.approx([0.66, 0.2, 0.115, 0.0105, 0.0085, 0.006], rel=0.15)
    assert shares[0] / shares[-1] > 90
    assert masks.shape == (400, 64, 64)


# From files


def files(folder, **splits):
    for name, split in splits.items():
        split.to_parquet(folder / f"{name}.parquet")
    return {f"{name}_file": folder / f"{name}.parquet" for name in splits}


def test_classes_are_counted():
    masks = [classes() for _ in range(3)]
    split = split_of([png(noise()) for _ in masks], [png(masks[0]), png(masks[1], "P"), png(masks[2])])
    # A palette's numbers are its own: what is stored is what counts.
    stored = [decoded(mask) for mask in split["mask"]]
    expected = np.bincount(np.concatenate([mask.ravel() for mask in stored]), minlength=256)
    assert count_classes(split, 255, "train").tolist() == expected[:255].tolist()


@pytest.mark.parametrize(
    ("images", "masks", "options", "message"),
    [
        ([(6, 8)], [np.full((6, 8), 4, np.uint8)], {}, r"class numbers below 4, or 255 .*, got 4 in sample 0 of test"),
        ([(6, 8)], [classes(6, 7)], {}, r"their images' height and width, got \(6, 7\) for \(6, 8\) in sample 0"),
        (
            [(6, 8), (8, 6)],
            [classes(), classes(8, 6)],
            {},
            r"image_size must be .* \(6, 8\) and \(8, 6\) in test, got None",
        ),
        ([(6, 8)], [np.full((6, 8), 255, np.uint8)], {}, "mask_column must hold classes, got only 255 in test"),
        ([(6, 8)], [noise()], {}, "images with one channel, the class numbers, got mode 'RGB' in sample 0 of test"),
        ([(6, 8)], [b"no image"], {}, "mask_column must hold images, sample 0 of test cannot be read as one"),
    ],
)
def test_masks_that_are_none(images, masks, options, message):
    encoded = [{"bytes": mask, "path": None} if isinstance(mask, bytes) else png(mask) for mask in masks]
    with pytest.raises(ValueError, match=message):
        count_classes(split_of([png(noise(*size)) for size in images], encoded), 4, "test", **options)


# What a model sees


@pytest.mark.parametrize("size", [None, (4, 10)])
def test_samples_are_what_the_image_processor_makes(size):
    image, mask = noise(), classes()
    sample = MaskDataset(split_of([png(image)], [png(mask)]), ImageFormat(size, AS_IT_IS.mean, AS_IT_IS.std))[0]
    resize = {} if size is None else {"size": {"height": size[0], "width": size[1]}}
    processor = SegformerImageProcessorPil(
        do_resize=size is not None, image_mean=AS_IT_IS.mean, image_std=AS_IT_IS.std, **resize
    )
    expected = processor(PILImage.fromarray(image), PILImage.fromarray(mask), return_tensors="pt")
    torch.testing.assert_close(sample["pixel_values"], expected["pixel_values"][0], rtol=0, atol=1e-6)
    assert torch.equal(sample["labels"], expected["labels"][0])
    assert sample["labels"].dtype == torch.int64


def test_parts_are_cut_and_flipped_alike_and_anew_in_each_epoch():
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8)
    image = np.repeat(mask[:, :, None], 3, axis=2)
    split = split_of([png(image)] * 40, [png(mask)] * 40)
    plain = ImageFormat(None, (0.0, 0.0, 0.0), (1 / 255,) * 3)
    data = MaskDataset(split, plain, crop_size=(4, 5), flip=True, seed=3)
    epochs = []
    for epoch in (0, 1):
        data.set_epoch(epoch)
        samples = [data[row] for row in range(40)]
        for sample in samples:
            assert sample["labels"].shape == (4, 5)
            torch.testing.assert_close(sample["pixel_values"][1].round().long(), sample["labels"])
        epochs.append([sample["labels"] for sample in samples])
    steps = [int(labels[0, 1] - labels[0, 0]) for labels in epochs[0]]
    assert set(steps) == {1, -1}  # about half of them flipped
    assert 10 < steps.count(-1) < 30
    corners = {int(labels.min()) for labels in itertools.chain(*epochs)}
    assert corners == {8 * top + left for top in range(3) for left in range(4)}
    assert any(not torch.equal(*pair) for pair in zip(*epochs, strict=True))
    data.set_epoch(0)
    assert all(torch.equal(data[row]["labels"], epochs[0][row]) for row in range(40))
    other = MaskDataset(split, plain, crop_size=(4, 5), flip=True, seed=4)
    assert any(not torch.equal(other[row]["labels"], epochs[0][row]) for row in range(40))


def test_the_format_of_a_pretrained_model(tmp_path):
    processor = SegformerImageProcessorPil(size={"height": 32, "width": 48}, image_mean=[0.1, 0.2, 0.3])
    processor.save_pretrained(tmp_path)
    assert ImageFormat.of_pretrained(str(tmp_path)) == ImageFormat(
        (32, 48), (0.1, 0.2, 0.3), tuple(processor.image_std)
    )
    assert ImageFormat.of_pretrained(str(tmp_path), (8, 9)).size == (8, 9)
    processor.do_resize = False
    processor.save_pretrained(tmp_path)
    assert ImageFormat.of_pretrained(str(tmp_path)).size is None
