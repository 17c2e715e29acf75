"""Which source, and which data, the arguments of `evaluate` and `calibrate` stand for."""

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..scores.sets.scores_in_memory import Scores
from .source import BaseSource, Data, Source
from .table import TableSource


def open_source(
    source: Any, data: Any, scores: Any, num_bins: int, options: dict[str, Any]
) -> tuple[BaseSource, Data]:
    """Return the source, and the data that it is measured on or fitted to.

    Args:
        source, data, scores, num_bins: as for `evaluate`.
        options: of a model, `task`, `batch_size`, `onnx`, and the fields of `InputOptions`; of a table, the arguments
            of `read_scores`; {} for a source that is an object.

    Raises:
        InputError: both a table and a source are given, or neither; or the source or an option is none that it can be.
    """
    if scores is not None:
        if source is not None or data is not None:
            raise InputError("scores", "must not be given with a source and its data")
        return TableSource(num_bins=num_bins, **options), Data.named("scores", scores)
    for argument, value in (("source", source), ("data", data)):
        if value is None:
            raise InputError(argument, "must be given, got None: give source and data, or scores")
    if isinstance(source, str | Path):
        from .model_opening import open_model  # this imports Transformers, which other sources do not need

        return open_model(source, num_bins, **options), Data.named("data", data)
    if options:
        raise InputError(next(iter(options)), "must not be given for a source that is an object")
    return as_source(source), Data.named("data", data)


class _WrappedSource(Source):
    """An object with `link`, `classes`, and `scores(data)`, as a `Source`."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped, self.link, self.classes = wrapped, wrapped.link, tuple(wrapped.classes)
        self.name = str(getattr(wrapped, "name", type(wrapped).__name__))

    def scores(self, data: Any) -> Scores:
        return self.wrapped.scores(data)


def as_source(source: Any) -> BaseSource:
    """Return a `Source`, or wrap an object that has its `link`, `classes`, and `scores(data)`.

    Raises:
        InputError: the object lacks one of these, or its link is neither "softmax" nor "sigmoid".
    """
    if isinstance(source, BaseSource):
        return source
    if missing := [name for name in ("link", "classes", "scores") if not hasattr(source, name)]:
        kind = type(source).__name__
        raise InputError("source", f"must have link, classes, and scores(data), got a {kind} without {missing[0]}")
    if source.link not in ("softmax", "sigmoid"):
        raise InputError("source", f"must have the link 'softmax' or 'sigmoid', got {source.link!r}")
    return _WrappedSource(source)
