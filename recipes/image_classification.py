"""Train, measure and correct an image classifier.

One loss:

    python recipes/image_classification.py --config recipes/configs/cifar10/paper.yaml \
        --train_file train.parquet --test_file test.parquet --loss flsd53 --output_dir out/flsd53

Several, side by side in one table and one figure:

    python recipes/image_classification.py --config recipes/configs/digits.yaml \
        --compare cross_entropy,focal:gamma=3,flsd53 --output_dir out/digits

Several GPUs: `accelerate launch --num_processes 4 recipes/image_classification.py ...`. The same command again resumes
what was interrupted and reuses what was finished.
"""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from datasets import DatasetDict
from transformers import AutoModelForImageClassification, TimmWrapperConfig, set_seed

from hf_focal import FocalTrainingArguments
from hf_focal.cli.digits_dataset import load_digits
from hf_focal.experiments.data.dataset_splits import label_names
from hf_focal.experiments.data.image_batches import (
    AUGMENTATIONS,
    ImageDataset,
    collate,
    load_image_splits,
    prepare_batch,
)
from hf_focal.experiments.data.long_tails import check_imbalance, long_tailed
from hf_focal.experiments.data.pixel_format import PixelFormat
from hf_focal.experiments.data.pretrained_models import label_options
from hf_focal.experiments.models import CIFAR_NETWORKS, cifar_config
from hf_focal.experiments.reports.experiment_report import write_experiment_report
from hf_focal.experiments.reports.prediction_examples import (
    Predictions,
    choose_examples,
    confidence_table,
    examples_figure,
)
from hf_focal.experiments.runs.classifier_results import measure_classifier, watch_samples
from hf_focal.experiments.runs.image_processors import image_processor, timm_settings
from hf_focal.experiments.runs.image_training import BatchStatisticsTrainer, NextEpoch
from hf_focal.experiments.runs.loss_comparison import claim_folders, runs_of, train_classifiers
from hf_focal.experiments.runs.output_folders import contents, files_of, last_complete_checkpoint, run_settings
from hf_focal.experiments.runs.recipe_arguments import DatasetArguments, SampleClassifierArguments
from hf_focal.experiments.runs.recipe_checks import (
    check_at_least,
    check_calibration_size,
    check_choice,
    check_class_weights,
    check_model_name,
    check_test_file,
)
from hf_focal.experiments.runs.recipe_command import print_written, run_recipe
from hf_focal.experiments.runs.run_publishing import datasets_of, publish_runs
from hf_focal.experiments.runs.sgd_milestones import MilestonesTrainer, OptimizerArguments
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import RunResult, results_table

CIFAR_NAMES = tuple(f"cifar_{name}" for name in CIFAR_NETWORKS)


@dataclass
class DataArguments(DatasetArguments):
    """The data. Without `dataset_name` and files: scikit-learn's handwritten digits."""

    dataset_name: str | None = field(
        default=None,
        metadata={"help": "A dataset on the Hub, or a folder of images: train/cat/1.png, test/dog/2.png."},
    )
    train_file: str | None = field(default=None, metadata={"help": "parquet, or csv or json of paths."})
    test_split: str = field(
        default="test", metadata={"help": "Of dataset_name: 'valid', say, where the labels of 'test' are secret."}
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    label_column: str = field(default="label", metadata={"help": "The column of labels."})
    max_train_samples: int | None = field(
        default=None, metadata={"help": "Train on so many images, drawn after validation was cut, equally by class."}
    )
    imbalance: float | None = field(
        default=None,
        metadata={
            "help": "Make the training data long-tailed: class sizes fall exponentially to this share (0.01) of the "
            "largest, in the order of the labels. Validation, cut off before, and test stay as they are."
        },
    )
    augmentation: str = field(
        default="none",
        metadata={"help": "'crop' (4 pixels around, and flips), 'resized_crop' (of any size, and flips) or 'none'."},
    )
    max_decoded_gib: float = field(
        default=8.0,
        metadata={"help": "Decode images as they are needed, in workers, where all would take more memory."},
    )

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "max_train_samples")
        check_at_least(0, self, "max_decoded_gib")
        if self.imbalance is not None:
            check_imbalance(self.imbalance)
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)


@dataclass
class ModelArguments:
    """The model, and what it sees. One that is trained from scratch takes the four sizes below; a pretrained one has
    its own."""

    model_name_or_path: str = field(
        default="cifar_resnet20",
        metadata={
            "help": f"{', '.join(CIFAR_NAMES)} or a timm architecture ('resnet18'), from scratch; or a model for "
            "image classification to fine-tune (Hub id, 'timm/resnet18.a1_in1k' say, or folder)."
        },
    )
    image_size: int | None = field(default=None, metadata={"help": "Pixels a side; 32, or what timm says, if absent."})
    crop_pct: float | None = field(
        default=None,
        metadata={"help": "That side as a share of the resized image's; 1, or what timm says, if absent."},
    )
    image_mean: list[float] | None = field(default=None, metadata={"help": "Of the channels, from 0 to 1."})
    image_std: list[float] | None = field(default=None, metadata={"help": "Their standard deviations."})

    def __post_init__(self):
        check_at_least(1, self, "image_size")
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")
        for name in ("image_mean", "image_std"):
            values = getattr(self, name)
            if values is not None and (len(values) != 3 or min(values) < 0 or (name == "image_std" and 0 in values)):
                raise ValueError(f"{name} must be 3 numbers, for red, green and blue, got {values}")
        if is_timm_architecture(self.model_name_or_path):
            return
        check_model_name(self.model_name_or_path, CIFAR_NAMES)
        given = [name for name in ("image_size", "crop_pct", "image_mean", "image_std") if getattr(self, name)]
        if given and self.model_name_or_path not in CIFAR_NAMES:
            raise ValueError(
                f"{given[0]} must not be given for a pretrained model, which has its own, got "
                f"{getattr(self, given[0])} and {self.model_name_or_path!r}"
            )


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    optimizer: OptimizerArguments
    recipe: SampleClassifierArguments
    args: FocalTrainingArguments
    runs: list[FocalTrainingArguments]
    labels: list[str]
    pixels: PixelFormat
    images: dict[str, ImageDataset]


def main(argv: list[str]) -> list[RunResult]:
    return train(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, optimizer, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    runs = runs_of(recipe, args, parse, argv)
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        check_class_weights(runs, len(label_names(splits)))
        for run_args in runs:
            check_calibration_size(run_args, len(splits["validation"]))
        pixels = pixel_format(model)
        claim_folders(args, runs, lambda run_args: result_settings(data, model, optimizer, run_args))
    images = decode(data, splits, pixels, args.seed)
    return Experiment(data, model, optimizer, recipe, args, runs, label_names(splits), pixels, images)


def parse(argv: list[str]) -> tuple:
    return parse_arguments(
        (DataArguments, ModelArguments, OptimizerArguments, SampleClassifierArguments, FocalTrainingArguments),
        argv,
        description="Train, measure and correct an image classifier.",
    )


def result_settings(
    data: DataArguments, model: ModelArguments, optimizer: OptimizerArguments, args: FocalTrainingArguments
) -> dict:
    """What determines a run's result, up to the temperature: that is fitted again where its objective is another."""
    settings = {key: value for key, value in asdict(data).items() if key != "max_decoded_gib"}
    return run_settings(args, settings, contents(files_of(data)), asdict(model), asdict(optimizer))


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    if not data.given():
        splits = load_digits(seed)
    else:
        check_test_file(data)
        splits = load_image_splits(
            data.dataset_name,
            data.dataset_config_name,
            **files_of(data),
            image_column=data.image_column,
            label_column=data.label_column,
            test_split=data.test_split,
            validation_size=data.validation_size,
            seed=seed,
        )
    count = data.max_train_samples
    if count is not None and count < len(splits["train"]):
        classes = len(label_names(splits))
        if count < classes:
            raise ValueError(f"max_train_samples must be at least {classes}, the number of classes, got {count}")
        cut = splits["train"].train_test_split(train_size=count, stratify_by_column="label", seed=seed)
        splits["train"] = cut["train"]
    if data.imbalance is not None:
        splits["train"] = long_tailed(splits["train"], data.imbalance, seed)
    return splits


def decode(data: DataArguments, splits: DatasetDict, pixels: PixelFormat, seed: int) -> dict[str, ImageDataset]:
    num_images = sum(map(len, splits.values()))
    gib = num_images * 3 * pixels.stored_size**2 / 2**30
    in_memory = gib <= data.max_decoded_gib
    logging.info("%d images, %.2f GiB, are decoded %s", num_images, gib, "now" if in_memory else "as they are needed")
    return {
        name: ImageDataset(
            split,
            pixels,
            augmentation=data.augmentation if name == "train" else "none",
            in_memory=in_memory,
            seed=seed,
        )
        for name, split in splits.items()
    }


def is_timm_architecture(name: str) -> bool:
    if "/" in name or name in CIFAR_NAMES or Path(name).exists():
        return False
    try:
        import timm
    except Exception as error:  # it is not installed, or torchvision is not the one that torch needs
        check_model_name(name, CIFAR_NAMES)
        raise ValueError(
            f"model_name_or_path must be {', '.join(CIFAR_NAMES)}, a Hub id of two parts or a folder, got {name!r}; "
            f"timm, which might know it, cannot be imported: {error}"
        ) from error
    return timm.is_model(name)


def pixel_format(model: ModelArguments) -> PixelFormat:
    """What the model sees: as its arguments say, else as it was made or pretrained for."""
    name = model.model_name_or_path
    if name in CIFAR_NAMES:
        known = PixelFormat(32, 1.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    elif is_timm_architecture(name):
        from timm import get_pretrained_cfg

        known = PixelFormat.of_timm(get_pretrained_cfg(name).to_dict())
    else:
        return PixelFormat.of_pretrained(name)
    return PixelFormat(
        model.image_size or known.size,
        model.crop_pct or known.crop_pct,
        tuple(model.image_mean or known.mean),
        tuple(model.image_std or known.std),
    )


def build_model(experiment: Experiment):
    """The model, and its image processor where it is saved beside it."""
    name, pixels = experiment.model.model_name_or_path, experiment.pixels
    labels = label_options(experiment.labels)
    if name in CIFAR_NAMES:
        model = AutoModelForImageClassification.from_config(cifar_config(name.removeprefix("cifar_"), **labels))
        return model, image_processor(pixels)
    if is_timm_architecture(name):
        import timm
        from transformers import TimmWrapperForImageClassification

        model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture=name, **labels))
        # Transformers draws all convolutions and linear layers from N(0, 0.02); timm knows better.
        model.timm_model.load_state_dict(timm.create_model(name, num_classes=len(experiment.labels)).state_dict())
    else:
        model = AutoModelForImageClassification.from_pretrained(name, ignore_mismatched_sizes=True, **labels)
    if not isinstance(model.config, TimmWrapperConfig):
        return model, image_processor(pixels)
    # What the image processor of a timm model goes by.
    model.config.pretrained_cfg = (getattr(model.config, "pretrained_cfg", None) or {}) | timm_settings(pixels)
    return model, None


class ImageTrainer(MilestonesTrainer, BatchStatisticsTrainer):
    """A trainer with the papers' SGD and milestones, which makes pixel values of uint8 images on its device."""

    def __init__(self, *args, pixels: PixelFormat, **kwargs):
        self.pixels = pixels
        super().__init__(*args, **kwargs)
        self.add_callback(NextEpoch())  # whose images are cut anew

    def _prepare_inputs(self, inputs):
        return prepare_batch(super()._prepare_inputs(inputs), self.pixels)


def train(experiment: Experiment) -> list[RunResult]:
    """Train what is not finished yet, and report all of it."""
    results, reports = train_classifiers(experiment, run)
    if experiment.args.process_index == 0:
        show_confidences(reports, results, experiment)
        print_summary(reports, results)
    publish_runs(experiment.runs)
    return results


def show_confidences(reports: list[Path], results: list[RunResult], experiment: Experiment) -> None:
    """Write how sure the runs are of test images that all of them classify rightly, and wrongly, and of all images."""
    for report, some in [*zip(reports, ([result] for result in results), strict=False), (reports[-1], results)]:
        (report / "confidence.md").write_text(confidence_table(some), encoding="utf-8")
    predictions = {
        result.loss: Predictions.load(report / "predictions.npz")
        for report, result in zip(reports, results, strict=False)
    }
    rows = [row for rows in choose_examples(predictions, seed=experiment.args.seed) for row in rows]
    if rows:
        images = experiment.images["test"].__getitems__(rows)["pixel_values"]
        examples_figure(images, experiment.labels, predictions, rows, path=reports[-1] / "examples.png")


def run(args: FocalTrainingArguments, experiment: Experiment) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    args.remove_unused_columns = False  # of batches, which come whole
    set_seed(args.seed)
    images = experiment.images
    model, processor = build_model(experiment)
    trainer = ImageTrainer(
        model=model.to(memory_format=torch.channels_last),
        args=args,
        train_dataset=images["train"],
        eval_dataset=images["validation"],
        calibration_dataset=images["validation"],
        data_collator=collate,
        processing_class=processor,
        optimizer_arguments=experiment.optimizer,
        pixels=experiment.pixels,
    )
    watch_samples(trainer, experiment.recipe, images["test"])
    trained = trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(objective=experiment.recipe.temperature_objective)

    test = trainer.predict(images["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    train_labels = images["train"].labels
    result = measure_classifier(trainer, trained, temperature, logits, labels, train_labels=train_labels)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, **datasets_of(experiment.data, default="scikit-learn's digits"))
    if args.process_index == 0:
        report = Path(args.output_dir) / "report"
        report.mkdir(parents=True, exist_ok=True)
        Predictions.of(logits, labels, temperature).save(report / "predictions.npz")
        write_experiment_report(report, result)  # last: a run that has it is finished
    return result


def print_summary(reports: list[Path], results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print(confidence_table(results))
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; bold is best.")
    print("S99: the images with a confidence of at least 99 %.")
    print_written(reports)
    print("\nNext:")
    print("  look at the pictures: bars on the diagonal are calibrated, hatched gaps are not")
    print("  out-of-distribution images: recipes/papers/ood.py --models <the runs' folders>")
    print("  your own images: --config recipes/configs/own_images.yaml")
    print("    --dataset_name <a folder with train/cat/1.png, test/dog/2.png> --output_dir <another>")


if __name__ == "__main__":
    run_recipe(prepare, train)
