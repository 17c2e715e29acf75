"""Columns of scores and the names of their classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...utils.arrow_values import is_text_type
from ..column_names import is_text, parse_score_name
from ..reading.score_rows import ScoreRows


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of scores, the names of their classes (or () if they have none), and the kind that their names state.

    `is_list` says whether the user listed the columns one by one, so that classes may be given in their order.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    kind: str
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
        if (pa.types.is_floating(field.type) or pa.types.is_integer(field.type))
        and not is_text(field.name)
        and parse_score_name(field.name) is None
    ]


def holds_lists(rows: ScoreRows, name: str) -> bool:
    kind = rows.table.schema.field(name).type
    if is_text_type(kind) and len(rows.table):
        return str(rows.table.column(name)[0].as_py()).lstrip().startswith(("[", "array(", "tensor("))
    return any(
        is_list_type(kind) for is_list_type in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )
