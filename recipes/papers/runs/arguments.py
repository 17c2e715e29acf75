"""Arguments that several recipes share."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import datasets
from datasets import Dataset, DatasetDict
from transformers.utils import logging as transformers_logging

from hf_focal.calibration.temperature_grid import OBJECTIVES, STREAM_OBJECTIVES
from hf_focal.tasks import DataArguments
from hf_focal.tasks.heads import Head
from hf_focal.trainer import FocalTrainer
from hf_focal.trainer.recipe_arguments import parse_recipe
from papers import checks as check
from papers.argument_fields import argument
from papers.data.long_tails import long_tailed
from papers.losses import published_mmce  # noqa: F401 (registers the loss)
from papers.runs.class_weights_callback import ClassWeightsCallback
from papers.runs.output_folders import files_of
from papers.runs.training_dynamics import DynamicsCallback


@dataclass(kw_only=True)
class DatasetArguments(DataArguments):
    """The data: a dataset on the Hub, or files. If neither is given, some recipes have data of their own."""

    _argument_group_name = "data"  # in HfArgumentParser's help

    def __post_init__(self) -> None:
        check.at_least(1, self, "validation_size")

    def names_data(self) -> bool:
        """Return whether a dataset or a file is named."""
        return self.dataset_name is not None or bool(files_of(self))


def generated_splits(generate: Callable[..., Dataset], sizes: Mapping[str, int], seed: int) -> DatasetDict:
    """Generate splits of the given sizes with `generate(size, seed=seed)`; each split has the next seed."""
    return DatasetDict({name: generate(size, seed=seed + i) for i, (name, size) in enumerate(sizes.items())})


@dataclass(kw_only=True)
class LongTailArguments:
    """An argument for classifiers of whole samples with one label each: how unequal the training classes are."""

    imbalance: float | None = argument(
        None,
        "Make the training data long-tailed: class sizes fall exponentially to this share (0.01) of the "
        "largest, in the order of the labels. Validation and test data stay as they are.",
    )

    def cut_training_data(self, splits: DatasetDict, seed: int) -> DatasetDict:
        """Return the splits, with long-tailed training data if `imbalance` is given."""
        if self.imbalance is not None:
            splits["train"] = long_tailed(splits["train"], self.imbalance, seed)
        return splits


@dataclass
class TemperatureArguments:
    """Arguments that say how to fit the temperature, and what to show."""

    _argument_group_name = "temperature"
    temperature_objective: str = argument(
        "nll",
        "What the temperature minimizes: 'nll', or by the papers' grid search 'ece' or, for whole samples, 'adaece'.",
    )
    verbose: bool = argument(False, "Show loading messages and all progress bars.")

    objectives: ClassVar[tuple[str, ...]] = STREAM_OBJECTIVES  # of logits that need not be held in memory

    def __post_init__(self) -> None:
        check.choice("temperature_objective", self.temperature_objective, self.objectives)


@dataclass
class SampleClassifierArguments(TemperatureArguments):
    """Arguments of classifiers that say how to fit the temperature, and what to record during training."""

    class_weights_steps: int | None = argument(
        None, "Record and plot each class's mean focal and recall weight every this many steps."
    )
    dynamics: bool = argument(False, "Log NLL, entropy, calibration and norms after every epoch, and plot them.")
    dynamics_samples: int | None = argument(
        None, "Measure this many training samples and as many test samples. Default: at most 1,000."
    )
    dynamics_epochs: str | None = argument(
        None, "Epochs whose reliability diagrams and gradient norms are drawn: '1,10,30'; 0 is before training."
    )
    objectives: ClassVar[tuple[str, ...]] = OBJECTIVES

    def __post_init__(self) -> None:
        super().__post_init__()
        check.at_least(1, self, "class_weights_steps", "dynamics_samples")
        self.drawn_epochs()

    def drawn_epochs(self) -> list[int] | None:
        """Return the epochs in `dynamics_epochs`, or None by default."""
        if self.dynamics_epochs is None:
            return None
        epochs = [epoch.strip() for epoch in self.dynamics_epochs.split(",")]
        if not all(epoch.isdecimal() for epoch in epochs):
            raise ValueError(f"dynamics_epochs must be epochs such as '1,10,30', got {self.dynamics_epochs!r}")
        return [int(epoch) for epoch in epochs]

    def check_multi_label(self) -> None:
        """Refuse an objective that there is for a softmax only."""
        check.choice("temperature_objective, for several labels,", self.temperature_objective, STREAM_OBJECTIVES)

    def fit_temperature(self, trainer: FocalTrainer) -> None:
        """Fit T on the `calibration_dataset`; for several labels and "nll", each label gets its own."""
        per_label = trainer.head is Head.LABELS and self.temperature_objective == "nll"
        trainer.fit_temperature(None, self.temperature_objective, per_label)

    def add_callbacks(self, trainer: FocalTrainer, test_dataset: Any) -> None:
        """Add to a trainer the callbacks that record what these arguments ask for."""
        if self.class_weights_steps is not None:
            trainer.add_callback(ClassWeightsCallback(trainer, self.class_weights_steps))
        if self.dynamics:
            options: Any = {"num_samples": self.dynamics_samples, "epochs": self.drawn_epochs()}
            trainer.add_callback(DynamicsCallback(trainer, test_dataset, **options))


def parse_experiment(
    dataclass_types: Sequence[type], argv: Sequence[str], description: str | None
) -> tuple[tuple[Any, ...], list[Any]]:
    """Parse a command line with `hf_focal.parse_recipe`, and set up logging.

    The last two of the dataclasses are a `TemperatureArguments` and a `FocalTrainingArguments`; ``--help`` shows the
    first line of `description`. Returns the recipe's own arguments, and the training arguments of each run.
    """
    *recipe_types, training_arguments = dataclass_types
    title = (description or "").partition("\n")[0]
    recipe, runs = parse_recipe(recipe_types, training_arguments, title, argv)
    args = runs[0]
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    if not recipe[-1].verbose:
        for run in runs:
            run.disable_tqdm = run.disable_tqdm or not sys.stderr.isatty()
        datasets.disable_progress_bars()
        transformers_logging.disable_progress_bar()
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    if args.push_to_hub:
        raise ValueError("push_to_hub must be false, got True: these recipes do not publish their models")
    if args.resume_from_checkpoint is not None:
        raise ValueError(
            f"resume_from_checkpoint must not be given, got {args.resume_from_checkpoint!r}: a run resumes from the "
            "last complete checkpoint of its output_dir"
        )
    return recipe, runs
