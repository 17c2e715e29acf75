"""Fine-tune a model that labels pixels, correct its probabilities, and measure their calibration.

    python semantic_segmentation.py --model_name_or_path org/model --class_names road,sidewalk,sky \\
        --train_file train.parquet --test_file test.parquet --losses cross_entropy,focal:gamma=2 \\
        --output_dir out/pixels
    hf-focal report out/pixels

A mask is an image of class numbers, with 255 for ignored pixels. Without --losses, the recipe trains once,
with --loss. With --resume_from_checkpoint true, each run goes on from its last checkpoint. On several GPUs: accelerate
launch.
"""

import random
from dataclasses import dataclass, field
from functools import partial

import torch
from datasets import DatasetDict, Image
from PIL import ImageOps
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForSemanticSegmentation,
    default_data_collator,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, InputError, load_splits, parse_recipe
from hf_focal.tasks import DataArguments


@dataclass(kw_only=True)
class RecipeArguments(DataArguments):
    model_name_or_path: str = field(metadata={"help": "a Hub id or a folder: SegFormer, UperNet, BEiT, DPT, ..."})
    class_names: str = field(metadata={"help": "the names of classes 0, 1, ...: road,sidewalk,sky"})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    flip: bool = field(default=True, metadata={"help": "mirror half of the training images"})
    smallest_crop: float = field(default=0.5, metadata={"help": "the smallest random crop, as a share of each side"})
    image_size: list[int] | None = field(
        default=None, metadata={"help": "height and width to resize images to; default: those of the model"}
    )
    image_column: str = field(default="image", metadata={"help": "the column of images"})
    mask_column: str = field(default="mask", metadata={"help": "the column of masks"})

    def __post_init__(self) -> None:
        if self.image_size is not None and (len(self.image_size) != 2 or min(self.image_size) < 1):
            raise InputError("image_size", f"must be a height and a width of at least 1, got {self.image_size}")


def check_masks(splits: DatasetDict, num_classes: int) -> None:
    """Refuse wrong masks before training, which one in the test set would waste."""
    for part, split in splits.items():
        for row, mask in enumerate(split["mask"]):
            values = {value for value, count in enumerate(mask.histogram()) if count} if mask.mode in "LP" else {-1}
            if wrong := values - {*range(num_classes), 255}:
                raise InputError(
                    "mask_column",
                    f"must hold images with one channel of 8 bits, of class numbers below {num_classes} or 255, "
                    f"got {mask.mode if -1 in wrong else min(wrong)!r} in row {row} of {part}",
                )


def augment(image, mask, flip: bool, smallest_crop: float):
    """Cut the same random window from an image and its mask, and mirror both half of the time."""
    width, height = (round(side * random.uniform(smallest_crop, 1)) for side in image.size)
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    both = [part.crop((left, top, left + width, top + height)) for part in (image, mask)]
    if flip and random.random() < 0.5:
        both = [ImageOps.mirror(part) for part in both]
    return both


def encode(rows: dict, processor, augmentation: dict | None = None) -> dict:
    """Return the inputs of the model, from images and masks as they are, or augmented with these options."""
    pairs = [(image.convert("RGB"), mask) for image, mask in zip(rows["image"], rows["mask"], strict=True)]
    if augmentation is not None:
        pairs = [augment(image, mask, **augmentation) for image, mask in pairs]
    images, masks = map(list, zip(*pairs, strict=True))
    return dict(processor(images, segmentation_maps=masks, return_tensors="pt"))


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalTrainingArguments, __doc__)
    name, classes = recipe.model_name_or_path, [label.strip() for label in recipe.class_names.split(",")]
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}

    with runs[0].main_process_first(desc="loading the data"):
        splits, _ = load_splits(
            "semantic-segmentation",
            **recipe.location(),
            image_column=recipe.image_column,
            mask_column=recipe.mask_column,
            seed=runs[0].seed,
        )
    splits = splits.cast_column("image", Image()).cast_column("mask", Image())  # decoded when read
    check_masks(splits, len(classes))

    config = AutoConfig.from_pretrained(
        name, id2label=dict(enumerate(classes)), label2id={label: i for i, label in enumerate(classes)}, **source
    )
    if hasattr(config, "use_auxiliary_head"):  # only the logits of the main head are trained
        config.use_auxiliary_head = False
    size = {}
    if recipe.image_size is not None:
        size = {"do_resize": True, "size": dict(zip(("height", "width"), recipe.image_size, strict=True))}
    processor = AutoImageProcessor.from_pretrained(name, do_reduce_labels=False, **size, **source)

    augmentation = {"flip": recipe.flip, "smallest_crop": recipe.smallest_crop}
    train = splits["train"].with_transform(partial(encode, processor=processor, augmentation=augmentation))
    validation, test = (
        splits[part].with_transform(partial(encode, processor=processor)) for part in ("validation", "test")
    )

    for args in runs:
        args.remove_unused_columns = False  # the transforms need them
        set_seed(args.seed)
        # In full precision, whatever the weights were saved in. A model without a head, or with a head of other
        # classes, gets a new one: Transformers lists the new weights.
        model = AutoModelForSemanticSegmentation.from_pretrained(
            name, config=config, dtype=torch.float32, ignore_mismatched_sizes=True, **source
        )
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            calibration_dataset=validation,
            processing_class=processor,
            data_collator=default_data_collator,
        )
        trainer.accelerator.print(f"\n{args.loss}: training on {len(train):,} images; processes: {args.world_size}")
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_state()

        # Fits T to the validation data, writes report.html, and saves or publishes the model with its card.
        trainer.finish(test, dataset=recipe.data_name)
        by_class = trainer.confusion.by_class()
        for label, iou, accuracy in zip(classes, by_class["iou"].tolist(), by_class["accuracy"].tolist(), strict=True):
            trainer.accelerator.print(f"{label}: IoU {100 * iou:.1f}%, accuracy {100 * accuracy:.1f}%")


if __name__ == "__main__":
    main()
