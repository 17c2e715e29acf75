"""Train the papers' networks on images, correct the temperature, and measure the calibration.

    python recipes/papers/image_classification.py --config recipes/papers/configs/cifar10/paper.yaml \
        --train_file train.parquet --test_file test.parquet --losses cross_entropy,flsd53 --output_dir out/cifar10

Without data arguments, the data is scikit-learn's digits:

    python recipes/papers/image_classification.py --config recipes/papers/configs/digits.yaml \
        --losses cross_entropy,focal:gamma=3,flsd53 --output_dir out/digits

To fine-tune a model on your own images, take recipes/image_classification.py.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from datasets import DatasetDict
from transformers import set_seed

from hf_focal import FocalTrainingArguments, load_splits
from hf_focal.reports import RunResult, results_table
from hf_focal.reports.wording.markdown_tables import RESULTS_LEGEND
from hf_focal.tasks.dataset_loading import load_digits
from papers import checks as check
from papers.argument_fields import argument
from papers.data.image_batches import ImageDataset
from papers.data.label_options import label_options
from papers.data.pixel_format import PixelFormat
from papers.figures.prediction_examples import confidence_table
from papers.runs.arguments import DatasetArguments, LongTailArguments, SampleClassifierArguments, parse_experiment
from papers.runs.classifier_results import run_classifier
from papers.runs.image_models import ImageModelArguments
from papers.runs.image_training import ImageClassifierTrainer, OptimizerArguments
from papers.runs.loss_comparison import train_each_loss
from papers.runs.reports import write_image_comparison, write_image_report


@dataclass(kw_only=True)
class ImageDataArguments(LongTailArguments, DatasetArguments):
    """The data. Without `dataset_name` or files, the recipe uses scikit-learn's handwritten digits."""

    image_column: str = argument("image", "The column of images.")
    label_column: str = argument("label", "The column of labels.")
    max_train_samples: int | None = argument(
        None, "Train on this many images, drawn by class after the validation split."
    )
    augmentation: str = argument(
        "none", "'crop' (pad by 4 pixels, and flip), 'resized_crop' (any size, and flip) or 'none'."
    )
    max_decoded_gib: float = argument(8.0, "Decode images that take more memory than this on the fly.")

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "max_train_samples")
        check.at_least(0, self, "max_decoded_gib")


ARGUMENTS = (
    ImageDataArguments,
    ImageModelArguments,
    OptimizerArguments,
    SampleClassifierArguments,
    FocalTrainingArguments,
)


def load_data(data_args: ImageDataArguments, seed: int) -> tuple[DatasetDict, list[str]]:
    """Load "train", "validation", and "test" with the columns "image" and "labels", and the names of the classes."""
    if data_args.names_data():
        columns = {"image_column": data_args.image_column, "label_column": data_args.label_column}
        splits, names = load_splits("image-classification", **data_args.location(), **columns, seed=seed)
    else:
        splits = load_digits(seed).rename_column("label", "labels")
        names = splits["train"].features["labels"].names
    count = data_args.max_train_samples
    if count is not None and count < len(splits["train"]):
        if count < len(names):
            raise ValueError(f"max_train_samples must be at least {len(names)}, the number of classes, got {count}")
        cut = splits["train"].train_test_split(train_size=count, stratify_by_column="labels", seed=seed)
        splits["train"] = cut["train"]
    return data_args.cut_training_data(splits, seed), names


def decode(
    data_args: ImageDataArguments, splits: DatasetDict, pixels: PixelFormat, seed: int
) -> dict[str, ImageDataset]:
    """Turn the splits into datasets of uint8 pixels, with augmented training images."""
    gib = sum(map(len, splits.values())) * 3 * pixels.stored_size**2 / 2**30
    in_memory = gib <= data_args.max_decoded_gib
    logging.info("decoding images (%.2f GiB) %s", gib, "now" if in_memory else "on the fly")
    augmentation = {"train": data_args.augmentation}
    return {
        name: ImageDataset(split, pixels, augmentation=augmentation.get(name, "none"), in_memory=in_memory, seed=seed)
        for name, split in splits.items()
    }


def main(argv: list[str]) -> list[RunResult]:
    (data_args, model_args, optimizer_args, recipe_args), runs = parse_experiment(ARGUMENTS, argv, __doc__)
    args = runs[0]
    for run in runs:
        run.remove_unused_columns = False  # batches come whole from `ImageDataset`
    with args.main_process_first(desc="loading the data"):
        splits, class_names = load_data(data_args, args.seed)
    pixels = model_args.pixel_format()
    images = decode(data_args, splits, pixels, args.seed)

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        model = model_args.new_model(label_options(class_names))
        trainer = ImageClassifierTrainer(
            model=model.to(memory_format=torch.channels_last),
            args=args,
            train_dataset=images["train"],
            eval_dataset=images["validation"],
            calibration_dataset=images["validation"],
            pixels=pixels,
            optimizer_arguments=optimizer_args,
        )
        return run_classifier(trainer, checkpoint, recipe_args, images["test"], splits, write_image_report)

    return train_each_loss(
        train_one,
        runs,
        recipe_args,
        settings=(replace(data_args, max_decoded_gib=0), model_args, optimizer_args),
        summary=image_tables,
        compare=partial(write_image_comparison, images=images["test"], class_names=class_names, seed=args.seed),
    )


def image_tables(results: Sequence[RunResult]) -> str:
    legend = f"{RESULTS_LEGEND}\nS99: the images with a confidence of at least 99%."
    return f"{results_table(results)}\n{confidence_table(results)}\n{legend}"


if __name__ == "__main__":
    main(sys.argv[1:])
