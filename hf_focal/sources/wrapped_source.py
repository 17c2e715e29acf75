"""An object of the user's own as a source of scores."""

from typing import Any

from ..errors import InputError
from ..scores.sets.scores_in_memory import Scores
from .source import BaseSource, Source


class _WrappedSource(Source):
    """An object with `link`, `classes`, and `scores(data)`, as a `Source`."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped, self.link, self.classes = wrapped, wrapped.link, tuple(wrapped.classes)
        self.name = getattr(wrapped, "name", type(wrapped).__name__)

    def scores(self, data: Any) -> Scores:
        return self.wrapped.scores(data)


def as_source(source: Any) -> BaseSource:
    """Return a `Source`, or wrap an object that has its `link`, `classes`, and `scores(data)`.

    Raises:
        InputError: the object lacks one of these, its link is neither "softmax" nor "sigmoid", or its name is no text.
    """
    if not isinstance(source, BaseSource):
        if missing := [name for name in ("link", "classes", "scores") if not hasattr(source, name)]:
            kind = type(source).__name__
            raise InputError("source", f"must have link, classes, and scores(data), got a {kind} without {missing[0]}")
        if source.link not in ("softmax", "sigmoid"):
            raise InputError("source", f"must have the link 'softmax' or 'sigmoid', got {source.link!r}")
    if not isinstance(name := getattr(source, "name", ""), str):
        raise InputError("source", f"must have a name that is a text, got {name!r}")
    return source if isinstance(source, BaseSource) else _WrappedSource(source)
