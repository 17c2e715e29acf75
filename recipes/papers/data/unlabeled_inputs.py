"""Images or texts of one split, without labels."""

from datasets import Dataset

from hf_focal.tasks.column_selection import Column, select_columns
from hf_focal.tasks.dataset_loading import load_one_split


def load_images(argument: str, name: str, column: str = "image", split: str = "test") -> Dataset:
    """Load the images of a split, undecoded, as the column "image".

    Args:
        argument: name of the user's argument in error messages.
        name: a file, or a dataset on the Hub or in a folder, as in `load_one_split`.
        column: the name of the column of images in the data.
        split: the split to load if `name` is a dataset without a split.

    Raises:
        FileNotFoundError, ValueError: as in `load_one_split`; or the column is missing, has nulls, or holds no images.
    """
    samples = load_one_split(argument, name, split)
    return select_columns(f"{argument} {name!r}", samples, Column("image_column", column, "image", "images"))


def load_texts(argument: str, name: str, column: str = "text", split: str = "test") -> Dataset:
    """Load the texts of a split as the column "text". The arguments and errors are those of `load_images`."""
    samples = load_one_split(argument, name, split)
    return select_columns(f"{argument} {name!r}", samples, Column("text_column", column, "text", "strings"))
