"""What to know of the numbers of a table, said of a whole table, or of the rows that batches and shards add up to."""

from typing import NamedTuple

from ...utils.shown_names import counted


class ValueNote(NamedTuple):
    """What a reader should know of the numbers of a table.

    Attributes:
        text: of the whole table.
        template: the same of the rows of several batches; see `fill_in`.
        rows: the number of rows of which `template` speaks, which is added up over the batches.
    """

    text: str
    template: str
    rows: int


def fill_in(template: str, rows: int, source: str) -> str:
    """Return a text on rows of a table, with {rows} and {source} for these, {have} and {are} for verbs of the rows."""
    have, are = ("has", "is") if rows == 1 else ("have", "are")
    return template.format(rows=counted(rows, "row"), source=source, have=have, are=are)
