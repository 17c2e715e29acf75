"""Confidences of predictions, from columns of probabilities, percentages, or log-probabilities."""

import math

import numpy as np

from ..meanings import ConfidenceKind
from ..reading.score_rows import ScoreRows
from .score_kinds import FEWEST_PERCENT, MOST, TOLERANCE
from .score_values import check_rows
from .value_notes import ValueNote, fill_in

# The kinds of numbers in a column of confidences: the least one, the greatest one, and what is expected of them.
CONFIDENCE_KINDS: dict[ConfidenceKind, tuple[float, float, str]] = {
    "probabilities": (0.0, MOST, "numbers within [0, 1]"),
    "percentages": (0.0, 100 * MOST, "numbers within [0, 100]"),
    "log-probabilities": (-math.inf, TOLERANCE, "logarithms of probabilities, which are at most 0,"),
}


def as_confidences(
    rows: ScoreRows, column: str, values: np.ndarray, kind: ConfidenceKind, *, is_decided: bool = False
) -> np.ndarray:
    """Return the confidences (N,) of a column of a kind among `CONFIDENCE_KINDS`, for `clipped`.

    Raises:
        InputError: a row cannot be of this kind; the message names the column and, if another kind fits and the first
            table has not decided (`is_decided`), its option.
    """
    low, high, expected = CONFIDENCE_KINDS[kind]
    others = [
        other
        for other, (least, most, _) in CONFIDENCE_KINDS.items()
        if other != kind
        and not (other == "percentages" and (values <= FEWEST_PERCENT).all())
        and ((values >= least) & (values <= most)).all()
    ]
    remedy = f"; if it holds {others[0]}, give --kind {others[0]}" if others else ""
    remedy = ", like that of the first table" if is_decided else remedy
    hint = f"; {column!r} is taken as the confidence of the prediction{remedy}"
    check_rows(rows, ~((values >= low) & (values <= high)), values, expected, hint)
    if kind == "percentages":
        return values / 100
    return np.exp(np.minimum(values, 0)) if kind == "log-probabilities" else values


def clipped(data_name: str, confidences: np.ndarray) -> tuple[np.ndarray, tuple[ValueNote, ...]]:
    """Return confidences (N,) within [0, 1], of which those up to `MOST` become 1, and a note on these."""
    if not (number := int((confidences > 1).sum())):
        return confidences, ()
    template = "{rows} of {data_name} {have} confidences slightly above 1, which are taken as 1"
    return np.minimum(confidences, 1), (ValueNote(fill_in(template, number, data_name), template, number),)
