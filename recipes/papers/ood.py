"""Measure the out-of-distribution detection of trained image classifiers, and their calibration under noise.

Detect noise and other images among test images, and measure calibration at each severity of the noise:

    python recipes/papers/ood.py --models out/cifar10/cross_entropy out/cifar10/flsd53 \
        --test_file test.parquet --out gaussian_noise:5 digits svhn.parquet --shift gaussian_noise \
        --output_dir out/cifar10/ood

The models are folders written by image_classification.py, or any other image classifiers. If a model has a
temperature, in its weights or in its config, everything is measured before and after the temperature. On several GPUs,
run this script with `accelerate launch`.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForImageClassification, Trainer, TrainingArguments

import papers.models  # noqa: F401 (registers the models that the recipes train)
from hf_focal import CalibrationMetrics
from hf_focal.calibration.calibration_record import folded_temperature
from hf_focal.sources.model_names import loss_of
from hf_focal.tasks.column_selection import Column, select_columns
from hf_focal.tasks.dataset_loading import load_one_split
from hf_focal.tasks.input_errors import check_id_or_folder
from hf_focal.tasks.label_numbers import ModelLabels, class_numbers
from hf_focal.tasks.named_split import NamedSplit
from hf_focal.tasks.task import ColumnType
from hf_focal.trainer.recipe_arguments import parse_arguments
from papers import checks as check
from papers.argument_fields import argument
from papers.data.gaussian_noise import DEVIATIONS, add_gaussian_noise
from papers.data.image_batches import decode_images, prepare_batch
from papers.data.pixel_format import PixelFormat
from papers.figures.ood_report import detection_table, shift_table, write_detection_report
from papers.metrics.ood_metrics import DetectionResult, detection_by_score

NOISE = "gaussian_noise"


@dataclass
class OODArguments:
    """The models, their in-distribution data, and the out-of-distribution data."""

    _argument_group_name = "models and data"
    models: list[str] = field(metadata={"help": "Folders or Hub ids of classifiers of the same data."})
    test_file: str | None = argument(None, "In-distribution data: parquet, csv, json.")
    dataset_name: str | None = argument(
        None, "In-distribution data: name[:configuration[:split]] on the Hub, a folder, or 'digits'."
    )
    out: list[str] = argument(
        [],
        "Out-of-distribution data: noise of a severity from 1 to 5 ('gaussian_noise:5'), 'digits' "
        "(scikit-learn's), a file, or name[:configuration[:split]] of a dataset.",
    )
    shift: list[str] = argument([], f"'{NOISE}', to measure calibration at each of its severities.")
    image_column: str = argument("image", "The column of images.")
    label_column: str = argument("label", "The column of labels of the in-distribution data.")
    out_column: str | None = argument(None, "The column of the out-of-distribution data. Default: the same.")
    max_samples: int | None = argument(None, "Draw this many samples of each dataset.")

    def __post_init__(self):
        check.at_least(1, self, "max_samples")
        if (self.test_file is None) == (self.dataset_name is None):
            raise ValueError(
                f"test_file or dataset_name must be given, got {self.test_file!r} and {self.dataset_name!r}"
            )
        if not self.out and not self.shift:
            raise ValueError("out or shift must be given, got neither")
        for name in self.shift:
            check.choice("shift", name, [NOISE])
        for name in self.out:
            kind, _, severity = name.partition(":")
            if kind == NOISE and severity not in map(str, DEVIATIONS):
                raise ValueError(f"out must have a severity from 1 to 5, got {name!r}")


def load_data(ood: OODArguments, seed: int) -> tuple[Dataset, dict[str, Dataset]]:
    """Load the in-distribution images with the models' labels, and the out-of-distribution datasets by name."""

    def subset(samples: Dataset) -> Dataset:
        if ood.max_samples is None or ood.max_samples >= len(samples):
            return samples
        return samples.shuffle(seed=seed).select(range(ood.max_samples))

    def images(argument: str, name: str, samples: Dataset, column: str) -> Dataset:
        return select_columns(
            NamedSplit(f"{argument} {name!r}", samples), Column("image_column", column, "image", ColumnType.IMAGES)
        )

    for name in ood.models:
        check_id_or_folder("models", name)
    source, name = ("test_file", ood.test_file) if ood.test_file is not None else ("dataset_name", ood.dataset_name)
    labeled = load_one_split(source, name)
    known = images(source, name, labeled, ood.image_column)
    classes = [ModelLabels(AutoConfig.from_pretrained(name).id2label) for name in ood.models]
    labels, *others = (class_numbers(names, NamedSplit(source, labeled), ood.label_column) for names in classes)
    if not all(np.array_equal(labels, other) for other in others):
        raise ValueError(f"models must number the classes the same way, got {', '.join(ood.models)}, which do not")
    known = known.add_column("label", labels).select(np.flatnonzero(labels != -100))
    out: dict[str, Dataset] = {}
    for name in ood.out:
        if severity_of(name) is None:
            if Path(name).stem in out:
                raise ValueError(f"out must be datasets of different names, got {Path(name).stem!r} twice")
            samples = load_one_split("out", name)
            out[Path(name).stem] = subset(images("out", name, samples, ood.out_column or ood.image_column))
    return subset(known), out


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

    def __init__(self, name: str, args: TrainingArguments):
        self.loss, self.pixels = loss_of(name), PixelFormat.from_pretrained(name)
        model = AutoModelForImageClassification.from_pretrained(name).to(memory_format=torch.channels_last)
        self.trainer = Trainer(model, args, data_collator=lambda batch: batch)
        recorded = getattr(model.config, "calibration", None) or {}
        self.temperature = recorded.get("temperature", 1.0)
        self.in_weights = folded_temperature(recorded, generates=False) or 1.0

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the model's logits before T, float32 (N, K), of decoded images."""
        logits = self.trainer.predict(DecodedImages(images, self.pixels)).predictions
        return torch.from_numpy(logits[0] if isinstance(logits, tuple) else logits).float() * self.in_weights


def measure(
    classifier: Classifier, ood: OODArguments, known: Dataset, out: dict[str, Dataset], seed: int
) -> DetectionResult:
    """Measure how a classifier detects each dataset in `out`, and its calibration at each severity of the noise."""
    labels, size = torch.tensor(known["label"][:]), classifier.pixels.stored_size
    images = decode_images(known, size)
    known_logits = classifier.logits(images)
    logits = {name: classifier.logits(decode_images(samples, size)) for name, samples in out.items()}
    severities = {name: severity for name in ood.out if (severity := severity_of(name)) is not None}
    wanted = sorted({*severities.values(), *(DEVIATIONS if ood.shift else ())})
    noisy = {severity: classifier.logits(add_gaussian_noise(images, severity, seed)) for severity in wanted}
    logits |= {name: noisy[severity] for name, severity in severities.items()}
    shifted = {0: known_logits} | noisy
    entries = {
        severity: {"severity": severity, **calibration(scores, labels, classifier.temperature)}
        for severity, scores in shifted.items()
    }
    return DetectionResult(
        classifier.loss,
        classifier.temperature,
        detection=detection_by_score(known_logits, logits, classifier.temperature),
        shift={name: list(entries.values()) for name in ood.shift},
        in_distribution={side: entries[0][side] for side in ("pre", "post")},
    )


def severity_of(name: str) -> int | None:
    """Return the severity of the noise that an entry of the option `out` names; None if it names a dataset."""
    kind, _, severity = name.partition(":")
    return int(severity) if kind == NOISE else None


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
    with args.main_process_first(desc="loading the data"):
        known, out = load_data(ood, args.seed)

    results = []
    for number, name in enumerate(ood.models, start=1):
        logging.info("%s (%d of %d)", name, number, len(ood.models))
        results.append(measure(Classifier(name, args), ood, known, out, args.seed))

    if args.process_index == 0:
        written = write_detection_report(args.output_dir, results)
        print(f"\n{detection_table(results)}")
        for name in ood.shift:
            print(shift_table(results, name))
        print("Before → after temperature scaling; out of distribution is the positive class; bold is best.")
        print(f"\nWritten to {written[0].parent}: {', '.join(path.name for path in written)}")
    return results


if __name__ == "__main__":
    main(sys.argv[1:])
