"""Where the labels of samples are: in one column of one label each, in a column of lists, or in several columns."""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from ..errors import InputError
from ..utils.separated_labels import separated_labels
from .label_numbers import ModelLabels
from .named_split import NamedSplit


class LabelShape(Enum):
    """How many labels a sample has, and where. The value is what errors call it."""

    ONE = "one label for each sample"
    LISTS = "lists of labels"
    SEPARATE = "several columns of labels"


@dataclass(frozen=True)
class LabelColumns:
    """The columns of a split that hold its labels.

    Attributes:
        split: the split, in which texts of several labels have become lists.
        label_column: what the user calls the columns: the name of one, or the names of several with commas between.
        names: the names of the columns. The split need not have them.
        shape: where the labels are.
    """

    split: NamedSplit
    label_column: str
    names: tuple[str, ...]
    shape: LabelShape

    @classmethod
    def read(cls, split: NamedSplit, label_column: str, labels: ModelLabels | None = None) -> "LabelColumns":
        """Find out where the labels of a split are. Whatever needs to know this, calls this function.

        The name of a column stands for that column, also if it has commas. Any other name with commas is the names of
        several columns.

        Args:
            split: the samples.
            label_column: as for `LabelColumns`.
            labels: those of a model with a sigmoid for each. If there are several, a column of texts of their names,
                such as "cat|dog", is one of lists. None: texts are names of single labels.

        Raises:
            InputError: there is a column of this name, and also one for each of its parts between commas.
        """
        columns, parts = {*split.rows.column_names}, tuple(label_column.split(","))
        if len(parts) > 1 and label_column not in columns:
            return cls(split, label_column, parts, LabelShape.SEPARATE)
        if len(parts) > 1 and {*parts} <= columns:
            raise InputError(
                "label_column",
                f"must name one column, or several, got {label_column!r}, and {split.data_name} has both this column "
                f"and {', '.join(map(repr, parts))}: rename one",
            )
        if labels is not None and len(labels) > 1:
            split = _with_lists(labels, split, label_column)
        has_lists = hasattr(split.rows.features.get(label_column), "feature")
        return cls(split, label_column, (label_column,), LabelShape.LISTS if has_lists else LabelShape.ONE)

    @property
    def where(self) -> str:
        """The text that says in errors where a label was found."""
        return self.split.where(self.label_column)

    @property
    def exist(self) -> bool:
        """Whether the split has all of the columns."""
        return {*self.names} <= {*self.split.rows.column_names}


def _with_lists(labels: ModelLabels, split: NamedSplit, column: str) -> NamedSplit:
    """Return a split whose texts of several labels, such as "cat|dog", are lists, if the column holds such texts."""
    if getattr(split.rows.features.get(column), "dtype", None) not in ("string", "large_string"):
        return split
    texts = split.column(column).dictionary_encode()
    names = {*map(str, labels.id2label.values()), *labels.label_map}
    lists = separated_labels([*texts.dictionary.to_pylist(), None], names, is_multi_label=True)
    if lists is None:
        return split
    indices = texts.indices.fill_null(len(lists) - 1)
    values = pa.array(lists, pa.list_(pa.string())).take(indices)
    name = "hf_focal labels"  # a split without columns would have no rows
    rows = split.rows.add_column(name, values).remove_columns(column).rename_column(name, column)
    return split._replace(rows=rows)
