"""Measure the out-of-distribution detection of trained classifiers, and their calibration under shift.

Detect noise and other images among test images, and measure calibration at each severity of a corruption:

    python recipes/papers/ood.py --models out/cifar10/cross_entropy out/cifar10/flsd53 \
        --test_file test.parquet --out gaussian_noise:5 digits svhn.parquet --shift gaussian_noise \
        --output_dir out/cifar10/ood

Detect other texts among test texts:

    python recipes/papers/ood.py --models out/newsgroups/cross_entropy out/newsgroups/flsd53 \
        --test_file newsgroups_test.parquet --out sst_test.parquet --output_dir out/newsgroups/ood

The models are folders written by the recipes for text and image classification, or any other classifiers. If a model
has a temperature, in its weights or in its config, everything is measured before and after the temperature. On several
GPUs, run this script with `accelerate launch`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
)

import papers.models  # noqa: F401 (registers the models that the recipes train)
from hf_focal import CalibrationMetrics
from hf_focal.calibration.corrections import folded_temperature
from hf_focal.cli.recipe_arguments import parse_arguments
from hf_focal.sources.model_names import loss_of
from hf_focal.tasks.column_selection import Column, select_columns
from hf_focal.tasks.dataset_loading import load_one_split
from hf_focal.tasks.input_encoding import input_length, model_positions
from hf_focal.tasks.input_errors import check_id_or_folder
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.labeled_inputs import labels_of
from hf_focal.tasks.task import task_of_class
from papers import checks as check
from papers.data.corruptions import CORRUPTIONS, corrupt
from papers.data.image_batches import decode_images, prepare_batch
from papers.data.pixel_format import PixelFormat
from papers.figures.ood_report import detection_table, shift_table, write_detection_report
from papers.runs.detection_results import DetectionResult
from papers.runs.error_handling import after_start, run_recipe

SEVERITIES = range(1, 6)


@dataclass
class OODArguments:
    """The models, their in-distribution data, and the out-of-distribution data."""

    _argument_group_name = "models and data"
    models: list[str] = field(metadata={"help": "Folders or Hub ids of classifiers of the same data."})
    test_file: str | None = field(default=None, metadata={"help": "In-distribution data: parquet, csv, json."})
    dataset_name: str | None = field(
        default=None,
        metadata={"help": "In-distribution data: name[:configuration[:split]] on the Hub, a folder, or 'digits'."},
    )
    out: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Out-of-distribution data: a corruption of the images with its severity ('gaussian_noise:5'), "
            "'digits' (scikit-learn's), a file, or name[:configuration[:split]] of a dataset."
        },
    )
    shift: list[str] = field(
        default_factory=list,
        metadata={"help": f"Corruptions at whose severities to measure calibration: {', '.join(CORRUPTIONS)}."},
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    label_column: str = field(default="label", metadata={"help": "The column of labels of the in-distribution data."})
    out_column: str | None = field(
        default=None, metadata={"help": "The column of the out-of-distribution data. Default: the same."}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Truncate texts to this many tokens. Default: the model's limit."}
    )
    max_samples: int | None = field(default=None, metadata={"help": "Draw this many samples of each dataset."})

    def __post_init__(self):
        check.at_least(1, self, "max_length", "max_samples")
        if (self.test_file is None) == (self.dataset_name is None):
            raise ValueError(
                f"test_file or dataset_name must be given, got {self.test_file!r} and {self.dataset_name!r}"
            )
        if not self.out and not self.shift:
            raise ValueError("out or shift must be given, got neither")
        for name in self.shift:
            check.choice("shift", name, CORRUPTIONS)
        for name in self.out:
            corruption, _, severity = name.partition(":")
            if corruption in CORRUPTIONS or severity.isdecimal():
                check.choice("out", corruption, CORRUPTIONS)
                if severity not in map(str, SEVERITIES):
                    raise ValueError(f"out must have a severity from 1 to 5, got {name!r}")


def is_image_classifier(config: PreTrainedConfig) -> bool:
    """Return True if a model classifies images, and False if texts; raise `ValueError` if it classifies neither."""
    name = (config.architectures or [type(config).__name__])[0]
    task = task_of_class("ForImageClassification" if config.model_type == "timm_wrapper" else name)
    if task is None or task.name not in ("image-classification", "text-classification"):
        raise ValueError(f"models must classify images or texts, got {config.name_or_path!r}, a {name}")
    return task.name == "image-classification"


def check_models(names: list[str], max_length: int | None) -> dict:
    """Load the models' configurations, and check that all models classify images or all classify texts."""
    for name in names:
        check_id_or_folder("models", name)
    configs = {name: AutoConfig.from_pretrained(name) for name in names}
    if len(set(map(is_image_classifier, configs.values()))) > 1:
        raise ValueError(f"models must all classify images, or all texts, got {', '.join(configs)}")
    for config in configs.values():
        if not is_image_classifier(config):
            model_positions(config, max_length)
    return configs


def load_data(ood: OODArguments, configs: dict, are_images: bool, seed: int) -> tuple[Dataset, dict[str, Dataset]]:
    """Load the in-distribution samples with the models' labels, and the out-of-distribution datasets by name."""

    def subset(samples: Dataset) -> Dataset:
        if ood.max_samples is None or ood.max_samples >= len(samples):
            return samples
        return samples.shuffle(seed=seed).select(range(ood.max_samples))

    def selected(argument: str, name: str, samples: Dataset, column: str) -> Dataset:
        kind = (
            ("image_column", column, "image", "images") if are_images else ("text_column", column, "text", "strings")
        )
        return select_columns(f"{argument} {name!r}", samples, Column(*kind))

    column = ood.image_column if are_images else ood.text_column
    source, name = ("test_file", ood.test_file) if ood.test_file is not None else ("dataset_name", ood.dataset_name)
    labeled = load_one_split(source, name)
    inputs = selected(source, name, labeled, column)
    options = InputOptions(label_column=ood.label_column)
    labels, *others = (labels_of(config, source, labeled, options) for config in configs.values())
    if not all(torch.equal(labels, other) for other in others):
        raise ValueError(f"models must number the classes the same way, got {', '.join(configs)}, which do not")
    inputs = inputs.add_column("label", labels.numpy()).select(torch.nonzero(labels != -100).flatten().tolist())
    out = {}
    for name in ood.out:
        if corruption_of(name):
            if not are_images:
                raise ValueError(f"out must be a dataset for models of texts, got {name!r}")
            continue
        if Path(name).stem in out:
            raise ValueError(f"out must be datasets of different names, got {Path(name).stem!r} twice")
        out[Path(name).stem] = subset(selected("out", name, load_one_split("out", name), ood.out_column or column))
    return subset(inputs), out


class DecodedImages(torch.utils.data.Dataset):
    """Dataset of decoded images (N, S, S, 3), uint8, which returns batches as a model takes them."""

    def __init__(self, images: torch.Tensor, pixels: PixelFormat):
        edge = (images.shape[1] - pixels.size) // 2
        self.images = images[:, edge : edge + pixels.size, edge : edge + pixels.size]
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        return prepare_batch({"pixel_values": self.images[indices]}, self.pixels)


class Classifier:
    """A trained model and its temperature T."""

    def __init__(self, name: str, are_images: bool, max_length: int | None, args: TrainingArguments):
        self.loss, self.are_images = loss_of(name), are_images
        if are_images:
            self.pixels = PixelFormat.from_pretrained(name)
            model = AutoModelForImageClassification.from_pretrained(name).to(memory_format=torch.channels_last)
            self.trainer = Trainer(model, args, data_collator=lambda batch: batch)
        else:
            self.tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForSequenceClassification.from_pretrained(name)
            self.max_length = input_length(name, self.tokenizer, max_length)
            self.trainer = Trainer(model, args, data_collator=DataCollatorWithPadding(self.tokenizer))
        calibration = getattr(model.config, "calibration", None) or {}
        self.temperature = calibration.get("temperature", 1.0)
        self.in_weights = folded_temperature(calibration, generates=False) or 1.0

    def inputs(self, samples: Dataset) -> Any:
        """Decode the images or tokenize the texts of samples, and return what `logits` takes."""
        if self.are_images:
            return decode_images(samples, self.pixels.stored_size)
        tokenize = partial(self.tokenizer, truncation=True, max_length=self.max_length)
        return samples.map(lambda batch: tokenize(batch["text"]), batched=True, remove_columns=samples.column_names)

    def logits(self, inputs: Any) -> torch.Tensor:
        """Compute the model's logits before T, float32 (N, K)."""
        logits = self.trainer.predict(DecodedImages(inputs, self.pixels) if self.are_images else inputs).predictions
        return torch.from_numpy(logits[0] if isinstance(logits, tuple) else logits).float() * self.in_weights


def measure(
    classifier: Classifier, ood: OODArguments, known: Dataset, out: dict[str, Dataset], seed: int
) -> DetectionResult:
    """Measure how a classifier detects each dataset in `out`, and its calibration at each severity of each shift."""
    labels, inputs = torch.tensor(known["label"][:]), classifier.inputs(known)
    known_logits = classifier.logits(inputs)
    logits = {name: classifier.logits(classifier.inputs(samples)) for name, samples in out.items()}
    corruptions = {name: corruption_of(name) for name in ood.out if corruption_of(name)}
    wanted = {*corruptions.values(), *((name, severity) for name in ood.shift for severity in SEVERITIES)}
    corrupted = {pair: classifier.logits(corrupt(inputs, *pair, seed)) for pair in sorted(wanted)}
    logits |= {name: corrupted[pair] for name, pair in corruptions.items()}
    unshifted = calibration(known_logits, labels, classifier.temperature)
    shift = {
        name: [
            {"severity": 0, **unshifted},
            *(
                {"severity": severity, **calibration(corrupted[name, severity], labels, classifier.temperature)}
                for severity in SEVERITIES
            ),
        ]
        for name in ood.shift
    }
    return DetectionResult.measure(
        classifier.loss, classifier.temperature, known_logits, logits, shift=shift, in_distribution=unshifted
    )


def corruption_of(name: str) -> tuple[str, int] | None:
    """Return the corruption and severity that an entry of the option `out` names; None if it names a dataset."""
    corruption, _, severity = name.partition(":")
    return (corruption, int(severity)) if corruption in CORRUPTIONS else None


def calibration(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> Mapping[str, Any]:
    """Compute the calibration metrics of logits (N, K) before T ("pre") and after T ("post")."""
    metrics = {}
    for side, scores in (("pre", logits), ("post", logits / temperature)):
        sums = CalibrationMetrics()
        sums.update(scores, labels)
        metrics[side] = sums.compute()
    return metrics


def main(argv: list[str]) -> list[DetectionResult]:
    ood, args = parse_arguments((OODArguments, TrainingArguments), argv, description=__doc__.splitlines()[0])
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    args.remove_unused_columns = args.dataloader_drop_last = False
    args.train_sampling_strategy = "random"  # Trainer would reorder the predictions if it grouped by length
    configs = check_models(ood.models, ood.max_length)
    are_images = is_image_classifier(configs[ood.models[0]])
    if not are_images and ood.shift:
        raise ValueError(f"shift must be left out for models of texts, got {', '.join(ood.shift)}")

    with args.main_process_first(desc="loading the data"):
        known, out = load_data(ood, configs, are_images, args.seed)

    results = []
    for number, name in enumerate(ood.models, start=1):
        logging.info("%s (%d of %d)", name, number, len(ood.models))
        with after_start(f"measuring {name}"):
            classifier = Classifier(name, are_images, ood.max_length, args)
            results.append(measure(classifier, ood, known, out, args.seed))

    if args.process_index == 0:
        with after_start("writing the report"):
            written = write_detection_report(args.output_dir, results)
        print(f"\n{detection_table(results)}")
        for name in ood.shift:
            print(shift_table(results, name))
        print("Before → after temperature scaling; out of distribution is the positive class; bold is best.")
        print(f"\nWritten to {written[0].parent}: {', '.join(path.name for path in written)}")
    return results


if __name__ == "__main__":
    run_recipe(main)
