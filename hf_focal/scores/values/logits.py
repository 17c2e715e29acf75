"""Scores of a known kind as logits, and what to know of their numbers."""

import math

import numpy as np

from ...utils.names import counted
from ..meanings import Link, ScoreKind
from ..reading.score_rows import ScoreRows
from .score_kinds import HALF, HALF_FLOOR, TOLERANCE, are_decisions, rounding_unit, sum_tolerance
from .score_values import check_rows
from .value_notes import ValueNote, fill_in

_FLOOR = 1e-12  # the smallest probability of a class, unless the probabilities are rounded
_NOT_RETURNED = -9999.0  # OpenAI's number for the log-probability of a token outside of the most likely ones
_MASKED = -1e4  # the largest number that is used in the place of -inf to mask a class


def as_logits(
    rows: ScoreRows, values: np.ndarray, kind: ScoreKind, link: Link, floor: float | None
) -> tuple[np.ndarray, float, tuple[ValueNote, ...]]:
    """Return the logits of scores (N, K) of a kind, what replaced a probability of 0 (0: nothing did), and notes.

    Raises:
        InputError: a row cannot be of this kind; the message names it.
    """
    if kind in ("probabilities", "percentages"):
        return _logits_of_probabilities(rows, values, kind, link, floor)
    check_rows(rows, np.isnan(values).any(1), values, "numbers, not NaN")
    if kind == "log-probabilities":
        _check_log_probabilities(rows, values)
        if link == "sigmoid":
            floor = floor or _FLOOR
            return _log_odds_of_log_probabilities(values, floor), floor, ()
    if link == "sigmoid":
        return values, 0.0, ()
    values, notes = _with_masks(rows, values)
    check_rows(rows, ~np.isfinite(values.max(1)), values, "logits with a finite maximum")
    return values, 0.0, notes


def _check_log_probabilities(rows: ScoreRows, values: np.ndarray) -> None:
    expected = "logarithms of probabilities, which are at most 0,"
    check_rows(rows, (values > TOLERANCE).any(1), values, expected)
    unknown = (values == _NOT_RETURNED).any(1)
    check_rows(rows, unknown, values, expected, "; some APIs give -9999 for one that they do not return")


def _log_odds_of_log_probabilities(values: np.ndarray, floor: float) -> np.ndarray:
    """Return log p - log(1 - p) of values log p, where p and 1 - p are at least `floor`."""
    log_p = np.maximum(values.astype(np.float64), math.log(floor))
    return log_p - np.log(np.maximum(-np.expm1(np.minimum(log_p, 0)), floor))


def _logits_of_probabilities(
    rows: ScoreRows, values: np.ndarray, kind: ScoreKind, link: Link, floor: float | None
) -> tuple[np.ndarray, float, tuple[ValueNote, ...]]:
    """Return what `as_logits` does, of probabilities or percentages (N, K)."""
    check_rows(rows, ~np.isfinite(values).all(1), values, "finite numbers")
    values, total = values.astype(np.float64), 100.0 if kind == "percentages" else 1.0
    unit = rounding_unit(values, total)
    probabilities = values / total if total > 1 else values
    slack, roundoff = sum_tolerance(probabilities, unit)
    _check_range(rows, values, probabilities, total, 1 + slack if link == "softmax" else 1 + TOLERANCE)
    if link == "softmax":
        off = np.abs(probabilities.sum(1) - 1) > slack
        hint = ", which a softmax gives; for probabilities that are independent, give link sigmoid"
        expected = f"{kind} whose sum is {total:g} within {slack * total:.1g}"
        check_rows(rows, off, values, expected, hint if off.all() else "")
    if floor is None:
        floor = max(unit / 2, HALF_FLOOR if roundoff == HALF else 0.0, _FLOOR)
    notes = _probability_notes(rows.data_name, probabilities, unit, roundoff, floor, link)
    logits = np.log(np.maximum(probabilities, floor))
    if link == "sigmoid":
        logits -= np.log(np.maximum(1 - probabilities, floor))
    return logits, floor, notes


def _check_range(rows: ScoreRows, values: np.ndarray, probabilities: np.ndarray, total: float, most: float) -> None:
    """Raise `InputError` for probabilities outside [0, most]; `values` are these as the table has them."""
    wrong = ((probabilities < 0) | (probabilities > most)).any(1)
    is_percent = total == 1 and bool((values >= 0).all() and (values <= 100 + TOLERANCE).all())
    hint = "; if they are percentages, give --kind percentages" if is_percent else ""
    check_rows(rows, wrong, values, f"numbers within [0, {total:g}]", hint)


def _probability_notes(
    data_name: str, values: np.ndarray, unit: float, roundoff: float, floor: float, link: Link
) -> tuple[ValueNote, ...]:
    notes: list[ValueNote] = []
    subject, size = f"the probabilities of {data_name}", len(values)
    if (low := (values < floor).any(1)).any():
        template = (
            f"{{rows}} of {{data_name}} {{have}} probabilities below {floor:.0e}, which are taken as {floor:.0e}"
        )
        number = int(low.sum())
        notes.append(ValueNote(fill_in(template, number, data_name), template, number))
    if link == "sigmoid" and (high := (values > 1 - floor).any(1)).any():
        most = f"{1 - floor:.12g}"
        template = f"{{rows}} of {{data_name}} {{have}} probabilities above {most}, which are taken as {most}"
        number = int(high.sum())
        notes.append(ValueNote(fill_in(template, number, data_name), template, number))
    if are_decisions(values):
        decisions = "0 and 1 only, which are decisions rather than probabilities"
        notes.append(ValueNote(f"{subject} are {decisions}", f"{{rows}} of {{data_name}} {{are}} {decisions}", size))
    if unit:
        confidence = values.max(1) if link == "softmax" else np.maximum(values, 1 - values).max(1)
        tied = size - len(np.unique(confidence))
        rounded = f"rounded to {counted(max(1, round(-math.log10(unit))), 'decimal')}"
        text = f"{subject} are {rounded}: {tied:,} confidences are tied"
        notes.append(ValueNote(text, f"{{rows}} of {{data_name}} {{have}} probabilities {rounded}", size))
    if roundoff:
        name = "half precision" if roundoff == HALF else "bfloat16"
        text, seen = f"{subject} are numbers of {name}", f"that are numbers of {name}"
        if link == "softmax":
            text = f"{subject} sum to 1 within {np.abs(values.sum(1) - 1).max():.0e}, as in {name}"
            seen = f"whose sums are those of {name}"
        notes.append(ValueNote(text, f"{{rows}} of {{data_name}} {{have}} probabilities {seen}", size))
    return tuple(notes)


def _with_masks(rows: ScoreRows, values: np.ndarray) -> tuple[np.ndarray, tuple[ValueNote, ...]]:
    """Return logits (N, K) with -inf where a class is masked by one very negative number, such as a float's minimum.

    The probability of such a class is 0 in float64 as well, and a fit does not take the number for a logit.
    """
    low = values.min(initial=np.inf, where=np.isfinite(values))
    if not low <= _MASKED:
        return values, ()
    masked = values == low
    others = values.min(initial=np.inf, where=np.isfinite(values) & ~masked)
    if not (others > low / 2 and values.max(1).min() > low / 2):
        return values, ()
    number = int(masked.any(1).sum())
    template = f"the logit {low:.4g} in {{rows}} of {{data_name}} is taken as -inf: a masked class"
    return np.where(masked, -np.inf, values), (ValueNote(fill_in(template, number, rows.data_name), template, number),)
