"""A trained model: loading it and its data, its scores, and saving it with a correction."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
import transformers
from datasets import Dataset
from transformers import PreTrainedConfig, PreTrainedModel

from ..calibration import CalibrationFit, Correction
from ..calibration.calibration_record import recorded_calibration
from ..calibration.correction_methods import METHODS_OF_LINK
from ..calibration.prior_shift import check_shares
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError
from ..hub.card_contents import CardData, CardModel, registering_package
from ..hub.cross_encoder_folder import copy_settings, set_sigmoid
from ..recommendation import default_correction
from ..reports import RunResult
from ..reports.results.result_sections import DataSection
from ..scores.meanings import Link
from ..scores.sets.score_set import ScoreSet
from ..tasks.dataset_loading import dataset_location, load_one_split
from ..tasks.input_encoding import input_length
from ..tasks.input_errors import as_input_errors
from ..tasks.input_options import InputOptions
from ..tasks.input_selection import select_inputs
from ..tasks.named_split import NamedSplit
from ..tasks.task import LabelKind, Task
from ..trainer import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from ..utils.constants import MULTI_LABEL
from ..utils.names import DataName
from .content_key import hash_contents
from .model_data import EncodedSamples, LoadedSamples, encode_samples, positive_name
from .model_loading import auto_class_of, label_notes, load_model, match_padding, set_problem_type
from .model_names import loss_of, public_name
from .model_output import ModelOutput, WeightsOutput, earlier_correction
from .model_scores import ModelScores, ScoredModel
from .padding_side import set_padding_side
from .source import BaseSource, Data, FoldOutcome, Samples
from .tokenizer_loading import load_tokenizer

# Largest default length for language models, in tokens: each token has as many logits as the vocabulary has entries.
_LANGUAGE_MODEL_LENGTH = 1024


@dataclass(frozen=True)
class ModelSettings:
    """What a model is opened with."""

    name: str  # its Hub id or folder
    config: PreTrainedConfig  # in which the source sets the labels and the problem type
    task: Task
    options: InputOptions
    batch_size: int = 16  # samples that each process takes at once
    num_bins: int = 15  # of the calibration errors
    onnx: str | Path | None = None  # the file of a graph that computes the logits in place of the model


class ModelSource(BaseSource):
    """A trained model with its tokenizer or other processor, and a trainer that measures the model.

    The model and its processor are loaded when they are first used. What another kind of scores changes is how the
    model is loaded (`load_model`), how the data are read (`select`, `encode`), what computes the scores (`scores_of`),
    what keeps a correction (`output`), and what a reader should know of this (`model_notes`).

    Raises:
        InputError: the model cannot be measured with these settings.
    """

    cross_fits_temperatures = False
    is_published = True

    def __init__(self, settings: ModelSettings) -> None:
        self.name, self.config, self.task = settings.name, settings.config, settings.task
        self.options, self.onnx = settings.options, settings.onnx
        self.calibration = recorded_calibration(self.config)
        self.loss = loss_of(self.name)
        self._check(settings.batch_size)
        self.label_notes = label_notes(self.config) if self.task.has_classes else []
        self.padding_notes = list[str]()
        self.problem_type_notes = set_problem_type(self.config, self.task, self.options.problem_type)
        self.link: Link = "sigmoid" if self.config.problem_type == MULTI_LABEL else "softmax"
        # A head of multiple choice, and a vocabulary, have no classes.
        self.classes = tuple(self.config.id2label.values()) if self.task.has_classes else ()
        self.has_independent_samples = not self.task.unit.is_part_of_sample
        arguments = FocalSeq2SeqTrainingArguments if self.task.is_seq2seq else FocalTrainingArguments
        self.args = arguments(
            gettempdir(),  # nothing is written there
            per_device_eval_batch_size=settings.batch_size,
            calibration_bins=settings.num_bins,
            use_cpu=not torch.accelerator.is_available(),  # else processes on CPUs would each measure everything
            # Trainer keeps the columns that the model's `forward` names, of which `OnnxClassifier.forward` names none.
            remove_unused_columns=self.task.takes_texts and self.onnx is None,
        )
        self.is_main = self.args.process_index == 0

    def _check(self, batch_size: int) -> None:
        if batch_size < 1:
            raise InputError("batch_size", f"must be at least 1, got {batch_size}")
        of_task = f"for {self.name!r}, of the task {self.task.name}"
        for column in self.task.inputs:
            if not column.is_optional and self.options.column(column.argument) is None:
                raise InputError(column.argument, f"must be given {of_task}, got None")
        if auto_class_of(self.config) and self.options.text_pair_column is None:
            expected = f"must be given for {self.name!r}, which takes pairs of texts, got None"
            raise InputError("text_pair_column", f"{expected}: give --text_pair_column")
        if self.options.group is not None and self.task.generates:
            raise InputError("group", f"must not be given {of_task}, got {self.options.group!r}")

    @property
    def was_calibrated(self) -> bool:
        """Whether the model comes with a correction, according to its config."""
        return bool(self.calibration)

    @property
    def has_one_sigmoid(self) -> bool:
        return self.link == "sigmoid" and self.config.num_labels == 1

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
        trust = self.options.trust_remote_code
        with as_input_errors("model", self.name):
            length = input_length(self.name, self.encoder, self.options.max_length, trust_remote_code=trust)
        limited = self.task.generates and self.options.max_length is None
        return min(length, _LANGUAGE_MODEL_LENGTH) if limited else length

    @cached_property
    def model(self) -> Any:
        """The model, whose config says that it has a sigmoid if it has one."""
        model = self.load_model()
        if self.link == "sigmoid":
            model.config.problem_type = MULTI_LABEL  # with which every library applies a sigmoid
        if self.has_one_sigmoid:
            set_sigmoid(model.config)
        return model

    def load_model(self) -> Any:
        model = self.load_pretrained()
        if self.task.takes_texts and self.task.labels is LabelKind.CLASSES:
            match_padding(self.name, model, self.encoder)
        return model

    def load_pretrained(self) -> PreTrainedModel:
        inputs, trust = self.encoder.model_input_names, self.options.trust_remote_code
        return load_model(self.name, self.task, self.config, inputs, trust)

    @cached_property
    def trainer(self) -> FocalTrainer:
        kind = FocalSeq2SeqTrainer if self.task.is_seq2seq else FocalTrainer
        model = self.model
        use_cache = getattr(model.config, "use_cache", None)
        trainer = kind(model, self.args, data_collator=self.task.collator(self.encoder, model))
        if use_cache is not None:  # Trainer changes it for training
            model.config.use_cache = use_cache
        return trainer

    @cached_property
    def output(self) -> ModelOutput:
        """What keeps a correction."""
        return WeightsOutput(self.model, self.processor, self.task.generates)

    def read(self, data: Data, like: ScoreSet | None = None) -> ModelScores:
        loaded = self.load(data)
        return self.scores_of(loaded, self.encode(loaded))

    def scores_of(self, loaded: LoadedSamples, encoded: EncodedSamples) -> ModelScores:
        """Return the scores of samples, which the model computes when they are first used."""
        trainer = cache(lambda: self._trainer_without_padding_effects(encoded.inputs))
        return ModelScores(replace(self.scored_model(), trainer=trainer), loaded, encoded)

    def _trainer_without_padding_effects(self, samples: Dataset) -> FocalTrainer:
        """Return the trainer, which pads texts on a side that leaves the logits of these samples as they are."""
        if self._checks_padding and (note := set_padding_side(self.name, self.encoder, self.trainer, samples)):
            self.padding_notes = [note]
            self.processor.padding_side = self.encoder.padding_side  # as it is saved with a corrected model
        return self.trainer

    @property
    def _checks_padding(self) -> bool:
        """Whether padding may change logits: not those of language models, nor of sources that encode texts."""
        return self.task.encode is not None and not self.task.generates

    def scored_model(self) -> ScoredModel:
        return ScoredModel(
            name=self.name,
            task=self.task,
            link=self.link,
            classes=self.classes,
            num_logits=self.config.num_labels,
            options=self.options,
            batch_size=self.args.per_device_eval_batch_size,
            should_log=self.args.should_log,
            trainer=lambda: self.trainer,
            keeps_offsets=lambda: self.output.keeps_offsets(),
            content_key=self.content_key,
        )

    def content_key(self, samples: Dataset, encoded: Dataset) -> str:
        """Return a hash of the model, of its settings, and of all that it takes, whatever the names of files are."""
        model = self.trainer.model  # loading it, and making its trainer, may change the config
        settings = [{**self.config.to_dict(), "_name_or_path": "", "transformers_version": ""}, self.options.to_dict()]
        if self.task.takes_texts:
            return hash_contents(settings, model, self.onnx, (samples, encoded))
        # What the processor does is not in the encoded samples.
        return hash_contents([*settings, self.processor.to_dict()], model, self.onnx, (samples,))

    def load(self, data: Data) -> LoadedSamples:
        """Load a file or split (`dataset_location`), and select the columns that the task takes."""
        argument, name = data.argument, str(data.value)
        with as_input_errors("dataset", name):
            path, config, part = dataset_location(argument, name, data.split, data.default_split)
        data_name = str(DataName(argument, ":".join(filter(None, (public_name(path), config))), part or None))
        options = self.options if data.groups else replace(self.options, group=None)
        with self.args.main_process_first(desc="loading the data"):
            with as_input_errors("dataset", name):
                loaded = load_one_split(argument, name, part)
            if not data.clusters and options.cluster_column not in loaded.column_names:
                options = replace(options, cluster_column=None)
            samples, notes = self.select(NamedSplit(data_name, loaded), options)
        positive = positive_name(loaded.features.get(str(options.label_column)))
        return LoadedSamples(data_name, samples, tuple(notes), positive)

    def select(self, split: NamedSplit, options: InputOptions) -> tuple[Dataset, list[str]]:
        """Return the columns that the task takes, and notes on them."""
        return select_inputs(self.task, split, self.config, options)

    def encode(self, loaded: LoadedSamples) -> EncodedSamples:
        encoder, max_length = self.encoder, self.max_length if self.task.takes_texts else 0
        with self.args.main_process_first(desc="encoding the data"):
            return encode_samples(self.task, loaded, encoder, max_length, self.options.source_prefix)

    def check_fit(self, method: str | None, per_label: bool, goal: ThresholdGoal | None, new_prior: Any) -> None:
        has_sigmoid, method = self.link == "sigmoid", method or "temperature"
        if has_sigmoid and method not in METHODS_OF_LINK["sigmoid"]:
            *names, last = map(repr, METHODS_OF_LINK["sigmoid"])
            allowed = f"{', '.join(names)}, or {last} for a model with a sigmoid for each label"
            raise InputError("method", f"must be {allowed}, got {method!r}")
        if not has_sigmoid and method not in METHODS_OF_LINK["softmax"]:
            problem = self.config.problem_type
            raise InputError("method", f"{method!r} needs problem_type {MULTI_LABEL!r}, got {problem!r}")
        if method != "temperature" and not self.task.has_classes:
            kind = "a head of multiple choice" if self.task.name == "multiple-choice-head" else "a language model"
            raise InputError("method", f"must be 'temperature' for {kind}, got {method!r}")
        if per_label and not has_sigmoid:
            problem = self.config.problem_type
            raise InputError("per_label", f"needs a model whose problem_type is {MULTI_LABEL!r}, got {problem!r}")
        if goal is not None and goal.target == "precision" and not self.task.has_classes:
            raise InputError("precision", f"must not be given for {self.name!r}, of the task {self.task.name}")
        if new_prior is not None:
            if not self.task.has_classes or self.task.unit.is_part_of_sample:
                raise InputError("new_prior", f"must not be given for {self.name!r}, of the task {self.task.name}")
            check_shares("new_prior", new_prior, self.config.num_labels, self.link)

    def default_method(self, scores: ScoreSet, objective: str, per_label: bool) -> str:
        has_choice = self.task.has_classes and objective == "nll" and not per_label
        return default_correction(has_choice, len(scores))

    def check_saving(self, new_prior: Any, fitted_on: Samples) -> None:
        assert isinstance(fitted_on.scores, ModelScores)
        self.output.check(fitted_on.scores)
        if new_prior is not None and self.link == "softmax" and not self.output.keeps_offsets():
            raise InputError("new_prior", f"must not be given for {self.name!r}, whose head has no bias for the shift")

    def saved_bytes(self) -> int:
        return self.output.saved_bytes()

    def can_fold(self, correction: Correction) -> bool:
        """Return whether the saved model gives corrected logits: an intercept needs a head with a bias."""
        return correction.method != "platt" or self.output.keeps_offsets()

    def title(self, scores: ScoreSet) -> str:
        return self.loss

    def data_section(self, scores: ScoreSet) -> DataSection:
        return DataSection(
            model=public_name(self.name),
            task=self.task.name,
            auto_class=auto_class_of(self.config),
            options=self.options.to_dict(),
            num_processes=self.args.world_size,
            num_parameters=self.model.num_parameters(),
            was_calibrated=self.was_calibrated,
        )

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        if fit is None:
            evaluated = self.earlier_correction("; it is evaluated as it is", "; it is evaluated without it")
            return [*self.model_notes(), *evaluated]
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
        return [*removed, *self.model_notes(), *self.earlier_correction(on_top, "; the one here replaces it")]

    def model_notes(self) -> list[str]:
        """Return what a reader of a result should know of how the scores are computed."""
        notes = [*self.label_notes, *self.problem_type_notes, *self.padding_notes]
        if auto_class := auto_class_of(self.config):
            notes.append(f"load it with {auto_class}, since a pipeline gives it a new, random head")
        return notes

    def earlier_correction(self, if_folded: str, if_not_folded: str) -> list[str]:
        return earlier_correction(self.calibration, self.task.generates, if_folded, if_not_folded)

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        return self.output.fold(fit, config_entries, result)

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
