"""The handwritten digits of scikit-learn as a dataset of images."""

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from PIL import Image as PILImage


def load_digits(seed: int = 42) -> DatasetDict:
    """Load the 1,797 handwritten digits of 8 × 8 gray values that come with scikit-learn [Alpaydin and Kaynak 1998].

    Returns:
        797 "train", 500 "validation" and 500 "test" samples of "image" (undecoded) and "label" (`ClassLabel`).
    """
    from sklearn.datasets import load_digits as sklearn_digits

    digits = sklearn_digits()
    pixels = (digits.images * 255 / 16).round().astype(np.uint8)  # from 0 to 16
    samples = {"image": [PILImage.fromarray(image) for image in pixels], "label": digits.target.tolist()}
    names = [str(digit) for digit in range(10)]
    dataset = Dataset.from_dict(samples, Features(image=Image(decode=False), label=ClassLabel(names=names)))
    rest = dataset.train_test_split(500, stratify_by_column="label", seed=seed)
    train = rest["train"].train_test_split(500, stratify_by_column="label", seed=seed)
    return DatasetDict({"train": train["train"], "validation": train["test"], "test": rest["test"]})
