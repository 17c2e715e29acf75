"""A trained model: loading it and its data, its scores, and saving it with a correction."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import torch
import transformers
import yaml
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.utils import is_peft_available

from ..calibration import CalibrationFit, Correction, apply_calibrated_generation, fold_correction
from ..calibration.clusters import content_hashes, usable_clusters
from ..calibration.corrections import calibration_record, is_folded, recorded_calibration
from ..calibration.cross_fitting import OF_LINK
from ..calibration.folding import RoundingWarning, fold, has_bias
from ..calibration.prior_shift import check_shares
from ..calibration.promises import drop_promises
from ..calibration.temperature_scaling import InfiniteNLLError
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import NotPublishedError
from ..hub.cross_encoder_folder import copy_settings, set_sigmoid
from ..hub.model_card import CardData, CardModel, registering_package
from ..losses import LossConfig
from ..recommendation import default_correction
from ..reports import RunResult
from ..reports.result_sections import DataSection
from ..reports.run_results import known_loss
from ..scores.score_set import ScoreSet
from ..scores.score_table import Scores
from ..tasks.column_selection import sample_keys, some_of
from ..tasks.dataset_loading import dataset_location, load_one_split
from ..tasks.heads import has_head, label_names_of, task_of_config
from ..tasks.input_encoding import encode_inputs, input_length
from ..tasks.input_errors import explained
from ..tasks.input_options import InputOptions
from ..tasks.labeled_inputs import CLUSTER, GROUP, column_order, select_inputs
from ..trainer import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from ..utils.problem_types import MULTI_LABEL
from ..utils.website import WEBSITE
from ..validation import InputError, one_line
from .model_scores import ModelScores
from .onnx import OnnxClassifier
from .source import Data, Samples, Source

_logger = logging.getLogger(__name__)

_NEXT_SENTENCE = "ForNextSentencePrediction"
# Models whose tokenizers start words with a space only if asked to.
_ADD_PREFIX_SPACE = ("bloom", "deberta", "gpt2", "longformer", "roberta")
# Largest default length for language models, in tokens: each token has as many logits as the vocabulary has entries.
_LANGUAGE_MODEL_LENGTH = 1024


def loss_of(model: str | Path) -> str:
    """Return the loss that the report in a model's folder names.

    Without a report, return the last part of `model`, with "model" in front if that part is also the name of a loss.

    Raises:
        ValueError: the file report/loss.yaml in the folder does not hold a loss.
    """
    path = Path(model) / "report" / "loss.yaml"
    if not path.is_file():
        name = Path(model).resolve().name
        return name if known_loss(name) is None else f"model {name}"
    try:
        return str(LossConfig.parse(yaml.safe_load(path.read_text(encoding="utf-8"))))
    except (ValueError, TypeError, OSError, yaml.YAMLError) as error:
        raise InputError(str(path), f"must hold the loss of a run's report, got {one_line(error)}") from error


def public_name(name: str) -> str:
    """Return a model's or dataset's name for reports, which may be published: a Hub id, or the last part of a path."""
    return Path(name).resolve().name if Path(name).exists() else name


class ModelSource(Source):
    """A trained model with its tokenizer or other processor, and a trainer that measures the model.

    `name` is a Hub id or a folder. The other arguments are those of `evaluate_model`; `options` maps names of fields
    of `InputOptions` to values. Errors that the user can correct are raised as `InputError`.
    """

    def __init__(
        self,
        name: str | Path,
        task: str | None,
        batch_size: int,
        num_bins: int,
        options: dict[str, Any],
        onnx: str | Path | None = None,
    ):
        self.name = name = str(name)
        self.onnx = None if onnx is None else str(onnx)
        self.data_notes: list[str] = []
        with explained():
            self.options = InputOptions(**options)
        with explained("model", name):
            _check_format(Path(name))
            self.config = AutoConfig.from_pretrained(name, trust_remote_code=self.options.trust_remote_code)
            _check_labels(self.config)
            _check_adapter(Path(name))
        self.calibration = recorded_calibration(self.config)
        with explained():
            self.loss = loss_of(name)
            self.task = task_of_config(self.config, task)
            if batch_size < 1:
                raise InputError("batch_size", f"must be at least 1, got {batch_size}")
            for argument, *_, is_optional in self.task.inputs:
                if not is_optional and getattr(self.options, argument) is None:
                    raise InputError(argument, f"must be given for {name!r}, of the task {self.task.name}, got None")
            group, questions = self.options.group, self.options.question_column
            asks = questions is not None or self.options.labels is not None
            if group is not None and self.task.generates and not asks:
                given = f"{name!r}, of the task {self.task.name}, got {group!r}"
                raise InputError("group", f"must not be given for {given}")
            if self.onnx is not None and not self.task.takes_affine:
                raise InputError("onnx", f"must not be given for {name!r}, of the task {self.task.name}, got {onnx!r}")
            self._set_problem_type()
            arguments = FocalSeq2SeqTrainingArguments if self.is_seq2seq else FocalTrainingArguments
            self.args = arguments(
                gettempdir(),  # nothing is written there
                per_device_eval_batch_size=batch_size,
                calibration_bins=num_bins,
                use_cpu=not torch.accelerator.is_available(),  # else processes on CPUs would each measure everything
                # The forward method of an ONNX model names no inputs.
                remove_unused_columns=self.task.takes_texts and self.onnx is None,
            )

    def _set_problem_type(self) -> None:
        """Set the problem type that the options give, or that of a sigmoid for one logit, which has no softmax."""
        problem_type = self.config.problem_type
        has_one = self.task.labels == "label_column" and self.config.num_labels == 1
        if self.options.problem_type is not None:
            self.config.problem_type = self.options.problem_type
        elif has_one and problem_type in (None, "regression"):
            self.config.problem_type = MULTI_LABEL
            self.data_notes.append(
                f"the model has one logit and the problem_type {problem_type!r}: its labels are taken as 0 and 1, and "
                f"its probability as a sigmoid, so the problem_type becomes {MULTI_LABEL!r}"
            )

    cross_fits_temperatures = False
    is_published = True

    @property
    def was_calibrated(self) -> bool:
        """Whether the model comes with a correction, according to its config."""
        return bool(self.calibration)

    @property
    def has_one_sigmoid(self) -> bool:
        return self.config.problem_type == MULTI_LABEL and self.config.num_labels == 1

    @property
    def is_seq2seq(self) -> bool:
        return self.task.trainer == "FocalSeq2Seq"

    @cached_property
    def processor(self) -> Any:
        """The tokenizer, image processor, or feature extractor as it was saved with the model."""
        with explained("model", self.name):
            processor = getattr(transformers, self.task.processor)
            return processor.from_pretrained(self.name, trust_remote_code=self.options.trust_remote_code)

    @cached_property
    def encoder(self) -> Any:
        """The processor that encodes inputs. For texts, a copy of the tokenizer with other padding and languages."""
        if not self.task.takes_texts:
            return self.processor
        spaced = self.task.unit == "words" and self.config.model_type in _ADD_PREFIX_SPACE
        with explained("model", self.name):
            options = {"add_prefix_space": True} if spaced else {}
            options["trust_remote_code"] = self.options.trust_remote_code
            encoder = AutoTokenizer.from_pretrained(self.name, **options)
        if self.task.auto_class == "AutoModelForCausalLM":  # padding is not measured, so any token may pad
            encoder.padding_side = "right"
            encoder.pad_token = encoder.pad_token or encoder.eos_token
        elif getattr(encoder, "pad_token", "") is None and (pad := _pad_token_id(self.config)) is not None:
            encoder.pad_token = encoder.convert_ids_to_tokens(pad)
        if len(encoder) <= len(encoder.all_special_tokens):
            raise InputError("model", f"must come with its tokenizer, got {self.name!r} without a vocabulary")
        if self.task.unit == "words" and not encoder.is_fast:
            raise InputError(
                "model", f"must have a fast tokenizer, for word indices, got {self.name!r} with a slow one"
            )
        if getattr(encoder, "pad_token", "") is None and self.args.per_device_eval_batch_size > 1:
            raise InputError(
                "batch_size",
                f"must be 1 for {self.name!r}, whose tokenizer has no token for padding, got "
                f"{self.args.per_device_eval_batch_size}",
            )
        if self.is_seq2seq:
            self._set_languages(encoder)
        with explained("model", self.name):  # malformed settings cause errors only when the tokenizer is used
            tokens = encoder("a")["input_ids"]
            if encoder.pad_token is not None:
                tokens = encoder.pad([encoder("a"), encoder("b c")])["input_ids"][0] + [encoder.pad_token_id]
        largest, vocab_size = max(tokens, default=0), getattr(self.config.get_text_config(), "vocab_size", None)
        if vocab_size is not None and largest >= vocab_size:
            raise InputError(
                "model",
                f"must have an embedding for each token, got {self.name!r} with {vocab_size} embeddings, whose "
                f"tokenizer gives the token id {largest}",
            )
        return encoder

    def _set_languages(self, tokenizer: Any) -> None:
        """Set the source and target languages of a multilingual tokenizer, whose default languages would be wrong."""
        is_multilingual = hasattr(tokenizer, "tgt_lang")
        # Special tokens mark the language. M2M100 lists these tokens in a table of its own.
        table = getattr(tokenizer, "lang_code_to_id", {})
        marks = {*tokenizer.all_special_ids, *table.values()} - {tokenizer.unk_token_id}
        for argument, attribute, side in (
            ("source_lang", "src_lang", "text"),
            ("target_lang", "tgt_lang", "text_target"),
        ):
            language = getattr(self.options, argument)
            if not is_multilingual:
                if language is not None:
                    raise InputError(argument, f"must not be given for {self.name!r}, got {language!r}")
                continue
            if language is None:
                raise InputError(argument, f"must be given for {self.name!r}, a multilingual model, got None")
            try:
                setattr(tokenizer, attribute, language)
                is_known = marks.issuperset(tokenizer(**{side: ""})["input_ids"])
            except KeyError:
                is_known = False
            if not is_known:
                raise InputError(argument, f"must be a language of {self.name!r}, got {language!r}")

    @cached_property
    def max_length(self) -> int:
        """The number of tokens after which a text is truncated."""
        with explained():
            trust = self.options.trust_remote_code
            length = input_length(self.name, self.encoder, self.options.max_length, trust_remote_code=trust)
        limited = self.task.generates and self.options.max_length is None
        return min(length, _LANGUAGE_MODEL_LENGTH) if limited else length

    @cached_property
    def model(self) -> Any:
        """The `PreTrainedModel`, or the `OnnxClassifier` if an ONNX file is given."""
        model = self._torch_model() if self.onnx is None else self._onnx_model(self.onnx)
        if self.config.problem_type == MULTI_LABEL:
            model.config.problem_type = MULTI_LABEL  # with which every library applies a sigmoid
        if self.has_one_sigmoid:
            set_sigmoid(model.config)
        return model

    def _onnx_model(self, path: str) -> OnnxClassifier:
        inputs = self.encoder("a") if self.task.takes_texts else self.encoder.model_input_names
        model = OnnxClassifier(path, self.config, {*inputs})
        self.data_notes.append(f"the logits are those of {public_name(path)!r}, which {model.runtime} computes")
        if "attention_mask" in inputs and "attention_mask" not in {part.name for part in model.session.get_inputs()}:
            self.data_notes.append(
                "the ONNX graph has no input attention_mask, so padding may change its logits: export it with "
                "attention_mask, or use --batch_size 1, which pads nothing"
            )
        return model

    def _torch_model(self) -> PreTrainedModel:
        with explained("model", self.name):
            try:
                scores_pairs = (self.config.architectures or [""])[0].endswith(_NEXT_SENTENCE)
                auto = getattr(
                    transformers, "AutoModelForNextSentencePrediction" if scores_pairs else self.task.auto_class
                )
                trust = self.options.trust_remote_code
                model, loaded = auto.from_pretrained(self.name, output_loading_info=True, trust_remote_code=trust)
            except ValueError as error:
                if has_head(auto, self.config):
                    raise
                kind = type(self.config).__name__
                message = f"must be one that {self.name!r}, a {kind}, has a head for, got {self.task.name!r}"
                raise InputError("task", message) from error
        if missing := ", ".join(sorted(loaded["missing_keys"])[:3]):
            raise InputError(
                "model", f"must have a trained head for {self.task.name}, got {self.name!r} without {missing}"
            )
        needed = {name for name, of in signature(model.forward).parameters.items() if of.default is of.empty}
        needed -= {"args", "kwargs", *self.encoder.model_input_names}
        if needed:
            expected = f"must need no more than its {self.task.processor} gives"
            raise InputError("model", f"{expected}, got {self.name!r}, which needs {', '.join(sorted(needed))}")
        if self.task.takes_texts and self.task.labels == "label_column":
            self._match_padding(model)
        return model

    def _match_padding(self, model: PreTrainedModel) -> None:
        """Give the config of a classifier the tokenizer's padding token; refuse one whose padding changes the logits.

        A decoder's head reads the last token that is not padding according to the config.
        """
        pad_token_id, padding = _pad_token_id(model.config), self.encoder.pad_token_id
        if padding is None or pad_token_id == padding:
            return
        if pad_token_id is None:
            model.config.get_text_config().pad_token_id = model.config.pad_token_id = padding
            return
        texts, device = ["a", "a longer text, so that the first one is padded"], model.device
        with torch.no_grad():
            alone = model(**self.encoder(texts[:1], return_tensors="pt").to(device)).logits
            padded = model(**self.encoder(texts, return_tensors="pt", padding=True).to(device)).logits[:1]
        if not torch.allclose(alone, padded, rtol=1e-2, atol=1e-2):
            raise InputError(
                "model",
                f"must have the padding token of its tokenizer, got {self.name!r}, whose config has "
                f"pad_token_id {pad_token_id} and whose tokenizer has {padding}: its logits change with the "
                "padding, so set pad_token_id to the value with which it was trained",
            )

    @cached_property
    def trainer(self) -> FocalTrainer:
        kind = FocalSeq2SeqTrainer if self.is_seq2seq else FocalTrainer
        model = self.model
        use_cache = getattr(model.config, "use_cache", None)
        with explained():
            trainer = kind(model, self.args, data_collator=self.task.collator(self.encoder, model))
        if use_cache is not None:  # Trainer changes it for training
            model.config.use_cache = use_cache
        return trainer

    def scores(self, data: Any) -> Scores:
        return self.read(Data("data", data)).collected()

    def read(self, data: Data) -> "ModelScores":
        source, samples = self.load(data)
        return ModelScores(self, source, samples, *self.encode(source, samples))

    def load(self, data: Data) -> tuple[str, Dataset]:
        """Load a file or split (`dataset_location`). Return its name in reports, and what `select_inputs` returns."""
        argument, name = data.argument, str(data.value)
        with explained():
            path, config, part = dataset_location(argument, name, data.split, data.default_split)
        source = f"{argument} {':'.join(filter(None, (public_name(path), config)))!r}"
        source = f"split {part!r} of {source}" if part else source
        with self.args.main_process_first(desc="loading the data"):
            with explained("dataset", name):
                loaded = load_one_split(argument, name, part)
            with explained():
                options = self.options if data.clusters else replace(self.options, cluster_column=None)
                options = options if data.groups else replace(options, group=None)
                samples = self.select(source, loaded, options)
        several = self.config.problem_type == MULTI_LABEL and "," in self.options.label_column
        if several and column_order(self.config, self.options) is None:
            labels = some_of(self.config.id2label.values())
            self.data_notes.append(f"no column of {source} has a label's name: they are taken in the order {labels}")
        return source, samples

    def select(self, source: str, split: Dataset, options: InputOptions) -> Dataset:
        return select_inputs(self.task, source, split, self.config, options)

    def encode(self, source: str, samples: Dataset) -> tuple[Dataset, np.ndarray]:
        """Encode samples for the trainer, and note in `data_notes` how many are truncated or not measured.

        `source` is the name of the data in the notes. Also return which row of `samples` each encoded one is from.
        """
        encoder, max_length = self.encoder, self.max_length if self.task.takes_texts else 0
        samples = samples.remove_columns([name for name in (CLUSTER, GROUP) if name in samples.column_names])
        with self.args.main_process_first(desc="encoding the data"):
            encoded, rows, count = encode_inputs(self.task, samples, encoder, max_length, self.options.source_prefix)
        if self.task.unit == "words":
            of_words = ([label for tags in part["labels"] for label in tags] for part in (samples, encoded))
            total, measured = (len(labels) - labels.count(-100) for labels in of_words)
            if measured < total:
                self.data_notes.append(
                    f"{total - measured:,} of the {total:,} words of {source} are not measured: without tokens, or "
                    f"after the first {max_length:,} tokens"
                )
        elif count:
            rest = ", and the rest is not measured" if self.task.unit == "tokens" else ""
            self.data_notes.append(
                f"{count:,} of the {len(samples):,} texts of {source} are truncated to {max_length:,} tokens{rest}"
            )
        return encoded, rows

    @property
    def takes_affine(self) -> bool:
        """Whether vector and matrix scaling can be fitted: each sample has one label, and each logit one class."""
        return self.task.takes_affine and self.config.problem_type != MULTI_LABEL

    def check_fit(self, method: str | None, per_label: bool, goal: ThresholdGoal | None, new_prior: Any) -> None:
        labels, method = self.link == "sigmoid", method or "temperature"
        if labels and method not in OF_LINK["sigmoid"]:
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
            if not (self.task.takes_affine and self.task.has_independent_predictions):
                raise InputError("new_prior", f"must not be given for {self.name!r}, of the task {self.task.name}")
            check_shares("new_prior", new_prior, self.config.num_labels, self.link)

    def default_method(self, scores: ScoreSet, objective: str, per_label: bool) -> str:
        has_choice = self.takes_affine and self.link == "softmax" and objective == "nll" and not per_label
        return default_correction(has_choice, len(scores))

    def check_saving(self, new_prior: Any) -> None:
        if not self.task.generates:
            self._check_foldable()
        if new_prior is not None and self.link == "softmax" and not self.has_bias:
            raise InputError("new_prior", f"must not be given for {self.name!r}, whose head has no bias for the shift")

    @property
    def has_bias(self) -> bool:
        """Whether offsets of a correction can be kept: in the head or, for another kind of source, elsewhere."""
        return has_bias(self.model)

    def _check_foldable(self) -> None:
        """Raise `InputError` if temperatures cannot be folded into this classifier's head, whose weights stay."""
        try:
            fold(self.model, Correction())
        except (TypeError, ValueError) as error:
            raise InputError("the temperature", f"cannot be folded into this model: {one_line(error)}") from error

    @property
    def link(self) -> str:  # type: ignore[override]
        return "sigmoid" if self.config.problem_type == MULTI_LABEL else "softmax"

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the classes or labels; () for a head of multiple choice, and for a vocabulary."""
        return tuple(label_names_of(self.model)) if self.task.takes_affine else ()

    @property
    def has_independent_samples(self) -> bool:  # type: ignore[override]
        return self.task.has_independent_predictions

    @property
    def is_main(self) -> bool:  # type: ignore[override]
        return self.args.process_index == 0

    def clusters_of(self, source: str, samples: Dataset) -> tuple[np.ndarray, bool, list[str]]:
        """Return keys of the clusters, int64 (N,), of data that `load` returned and named `source`.

        Samples of one cluster have the same value in the cluster column or, without one, the same first input, such as
        the question of a pair. Then return whether all clusters are independent draws, and notes for the result: texts
        that repeat so much that they leave few clusters are not taken as clusters, and the samples not as independent.
        """
        named, first = CLUSTER in samples.column_names, self.task.inputs[0]
        keys = content_hashes(sample_keys(samples, CLUSTER if named else first.name))
        column = getattr(self.options, "cluster_column" if named else first.argument)
        clusters, independent, notes = usable_clusters(keys, "samples", source, column, named)
        if clusters is None:  # a cluster for each sample
            clusters = content_hashes([(key, row) for row, key in enumerate(keys.tolist())])
        return clusters, independent and self.task.has_independent_predictions, [*notes]

    def folds(self, correction: Correction) -> bool:
        """Return whether the saved model gives corrected logits: an intercept needs a head with a bias."""
        return correction.method != "platt" or self.onnx is not None or self.has_bias

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Turn errors about the model's logits, or about too few labeled samples, into an `InputError`."""
        try:
            yield
        except InfiniteNLLError as error:
            raise InputError("", str(error)) from error
        except InputError as error:
            if error.argument == "num_folds":
                needed = "must have a label for each fold unless method is 'temperature'"
                raise InputError("dataset", f"{needed}: {error}") from error
            if error.argument == "logits":
                raise InputError(f"model {self.name!r}", f"is broken, or overflows in its dtype: {error}") from error
            raise

    def title(self, scores: ScoreSet) -> str:
        return self.loss

    def data_section(self, scores: ScoreSet) -> DataSection:
        return DataSection(
            model=public_name(self.name),
            task=self.task.name,
            options=self.options.to_dict(),
            num_processes=self.args.world_size,
            num_parameters=None if self.onnx is not None else self.model.num_parameters(),
            was_calibrated=self.was_calibrated,
        )

    def notes(self, fit: CalibrationFit | None, promises: Mapping[str, Any]) -> list[str]:
        if fit is None:
            earlier_corrections = self.calibration_notes("; it is evaluated as it is", "; it is evaluated without it")
            return [*self.data_notes, *earlier_corrections]
        on_top, earlier = "; the correction fitted here comes on top", self.calibration.get("temperature")
        if fit.temperature is not None and not fit.temperature.values and earlier is not None:
            on_top += f", T = {earlier * fit.temperature.value:.4g} together"
        lost = {
            "thresholds": "the thresholds in the model's config are removed: give precision or recall to choose new "
            "ones",
            "option_calibration": "the T for options in the model's config is removed: fit it again, to the corrected "
            "model",
        }
        removed = [note for name, note in lost.items() if getattr(self.config, name, None) and name not in promises]
        return [*removed, *self.data_notes, *self.calibration_notes(on_top, "; the one here replaces it")]

    def calibration_notes(self, if_folded: str, if_not_folded: str) -> list[str]:
        """Return a list with a note on the correction that the model's config already has; empty if there is none.

        The note ends in `if_folded` if that correction is in the model's weights, or else in `if_not_folded`.
        """
        record = self.calibration
        if not record:
            return []
        try:
            value = str(Correction.from_dict(record))
        except ValueError:  # version 0.2 did not record A and b of vector and matrix scaling
            value = f"{record['method']} scaling"
        if is_folded(record, self.task.generates):
            return [f"the model is already calibrated: its weights have {value}{if_folded}"]
        return [f"the model's config has {value}, which its weights lack{if_not_folded}"]

    def fold(self, fit: CalibrationFit, promises: dict[str, Any], result: RunResult) -> bool | None:
        """Fold the correction into the weights or, where that is impossible, store it in the config, with a note."""
        drop_promises(self.model.config, quiet=True)
        folded = self._fold(fit.correction, result)
        vars(self.model.config).update(promises)
        return folded

    def _fold(self, correction: Correction, result: RunResult) -> bool | None:
        notes, folded = result.notes, None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                fold_correction(self.model, correction)
            except ValueError as error:
                message = f"the temperature cannot be folded into this model: {error}"
                raise NotPublishedError(message, result) from error
            except TypeError as error:
                if correction.method == "platt":
                    self.model.config.calibration = calibration_record(correction, folded=False)
                    notes.append(
                        f"the slope and the intercept are in the config, not in the weights ({one_line(error)}): "
                        "apply them to the logits, as the model card shows"
                    )
                elif self.task.generates:
                    apply_calibrated_generation(self.model, result.temperature)
                    notes.append(
                        f"T is in the config, not in the weights ({one_line(error)}): call "
                        "hf_focal.calibration.apply_calibrated_generation(model) after loading the model"
                    )
                else:
                    raise
                folded = False
        notes += [str(warning.message) for warning in caught if issubclass(warning.category, RoundingWarning)]
        return folded

    def save(
        self, folder: Path, fit: CalibrationFit, fitted_on: ScoreSet, promises: dict[str, Any], result: RunResult
    ) -> None:
        """Write the corrected model, its processor, and its correction."""
        # A process that is killed leaves no half-written file under its final name, and no weights without a config.
        with TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
            self.model.save_pretrained(partial)
            self.processor.save_pretrained(partial)
            for file in sorted(Path(partial).iterdir(), key=lambda file: file.suffix in (".safetensors", ".onnx")):
                file.rename(folder / file.name)
        if result.temperature.is_fitted:
            result.temperature.save(folder / "temperature.json")
        super().save(folder, fit, fitted_on, promises, result)

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        if self.onnx is not None:
            return  # the card would load the model with Transformers
        if self.task.name == "text-classification":
            copy_settings(self.name, folder, self.has_one_sigmoid)
        super().write_card(folder, name, result, fitted_on, measured_on)

    def card_model(self, name: str) -> CardModel:
        return CardModel(name, self.task.pipeline, self.name, registering_package(self.model))

    def card_data(self, fitted_on: Samples, measured_on: Samples) -> CardData:
        fit, test = (
            dataset_location(data.argument, str(data.value), data.split, data.default_split)
            for data, _ in (fitted_on, measured_on)
        )
        dataset = fit.path if fit.path == test.path else None  # a model card can name only one
        split = test.split or ("validation" if dataset else "test")
        return CardData(dataset, test.path, split, fit.split or fit.path, test == fit)


def _pad_token_id(config: PreTrainedConfig) -> int | None:
    return getattr(config.get_text_config(), "pad_token_id", None)


def _check_format(model: Path) -> None:
    """Refuse a file of weights, and a folder of timm's `save_for_hf` that Transformers cannot build a model from."""
    config = model / "config.json"
    entries = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    if model.suffix == ".gguf":
        raise InputError(
            "model",
            f"must be a folder or a Hub id, got the GGUF file {str(model)!r}: load it with from_pretrained(folder, "
            "gguf_file=file), which needs `pip install gguf`, copy its weights into a new model, and save that "
            f"({WEBSITE}guides/language_model_classifier/#a-gguf-file has the script); or save the scores of the "
            "server that runs it, and pass --scores",
        )
    if model.is_file():
        kind = f"the file {str(model)!r}, which does not say what its weights belong to"
    elif {"architecture", "model_args"} <= entries.keys() and "model_type" not in entries:
        kind = f"{str(model)!r}, which timm saved with its own arguments"
    else:
        return
    raise InputError(
        "model",
        f"must be a folder or a Hub id that from_pretrained loads, got {kind}: load it into its model, one of timm's "
        "into TimmWrapperForImageClassification, and call save_pretrained; or save its scores, and pass --scores",
    )


def _check_adapter(folder: Path) -> None:
    """Raise `ValueError` if an adapter beside the model's own weights cannot be loaded.

    Transformers would ignore it without PEFT, and fail with PEFT.
    """
    if not (folder / "adapter_config.json").is_file():
        return
    if not any((folder / f"adapter_model.{suffix}").is_file() for suffix in ("safetensors", "bin")):
        raise ValueError(f"{str(folder)!r} has an adapter_config.json without the adapter's weights: remove it")
    if not is_peft_available():
        raise ValueError(f"{str(folder)!r} has an adapter, which needs PEFT: pip install peft")


def _check_labels(config: PreTrainedConfig) -> None:
    """Raise `ValueError` unless a config names the labels 0, 1, ... in order, which Transformers does not check."""
    labels = config.id2label
    if list(labels) != list(range(len(labels))) or not all(isinstance(name, str) for name in labels.values()):
        raise ValueError(f"its config's id2label must name the labels 0, 1, ..., got {labels!r}")
