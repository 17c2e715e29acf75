"""The options of `read_scores` on a table: which columns to read, and what they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError
from .meanings import Link, ScoreKind

# What the schema of an earlier table has decided.
_DECIDED_BY_SCHEMA = ("correct_column", "classes", "kind", "floor", "link")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which columns of a table to read, and what they hold; `read_scores` describes each option.

    By default, the names and the values of the columns decide.
    """

    score_column: str | Sequence[str] | None = None
    label_column: str | None = None
    correct_column: str | None = None
    group: str | None = None
    cluster_column: str | None = None
    classes: Sequence[str] = ()
    kind: ScoreKind | None = None
    floor: float | None = None
    link: Link | None = None

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the options."""
        return frozenset(field.name for field in fields(cls))

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "TableOptions":
        """Return the options that a user named.

        Raises:
            TypeError: an argument is none of `read_scores`.
        """
        if unknown := [name for name in arguments if name not in cls.names()]:
            raise TypeError(f"read_scores() got an unexpected keyword argument {unknown[0]!r}")
        return cls(**arguments)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns whose values are read from csv and tsv files as they are written."""
        columns = (self.label_column, self.correct_column, self.group, self.cluster_column)
        return tuple(column for column in columns if column)

    def check_with_schema(self) -> None:
        """Raise `InputError` for an option of which the schema has decided."""
        for name in _DECIDED_BY_SCHEMA:
            if value := getattr(self, name):
                raise InputError(name, f"must not be given with schema, got {value!r}")
