"""Train or fine-tune an image classifier, correct its temperature, and measure its calibration.

Train with one loss:

    python recipes/papers/image_classification.py --config recipes/papers/configs/cifar10/paper.yaml \
        --train_file train.parquet --test_file test.parquet --loss flsd53 --output_dir out/flsd53

Compare several losses in one table and one figure. Without data arguments, the data is scikit-learn's digits:

    python recipes/papers/image_classification.py --config recipes/papers/configs/digits.yaml \
        --compare cross_entropy,focal:gamma=3,flsd53 --output_dir out/digits

On several GPUs: `accelerate launch --num_processes 4 recipes/papers/image_classification.py ...`.
Running the same command again resumes an interrupted run and reuses a finished one.
"""

import logging
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from datasets import DatasetDict
from transformers import AutoModelForImageClassification, PreTrainedModel, set_seed

from hf_focal import FocalTrainingArguments
from hf_focal.tasks.dataset_loading import load_digits
from papers.data.image_batches import ImageDataset
from papers.data.labeled_splits import label_names, load_labeled
from papers.data.pretrained_models import label_options
from papers.runs import image_results
from papers.runs import recipe_checks as check
from papers.runs.classifier_results import run_classifier
from papers.runs.image_models import ImageModelArguments, new_image_model
from papers.runs.image_training import ImageClassifierTrainer, OptimizerArguments
from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import DatasetArguments, LongTailArguments, SampleClassifierArguments, parse_recipe
from papers.runs.recipe_command import run_recipe


@dataclass
class DataArguments(LongTailArguments, DatasetArguments):
    """The data. Without `dataset_name` or files, the recipe uses scikit-learn's handwritten digits."""

    dataset_name: str | None = field(
        default=None,
        metadata={"help": "A dataset on the Hub, or a folder of images: train/cat/1.png, test/dog/2.png."},
    )
    train_file: str | None = field(default=None, metadata={"help": "A parquet file; or csv or json with paths."})
    test_split: str = field(
        default="test", metadata={"help": "The test split of dataset_name: 'valid', say, if 'test' has no labels."}
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    label_column: str = field(default="label", metadata={"help": "The column of labels; see multi_label."})
    multi_label: bool = field(default=False, metadata={"help": "Several labels per image, as lists or columns."})
    max_train_samples: int | None = field(
        default=None,
        metadata={"help": "Train on this many images, drawn after the validation split; of one label, by class."},
    )
    augmentation: str = field(
        default="none",
        metadata={"help": "'crop' (pad by 4 pixels, and flip), 'resized_crop' (any size, and flip) or 'none'."},
    )
    max_decoded_gib: float = field(
        default=8.0, metadata={"help": "Decode images that take more memory than this on the fly."}
    )

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "max_train_samples")
        check.at_least(0, self, "max_decoded_gib")
        if self.multi_label and not self.given():
            raise ValueError("multi_label must come with dataset_name or files, got neither: a digit has one label")


ARGUMENTS = (DataArguments, ImageModelArguments, OptimizerArguments, SampleClassifierArguments, FocalTrainingArguments)


def load_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """Load the splits "train", "validation", and "test", with the columns "image" and "label"."""
    if data_args.given():
        splits = load_labeled(
            "image-classification",
            **data_args.source(seed),
            image_column=data_args.image_column,
            label_column=data_args.label_column,
            multi_label=data_args.multi_label,
            test_split=data_args.test_split,
        )
    else:
        splits = load_digits(seed)
    count, num_classes = data_args.max_train_samples, len(label_names(splits))
    if count is not None and count < len(splits["train"]):
        if count < num_classes:
            raise ValueError(f"max_train_samples must be at least {num_classes}, the number of classes, got {count}")
        stratify = None if data_args.multi_label else "label"
        cut = splits["train"].train_test_split(train_size=count, stratify_by_column=stratify, seed=seed)
        splits["train"] = cut["train"]
    return data_args.cut_training_data(splits, seed)


def decode(data_args: DataArguments, splits: DatasetDict, pixels, seed: int) -> dict[str, ImageDataset]:
    """Turn the splits into datasets of uint8 pixels in the `PixelFormat` `pixels`, with augmented training images."""
    gib = sum(map(len, splits.values())) * 3 * pixels.stored_size**2 / 2**30
    in_memory = gib <= data_args.max_decoded_gib
    logging.info("decoding images (%.2f GiB) %s", gib, "now" if in_memory else "on the fly")
    augmentation = {"train": data_args.augmentation}
    return {
        name: ImageDataset(split, pixels, augmentation=augmentation.get(name, "none"), in_memory=in_memory, seed=seed)
        for name, split in splits.items()
    }


def build_model(model_args: ImageModelArguments, class_names: list[str], multi_label: bool = False) -> PreTrainedModel:
    name, labels = model_args.model_name_or_path, label_options(class_names, multi_label)
    if model_args.from_scratch():
        return new_image_model(name, labels, model_args.image_size)
    return AutoModelForImageClassification.from_pretrained(name, ignore_mismatched_sizes=True, **labels)


def main(argv: list[str]) -> list:
    data_args, model_args, optimizer_args, recipe_args, args = parse_recipe(ARGUMENTS, argv, __doc__)
    args.remove_unused_columns = False  # batches come whole from `ImageDataset`
    if data_args.multi_label:
        recipe_args.check_multi_label()

    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        class_names = label_names(splits)
        pixels = model_args.pixel_format()
    images = decode(data_args, splits, pixels, args.seed)

    def train_one(args: FocalTrainingArguments, checkpoint: str | None):
        set_seed(args.seed)
        trainer = ImageClassifierTrainer(
            model=build_model(model_args, class_names, data_args.multi_label).to(memory_format=torch.channels_last),
            args=args,
            train_dataset=images["train"],
            eval_dataset=images["validation"],
            calibration_dataset=images["validation"],
            pixels=pixels,
            optimizer_arguments=optimizer_args,
        )
        write_report = partial(
            image_results.write_image_report, images=images["test"], class_names=class_names, seed=args.seed
        )
        names = data_args.card_names("scikit-learn's digits")
        return run_classifier(
            trainer,
            checkpoint,
            recipe_args,
            images["test"],
            splits,
            names,
            keep_logits=not data_args.multi_label,
            write_report=write_report,
        )

    return train_each_loss(
        train_one,
        args,
        recipe_args,
        settings=(replace(data_args, max_decoded_gib=0), model_args, optimizer_args),
        num_classes=len(class_names),
        calibration_size=len(splits["validation"]),
        summary=image_results.image_tables,
        next_steps=[
            "test it on out-of-distribution images: recipes/papers/ood.py --models {quoted}",
            None
            if data_args.given()
            else "use your own images: --config recipes/papers/configs/own_images.yaml "
            "--dataset_name <a folder with train/cat/1.png, test/dog/2.png> --output_dir <another>",
        ],
        compare=partial(
            image_results.write_image_comparison, images=images["test"], class_names=class_names, seed=args.seed
        ),
    )


if __name__ == "__main__":
    run_recipe(main)
