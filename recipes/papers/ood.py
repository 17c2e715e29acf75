"""How well trained classifiers know what they do not know: out-of-distribution detection, and calibration under shift.

Images against noise, against other images, and over the severities of a corruption:

    python recipes/papers/ood.py --models out/cifar10/cross_entropy out/cifar10/flsd53 \
        --test_file test.parquet --out gaussian_noise:5 digits svhn.parquet --shift gaussian_noise \
        --output_dir out/cifar10/ood

Texts against other texts:

    python recipes/papers/ood.py --models out/newsgroups/cross_entropy out/newsgroups/flsd53 \
        --test_file newsgroups_test.parquet --out sst_test.parquet --output_dir out/newsgroups/ood

The models are folders that the recipes for text and image classification wrote, or any classifier. Where a model has a
temperature, in its weights or in its config, everything is measured before and after it. Several GPUs:
`accelerate launch`.
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
    Trainer,
    TrainingArguments,
)

import hf_focal.models  # noqa: F401 (registers the models that the recipes train)
from hf_focal import CalibrationMetrics
from hf_focal.calibration.folding import folded_temperature
from hf_focal.cli.dataset_loading import load_one_split
from hf_focal.cli.input_errors import check_id_or_folder
from hf_focal.cli.model_input_length import input_length, model_positions
from hf_focal.cli.model_labels import labels_of
from hf_focal.cli.trained_model import loss_of
from hf_focal.experiments.data.corruptions import CORRUPTIONS, corrupt
from hf_focal.experiments.data.image_batches import decode_images, prepare_batch
from hf_focal.experiments.data.pixel_format import PixelFormat
from hf_focal.experiments.data.pretrained_models import is_image_classifier
from hf_focal.experiments.data.unlabelled_inputs import load_images, load_texts
from hf_focal.experiments.reports.ood_report import (
    DetectionResult,
    detection_table,
    shift_table,
    write_detection_report,
)
from hf_focal.experiments.runs.recipe_checks import check_at_least, check_choice, check_training_arguments
from hf_focal.experiments.runs.recipe_command import run_recipe
from hf_focal.experiments.runs.yaml_arguments import parse_arguments

SEVERITIES = range(1, 6)


@dataclass
class OODArguments:
    """The models, the data that they know, and what is put before them besides."""

    models: list[str] = field(metadata={"help": "Folders or Hub ids of classifiers of the same data."})
    test_file: str | None = field(default=None, metadata={"help": "In-distribution data: parquet, csv, json."})
    dataset_name: str | None = field(
        default=None,
        metadata={"help": "In-distribution data on the Hub or a folder, name[:configuration[:split]], or 'digits'."},
    )
    out: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Out-of-distribution data: a corruption of the images and its severity ('gaussian_noise:5'), "
            "'digits' (scikit-learn's), a file, or name[:configuration[:split]] of a dataset."
        },
    )
    shift: list[str] = field(
        default_factory=list,
        metadata={"help": f"Corruptions to measure at severities 0 to 5: {', '.join(CORRUPTIONS)}."},
    )
    image_column: str = field(default="image", metadata={"help": "The column of images."})
    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    label_column: str = field(default="label", metadata={"help": "The column of labels of the in-distribution data."})
    out_column: str | None = field(
        default=None, metadata={"help": "That of images or texts in the out-of-distribution data, if it is another."}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens after which a text is cut; if absent what the model takes."}
    )
    max_samples: int | None = field(default=None, metadata={"help": "Of each set, drawn at random."})

    def __post_init__(self):
        check_at_least(1, self, "max_length", "max_samples")
        if (self.test_file is None) == (self.dataset_name is None):
            raise ValueError(
                f"test_file or dataset_name must be given, got {self.test_file!r} and {self.dataset_name!r}"
            )
        if not self.out and not self.shift:
            raise ValueError("out or shift must be given, got neither")
        for name in self.shift:
            check_choice("shift", name, CORRUPTIONS)
        for name in self.out:
            corruption, _, severity = name.partition(":")
            if severity.isdecimal():
                check_choice("out", corruption, CORRUPTIONS)
                if int(severity) not in SEVERITIES:
                    raise ValueError(f"out must have a severity from 1 to 5, got {name!r}")


@dataclass
class Experiment:
    """What `prepare` found in order. `inputs` are the in-distribution rows, `out` the others, by name."""

    ood: OODArguments
    args: TrainingArguments
    of_images: bool
    inputs: Dataset
    out: dict[str, Dataset]


def main(argv: list[str]) -> list[DetectionResult]:
    return measure(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is measured."""
    ood, args = parse_arguments((OODArguments, TrainingArguments), argv, description=__doc__.splitlines()[0])
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    check_training_arguments(args)
    for name in ood.models:
        check_id_or_folder("models", name)
    configs = {name: AutoConfig.from_pretrained(name) for name in ood.models}
    kinds = set(map(is_image_classifier, configs.values()))
    if len(kinds) > 1:
        raise ValueError(f"models must all classify images, or all texts, got {', '.join(configs)}")
    (of_images,) = kinds
    for config in configs.values():
        if not of_images:
            model_positions(config, ood.max_length)
    if not of_images and ood.shift:
        raise ValueError(f"shift must be left out for models of texts, got {', '.join(ood.shift)}")
    column = ood.image_column if of_images else ood.text_column
    load = partial(load_images if of_images else load_texts, column=column)
    with args.main_process_first(desc="loading the data"):
        source = "test_file" if ood.test_file is not None else "dataset_name"
        inputs = load(source, ood.test_file or ood.dataset_name)
        labelled = load_one_split(source, ood.test_file or ood.dataset_name)
        labels, *others = (labels_of(config, source, labelled, ood.label_column) for config in configs.values())
        if not all(torch.equal(labels, other) for other in others):
            raise ValueError(f"models must number the classes alike, got {', '.join(configs)}, which do not")
        inputs = inputs.add_column("label", labels.numpy()).select(torch.nonzero(labels != -100).flatten().tolist())
        inputs = some(inputs, ood, args.seed)
        out = {}
        for name in ood.out:
            if name.partition(":")[0] not in CORRUPTIONS:
                if Path(name).stem in out:
                    raise ValueError(f"out must be datasets of different names, got {Path(name).stem!r} twice")
                out[Path(name).stem] = some(load("out", name, column=ood.out_column or column), ood, args.seed)
            elif not of_images:
                raise ValueError(f"out must be a dataset for models of texts, got {name!r}")
    return Experiment(ood, args, of_images, inputs, out)


def some(rows: Dataset, ood: OODArguments, seed: int) -> Dataset:
    """The rows, or `max_samples` of them."""
    if ood.max_samples is None or ood.max_samples >= len(rows):
        return rows
    return rows.shuffle(seed=seed).select(range(ood.max_samples))


class ImageRows(torch.utils.data.Dataset):
    """Decoded images (N, S, S, 3), uint8, whose batches hold what a model takes of them."""

    def __init__(self, images: torch.Tensor, pixels: PixelFormat):
        edge = (images.shape[1] - pixels.size) // 2
        self.images = images[:, edge : edge + pixels.size, edge : edge + pixels.size]
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        return prepare_batch({"pixel_values": self.images[indices]}, self.pixels)


class Classifier:
    """A trained model and its temperature; `logits` of rows are those before the temperature."""

    def __init__(self, name: str, experiment: Experiment):
        self.experiment, self.loss = experiment, loss_of(name)
        args = experiment.args
        args.remove_unused_columns = args.dataloader_drop_last = False
        if experiment.of_images:
            self.pixels = PixelFormat.of_pretrained(name)
            model = AutoModelForImageClassification.from_pretrained(name).to(memory_format=torch.channels_last)
            self.trainer = Trainer(model, args, data_collator=lambda batch: batch)
        else:
            self.tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForSequenceClassification.from_pretrained(name)
            self.max_length = input_length(name, self.tokenizer, experiment.ood.max_length)
            self.trainer = Trainer(model, args, data_collator=DataCollatorWithPadding(self.tokenizer))
        calibration = getattr(model.config, "calibration", None) or {}
        self.temperature = calibration.get("temperature", 1.0)
        self.in_weights = folded_temperature(calibration, generates=False) or 1.0

    def decode(self, rows: Dataset) -> torch.Tensor:
        return decode_images(rows, self.pixels.stored_size)

    def logits_of_images(self, images: torch.Tensor) -> torch.Tensor:
        """Of decoded images, (N, K)."""
        return self._predict(ImageRows(images, self.pixels))

    def logits(self, rows: Dataset) -> torch.Tensor:
        """Of a split's rows, (N, K)."""
        if self.experiment.of_images:
            return self.logits_of_images(self.decode(rows))
        tokenize = partial(self.tokenizer, truncation=True, max_length=self.max_length)
        tokens = rows.map(lambda batch: tokenize(batch["text"]), batched=True, remove_columns=rows.column_names)
        return self._predict(tokens)

    def _predict(self, rows) -> torch.Tensor:
        logits = self.trainer.predict(rows).predictions
        return torch.from_numpy(logits[0] if isinstance(logits, tuple) else logits).float() * self.in_weights


def measure(experiment: Experiment) -> list[DetectionResult]:
    results = []
    for number, name in enumerate(experiment.ood.models, start=1):
        logging.info("%s (%d of %d)", name, number, len(experiment.ood.models))
        results.append(measure_model(Classifier(name, experiment), experiment))
    if experiment.args.process_index == 0:
        written = write_detection_report(experiment.args.output_dir, results)
        print_summary(experiment.ood, results, written)
    return results


def measure_model(classifier: Classifier, experiment: Experiment) -> DetectionResult:
    ood, seed = experiment.ood, experiment.args.seed
    labels = torch.tensor(experiment.inputs["label"][:])
    images = classifier.decode(experiment.inputs) if experiment.of_images else None
    own = classifier.logits(experiment.inputs) if images is None else classifier.logits_of_images(images)
    out = {name: classifier.logits(rows) for name, rows in experiment.out.items()}
    corrupted = {  # what both `out` and `shift` ask for is computed once
        (name, severity): classifier.logits_of_images(corrupt(images, name, severity, seed))
        for name, severity in sorted(
            {corruption_of(name) for name in ood.out if corruption_of(name)}
            | {(name, severity) for name in ood.shift for severity in SEVERITIES}
        )
    }
    for name in ood.out:
        if corruption_of(name):
            out[name] = corrupted[corruption_of(name)]
    before_and_after = calibration(own, labels, classifier.temperature)
    shift = {
        name: [
            {"severity": 0, **before_and_after},
            *(
                {"severity": severity, **calibration(corrupted[name, severity], labels, classifier.temperature)}
                for severity in SEVERITIES
            ),
        ]
        for name in ood.shift
    }
    return DetectionResult.measure(
        classifier.loss, classifier.temperature, own, out, shift=shift, in_distribution=before_and_after
    )


def corruption_of(name: str) -> tuple[str, int] | None:
    """The corruption and its severity that a name of `out` says, None where it is a dataset."""
    corruption, _, severity = name.partition(":")
    return (corruption, int(severity)) if corruption in CORRUPTIONS and severity else None


def calibration(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> Mapping[str, Any]:
    metrics = {}
    for side, scores in (("pre", logits), ("post", logits / temperature)):
        sums = CalibrationMetrics()
        sums.update(scores, labels)
        metrics[side] = sums.compute()
    return metrics


def print_summary(ood: OODArguments, results: list[DetectionResult], written: list[Path]) -> None:
    print()
    print(detection_table(results))
    for name in ood.shift:
        print(shift_table(results, name))
    print("Before → after temperature scaling; out of distribution is the positive class; bold is best.")
    print(f"\nWritten to {written[0].parent}: {', '.join(path.name for path in written)}")


if __name__ == "__main__":
    run_recipe(prepare, measure)
