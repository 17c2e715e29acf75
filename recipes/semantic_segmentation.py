"""Train, measure and correct a model for semantic segmentation, which classifies each pixel.

One loss:

    python recipes/semantic_segmentation.py --config recipes/configs/cityscapes/segformer_b0.yaml \
        --train_file train.parquet --test_file test.parquet --loss focal:gamma=2 --output_dir out/focal

Several, side by side in one table and one figure:

    python recipes/semantic_segmentation.py --config recipes/configs/segmentation_demo.yaml \
        --compare cross_entropy,focal:gamma=2 --output_dir out/shapes

Several GPUs: `accelerate launch --num_processes 4 recipes/semantic_segmentation.py ...`. The same command again
resumes what was interrupted and reuses what was finished.
"""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from datasets import DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForSemanticSegmentation,
    SegformerConfig,
    SegformerImageProcessorPil,
    default_data_collator,
    set_seed,
)

from hf_focal import FocalTrainingArguments
from hf_focal.data.pretrained_models import label_options
from hf_focal.experiments.data.generated_shapes import SHAPE_NAMES, generate_shapes
from hf_focal.experiments.data.segmentation_masks import (
    ImageFormat,
    MaskDataset,
    check_crop,
    count_classes,
    load_mask_splits,
)
from hf_focal.experiments.reports.class_tables import class_table, per_class_table
from hf_focal.experiments.reports.experiment_report import write_experiment_report
from hf_focal.experiments.runs.classifier_results import measure_dense, show_classes, watch_classes
from hf_focal.experiments.runs.image_training import BatchStatisticsTrainer, NextEpoch
from hf_focal.experiments.runs.loss_comparison import claim_folders, runs_of, train_classifiers
from hf_focal.experiments.runs.output_folders import contents, files_of, last_complete_checkpoint, run_settings
from hf_focal.experiments.runs.recipe_arguments import ClassifierArguments, DatasetArguments
from hf_focal.experiments.runs.recipe_checks import (
    check_at_least,
    check_calibration_size,
    check_class_weights,
    check_model_name,
    check_test_file,
)
from hf_focal.experiments.runs.recipe_command import print_written, run_recipe
from hf_focal.experiments.runs.run_publishing import datasets_of, publish_runs
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import RunResult, results_table

# Trained from scratch: what differs from the defaults of `SegformerConfig`, which are those of B0.
FROM_SCRATCH = {
    "segformer_tiny": {
        "num_encoder_blocks": 3,
        "depths": [1, 1, 1],
        "sr_ratios": [4, 2, 1],
        "hidden_sizes": [16, 32, 64],
        "patch_sizes": [3, 3, 3],
        "strides": [2, 2, 2],
        "num_attention_heads": [1, 2, 4],
        "mlp_ratios": [2, 2, 2],
        "decoder_hidden_size": 64,
    },
    "segformer_b0": {},
}


@dataclass
class DataArguments(DatasetArguments):
    """The data. Without `dataset_name` and files: generated pictures of shapes, of which some are rare."""

    train_file: str | None = field(default=None, metadata={"help": "parquet, or csv or json of paths."})
    test_split: str = field(
        default="test", metadata={"help": "Of dataset_name: 'validation', say, where the labels of 'test' are secret."}
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    mask_column: str = field(
        default="mask",
        metadata={"help": "The column of images of class numbers, 255 where a pixel does not count."},
    )
    class_names: list[str] | str | None = field(
        default=None, metadata={"help": "The classes' names by their numbers: 'road,sidewalk,building'."}
    )
    num_generated: int = field(default=1000, metadata={"help": "Training pictures that are generated."})

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "num_generated")
        if isinstance(self.class_names, list):  # in a config file
            self.class_names = ",".join(self.class_names)
        if self.class_names is not None and len(set(self.names())) < max(2, len(self.names())):
            raise ValueError(f"class_names must be at least two, all different, got {self.class_names!r}")
        if self.class_names is None and self.given():
            raise ValueError("class_names must be given for a dataset, got None: masks have numbers alone")

    def names(self) -> list[str]:
        return (
            list(SHAPE_NAMES) if self.class_names is None else [name.strip() for name in self.class_names.split(",")]
        )


@dataclass
class ModelArguments:
    """The model: a SegFormer trained from scratch, or any with logits of pixels to fine-tune; and what it sees."""

    model_name_or_path: str = field(
        default="segformer_tiny",
        metadata={"help": f"{', '.join(FROM_SCRATCH)}, or a model for semantic segmentation (Hub id or folder)."},
    )
    image_size: list[int] | None = field(
        default=None,
        metadata={
            "help": "Height and width that images and masks are resized to; if absent what a pretrained model's image "
            "processor says, or as they are."
        },
    )
    crop_size: list[int] | None = field(
        default=None, metadata={"help": "Height and width of a part of each training image, cut out at random."}
    )
    flip: bool = field(default=True, metadata={"help": "Mirror half of the training images, left to right."})

    def __post_init__(self):
        check_model_name(self.model_name_or_path, tuple(FROM_SCRATCH))
        for name in ("image_size", "crop_size"):
            sides = getattr(self, name)
            if sides is not None and (len(sides) != 2 or min(sides) < 1):
                raise ValueError(f"{name} must be a height and a width of at least 1, got {sides}")


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    recipe: ClassifierArguments
    args: FocalTrainingArguments
    runs: list[FocalTrainingArguments]
    labels: list[str]
    pixels: ImageFormat
    images: dict[str, MaskDataset]
    class_counts: np.ndarray


def main(argv: list[str]) -> list[RunResult]:
    return train(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    runs = runs_of(recipe, args, parse, argv)
    labels, pixels = data.names(), image_format(model)
    check_class_weights(runs, len(labels))
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        counts = {name: count_classes(split, len(labels), name, pixels.size) for name, split in splits.items()}
        check_counts(counts, labels)
        for run_args in runs:
            check_calibration_size(run_args, int(counts["validation"].sum()), "pixels")
        images = {name: MaskDataset(split, pixels) for name, split in splits.items() if name != "train"}
        if model.crop_size is not None:
            check_crop(model.crop_size, pixels.size or tuple(images["test"][0]["labels"].shape))
        claim_folders(args, runs, lambda run_args: result_settings(data, model, run_args))
    cut = {"crop_size": model.crop_size, "flip": model.flip, "seed": args.seed}
    images["train"] = MaskDataset(splits["train"], pixels, **cut)
    return Experiment(data, model, recipe, args, runs, labels, pixels, images, counts["train"])


def parse(argv: list[str]) -> tuple[DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments]:
    return parse_arguments(
        (DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments),
        argv,
        description="Train, measure and correct a model for semantic segmentation.",
    )


def result_settings(data: DataArguments, model: ModelArguments, args: FocalTrainingArguments) -> dict:
    """What determines a run's result, up to the temperature: that is fitted again where its objective is another."""
    return run_settings(args, asdict(data), contents(files_of(data)), asdict(model))


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    if not data.given():
        held_out = data.validation_size or max(1, data.num_generated // 10)
        sizes = {"train": data.num_generated, "validation": held_out, "test": data.num_generated}
        return DatasetDict({name: generate_shapes(n, seed=seed + i) for i, (name, n) in enumerate(sizes.items())})
    check_test_file(data)
    return load_mask_splits(
        data.dataset_name,
        data.dataset_config_name,
        **files_of(data),
        image_column=data.image_column,
        mask_column=data.mask_column,
        test_split=data.test_split,
        validation_size=data.validation_size,
        seed=seed,
    )


def check_counts(counts: dict[str, np.ndarray], labels: list[str]) -> None:
    """Raise where a class is measured that nothing was trained of; log how frequent the classes are."""
    for name, of_split in counts.items():
        unknown = [labels[k] for k in np.flatnonzero((of_split > 0) & (counts["train"] == 0))]
        if unknown:
            raise ValueError(f"mask_column must hold classes that train has, got {', '.join(unknown)} in {name}")
    shares = counts["train"] / counts["train"].sum()
    for name, share in zip(labels, shares, strict=True):
        logging.info("%7.3f %% of the training pixels are %s", 100 * share, name)


def image_format(model: ModelArguments) -> ImageFormat:
    """What the model sees: of the size that the arguments say, else as it was made or pretrained for."""
    size = None if model.image_size is None else tuple(model.image_size)
    if model.model_name_or_path in FROM_SCRATCH:
        return ImageFormat(size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return ImageFormat.of_pretrained(model.model_name_or_path, size)


def build_model(experiment: Experiment):
    name, names = experiment.model.model_name_or_path, experiment.labels
    labels = label_options(names)
    if name in FROM_SCRATCH:
        return AutoModelForSemanticSegmentation.from_config(SegformerConfig(**FROM_SCRATCH[name], **labels))
    config = AutoConfig.from_pretrained(name, **labels)
    if hasattr(config, "use_auxiliary_head"):  # its logits would not be trained
        config.use_auxiliary_head = False
    return AutoModelForSemanticSegmentation.from_pretrained(name, config=config, ignore_mismatched_sizes=True)


def image_processor(pixels: ImageFormat) -> SegformerImageProcessorPil:
    """What makes the same pixel values of an image."""
    size = {} if pixels.size is None else {"size": dict(zip(("height", "width"), pixels.size, strict=True))}
    return SegformerImageProcessorPil(
        do_resize=pixels.size is not None, image_mean=list(pixels.mean), image_std=list(pixels.std), **size
    )


def train(experiment: Experiment) -> list[RunResult]:
    """Train what is not finished yet, and report all of it."""
    results, reports = train_classifiers(experiment, run)
    if experiment.args.process_index == 0:
        show_classes(reports, results)
        print_summary(reports, results)
    publish_runs(experiment.runs)
    return results


def run(args: FocalTrainingArguments, experiment: Experiment) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    set_seed(args.seed)
    images = experiment.images
    trainer = BatchStatisticsTrainer(
        model=build_model(experiment),
        args=args,
        train_dataset=images["train"],
        eval_dataset=images["validation"],
        calibration_dataset=images["validation"],
        data_collator=default_data_collator,
        processing_class=image_processor(experiment.pixels),
        callbacks=[NextEpoch()],  # whose images are cut and flipped anew
    )
    watch_classes(trainer, experiment.recipe)
    trained = trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(objective=experiment.recipe.temperature_objective)
    result = measure_dense(trainer, trained, temperature, images["test"], experiment.labels, experiment.class_counts)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, **datasets_of(experiment.data, default="generated shapes"))
    if args.process_index == 0:
        write_experiment_report(Path(args.output_dir) / "report", result)  # last: a run that has it is finished
    return result


def print_summary(reports: list[Path], results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print("Before → after temperature scaling, of each pixel of the test set; bold is best.")
    print(f"\n{class_table(results)}\nAccuracy of each class, %:\n\n{per_class_table(results)}")
    print_written(reports)
    print("\nNext:")
    print("  load a model, its temperature folded in:")
    print("    AutoModelForSemanticSegmentation.from_pretrained(<the run's folder>)")
    print("  your own images: --train_file train.parquet --test_file test.parquet --class_names road,sidewalk,sky")


if __name__ == "__main__":
    run_recipe(prepare, train)
