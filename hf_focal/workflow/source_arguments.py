"""What gives the scores, as the arguments of each public function name it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..scores.table_options import TableOptions
from ..sources.source import BaseSource, Data, as_source
from ..sources.table import TableSource
from ..tasks.input_options import InputOptions

MODEL_OPTIONS = frozenset(option.name for option in fields(InputOptions))
TABLE_OPTIONS = TableOptions.names()
_LOADING = {"onnx", "task", "batch_size"}  # options of a model that say nothing of its data


def check_keywords(function: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `TypeError`, as Python does, for keyword arguments that a public function does not take."""
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")


class SourceArguments(ABC):
    """A source and its data, as a user named them."""

    @abstractmethod
    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        """Return the source, whose calibration errors have `num_bins` bins, and its data."""


@dataclass(frozen=True, kw_only=True)
class ModelArguments(SourceArguments):
    """A trained model and its data; `options` are fields of `InputOptions`, and the others as for `evaluate_model`."""

    model: str | Path
    data: Data
    onnx: str | Path | None = None
    task: str | None = None
    batch_size: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        from ..sources.model_opening import open_model  # this imports Transformers, which other sources do not need

        source = open_model(
            self.model, num_bins, task=self.task, batch_size=self.batch_size, onnx=self.onnx, **self.options
        )
        return source, self.data


@dataclass(frozen=True, kw_only=True)
class TableArguments(SourceArguments):
    """A table of scores; `options` are those of `read_scores`, and perhaps `text_column`."""

    data: Data
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        return TableSource(num_bins=num_bins, **self.options), self.data


@dataclass(frozen=True, kw_only=True)
class ObjectArguments(SourceArguments):
    """An object with `link`, `classes`, and `scores(data)`, and the data that it takes."""

    source: Any
    data: Data

    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        return as_source(self.source), self.data


def source_arguments(
    function: str, source: Any, data: Any, scores: Any, options: Mapping[str, Any], default_split: str
) -> SourceArguments:
    """Return what the arguments of `evaluate` or `calibrate` stand for, which take every kind of source.

    Args:
        function: which of the two.
        source, data, scores, options: its arguments.
        default_split: the split of data that are a dataset with several.

    Raises:
        InputError: both a table and a source are given, or neither; or options are given for an object.
        TypeError: an option is none of a table, or none of a model.
    """
    if scores is not None:
        if source is not None or data is not None:
            raise InputError("scores", "must not be given with a source and its data")
        check_keywords(function, options, TABLE_OPTIONS | {"text_column"})
        return TableArguments(data=Data.named("scores", scores), options=options)
    for argument, value in (("source", source), ("data", data)):
        if value is None:
            raise InputError(argument, "must be given, got None: give source and data, or scores")
    data = Data.named("data", data, default_split)
    if isinstance(source, str | Path):
        check_keywords(function, options, MODEL_OPTIONS | _LOADING)
        loading = {name: options[name] for name in _LOADING & options.keys()}
        columns = {name: value for name, value in options.items() if name not in _LOADING}
        return ModelArguments(model=source, data=data, options=columns, **loading)
    if options:
        raise InputError(next(iter(options)), "must not be given for a source that is an object")
    return ObjectArguments(source=source, data=data)
