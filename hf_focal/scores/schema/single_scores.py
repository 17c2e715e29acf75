"""One score in each row: the confidence of a prediction, or the score of the positive class of two."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...utils.arrow_values import distinct, is_lists
from ...utils.names import shown_columns
from ..columns.score_columns import ScoreColumns
from ..meanings import ConfidenceKind, ScoreKind
from ..name_vocabulary import ANSWERS, known_columns
from ..reading.score_rows import ScoreRows
from ..values.confidences import CONFIDENCE_KINDS, as_confidences
from ..values.label_values import label_values
from ..values.score_kinds import MOST
from ..values.value_notes import TableNote
from .schema import ParsedTable, Schema
from .schema_reading import prediction_hits


@dataclass(frozen=True)
class SingleScores:
    """The only column of scores, and the columns that may say what it means.

    Attributes:
        rows: the table.
        score_columns: the column of scores.
        values: the scores, (N,).
        label, prediction, correct: the columns of labels, of predictions, and of whether predictions are correct.
        kind: the kind of scores that the user gives.
        needs_labels: whether a table without labels is an error.
    """

    rows: ScoreRows
    score_columns: ScoreColumns
    values: np.ndarray
    label: str | None
    prediction: str | None
    correct: str | None
    kind: ScoreKind | None
    needs_labels: bool

    def are_confidences(self) -> bool:
        """Return whether the scores are those of predicted classes, by name, by kind, or by their values."""
        return self._are_called_confidences() or self._have_hits_only() or self._fit_predictions()

    def _are_called_confidences(self) -> bool:
        """Return whether the kind or the name says it; another kind then says what a column of confidences holds."""
        if self.kind is not None and self.kind not in ("percentages", "log-probabilities"):
            return self.kind == "confidence"
        if self.score_columns.kind != "confidence":
            return False
        is_correct_known = self._compared_prediction is not None or self.correct is not None
        return self.kind is None or (is_correct_known and not self._labels_are_hits)

    def _have_hits_only(self) -> bool:
        """Return whether a column says which predictions are correct, and none has labels."""
        is_possible = self.kind in (None, *CONFIDENCE_KINDS) and self.needs_labels
        return is_possible and self.label is None and self.correct is not None

    def _fit_predictions(self) -> bool:
        """Return whether all scores are from 1/K to 1 beside labels and predictions, as those of predictions are."""
        if self.kind is not None or self.score_columns.kind == "logits" or self._labels_and_predictions is None:
            return False
        is_fraction = bool((self.values >= 0).all() and (self.values <= MOST).all())
        return is_fraction and self.values.min() >= 1 / self._num_classes - 1e-6

    def positive_class(self) -> str | None:
        """Return the class of the higher scores, if predictions show which of two it is.

        Raises:
            InputError: there are predictions, but the scores fit neither meaning, and no kind is given.
        """
        if self._labels_and_predictions is None:
            return None
        classes, class_numbers = distinct(self._labels_and_predictions[1])
        if len(classes) == 2:
            first, second = self.values[class_numbers == 0], self.values[class_numbers == 1]
            for positive, low, high in ((1, first, second), (0, second, first)):
                if low.max() <= high.min() and low.max() < high.max():
                    return str(classes[positive])
        if self.kind is not None:
            return None
        is_above = self.values.max() > MOST
        reason = (
            f"some are above 1 (up to {self.values.max():g})" if is_above else f"some are below 1/{self._num_classes}"
        )
        raise InputError(
            "kind",
            f"must be given for {self.score_columns.columns[0]!r} in {self.rows.data_name}: it is neither the score "
            f"of the predicted class in {self.prediction!r}, since {reason}, nor that of "
            "one of two classes. For P(yes), give kind probabilities or logits",
        )

    def as_parsed_confidences(self) -> ParsedTable:
        """Return the scores as confidences, and whether the prediction of each row is correct.

        Raises:
            InputError: no column says which predictions are correct, or the values are no confidences.
        """
        schema, column = self._confidence_schema(), self.score_columns.columns[0]
        hits = prediction_hits(self.rows, schema) if self.needs_labels else None
        confidences = as_confidences(self.rows, column, self.values, schema.confidence_kind)
        said = []
        if schema.prediction_column is not None:
            said.append(
                f" is taken as the confidence of the prediction in {schema.prediction_column!r}, which is compared "
                f"with {schema.label_columns[0]!r}"
            )
        if schema.confidence_kind == "percentages" and (confidences <= 0.01).all():
            remedy = "if it holds probabilities, leave --kind percentages out"
            said.append(f" is taken as percentages, but none is above 1%: {remedy}")
        notes = tuple(TableNote(f"{column!r} of ", text) for text in said)
        return ParsedTable(schema, confidences, hits, notes)

    @property
    def _labels_are_hits(self) -> bool:
        """Whether the user's labels say which predictions are correct: the scores are then those of this yes or no."""
        return self.label is not None and self.label == self.correct

    @property
    def _compared_prediction(self) -> str | None:
        """The column of predictions, or else the one column of answers beside the labels; None if there is none."""
        if self.prediction is not None or self.label is None:
            return self.prediction
        answers = [name for name in known_columns(self.rows.table.column_names, ANSWERS) if name != self.label]
        return answers[0] if len(answers) == 1 else None

    @cached_property
    def _labels_and_predictions(self) -> tuple[pa.Array, pa.Array] | None:
        """The columns of labels and predictions; None unless both are there, with one class in each row."""
        if self.prediction is None or self.label is None or self._labels_are_hits or not self.needs_labels:
            return None
        if is_lists(self.rows.column("label_column", self.prediction)):
            return None
        labels, predictions = (label_values(self.rows, column) for column in (self.label, self.prediction))
        return None if is_lists(labels) else (labels, predictions)

    @cached_property
    def _num_classes(self) -> int:
        """How many classes the labels and predictions name, at least 2."""
        assert self._labels_and_predictions is not None
        return max(2, len({str(value) for column in self._labels_and_predictions for value in distinct(column)[0]}))

    def _confidence_schema(self) -> Schema:
        """Return the schema of confidences: the column `correct`, or else the labels say which are correct."""
        stated = (self.kind, self.score_columns.kind)
        known: list[ConfidenceKind] = [kind for name in stated for kind in CONFIDENCE_KINDS if kind == name]
        confidence_kind = known[0] if known else "probabilities"
        schema = Schema(self.score_columns.columns, "confidence", "softmax", 0, confidence_kind=confidence_kind)
        if self.correct is not None:
            return replace(schema, correct_column=self.correct)
        prediction = self._compared_prediction
        if self.label is not None and prediction is not None:
            return replace(schema, label_columns=(self.label,), labels="names", prediction_column=prediction)
        if self.needs_labels:
            raise InputError(
                "correct_column",
                f"must name a column of {self.rows.data_name}, {shown_columns(self.rows.table.column_names)}, that "
                "says whether the prediction is correct (true or false), with --correct_column NAME; or call the "
                "column of predictions 'prediction' or 'answer', and that of labels 'label' or 'gold', to have them "
                "compared",
            )
        return schema
