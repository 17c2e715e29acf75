"""Columns of scores and the names of their classes."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...utils.arrow_values import is_lists, is_number_type, is_text_type
from ..meanings import StatedKind
from ..name_vocabulary import is_text, parse_score_name
from ..reading.score_rows import ScoreRows


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of scores, the names of their classes (or () if they have none), and the kind that their names state.

    `is_list` says whether the user listed the columns one by one, so that classes may be given in their order.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    kind: StatedKind
    is_list: bool = False


def class_names_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes of columns: what differs in prob_a, prob_b, or else the names themselves."""
    names = [parse_score_name(column) for column in columns]
    if all(name is not None and name.family for name in names) and len({name.family for name in names if name}) == 1:
        return tuple(name.class_name for name in names if name)
    return tuple(columns) if len(columns) > 1 else ()


def numeric_columns(rows: ScoreRows) -> list[str]:
    """Return the columns of numbers whose names say neither what they are nor that they are texts."""
    return [
        field.name
        for field in rows.table.schema
        if is_number_type(field.type) and not is_text(field.name) and parse_score_name(field.name) is None
    ]


def holds_lists(rows: ScoreRows, name: str) -> bool:
    """Return whether a column holds lists, or texts of lists, as its first row shows."""
    field = rows.table.schema.field(name)
    if is_text_type(field.type) and len(rows.table):
        return str(rows.table.column(name)[0].as_py()).lstrip().startswith(("[", "array(", "tensor("))
    return is_lists(field)
