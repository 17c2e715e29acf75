"""What a card is made from: the model, its data, its training, and its results; and what all sections say of these."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan, nan
from typing import Any

from ..losses import LossConfig
from ..reports.results.run_results import RunResult
from ..reports.wording.markdown_tables import escaped
from ..tasks.task import MULTIPLE_CHOICE, PIPELINES, Task, unit_of
from .hub_ids import display_name, is_data_file


@dataclass(frozen=True)
class CardModel:
    """The model that a card is of, and what the code that loads it must know.

    Attributes:
        name: the model's Hub id, for the code that loads it, or the name of its folder. Since the id is then unknown,
            and the card is the same after `hf upload`, the code has "your-username" in front of that name.
        task: the Hub's pipeline tag, such as `"text-classification"`.
        base: the model that was fine-tuned or corrected, as a Hub id or a path; None for one trained from scratch.
        package: the package that must be imported before the model can be loaded; see `registering_package`.
        is_loadable: whether Transformers can load the model.
        is_adapter, num_labels: whether it is a PEFT adapter, and its number of classes.
        takes_pairs: whether a text classifier takes two texts; implied if the result has an option `text_pair_column`.
        folded_temperature: a T that has been in the weights since before the measured correction was fitted.
        is_correction: whether there is no model, but a file ``correction.json`` for scores.
        usage: Python code for the section "Use" of a model that takes prompts with label words. Thresholds are then in
            ``correction.json``; if the correction is not folded, the weights have its slopes, but no offsets.
    """

    name: str
    task: str
    base: str | None = None
    package: str | None = None
    is_loadable: bool = True
    is_adapter: bool = False
    num_labels: int | None = None
    takes_pairs: bool = False
    folded_temperature: float | None = None
    is_correction: bool = False
    usage: str = ""

    @property
    def is_id(self) -> bool:
        return re.fullmatch(r"[\w.-]+/[\w.-]+", self.name) is not None

    @property
    def quoted_id(self) -> str:
        """The Hub id as it stands inside the quotes of a Python string."""
        return json.dumps(self.name if self.is_id else f"your-username/{self.name}", ensure_ascii=False)[1:-1]

    @property
    def kind(self) -> Task:
        return PIPELINES.get(self.task, Task(name=self.task, pipeline=self.task))


@dataclass(frozen=True)
class CardData:
    """The data that a card names.

    Attributes:
        dataset: the training data or, for a model that was only corrected, the calibration data; a Hub id or a path.
        test_dataset: the data that the model was measured on, as a Hub id or a path; `dataset` if None.
        measured_on, fitted_on: the splits on which the model was measured and the correction was fitted; `fitted_on`
            may be a file.
        same_samples: whether the correction was fitted on the samples that were measured, which makes the results
            optimistic.
    """

    dataset: str | None = None
    test_dataset: str | None = None
    measured_on: str = "test"
    fitted_on: str = "validation"
    same_samples: bool = False

    @property
    def test_id(self) -> str | None:
        """The Hub id or the path of the data that were measured; None if they are not known.

        The test set is a split of the training data, unless these are a file.
        """
        is_split = self.dataset is not None and not is_data_file(self.dataset)
        return self.test_dataset or (self.dataset if is_split else None)

    @property
    def test_name(self) -> str | None:
        return display_name(self.test_id)

    def samples(self, count: float, unit: str) -> str:
        """Return what was measured, such as "the 60 samples of the test set of org/data", as Markdown."""
        name = self.test_name or ""
        split = "" if is_data_file(name) else f"the {escaped(self.measured_on)} set"
        places = " of ".join(filter(None, (split, escaped(name))))
        return " ".join(filter(None, ("the", "" if isnan(count) else f"{int(count):,}", unit, "of", places)))

    @property
    def fit_data(self) -> str:
        """What the correction was fitted to, such as "the validation split", as Markdown."""
        if is_data_file(self.fitted_on):
            return escaped(str(display_name(self.fitted_on)))
        return f"the {escaped(self.fitted_on)} split"


@dataclass(frozen=True)
class Training:
    """How a model was trained: settings to list, by name, and whether FocalSFTTrainer trained it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    is_sft: bool = False


@dataclass(frozen=True)
class CardContents:
    """All that a card is made from; the texts among its properties are Markdown."""

    result: RunResult
    model: CardModel
    data: CardData
    training: Training | None

    @property
    def loss(self) -> LossConfig | None:
        """The loss that a model was trained with; None if it is not known, or for a model that was only corrected."""
        return self.result.loss_config if self.training else None

    @property
    def unit(self) -> str:
        """What has one prediction, such as "samples"."""
        return unit_of(self.result.data.task or self.model.task, unit_of(self.model.task))

    @cached_property
    def samples(self) -> str:
        """What was measured, such as "the 60 samples of the test set of org/data"."""
        return self.data.samples(self.result.pre.get("num_samples", nan), self.unit)

    @property
    def unit_of_fit(self) -> str:
        return "labels" if self.has_sigmoid else self.unit

    @property
    def has_sigmoid(self) -> bool:
        return self.result.link == "sigmoid"

    @property
    def has_options(self) -> bool:
        """Whether the model scored the options of questions."""
        return self.result.data.task == MULTIPLE_CHOICE.name

    @property
    def generates(self) -> bool:
        return self.model.kind.generates

    @property
    def is_table(self) -> bool:
        """Whether the card is of scores alone, whatever model they come from."""
        return self.model.is_correction and not self.model.usage

    @property
    def is_folded(self) -> bool:
        return self.result.fit.folded is not False

    @property
    def correction(self) -> str:
        """The name of the correction, such as "temperature" or "vector scaling"; "" without one."""
        if self.result.prior:
            return "correction"
        return "temperature" if self.result.temperature.is_fitted else self.result.correction

    @property
    def scaling(self) -> str:
        """The name of what the correction does, such as "temperature scaling"; "" without one."""
        return self.result.scaling

    @property
    def is_scaled(self) -> bool:
        """Whether the correction is another one than a temperature."""
        fit = self.result.fit.cross_fit
        return fit is not None and fit.method not in ("temperature", "none")


def registering_package(model: Any) -> str | None:
    """Return the package whose import registers a model's class with the Auto classes, or None if none is needed."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    config = getattr(model, "config", None)
    module = type(config).__module__
    if module.split(".")[0] in ("transformers", "transformers_modules", "__main__", "builtins"):
        return None
    return None if getattr(config, "model_type", None) in CONFIG_MAPPING_NAMES else module.rpartition(".")[0] or module
