"""Generated images of colored shapes with a class for each pixel. Some classes are a hundred times rarer than others.

Squares and discs are common; triangles, rings, and crosses are rare. ``python -m papers.data.generated_shapes DIR``
writes train.parquet, validation.parquet, test.parquet, and ``segformer``, a small network with random weights, to DIR.
"""

import io
import sys
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image
from PIL import Image as PILImage
from transformers import SegformerConfig, SegformerForSemanticSegmentation, SegformerImageProcessorPil, set_seed

from papers.data.label_options import label_options

# From the most to the least frequent.
SHAPE_NAMES = ("background", "square", "disc", "triangle", "ring", "cross")

# Mean colors. Each rare shape resembles a common class: triangles resemble squares, rings resemble discs, and crosses
# resemble the background.
_COLORS = np.array(
    [[110, 110, 110], [60, 90, 170], [60, 150, 80], [90, 85, 160], [85, 140, 95], [135, 112, 105]], dtype=float
)
_NOISE = 30.0  # standard deviation of pixel values around their shape's color; of these colors, it is half as large
# For each shape: the largest number of such shapes per image, the probability that each of them is drawn, and the
# range of the half width in pixels when `size` is 64.
_PLENTY = {"square": (3, 0.8, 7, 14), "disc": (3, 0.8, 6, 12)}
_RARE = {"triangle": (1, 0.5, 5, 8), "ring": (1, 0.4, 5, 7), "cross": (1, 0.4, 5, 7)}


def generate_shapes(num_samples: int, *, size: int = 64, seed: int = 0) -> Dataset:
    """Draw images of shapes (`size` × `size` RGB pixels, size ≥ 32), and masks with the class of each pixel.

    Large squares and discs are drawn on the background, and some images also have a triangle, a ring, or a cross, or
    several of these, on top. In a thousand images of 64 × 64 pixels, 56% of the pixels are background, 25% squares,
    17% discs, 0.8% triangles, 0.5% rings, and 0.4% crosses. Pixel values vary around the color of their shape, and
    the colors of shapes around that of their class.

    The columns of the result, "image" and "mask" (8-bit indices into `SHAPE_NAMES`), are undecoded PNG `Image`s.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, list] = {"image": [], "mask": []}
    for _ in range(num_samples):
        image, mask = _draw(size, rng)
        columns["image"].append({"bytes": _png(image), "path": None})
        columns["mask"].append({"bytes": _png(mask), "path": None})
    return Dataset.from_dict(columns, Features(image=Image(decode=False), mask=Image(decode=False)))


def _draw(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw an image, uint8 (size, size, 3), and its mask, uint8 (size, size)."""
    mask = np.zeros((size, size), np.uint8)
    colors = np.broadcast_to(_color(0, rng), (size, size, 3)).copy()
    y, x = np.mgrid[:size, :size]
    for kinds in (_PLENTY, _RARE):
        drawn = [name for name, (most, share, _, _) in kinds.items() for _ in range(rng.binomial(most, share))]
        for name in rng.permutation(drawn):
            label, (_, _, low, high) = SHAPE_NAMES.index(name), kinds[name]
            half = rng.uniform(low, high) * size / 64
            middle = rng.uniform(half, size - half, size=2)
            inside = _inside(name, y - middle[0], x - middle[1], half)
            mask[inside] = label
            colors[inside] = _color(label, rng)
    colors += rng.normal(0, _NOISE, colors.shape)
    return colors.clip(0, 255).round().astype(np.uint8), mask


def _color(label: int, rng: np.random.Generator) -> np.ndarray:
    return _COLORS[label] + rng.normal(0, _NOISE / 2, 3)


def _inside(name: str, y: np.ndarray, x: np.ndarray, half: float) -> np.ndarray:
    """Return which of the pixels at the offsets (y, x) from the center of the shape `name` are inside the shape."""
    distance = np.hypot(y, x)
    if name == "square":
        return np.maximum(abs(y), abs(x)) <= half
    if name == "disc":
        return distance <= half
    if name == "triangle":
        return (abs(y) <= half) & (abs(x) <= (y + half) / 2)
    if name == "ring":
        return (distance <= half) & (distance >= half / 2)
    return (np.minimum(abs(y), abs(x)) <= half / 4) & (np.maximum(abs(y), abs(x)) <= half)


def _png(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    PILImage.fromarray(values).save(file, format="PNG")
    return file.getvalue()


def write_shapes(folder: Path, sizes: tuple[int, int, int] = (1000, 200, 1000)) -> None:
    """Write images to train, validate, and test with, and a SegFormer of 0.1 million random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, size) in enumerate(zip(("train", "validation", "test"), sizes, strict=True)):
        generate_shapes(size, seed=42 + number).to_parquet(folder / f"{name}.parquet")
    set_seed(42)
    config = SegformerConfig(
        num_encoder_blocks=3,
        depths=[1, 1, 1],
        sr_ratios=[4, 2, 1],
        hidden_sizes=[16, 32, 64],
        patch_sizes=[3, 3, 3],
        strides=[2, 2, 2],
        num_attention_heads=[1, 2, 4],
        mlp_ratios=[2, 2, 2],
        decoder_hidden_size=64,
        **label_options(SHAPE_NAMES),
    )
    SegformerForSemanticSegmentation(config).save_pretrained(folder / "segformer")
    processor = SegformerImageProcessorPil(do_resize=False, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor.save_pretrained(folder / "segformer")


if __name__ == "__main__":
    write_shapes(Path(sys.argv[1]))
