"""A trained model: loading it and its data, its scores, and saving it with a correction."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
import transformers
from datasets import Dataset
from transformers import PreTrainedModel

from ..calibration import CalibrationFit, Correction, fold_correction
from ..calibration.calibration_config import drop_calibration_entries
from ..calibration.calibration_record import recorded_calibration
from ..calibration.correction_methods import METHODS_OF_LINK
from ..calibration.folding import has_bias
from ..calibration.prior_shift import check_shares
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError, NotPublishedError, some_of
from ..hub.card_contents import CardData, CardModel
from ..hub.cross_encoder_folder import copy_settings, set_sigmoid
from ..hub.registering_package import registering_package
from ..recommendation import default_correction
from ..reports import RunResult
from ..reports.results.result_sections import DataSection
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.scores_in_memory import Scores
from ..tasks.dataset_loading import dataset_location, load_one_split
from ..tasks.heads import label_names_of, task_of_config
from ..tasks.input_encoding import input_length
from ..tasks.input_errors import as_input_errors
from ..tasks.input_options import InputOptions
from ..tasks.input_selection import select_inputs
from ..tasks.label_numbers import ModelLabels
from ..tasks.multi_hot_labels import column_order
from ..tasks.named_split import NamedSplit
from ..tasks.task import LabelKind
from ..trainer import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from ..utils.constants import MULTI_LABEL
from ..utils.data_names import DataName
from .model_data import EncodedSamples, LoadedSamples, encode_samples
from .model_folding import check_foldable, earlier_correction, keep_in_config, rounding_notes, save_whole
from .model_loading import load_config, load_model, match_padding
from .model_names import loss_of, public_name
from .model_scores import ModelScores
from .source import Data, FoldOutcome, Samples, Source
from .tokenizer_loading import load_tokenizer

_logger = logging.getLogger(__name__)

# Largest default length for language models, in tokens: each token has as many logits as the vocabulary has entries.
_LANGUAGE_MODEL_LENGTH = 1024


class ModelSource(Source):
    """A trained model with its tokenizer or other processor, and a trainer that measures the model.

    `name` is a Hub id or a folder. The other arguments are those of `evaluate_model`; `options` maps names of fields
    of `InputOptions` to values. Errors that the user can correct are raised as `InputError`.
    """

    cross_fits_temperatures = False
    is_published = True
    scores_type = ModelScores
    weights_file: str | None = None  # one whose weights `model` does not hold as its state

    def __init__(self, name: str | Path, task: str | None, batch_size: int, num_bins: int, options: dict[str, Any]):
        self.name = name = str(name)
        with as_input_errors():
            self.options = InputOptions(**options)
        self.config = load_config(name, self.options.trust_remote_code)
        self.calibration = recorded_calibration(self.config)
        with as_input_errors():
            self.loss = loss_of(name)
            self.task = task_of_config(self.config, task)
            if batch_size < 1:
                raise InputError("batch_size", f"must be at least 1, got {batch_size}")
            for argument, *_, is_optional in self.task.inputs:
                if not is_optional and self.options.column(argument) is None:
                    raise InputError(argument, f"must be given for {name!r}, of the task {self.task.name}, got None")
            group, questions = self.options.group, self.options.question_column
            asks = questions is not None or self.options.labels is not None
            if group is not None and self.task.generates and not asks:
                expected = f"must not be given for {name!r}, of the task {self.task.name}"
                raise InputError("group", f"{expected}, got {group!r}")
            self.data_notes = self._set_problem_type()  # `read` adds those on the data
            arguments = FocalSeq2SeqTrainingArguments if self.task.is_seq2seq else FocalTrainingArguments
            self.args = arguments(
                gettempdir(),  # nothing is written there
                per_device_eval_batch_size=batch_size,
                calibration_bins=num_bins,
                use_cpu=not torch.accelerator.is_available(),  # else processes on CPUs would each measure everything
                remove_unused_columns=self.task.takes_texts,
            )
        self.is_main = self.args.process_index == 0

    def _set_problem_type(self) -> list[str]:
        """Set the problem type that the options give, or that of a sigmoid for one logit, which has no softmax.

        Return a list with a note on the latter.
        """
        problem_type = self.config.problem_type
        has_one = self.task.labels is LabelKind.CLASSES and self.config.num_labels == 1
        if self.options.problem_type is not None:
            self.config.problem_type = self.options.problem_type
        elif has_one and problem_type in (None, "regression"):
            self.config.problem_type = MULTI_LABEL
            return [
                f"the model has one logit and the problem_type {problem_type!r}: its labels are taken as 0 and 1, and "
                f"its probability as a sigmoid, so the problem_type becomes {MULTI_LABEL!r}"
            ]
        return []

    @property
    def was_calibrated(self) -> bool:
        """Whether the model comes with a correction, according to its config."""
        return bool(self.calibration)

    @property
    def has_one_sigmoid(self) -> bool:
        return self.config.problem_type == MULTI_LABEL and self.config.num_labels == 1

    @cached_property
    def processor(self) -> Any:
        """The tokenizer, image processor, or feature extractor as it was saved with the model."""
        with as_input_errors("model", self.name):
            processor = getattr(transformers, self.task.processor)
            return processor.from_pretrained(self.name, trust_remote_code=self.options.trust_remote_code)

    @cached_property
    def encoder(self) -> Any:
        """The processor that encodes inputs. For texts, a copy of the tokenizer with other padding and languages."""
        if not self.task.takes_texts:
            return self.processor
        return load_tokenizer(self.name, self.task, self.config, self.options, self.args.per_device_eval_batch_size)

    @cached_property
    def max_length(self) -> int:
        """The number of tokens after which a text is truncated."""
        with as_input_errors():
            trust = self.options.trust_remote_code
            length = input_length(self.name, self.encoder, self.options.max_length, trust_remote_code=trust)
        limited = self.task.generates and self.options.max_length is None
        return min(length, _LANGUAGE_MODEL_LENGTH) if limited else length

    @cached_property
    def model(self) -> Any:
        """The model, whose config says that it has a sigmoid if it has one."""
        model = self._load()
        if self.config.problem_type == MULTI_LABEL:
            model.config.problem_type = MULTI_LABEL  # with which every library applies a sigmoid
        if self.has_one_sigmoid:
            set_sigmoid(model.config)
        return model

    def _load(self) -> Any:
        model = self._load_pretrained()
        if self.task.takes_texts and self.task.labels is LabelKind.CLASSES:
            match_padding(self.name, model, self.encoder)
        return model

    def _load_pretrained(self) -> PreTrainedModel:
        inputs, trust = self.encoder.model_input_names, self.options.trust_remote_code
        return load_model(self.name, self.task, self.config, inputs, trust)

    @cached_property
    def trainer(self) -> FocalTrainer:
        kind = FocalSeq2SeqTrainer if self.task.is_seq2seq else FocalTrainer
        model = self.model
        use_cache = getattr(model.config, "use_cache", None)
        with as_input_errors():
            trainer = kind(model, self.args, data_collator=self.task.collator(self.encoder, model))
        if use_cache is not None:  # Trainer changes it for training
            model.config.use_cache = use_cache
        return trainer

    def scores(self, data: Any) -> Scores:
        return self.read(Data("data", data)).collected()

    def read(self, data: Data) -> ModelScores:
        loaded = self.load(data)
        encoded = self.encode(loaded)
        self.data_notes += [*loaded.notes, *encoded.notes, *self.model_notes()]
        return self.scores_type(self, loaded, encoded)

    def model_notes(self) -> list[str]:
        """Return what a reader of the results should know of how the logits are computed."""
        return []

    def load(self, data: Data) -> LoadedSamples:
        """Load a file or split (`dataset_location`), and select the columns that the task takes."""
        argument, name = data.argument, str(data.value)
        with as_input_errors():
            path, config, part = dataset_location(argument, name, data.split, data.default_split)
        data_name = str(DataName(argument, ":".join(filter(None, (public_name(path), config))), part or None))
        with self.args.main_process_first(desc="loading the data"):
            with as_input_errors("dataset", name):
                loaded = load_one_split(argument, name, part)
            with as_input_errors():
                options = self.options if data.clusters else replace(self.options, cluster_column=None)
                options = options if data.groups else replace(options, group=None)
                samples, notes = self.select(data_name, loaded, options)
        several = self.config.problem_type == MULTI_LABEL and "," in self.options.label_column
        labels = ModelLabels.of(self.config, self.options)
        if several and column_order(labels, self.options.label_column.split(",")) is None:
            order = some_of(labels.names)
            notes = [*notes, f"no column of {data_name} has a label's name: they are taken in the order {order}"]
        return LoadedSamples(data_name, samples, tuple(notes))

    def select(self, data_name: str, split: Dataset, options: InputOptions) -> tuple[Dataset, list[str]]:
        """Return the columns that the task takes, and notes on them."""
        return select_inputs(self.task, NamedSplit(data_name, split), self.config, options), []

    def encode(self, loaded: LoadedSamples) -> EncodedSamples:
        encoder, max_length = self.encoder, self.max_length if self.task.takes_texts else 0
        with self.args.main_process_first(desc="encoding the data"):
            return encode_samples(self.task, loaded, encoder, max_length, self.options.source_prefix)

    @property
    def takes_affine(self) -> bool:
        """Whether vector and matrix scaling can be fitted: each sample has one label, and each logit one class."""
        return self.task.takes_affine and self.config.problem_type != MULTI_LABEL

    def check_fit(self, method: str | None, per_label: bool, goal: ThresholdGoal | None, new_prior: Any) -> None:
        labels, method = self.link == "sigmoid", method or "temperature"
        if labels and method not in METHODS_OF_LINK["sigmoid"]:
            kind = "a model with a sigmoid for each label"
            raise InputError("method", f"must be 'none', 'temperature', 'platt', or 'auto' for {kind}, got {method!r}")
        if not labels and method == "platt":
            problem = self.config.problem_type
            raise InputError("method", f"'platt' needs problem_type {MULTI_LABEL!r}, got {problem!r}")
        if method != "temperature" and not self.task.takes_affine:
            kind = "a head of multiple choice" if self.task.name == "multiple-choice-head" else "a language model"
            raise InputError("method", f"must be 'temperature' for {kind}, got {method!r}")
        if per_label and not labels:
            problem = self.config.problem_type
            raise InputError("per_label", f"needs a model whose problem_type is {MULTI_LABEL!r}, got {problem!r}")
        if goal is not None and goal.target == "precision" and not self.task.takes_affine:
            raise InputError("precision", f"must not be given for {self.name!r}, of the task {self.task.name}")
        if new_prior is not None:
            if not self.task.takes_affine or self.task.unit.is_part_of_sample:
                raise InputError("new_prior", f"must not be given for {self.name!r}, of the task {self.task.name}")
            check_shares("new_prior", new_prior, self.config.num_labels, self.link)

    def default_method(self, scores: ScoreSet, objective: str, per_label: bool) -> str:
        has_choice = self.task.takes_affine and objective == "nll" and not per_label
        return default_correction(has_choice, len(scores))

    def check_saving(self, new_prior: Any) -> None:
        if not self.task.generates:
            self._check_foldable()
        if new_prior is not None and self.link == "softmax" and not self.has_bias:
            raise InputError("new_prior", f"must not be given for {self.name!r}, whose head has no bias for the shift")

    def saved_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @property
    def has_bias(self) -> bool:
        """Whether offsets of a correction can be kept: in the head or, for another kind of source, elsewhere."""
        return has_bias(self.model)

    # These follow the config and the task, which subclasses change; other sources have them as plain attributes.
    @property
    def link(self) -> str:  # type: ignore[override]
        return "sigmoid" if self.config.problem_type == MULTI_LABEL else "softmax"

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the classes or labels; () for a head of multiple choice, and for a vocabulary."""
        return tuple(label_names_of(self.model)) if self.task.takes_affine else ()

    @property
    def has_independent_samples(self) -> bool:  # type: ignore[override]
        return not self.task.unit.is_part_of_sample

    def can_fold(self, correction: Correction) -> bool:
        """Return whether the saved model gives corrected logits: an intercept needs a head with a bias."""
        return correction.method != "platt" or self.has_bias

    def title(self, scores: ScoreSet) -> str:
        return self.loss

    def data_section(self, scores: ScoreSet) -> DataSection:
        return DataSection(
            model=public_name(self.name),
            task=self.task.name,
            options=self.options.to_dict(),
            num_processes=self.args.world_size,
            num_parameters=self.model.num_parameters(),
            was_calibrated=self.was_calibrated,
        )

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        if fit is None:
            evaluated = self.earlier_correction("; it is evaluated as it is", "; it is evaluated without it")
            return [*self.data_notes, *evaluated]
        on_top, earlier = "; the correction fitted here comes on top", self.calibration.get("temperature")
        if fit.temperature is not None and not fit.temperature.values and earlier is not None:
            on_top += f", T = {earlier * fit.temperature.value:.4g} together"
        lost = {
            "thresholds": "the thresholds in the model's config are removed: give precision or recall to choose new "
            "ones",
            "option_calibration": "the T for options in the model's config is removed: fit it again, to the corrected "
            "model",
        }
        removed = [
            note for name, note in lost.items() if getattr(self.config, name, None) and name not in config_entries
        ]
        return [*removed, *self.data_notes, *self.earlier_correction(on_top, "; the one here replaces it")]

    def earlier_correction(self, if_folded: str, if_not_folded: str) -> list[str]:
        return earlier_correction(self.calibration, self.task.generates, if_folded, if_not_folded)

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Fold the correction into the weights or, where that is impossible, store it in the config, with a note.

        Raises:
            NotPublishedError: the correction cannot be folded in.
        """
        drop_calibration_entries(self.model.config, quiet=True)
        config_notes = []
        with rounding_notes() as rounded:
            try:
                self._fold_into_model(fit.correction)
            except ValueError as error:
                message = f"the temperature cannot be folded into this model: {error}"
                raise NotPublishedError(message, result) from error
            except TypeError as error:
                generates = self.task.generates
                config_notes = [keep_in_config(self.model, fit.correction, result.temperature, generates, error)]
        vars(self.model.config).update(config_entries)
        return FoldOutcome(not config_notes, (*config_notes, *rounded), self._pretrained())

    def _pretrained(self) -> tuple[Any, Any]:
        return self.model, self.processor

    def _check_foldable(self) -> None:
        check_foldable(self.model)

    def _fold_into_model(self, correction: Correction) -> None:
        fold_correction(self.model, correction)

    def save(
        self,
        folder: Path,
        fit: CalibrationFit,
        fitted_on: Samples,
        config_entries: dict[str, Any],
        outcome: FoldOutcome,
    ) -> None:
        """Write the corrected model, its processor, and its correction."""
        save_whole(folder, *outcome.pretrained)
        if fit.temperature is not None and fit.temperature.is_fitted:
            fit.temperature.save(folder / "temperature.json")
        super().save(folder, fit, fitted_on, config_entries, outcome)

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        if self.task.name == "text-classification":
            copy_settings(self.name, folder, self.has_one_sigmoid)
        super().write_card(folder, name, result, fitted_on, measured_on)

    def card_model(self, name: str, result: RunResult) -> CardModel:
        return CardModel(name, self.task.pipeline, self.name, registering_package(self.model))

    def card_data(self, fitted_on: Samples, measured_on: Samples) -> CardData:
        fit, test = (
            dataset_location(data.argument, str(data.value), data.split, data.default_split)
            for data, _ in (fitted_on, measured_on)
        )
        dataset = fit.path if fit.path == test.path else None  # a model card can name only one
        split = test.split or ("validation" if dataset else "test")
        return CardData(dataset, test.path, split, fit.split or fit.path, test == fit)
