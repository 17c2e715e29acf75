"""Train or fine-tune a semantic segmentation model, correct its temperature, and measure its pixel predictions.

Train with one loss:

    python recipes/papers/semantic_segmentation.py --config recipes/papers/configs/cityscapes/segformer_b0.yaml \
        --train_file train.parquet --test_file test.parquet --loss focal:gamma=2 --output_dir out/focal

Compare several losses in one table and one figure. Without data arguments, the data is generated shapes:

    python recipes/papers/semantic_segmentation.py --config recipes/papers/configs/segmentation_demo.yaml \
        --compare cross_entropy,focal:gamma=2 --output_dir out/shapes

On several GPUs: `accelerate launch --num_processes 4 recipes/papers/semantic_segmentation.py ...`.
Running the same command again resumes an interrupted run and reuses a finished one.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasets import DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForSemanticSegmentation,
    PreTrainedConfig,
    PreTrainedModel,
    SegformerConfig,
    SegformerImageProcessorPil,
    default_data_collator,
    set_seed,
)

from hf_focal import FocalTrainingArguments, load_splits
from hf_focal.reports import RunResult
from papers.data.generated_shapes import SHAPE_NAMES, generate_shapes
from papers.data.pretrained_models import label_options
from papers.data.segmentation_masks import ImageFormat, MaskDataset, count_classes
from papers.models import DeepLabV3Config
from papers.runs import recipe_checks as check
from papers.runs.classifier_results import class_tables, run_dense_classifier, write_class_comparison
from papers.runs.image_training import ImageTrainer
from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import ClassifierArguments, GeneratedDatasetArguments, parse_recipe
from papers.runs.recipe_command import run_recipe

# Differences from the defaults of `SegformerConfig`, which are those of B0.
_TINY = {
    "num_encoder_blocks": 3,
    "depths": [1, 1, 1],
    "sr_ratios": [4, 2, 1],
    "hidden_sizes": [16, 32, 64],
    "patch_sizes": [3, 3, 3],
    "strides": [2, 2, 2],
    "num_attention_heads": [1, 2, 4],
    "mlp_ratios": [2, 2, 2],
    "decoder_hidden_size": 64,
}
FROM_SCRATCH: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "segformer_tiny": (SegformerConfig, _TINY),
    "segformer_b0": (SegformerConfig, {}),
    "deeplabv3_resnet18": (DeepLabV3Config, {"backbone": "resnet18"}),
    "deeplabv3_resnet101": (DeepLabV3Config, {"backbone": "resnet101"}),
}


@dataclass
class DataArguments(GeneratedDatasetArguments):
    """The data. Without `dataset_name` or files, the recipe generates pictures of shapes, some of which are rare."""

    train_file: str | None = field(default=None, metadata={"help": "A parquet file; or csv or json with paths."})
    test_split: str = field(
        default="test", metadata={"help": "The test split of dataset_name: 'validation' if 'test' has no labels."}
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    mask_column: str = field(
        default="mask", metadata={"help": "The column of images of class numbers; pixels of 255 are ignored."}
    )
    class_names: str | None = field(
        default=None, metadata={"help": "The names of classes 0, 1, ...: 'road,sidewalk,building'."}
    )
    num_generated: int = field(default=1000, metadata={"help": "Number of training pictures to generate."})

    def __post_init__(self):
        super().__post_init__()
        if self.class_names is not None and len(set(self.names())) < max(2, len(self.names())):
            raise ValueError(f"class_names must be at least two, all different, got {self.class_names!r}")
        if self.class_names is None and self.given():
            raise ValueError("class_names must be given for a dataset, got None: masks hold numbers only")

    def names(self) -> list[str]:
        if self.class_names is None:
            return list(SHAPE_NAMES)
        return [name.strip() for name in self.class_names.split(",")]


@dataclass
class ModelArguments:
    """The model (any segmentation model to fine-tune, or a SegFormer to train from scratch) and its input size."""

    _argument_group_name = "model"
    model_name_or_path: str = field(
        default="segformer_tiny",
        metadata={"help": f"A Hub id or folder; or {' or '.join(FROM_SCRATCH)}, trained from scratch."},
    )
    image_size: list[int] | None = field(
        default=None,
        metadata={
            "help": "Height and width to resize images and masks to. Default: those of a pretrained model's image "
            "processor, or no resizing."
        },
    )
    crop_size: list[int] | None = field(
        default=None, metadata={"help": "Height and width of the random crops of training images."}
    )
    flip: bool = field(default=True, metadata={"help": "Flip half of the training images horizontally."})

    def __post_init__(self):
        check.model_name(self.model_name_or_path, tuple(FROM_SCRATCH))
        if self.model_name_or_path in FROM_SCRATCH and FROM_SCRATCH[self.model_name_or_path][0] is DeepLabV3Config:
            try:
                import timm  # noqa: F401
            except Exception as error:  # not installed, or its torchvision does not match torch
                raise ValueError(
                    f"model_name_or_path must be a model without a backbone of timm, got {self.model_name_or_path!r}: "
                    f"timm cannot be imported: {error}"
                ) from error
        for name in ("image_size", "crop_size"):
            sides = getattr(self, name)
            if sides is not None and (len(sides) != 2 or min(sides) < 1):
                raise ValueError(f"{name} must be a height and a width of at least 1, got {sides}")


ARGUMENTS = (DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments)


def load_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """Load the splits "train", "validation", and "test", with the columns "image" and "mask"."""
    if data_args.given():
        columns = {"image_column": data_args.image_column, "mask_column": data_args.mask_column}
        source = data_args.source(seed) | {"test_split": data_args.test_split}
        return load_splits("semantic-segmentation", **source, **columns)[0]
    return data_args.generate(generate_shapes, seed)


def check_counts(counts: dict[str, np.ndarray], class_names: list[str]) -> None:
    """Raise `ValueError` if a split has a class that the training data lacks; log each class's share of the pixels."""
    for name, of_split in counts.items():
        unknown = [class_names[k] for k in np.flatnonzero((of_split > 0) & (counts["train"] == 0))]
        if unknown:
            raise ValueError(f"mask_column must hold classes that train has, got {', '.join(unknown)} in {name}")
    shares = counts["train"] / counts["train"].sum()
    for name, share in zip(class_names, shares, strict=True):
        logging.info("%7.3f %% of the training pixels are %s", 100 * share, name)


def image_format(model_args: ModelArguments) -> ImageFormat:
    """Return the model's input format. The size is `image_size` or, without it, the size of the pretrained model."""
    size = None if model_args.image_size is None else tuple(model_args.image_size)
    if model_args.model_name_or_path in FROM_SCRATCH:
        return ImageFormat(size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return ImageFormat.of_pretrained(model_args.model_name_or_path, size)


def build_model(model_args: ModelArguments, class_names: list[str]) -> PreTrainedModel:
    name, labels = model_args.model_name_or_path, label_options(class_names)
    if name in FROM_SCRATCH:
        config_class, sizes = FROM_SCRATCH[name]
        return AutoModelForSemanticSegmentation.from_config(config_class(**sizes, **labels))
    config = AutoConfig.from_pretrained(name, **labels)
    if hasattr(config, "use_auxiliary_head"):  # its logits would not be trained
        config.use_auxiliary_head = False
    return AutoModelForSemanticSegmentation.from_pretrained(name, config=config, ignore_mismatched_sizes=True)


def build_image_processor(pixels: ImageFormat) -> SegformerImageProcessorPil:
    """Build the image processor to save with the model."""
    size = {} if pixels.size is None else {"size": dict(zip(("height", "width"), pixels.size, strict=True))}
    return SegformerImageProcessorPil(
        do_resize=pixels.size is not None, image_mean=list(pixels.mean), image_std=list(pixels.std), **size
    )


def main(argv: list[str]) -> list[RunResult]:
    data_args, model_args, recipe_args, args = parse_recipe(ARGUMENTS, argv, __doc__)

    class_names, pixels = data_args.names(), image_format(model_args)
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        counts = {name: count_classes(split, len(class_names), name, pixels.size) for name, split in splits.items()}
        check_counts(counts, class_names)
    images = {name: MaskDataset(splits[name], pixels) for name in ("validation", "test")}
    augmentation = {"crop_size": model_args.crop_size, "flip": model_args.flip, "seed": args.seed}
    images["train"] = MaskDataset(splits["train"], pixels, **augmentation)
    images["train"][0]  # raises if crop_size is too large

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        trainer = ImageTrainer(
            model=build_model(model_args, class_names),
            args=args,
            train_dataset=images["train"],
            eval_dataset=images["validation"],
            calibration_dataset=images["validation"],
            data_collator=default_data_collator,
            processing_class=build_image_processor(pixels),
        )
        card_names = data_args.card_names("generated shapes")
        return run_dense_classifier(
            trainer, checkpoint, recipe_args, images["test"], class_names, counts["train"], card_names
        )

    return train_each_loss(
        train_one,
        args,
        recipe_args,
        settings=(data_args, model_args),
        num_classes=len(class_names),
        calibration_size=int(counts["validation"].sum()),
        unit="pixels",
        summary=summary,
        next_steps=[
            "load a model with its temperature: AutoModelForSemanticSegmentation.from_pretrained({folder!r})",
            None
            if data_args.given()
            else "use your own: --train_file train.parquet --test_file test.parquet "
            "--class_names road,sidewalk,sky --output_dir <another>",
        ],
        compare=write_class_comparison,
    )


def summary(results: list[RunResult]) -> str:
    return "\n".join(
        [class_tables(results), "Before → after temperature scaling, for each pixel of the test set; bold is best."]
    )


if __name__ == "__main__":
    run_recipe(main)
