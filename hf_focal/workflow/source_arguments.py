"""What gives the scores, as the arguments of each public function name it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..scores.table_options import TableOptions
from ..sources.opening import open_source
from ..sources.source import BaseSource, Data
from ..sources.table import TableSource
from ..tasks.input_options import InputOptions

MODEL_OPTIONS = frozenset(option.name for option in fields(InputOptions))
TABLE_OPTIONS = TableOptions.names()


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
        options = {"onnx": self.onnx, "task": self.task, "batch_size": self.batch_size, **self.options}
        return open_source(self.model, self.data, None, num_bins, options)


@dataclass(frozen=True, kw_only=True)
class TableArguments(SourceArguments):
    """A table of scores; `options` are those of `read_scores`, and perhaps `text_column`."""

    data: Data
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        return TableSource(num_bins=num_bins, **self.options), self.data


@dataclass(frozen=True, kw_only=True)
class AnySource(SourceArguments):
    """The arguments of `evaluate` or `calibrate` (the name is `function`), which take every kind of source."""

    function: str
    source: Any
    data: Any
    scores: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, num_bins: int) -> tuple[BaseSource, Data]:
        if self.scores is not None:
            check_keywords(self.function, self.options, TABLE_OPTIONS | {"text_column"})
        elif isinstance(self.source, str | Path):
            check_keywords(self.function, self.options, MODEL_OPTIONS | {"onnx", "task", "batch_size"})
        return open_source(self.source, self.data, self.scores, num_bins, {**self.options})
