"""Loading of a trained model and its data, and the trainer that measures the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch
import transformers
import yaml
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.utils import is_peft_available

from ..calibration import Correction, Temperature
from ..calibration.clusters import are_clustered, content_hashes
from ..calibration.corrections import is_folded, recorded_calibration
from ..calibration.cross_fitting import OF_LINK
from ..calibration.folding import has_bias
from ..calibration.prior_shift import check_shares, shares_of, shift_fit
from ..calibration.temperature_scaling import InfiniteNLLError
from ..calibration.thresholds import ThresholdSamples
from ..hub.cross_encoder_folder import set_sigmoid
from ..losses import LossConfig
from ..metrics import CalibrationMetrics
from ..reports import RunResult
from ..reports.run_results import known_loss
from ..tasks.column_selection import sample_keys, some_of
from ..tasks.dataset_loading import dataset_location, load_one_split
from ..tasks.heads import has_head, label_names_of, task_of_config
from ..tasks.input_encoding import encode_inputs, input_length
from ..tasks.input_errors import explained, one_line
from ..tasks.input_options import InputOptions
from ..tasks.labeled_inputs import CLUSTER, column_order, input_keys, select_inputs
from ..tasks.task import MULTI_LABEL, Task
from ..trainer import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from ..trainer.evaluation_and_correction import CollectedHits
from ..validation import InputError
from .onnx import OnnxClassifier

_NEXT_SENTENCE = "ForNextSentencePrediction"
_FEWEST_CLUSTERS = 10  # with fewer that were found, rather than named, the samples are not cut by them
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


class TrainedModel:
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
            if self.onnx is not None and not self.task.takes_affine:
                raise InputError("onnx", f"must not be given for {name!r}, of the task {self.task.name}, got {onnx!r}")
            if self.config.model_type == "tree_lstm":
                raise InputError("model", f"must take texts, images or words, got {name!r}, which takes trees")
            self._set_problem_type()
            arguments = FocalSeq2SeqTrainingArguments if self.is_seq2seq else FocalTrainingArguments
            self.args = arguments(
                gettempdir(),  # nothing is written there
                per_device_eval_batch_size=batch_size,
                calibration_bins=num_bins,
                # The forward method of an ONNX model names no inputs.
                remove_unused_columns=self.task.takes_texts and self.onnx is None,
            )

    def _set_problem_type(self) -> None:
        """Set the problem type that the options give, or that of a sigmoid for one logit, which has no softmax."""
        given = self.config.problem_type
        has_one = self.task.labels == "label_column" and self.config.num_labels == 1
        if self.options.problem_type is not None:
            self.config.problem_type = self.options.problem_type
        elif has_one and given in (None, "regression"):
            self.config.problem_type = MULTI_LABEL
            self.data_notes.append(
                f"the model has one logit and the problem_type {given!r}: its labels are taken as 0 and 1, and its "
                f"probability as a sigmoid, so the problem_type becomes {MULTI_LABEL!r}"
            )

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
        if self.task.is_causal:  # padding is not measured, so any token may pad
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
        given = self.encoder("a") if self.task.takes_texts else self.encoder.model_input_names
        model = OnnxClassifier(path, self.config, {*given})
        self.data_notes.append(f"the logits are those of {public_name(path)!r}, which {model.runtime} computes")
        return model

    def _torch_model(self) -> PreTrainedModel:
        with explained("model", self.name):
            try:
                of_pairs = (self.config.architectures or [""])[0].endswith(_NEXT_SENTENCE)
                auto = getattr(
                    transformers, "AutoModelForNextSentencePrediction" if of_pairs else self.task.auto_class
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
        if self.task.takes_texts and self.task.labels == "label_column":
            self._match_padding(model)
        return model

    def _match_padding(self, model: PreTrainedModel) -> None:
        """Give the config of a classifier the tokenizer's padding token; refuse one whose padding changes the logits.

        A decoder's head reads the last token that is not padding according to the config.
        """
        own, padding = _pad_token_id(model.config), self.encoder.pad_token_id
        if padding is None or own == padding:
            return
        if own is None:
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
                f"pad_token_id {own} and whose tokenizer has {padding}: its logits change with the "
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

    def load(self, argument: str, name: str, split: str | None, default: str) -> tuple[str, Dataset]:
        """Load a file or split (`dataset_location`). Return its name in reports, and what `select_inputs` returns."""
        with explained():
            path, config, part = dataset_location(argument, name, split, default)
        source = f"{argument} {':'.join(filter(None, (public_name(path), config)))!r}"
        source = f"split {part!r} of {source}" if part else source
        with self.args.main_process_first(desc="loading the data"):
            with explained("dataset", name):
                loaded = load_one_split(argument, name, part)
            with explained():
                samples = select_inputs(self.task, source, loaded, self.config, self.options)
        several = self.config.problem_type == MULTI_LABEL and "," in self.options.label_column
        if several and column_order(self.config, self.options) is None:
            labels = some_of(self.config.id2label.values())
            self.data_notes.append(f"no column of {source} has a label's name: they are taken in the order {labels}")
        return source, samples

    def encode(self, source: str, samples: Dataset) -> Any:
        """Encode samples for the trainer, and note in `data_notes` how many are truncated or not measured.

        `source` is the name of the data in the notes.
        """
        encoder, max_length = self.encoder, self.max_length if self.task.takes_texts else 0
        samples = samples.remove_columns(CLUSTER) if CLUSTER in samples.column_names else samples
        with self.args.main_process_first(desc="encoding the data"):
            encoded, count = encode_inputs(self.task, samples, encoder, max_length, self.options.source_prefix)
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
        return encoded

    @property
    def takes_affine(self) -> bool:
        """Whether vector and matrix scaling can be fitted: each sample has one label, and each logit one class."""
        return self.task.takes_affine and self.config.problem_type != MULTI_LABEL

    def check_fit(self, calibration: str, per_label: bool) -> None:
        """Raise `InputError` for a correction that this kind of model does not support."""
        labels = self.config.problem_type == MULTI_LABEL
        if labels and calibration not in OF_LINK["sigmoid"]:
            kind = "a model with a sigmoid for each label"
            raise InputError(
                "calibration", f"must be 'none', 'temperature', 'platt', or 'auto' for {kind}, got {calibration!r}"
            )
        if not labels and calibration == "platt":
            problem = self.config.problem_type
            raise InputError("calibration", f"'platt' needs problem_type {MULTI_LABEL!r}, got {problem!r}")
        if calibration != "temperature" and not self.task.takes_affine:
            kind = "a head of multiple choice" if self.task.name == "multiple-choice-head" else "a language model"
            raise InputError("calibration", f"must be 'temperature' for {kind}, got {calibration!r}")
        if per_label and not labels:
            problem = self.config.problem_type
            raise InputError("per_label", f"needs a model whose problem_type is {MULTI_LABEL!r}, got {problem!r}")

    @property
    def link(self) -> str:
        return "sigmoid" if self.config.problem_type == MULTI_LABEL else "softmax"

    def check_shift(self, new_prior: Any) -> None:
        """Raise `InputError` if the prior of this kind of model cannot be shifted to `new_prior`."""
        if not (self.task.takes_affine and self.task.has_independent_predictions):
            raise InputError("new_prior", f"must not be given for {self.name!r}, of the task {self.task.name}")
        check_shares("new_prior", new_prior, self.config.num_labels, self.link)

    def shares_of(self, samples: Dataset) -> np.ndarray:
        """Return the share of each label or class in data that `load` returned."""
        labels, names = np.array(samples["labels"][:]), [*self.config.id2label.values()]
        return shares_of(labels, self.config.num_labels, self.link, "dataset", names)

    def shift(self, train_prior: np.ndarray, new_prior: Any) -> dict[str, Any]:
        """Shift the correction that `fit` left in the trainer, as `shift_fit` does. Return its details."""
        trainer, names = self.trainer, [*self.config.id2label.values()]
        assert trainer.calibration_fit is not None  # `fit` cross-fitted it
        fit, details = shift_fit(trainer.calibration_fit, train_prior, new_prior, self.link, names)
        trainer.calibration_fit, trainer.temperature = fit, None
        return details

    def clusters_of(self, source: str, samples: Dataset) -> tuple[np.ndarray, bool, list[str]]:
        """Return keys of the clusters, int64 (N,), of data that `load` returned and named `source`.

        Samples of one cluster have the same value in the cluster column or, without one, the same first input, such as
        the question of a pair. Then return whether all clusters are independent draws, and notes for the result: texts
        that repeat so much that they leave few clusters are not taken as clusters, and the samples not as independent.
        """
        named, first = CLUSTER in samples.column_names, self.task.inputs[0]
        keys = content_hashes(sample_keys(samples, CLUSTER if named else first.name))
        independent = self.task.has_independent_predictions
        number = len(np.unique(keys))
        if not are_clustered(keys):
            return keys, independent, []
        column = getattr(self.options, "cluster_column" if named else first.argument)
        found = f"the {len(keys):,} samples of {source} have {number:,} values of {column!r}"
        if named or number >= _FEWEST_CLUSTERS:
            return keys, independent, [f"{found}: folds and thresholds are drawn by these clusters"]
        whole = content_hashes([(key, row) for row, key in enumerate(keys.tolist())])
        note = f"{found}, so they may depend on each other: name what is drawn independently as cluster_column"
        return whole, False, [note]

    def hits(self, encoded: Any, clusters: np.ndarray | None, are_independent: bool) -> ThresholdSamples:
        """Return the log-odds and the hits of encoded data, on which thresholds are chosen."""
        used = clusters if are_clustered(clusters) else None
        with self._measured():
            return self.trainer.collect(encoded, CollectedHits(self.link, used, are_independent))

    def fit(
        self,
        encoded: Any,
        objective: str,
        calibration: str,
        per_label: bool,
        cross_fit: bool = False,
        clusters: np.ndarray | None = None,
    ) -> Temperature | None:
        """Fit a correction, which the trainer keeps. Return the correction if it is a temperature, or else None.

        A correction other than a temperature is always cross-fitted, and a temperature only with `cross_fit`.
        `clusters` are those of the samples.
        """
        with self._measured():
            if calibration == "temperature" and not cross_fit:
                return self.trainer.fit_temperature(encoded, objective, per_label)
            self.trainer.fit_correction(encoded, calibration, per_label, clusters=clusters)
            return self.trainer.temperature

    @property
    def folds(self) -> bool:
        """Whether the fitted correction can be folded: the intercepts of Platt scaling need a head with a bias."""
        correction = self.trainer.correction
        return correction is None or correction.method != "platt" or self.onnx is not None or has_bias(self.model)

    def measure(self, encoded: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        with self._measured():
            return self.trainer.measure(encoded)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Turn errors about the model's logits, or about too few labeled samples, into an `InputError`."""
        try:
            yield
        except InfiniteNLLError as error:
            raise InputError("", str(error)) from error
        except InputError as error:
            if error.argument == "num_folds":
                needed = "must have a label for each fold unless calibration is 'temperature'"
                raise InputError("dataset", f"{needed}: {error}") from error
            if error.argument == "logits":
                raise InputError(f"model {self.name!r}", f"is broken, or overflows in its dtype: {error}") from error
            raise

    def result(
        self,
        temperature: Temperature | None,
        before: CalibrationMetrics,
        after: CalibrationMetrics | None,
        **details: Any,
    ) -> RunResult:
        """Make a `RunResult` from what `fit` and `measure` returned, and from details of the model and the data."""
        details |= {
            "model": public_name(self.name),
            "task": self.task.name,
            "options": self.options.to_dict(),
            "num_processes": self.args.world_size,
            "was_calibrated": self.was_calibrated,
        }
        if self.onnx is None:
            details["num_parameters"] = self.model.num_parameters()
        names = [] if self.task.name == "multiple-choice-head" else label_names_of(self.model)
        independent = self.task.has_independent_predictions
        return RunResult.of(
            self.loss, temperature, before, after, details=details, intervals=independent, label_names=names
        )

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


def _pad_token_id(config: PreTrainedConfig) -> int | None:
    return getattr(config.get_text_config(), "pad_token_id", None)


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


def overlap_notes(task: Task, samples: Dataset, others: Dataset, kind: str, use: str) -> list[str]:
    """Return a list with a note if some inputs of `others` are also in `samples`, or else an empty list.

    The note calls `others` the `kind` samples and `samples` the `use` data. If all inputs of `others` are in
    `samples`, raise an `InputError` that names the argument "<kind>_dataset".
    """
    known = set(input_keys(task, samples))
    shared = sum(key in known for key in input_keys(task, others))
    if shared == len(others):
        raise InputError(f"{kind}_dataset", "must hold samples that are not in dataset, got only samples that are")
    return [f"{shared:,} of the {len(others):,} {kind} samples are also in the {use} data"] if shared else []
