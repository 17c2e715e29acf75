"""Notes on a table, in a form that still holds when batches and shards of it are added up under another name."""

from typing import NamedTuple

from ...utils.names import counted


class TableNote(NamedTuple):
    """What a reader should know of a table: the text before and after its name, which changes when shards merge."""

    before: str
    after: str

    def of(self, data_name: str) -> str:
        """Return the text on the table that is called `data_name`."""
        return f"{self.before}{data_name}{self.after}"


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


def fill_in(template: str, rows: int, data_name: str) -> str:
    """Return a text on rows of a table: {rows} and {data_name} stand for these, {have} and {are} for their verbs."""
    have, are = ("has", "is") if rows == 1 else ("have", "are")
    return template.format(rows=counted(rows, "row"), data_name=data_name, have=have, are=are)
