"""Fine-tune an image classifier, correct its probabilities, and measure their calibration.

    python image_classification.py --config own_images.yaml --model_name_or_path org/model \\
        --dataset_name folder/of/images --losses cross_entropy,flsd53 --output_dir out/images
    hf-focal report out/images

A folder of images looks like train/cat/1.png, test/dog/2.png; files (parquet, csv, jsonl) hold images or their paths.
Without --losses, the recipe trains once, with --loss. Several labels for each image: --label_column names a column of
lists, or one column of 0 and 1 for each label. With --resume_from_checkpoint true, each run goes on from its last
checkpoint. On several GPUs: accelerate launch.
"""

from dataclasses import dataclass, field

import torch
from datasets import Image, List
from transformers import AutoImageProcessor, AutoModelForImageClassification, set_seed

from hf_focal import FocalTrainer, FocalTrainingArguments, load_splits, parse_recipe
from hf_focal.tasks import DataArguments


@dataclass(kw_only=True)
class RecipeArguments(DataArguments):
    model_name_or_path: str = field(metadata={"help": "a Hub id (also of timm) or a folder"})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    flip: bool = field(default=True, metadata={"help": "mirror half of the training images"})
    crop: float = field(default=0.1, metadata={"help": "shift training images by up to this share of their side"})
    image_column: str = field(default="image", metadata={"help": "the column of images"})
    label_column: str = field(default="label", metadata={"help": "the column, or columns, of labels"})
    label_format: str | None = field(default=None, metadata={"help": "what lists of integers are: multi_hot or ids"})
    method: str | None = field(
        default=None,
        metadata={"help": "none, temperature, bias, vector, matrix, platt, auto [auto; temperature below 10 samples]"},
    )


def augment(pixels: torch.Tensor, flip: bool, crop: float) -> torch.Tensor:
    """Mirror an image (C, H, W) half of the time, and shift it by up to `crop` of its sides, filling with zeros."""
    if flip and torch.rand(()) < 0.5:
        pixels = pixels.flip(-1)
    height, width = pixels.shape[-2:]
    y, x = int(crop * height), int(crop * width)
    top, left = int(torch.randint(2 * y + 1, ())), int(torch.randint(2 * x + 1, ()))
    return torch.nn.functional.pad(pixels, (x, x, y, y))[:, top : top + height, left : left + width]


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalTrainingArguments, __doc__)
    name = recipe.model_name_or_path
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}

    with runs[0].main_process_first(desc="loading the data"):
        splits, labels = load_splits(
            "image-classification",
            **recipe.location(),
            image_column=recipe.image_column,
            label_column=recipe.label_column,
            label_format=recipe.label_format,
            seed=runs[0].seed,
        )
    several = isinstance(splits["train"].features["labels"], List)
    head = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    head["problem_type"] = "multi_label_classification" if several else "single_label_classification"
    processor = AutoImageProcessor.from_pretrained(name, **source)

    def transform(rows: dict, training: bool = False) -> dict:
        images = [image.convert("RGB") for image in rows["image"]]
        pixels = processor(images, return_tensors="pt")["pixel_values"]
        if training:
            pixels = [augment(image, recipe.flip, recipe.crop) for image in pixels]
        return {"pixel_values": list(pixels), "labels": rows["labels"]}

    splits = splits.cast_column("image", Image())  # decoded when read
    train = splits["train"].with_transform(lambda rows: transform(rows, training=True))
    validation, test = (splits[part].with_transform(transform) for part in ("validation", "test"))

    for args in runs:
        args.remove_unused_columns = False  # the transforms need them
        set_seed(args.seed)
        # In full precision, whatever the weights were saved in. A model without a head, or with a head of other
        # classes, gets a new one: Transformers lists the new weights.
        model = AutoModelForImageClassification.from_pretrained(
            name, dtype=torch.float32, ignore_mismatched_sizes=True, **head, **source
        )
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            calibration_dataset=validation,
            processing_class=processor,
        )
        trainer.accelerator.print(f"\n{args.loss}: training on {len(train):,} images; processes: {args.world_size}")
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_state()

        # Fits a correction to the validation data, writes report.html, and saves or publishes the model with its card.
        trainer.finish(test, method=recipe.method, dataset=recipe.data_name)


if __name__ == "__main__":
    main()
