"""What gives the scores, as the arguments of `evaluate` and `calibrate` name it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..sources.source import BaseSource, Data, as_source
from ..sources.table import TableSource
from .keyword_arguments import ModelArguments, TableArguments, check_keywords


@dataclass(frozen=True, kw_only=True)
class SourceArguments:
    """A source of scores and its data, as a user named them.

    Attributes:
        source: the name of a model, or an object with `link`, `classes`, and `scores(data)`; None for a table.
        data: what the source reads.
        options: the `ModelArguments` or `TableArguments` that the user gave.
    """

    source: Any = None
    data: Data
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Literal["model", "table", "object"]:
        if self.source is None:
            return "table"
        return "model" if isinstance(self.source, str | Path) else "object"

    def open(self, num_bins: int) -> BaseSource:
        """Return the source, whose calibration errors have `num_bins` bins."""
        if self.kind == "table":
            return TableSource(num_bins=num_bins, **self.options)
        if self.kind == "object":
            return as_source(self.source)
        from ..sources.model_opening import open_model  # this imports Transformers, which other sources do not need

        return open_model(self.source, num_bins, **self.options)


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
        check_keywords(function, options, TableArguments)
        return SourceArguments(data=Data.named("scores", scores), options=options)
    for argument, value in (("source", source), ("data", data)):
        if value is None:
            raise InputError(argument, "must be given, got None: give source and data, or scores")
    named = SourceArguments(source=source, data=Data.named("data", data, default_split), options=options)
    if named.kind == "model":
        check_keywords(function, options, ModelArguments)
    elif options:
        raise InputError(next(iter(options)), "must not be given for a source that is an object")
    return named
