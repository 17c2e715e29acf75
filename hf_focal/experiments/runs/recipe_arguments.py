"""What the command lines of several recipes have in common."""

from dataclasses import dataclass, field

from ...calibration.temperature import OBJECTIVES
from .output_folders import files_of
from .recipe_checks import check_at_least


@dataclass
class DatasetArguments:
    """A dataset or files. Without both, a recipe has data of its own."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, with train and test."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "The configuration of that dataset."})
    train_file: str | None = field(default=None, metadata={"help": "csv, json, jsonl or parquet."})
    validation_file: str | None = field(default=None, metadata={"help": "If absent, cut from the training data."})
    test_file: str | None = field(default=None, metadata={"help": "What the report is about."})
    validation_size: int | None = field(
        default=None, metadata={"help": "Rows cut from the training data for validation; a tenth of them if absent."}
    )

    def __post_init__(self) -> None:
        check_at_least(1, self, "validation_size")

    def given(self) -> bool:
        """Whether a dataset or a file is named."""
        return self.dataset_name is not None or bool(files_of(self))


@dataclass
class RecipeArguments:
    """Which losses are compared, and how a model is corrected."""

    compare: list[str] | str | None = field(
        default=None, metadata={"help": "Train each of these losses: 'brier,focal:gamma=3'."}
    )
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the papers' grid) or 'nll'."})

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):  # in a config file
                setattr(self, name, ",".join(value))
        if self.temperature_objective not in OBJECTIVES:
            raise ValueError(
                f"temperature_objective must be {' or '.join(map(repr, OBJECTIVES))}, "
                f"got {self.temperature_objective!r}"
            )


@dataclass
class ClassifierArguments(RecipeArguments):
    """Which losses are compared, how a model is corrected, and what is recorded of its classes."""

    class_weights_steps: int | None = field(
        default=None,
        metadata={"help": "Record and draw each class's mean focal and recall weight every so many steps."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "class_weights_steps")


@dataclass
class SampleClassifierArguments(ClassifierArguments):
    """The same of classifiers of whole samples, and whether the dynamics of the training are measured."""

    dynamics: bool = field(
        default=False, metadata={"help": "Log NLL, entropy, calibration and norms at each epoch, and draw them."}
    )
