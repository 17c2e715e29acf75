"""Language models as classifiers: their scores are those of label words after a prompt with the data's texts."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Value

from ..calibration import CalibrationFit, Correction
from ..choices.label_words import LabelWords
from ..choices.label_words_model import LabelWordsModel, set_labels
from ..choices.openai_requests import openai_requests, vllm_classifier
from ..choices.sequence_classifier import sequence_classifier
from ..errors import InputError, NotPublishedError
from ..hub.card_contents import CardModel
from ..hub.label_words_usage import classifier_usage, correction_usage
from ..reports import RunResult
from ..tasks.input_options import InputOptions
from ..tasks.input_selection import select_inputs, with_known_columns
from ..tasks.label_numbers import ModelLabels, class_numbers
from ..tasks.named_split import NamedSplit
from ..tasks.task import PROMPT_VALUES
from ..utils.constants import MULTI_LABEL
from .model import ModelSettings, ModelSource
from .model_data import EncodedSamples, LoadedSamples
from .model_names import public_name
from .model_output import ModelOutput
from .model_scores import ModelScores
from .source import FoldOutcome

_MOST_TRIED = 8  # rows on which a classifier is tried before it is saved


class LabelWordsOutput(ModelOutput):
    """``correction.json``, with the prompt and the labels' tokens, and ``openai.json`` (see `openai_requests`).

    With `saves_classifier`, also a small classifier, whose head has no bias in most families: then its weights lack
    the offsets. `name` is the language model's Hub id or folder.
    """

    def __init__(self, model: LabelWordsModel, processor: Any, name: str, saves_classifier: bool) -> None:
        super().__init__(model, processor)
        self.public_name, self.saves_classifier = public_name(name), saves_classifier
        self._tried: list[list[str]] = []  # values for the prompt, on which a classifier is tried

    def check(self, fitted_on: ModelScores) -> None:
        self._tried = fitted_on.samples["fields"][:_MOST_TRIED]
        if self.saves_classifier:
            sequence_classifier(self.model, Correction(), self._tried)

    def saved_bytes(self) -> int:
        return super().saved_bytes() if self.saves_classifier else 0

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Make the classifier, if it is to be saved, and the requests for servers.

        Raises:
            NotPublishedError: no classifier can be made of the language model.
        """
        json_files, requests_note = self._requests(fit.correction)
        entries = {"label_words": {"model": self.public_name, **self.model.words.record()}}
        if not self.saves_classifier:
            note = (
                "the correction is in correction.json, with the prompt and the labels' tokens; the language model is "
                "not changed or copied"
            )
            return FoldOutcome(False, (requests_note, note), (), json_files, entries)
        try:
            classifier, missing = sequence_classifier(self.model, fit.correction, self._tried)
        except InputError as error:
            raise NotPublishedError(str(error), result) from error
        notes = [requests_note]
        if not missing.is_identity:
            notes.append(
                f"the head of {type(classifier).__name__} has no bias: its weights have the slopes of the "
                "correction, and the offsets are in config.calibration, to be added to its logits as README.md shows"
            )
        return FoldOutcome(missing.is_identity, tuple(notes), (classifier, self.processor), json_files, entries)

    def _requests(self, correction: Correction) -> tuple[dict[str, Any], str]:
        """Return ``openai.json``, if servers can score these labels, and a note on it."""
        try:
            classifier = self._vllm_classifier(correction)
            requests = openai_requests(self.model.words, correction, self.public_name, classifier)
        except ValueError as error:
            return {}, f"there is no openai.json: {error}"
        note = "openai.json has requests for OpenAI-compatible servers, and how to correct replies"
        return {"openai.json": requests}, note

    def _vllm_classifier(self, correction: Correction) -> dict[str, Any] | None:
        try:  # as vLLM's classifier takes the labels' rows of the head
            sequence_classifier(self.model, Correction(), self._tried)
        except Exception:  # a model of another kind, such as a quantized one, only gets no settings
            return None
        return vllm_classifier(self.model.words, correction, self.model.language_model)


def read_prompt(prompt: str) -> str:
    """Return a prompt, or the text of a file: one that exists, or one with "@" before its name.

    The line break at the end of a file is not part of the prompt.
    """
    if not (prompt.startswith("@") or os.path.isfile(prompt)):
        return prompt
    try:
        return Path(prompt.removeprefix("@")).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise InputError("prompt", f"must be a text, or a file that can be read, got {prompt!r}: {error}") from error


class LabelWordsSource(ModelSource):
    """A `ModelSource` whose classes are label words, scored by a language model after a prompt."""

    def __init__(self, settings: ModelSettings) -> None:
        options = settings.options
        for argument in ("question_column", "text_pair_column"):
            if (value := getattr(options, argument)) is not None:
                raise InputError(argument, f"must not be given with labels, got {value!r}")
        labels = options.labels.split(",") if isinstance(options.labels, str) else options.labels or ()
        self.labels = tuple(label.strip() for label in labels)
        self.one_logit = options.problem_type == MULTI_LABEL
        if self.one_logit and len(self.labels) != 2:
            raise InputError("labels", f"must be two for one logit, such as no,yes, got {options.labels!r}")
        set_labels(settings.config, self.labels, self.one_logit)
        super().__init__(settings)
        self.is_published = options.save_as is not None

    @cached_property
    def words(self) -> LabelWords:
        """The prompt and the labels as tokens."""
        options = self.options
        return LabelWords(
            self.encoder,
            self.labels,
            read_prompt(str(options.prompt)),
            chat=options.chat,
            system=options.system,
            max_length=self.max_length,
            one_logit=self.one_logit,
        )

    def load_model(self) -> LabelWordsModel:
        return LabelWordsModel(self.load_pretrained(), self.words, self.config)

    @cached_property
    def output(self) -> LabelWordsOutput:
        return LabelWordsOutput(self.model, self.encoder, self.name, self.options.save_as is not None)

    def select(self, split: NamedSplit, options: InputOptions) -> tuple[Dataset, list[str]]:
        fields, (data_name, rows) = self.words.prompt.fields, split
        if missing := [field for field in fields if field not in rows.column_names]:
            names = ", ".join(map(repr, missing))
            raise InputError(
                "prompt", f"must have names of columns of {data_name}, {rows.column_names}, in braces, got {names}"
            )
        values, notes = [], []
        for field in fields:
            texts, empty = _texts(split, field)
            values.append(texts)
            if empty:
                notes.append(f"{empty:,} missing texts in {field!r} of {data_name} are taken as empty")
        rows = rows.add_column(PROMPT_VALUES, [list(row) for row in zip(*values, strict=True)])
        options = with_known_columns(split, options, "label_column")
        if self.one_logit and _names_labels(rows, options):
            two_classes = ModelLabels(dict(enumerate(self.labels)), options.label_map or {})
            numbers = class_numbers(two_classes, split, options.label_column)
            rows = rows.remove_columns(options.label_column)
            rows = rows.add_column(options.label_column, np.where(numbers < 0, np.nan, numbers))
            options = replace(options, label_map=None)
        selected = select_inputs(self.task, NamedSplit(data_name, rows), self.config, options)
        return selected.samples, notes + selected.notes

    def encode(self, loaded: LoadedSamples) -> EncodedSamples:
        rows, data_name = loaded.samples["fields"][:], loaded.data_name
        encoded, count = self.words.encode(rows)
        special_note = self.words.special_tokens_note(rows, data_name)
        notes = [special_note] if special_note else []
        if count:
            notes.append(
                f"the texts of {count:,} of the {len(rows):,} prompts of {data_name} are shortened, so that the "
                f"prompts have at most {self.words.limit:,} tokens"
            )
        order = np.argsort([-len(ids) for ids in encoded], kind="stable")  # the longest first
        ids, labels = [encoded[row] for row in order], loaded.samples["labels"][:]
        columns = {"input_ids": ids, "attention_mask": [[1] * len(prompt_ids) for prompt_ids in ids]}
        inputs = Dataset.from_dict(columns | {"labels": [labels[row] for row in order]})
        return EncodedSamples(inputs, order, tuple(notes))

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        return [*self.model_notes(), *self.earlier_correction("; the scores include it", "; it is for generated text")]

    def model_notes(self) -> list[str]:
        return [self.words.note(), *super().model_notes()]

    def card_model(self, name: str, result: RunResult) -> CardModel:
        words, is_model = self.words, self.options.save_as is not None
        if is_model:
            is_folded = result.fit.folded is not False
            usage = classifier_usage(
                name, words.prompt.fields, self.classes, one_logit=self.one_logit, is_folded=is_folded
            )
        else:
            settings = {"chat": words.chat, "system": words.system, "one_logit": words.one_logit}
            prompt, model = words.prompt, public_name(self.name)
            is_folder = Path(self.name).exists()
            usage = correction_usage(
                model, prompt.template, prompt.fields, words.labels, self.classes, settings, is_folder=is_folder
            )
        return CardModel(name, self.task.pipeline, self.name, is_correction=not is_model, usage=usage)


def _names_labels(rows: Dataset, options: InputOptions) -> bool:
    """Return whether the labels are names, such as no and yes, rather than 0 and 1, or grades."""
    feature = rows.features.get(options.label_column)
    is_named = isinstance(feature, ClassLabel) or getattr(feature, "dtype", "") in ("string", "large_string")
    return is_named or (feature is not None and bool(options.label_map))


def _texts(split: NamedSplit, column: str) -> tuple[list[str], int]:
    """Return the values of a column as texts, and how many are missing texts, which become "".

    Besides texts, a column may hold numbers and a `ClassLabel`, whose names are taken. In a CSV file, an empty text is
    a missing one.
    """
    feature, values = split.rows.features[column], split.rows[column][:]
    if not isinstance(feature, Value | ClassLabel) or getattr(feature, "dtype", "") in ("binary", "large_binary"):
        raise InputError("prompt", f"must name columns of texts or numbers, got {split.where(column)} with {feature}")
    missing, are_texts = values.count(None), feature.dtype in ("string", "large_string", "null")
    if missing and not are_texts:
        raise InputError("prompt", f"must name columns without missing numbers, got {split.where(column)}")
    if isinstance(feature, ClassLabel):
        return [feature.names[value] for value in values], 0
    return ["" if value is None else str(value) for value in values], missing
