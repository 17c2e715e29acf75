"""The keyword arguments that the functions for models and for tables hand on to `evaluate` and `calibrate`.

Type checkers and editors read them here. Tests compare them with what the two functions take.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ..reports import RunResult
from ..scores.meanings import Link, ScoreKind


class SharedArguments(TypedDict, total=False):
    """What `evaluate` and `calibrate` have in common, whatever the source is."""

    precision: float | None
    recall: float | None
    f1: bool
    cost: tuple[float, float] | None
    confidence: float
    simultaneous: bool
    num_bins: int
    output: str | Path | None
    save_scores: str | Path | None
    no_examples: bool
    on_result: Callable[[RunResult], None] | None


class EvaluationArguments(SharedArguments, total=False):
    """What `evaluate` takes beside a source, its options, and data."""

    coverage: float | None


class CalibrationArguments(SharedArguments, total=False):
    """What `calibrate` takes, for every kind of source, beside the source, its options, and data."""

    per_label: bool
    new_prior: float | Sequence[float] | None
    publish_examples: bool


class ModelArguments(TypedDict, total=False):
    """The options of a model: how it is loaded, and the fields of `InputOptions`."""

    onnx: str | Path | None
    task: str | None
    batch_size: int
    text_column: str
    text_pair_column: str | None
    label_column: str
    label_map: Mapping[str, str] | None
    cluster_column: str | None
    group: str | None
    max_samples: int | None
    max_length: int | None
    positive_from: float | None
    label_format: str | None
    problem_type: str | None
    image_column: str
    audio_column: str
    token_column: str
    tag_column: str
    source_column: str
    target_column: str
    source_prefix: str
    source_lang: str | None
    target_lang: str | None
    question_column: str | None
    choices_column: str
    answer_column: str
    score: str
    letters: str | None
    template: str | None
    chat: bool
    labels: str | Sequence[str] | None
    prompt: str | None
    system: str | None
    save_as: str | None
    scores_folder: str | None
    trust_remote_code: bool


class TableArguments(TypedDict, total=False):
    """The options of a table: the column of texts that a page shows, and the fields of `TableOptions`."""

    text_column: str | None
    score_column: str | Sequence[str] | None
    label_column: str | None
    correct_column: str | None
    group: str | None
    cluster_column: str | None
    classes: Sequence[str]
    kind: ScoreKind | None
    floor: float | None
    link: Link | None


class ModelEvaluationArguments(EvaluationArguments, ModelArguments, total=False):
    """What `evaluate_model` hands on."""

    reference: str | None


class ModelCalibrationArguments(CalibrationArguments, ModelArguments, total=False):
    """What `calibrate_model` hands on."""

    objective: str
    method: str | None
    push_to_hub: str | None
    private: bool | None


class TableEvaluationArguments(EvaluationArguments, TableArguments, total=False):
    """What `evaluate_scores` hands on."""

    reference: Any


class TableCalibrationArguments(CalibrationArguments, TableArguments, total=False):
    """What `calibrate_scores` hands on."""


def check_keywords(function: str, given: Mapping[str, Any], known: Any) -> None:
    """Raise `TypeError`, as Python does, for keyword arguments that are no keys of the TypedDict `known`."""
    if unknown := [name for name in given if name not in known.__optional_keys__]:
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")
