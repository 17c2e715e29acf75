"""What the columns of a table of scores mean."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ...utils.names import listed
from ..meanings import KINDS, LINKS, ConfidenceKind, LabelMatching, Link, ScoreKind
from ..values.confidences import CONFIDENCE_KINDS
from ..values.value_notes import TableNote


@dataclass(frozen=True)
class Schema:
    """What the columns of a table of scores mean.

    Attributes:
        columns: the columns of scores in the order of the classes, or one column of lists or of single numbers.
        kind: "logits", "probabilities", "percentages", "log-probabilities", or "confidence".
        link: "softmax", or "sigmoid" for one score or several labels per sample.
        num_scores: the number of scores of a sample; 0 for confidences.
        classes: the names of the classes or labels in the order of the scores; () if they have none. For one score,
            the last of two is the positive class.
        label_columns: the column of labels, or a column for each of several labels; () if no labels were read.
        labels: how labels are matched: by "names" or "numbers" of classes, or by their "places" in lists of a 0 or 1
            for each class; "" if no labels were read.
        prediction_column: for confidences, the column that is compared with the labels.
        correct_column: for confidences, the column that says whether the prediction is correct.
        confidence_kind: for confidences, what their column holds: "probabilities", "percentages", or
            "log-probabilities".
        floor: the largest probability by which 0 is replaced; 0 if nothing is, as for logits.
        decimals: to how many decimals the probabilities are rounded, in units of 1 also for percentages; None if they
            are not, or if this is not known, as in older files.
    """

    columns: tuple[str, ...]
    kind: ScoreKind
    link: Link
    num_scores: int
    classes: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    labels: LabelMatching = ""
    prediction_column: str | None = None
    correct_column: str | None = None
    floor: float = 0.0
    confidence_kind: ConfidenceKind = "probabilities"
    decimals: int | None = None

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the scores of a sample: of one, that of the positive class; () if they have none."""
        return self.classes[-self.num_scores :] if self.num_scores else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as what JSON can hold."""
        return {key: [*value] if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Any) -> "Schema":
        """Return the schema that `to_dict` gave.

        Raises:
            ValueError: `stored` was not written by `to_dict`.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, dict) or not {"columns", "kind", "link", "num_scores"} <= stored.keys() <= names:
            raise ValueError(f"expected a schema with {sorted(names)}, got {stored!r}")
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in stored.items()}
        schema = cls(**values)
        lists = (schema.columns, schema.classes, schema.label_columns)
        if not schema.columns or not all(
            isinstance(names, tuple) and all(isinstance(name, str) for name in names) for names in lists
        ):
            raise ValueError(f"expected names of columns and classes, got {stored!r}")
        if schema.confidence_kind not in CONFIDENCE_KINDS:
            raise ValueError(f"expected a known kind of confidences, got {schema.confidence_kind!r}")
        if not (schema.decimals is None or isinstance(schema.decimals, int)):
            raise ValueError(f"expected a number of decimals or null, got {schema.decimals!r}")
        if schema.kind not in KINDS or schema.link not in LINKS or not isinstance(schema.num_scores, int):
            raise ValueError(f"expected a known kind and link, got {schema.kind!r} and {schema.link!r}")
        return schema


@dataclass(frozen=True)
class ParsedTable:
    """What was read of rows by a schema: scores (N, K), or (N,) confidences, and labels if they were wanted.

    `labels` are the numbers of classes (N,), each of several labels (N, K), or whether predictions are correct (N,).
    `absent_classes` are those of the columns of scores that no label names.
    """

    schema: Schema
    values: np.ndarray
    labels: np.ndarray | None
    notes: tuple[TableNote, ...] = ()
    absent_classes: tuple[str, ...] = ()


def absent_class_notes(data_name: str, absent_classes: Sequence[str]) -> tuple[str, ...]:
    """Return a note on classes without samples, if there are any."""
    return (f"no row of {data_name} has the label {listed(absent_classes)}",) if absent_classes else ()
