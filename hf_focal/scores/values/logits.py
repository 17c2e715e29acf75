"""Scores of a known kind as logits, and what to know of their numbers."""

import math
from typing import NamedTuple

import numpy as np

from ...errors import InputError
from ...utils.names import counted
from ..meanings import Link, ScoreKind
from ..reading.score_rows import ScoreRows
from .score_kinds import (
    CHANCE,
    FEWEST_PERCENT,
    HALF,
    HALF_FLOOR,
    MOST,
    MOST_DECIMALS,
    TOLERANCE,
    are_decisions,
    decimals_of_unit,
    rounding_unit,
    sum_tolerance,
)
from .score_values import check_rows
from .value_notes import ValueNote, fill_in

_FLOOR = 1e-12  # the smallest probability of a class, unless the probabilities are rounded
_NOT_RETURNED = -9999.0  # OpenAI's number for the log-probability of a token outside of the most likely ones
_MASKED = -1e4  # the largest number that is used in the place of -inf to mask a class


class Floor(NamedTuple):
    """What replaces a probability of 0.

    Attributes:
        value: the largest probability that does; 0 if nothing does.
        decimals: to how many decimals the probabilities are rounded, in units of 1; None if they are not, or if this
            is not known.
    """

    value: float = 0.0
    decimals: int | None = None

    def is_shared(self, link: Link) -> bool:
        """Return whether the value is half a unit of the last decimal, and a row sums to 1: see `raised`."""
        return link == "softmax" and self.decimals is not None and self.follows_from_values

    @property
    def follows_from_values(self) -> bool:
        """Whether the value is that of probabilities with these decimals, rather than one that a user gave."""
        if self.decimals is None:
            return self.value in (_FLOOR, HALF_FLOOR)
        return math.isclose(self.value, 10.0**-self.decimals / 2)

    @property
    def least_rest(self) -> float:
        """What the probabilities below a shared floor have together at least: a unit of the next decimal."""
        return self.value / 5

    def raised(self, probabilities: np.ndarray, link: Link) -> np.ndarray:
        """Return probabilities (N, K) with those below the floor raised to it, or to what a rounded row leaves.

        Half a unit for each 0 of many classes would be far more than 1 in all, so all other probabilities would fall.
        Therefore, the zeros of a row share what the other probabilities leave of 1, which then stay as they are.
        """
        if not self.is_shared(link):
            return np.maximum(probabilities, self.value)
        is_low = probabilities < self.value
        rest = 1 - probabilities.sum(1, where=~is_low, keepdims=True)
        share = np.maximum(rest, self.least_rest) / np.maximum(is_low.sum(1, keepdims=True), 1)
        return np.where(is_low, np.minimum(share, self.value), probabilities)


def as_logits(
    rows: ScoreRows, values: np.ndarray, kind: ScoreKind, link: Link, floor: Floor | float | None
) -> tuple[np.ndarray, Floor, tuple[ValueNote, ...]]:
    """Return the logits of scores (N, K) of a kind, what replaced a probability of 0, and notes.

    A `Floor` is that of an earlier table, and a number what the user gives. Without one, it follows from the values.

    Raises:
        InputError: a row cannot be of this kind; the message names it.
    """
    if kind in ("probabilities", "percentages"):
        return _logits_of_probabilities(rows, values, kind, link, floor)
    check_rows(rows, np.isnan(values).any(1), values, "numbers, not NaN")
    if kind == "log-probabilities":
        _check_log_probabilities(rows, values, is_replaced=floor is not None and _as_floor(floor).value != _FLOOR)
        if link == "sigmoid":
            floor = _as_floor(_FLOOR if floor is None else floor)
            return _log_odds_of_log_probabilities(values, floor.value), floor, ()
        if floor is not None:
            return _raised_log_probabilities(rows, values, _as_floor(floor))
    if link == "sigmoid":
        return values, Floor(), ()
    values, notes = _with_masks(rows, values)
    check_rows(rows, ~np.isfinite(values.max(1)), values, "logits with a finite maximum")
    return values, Floor(), notes


def _as_floor(floor: Floor | float) -> Floor:
    if isinstance(floor, Floor):
        return floor
    if not 0 < floor < 0.5:
        raise InputError("floor", f"must be a probability between 0 and 0.5, got {floor:g}")
    return Floor(floor)


def check_scores_of_labels(rows: ScoreRows, logits: np.ndarray, labels: np.ndarray) -> None:
    """Raise `InputError` for log-probabilities (N, K) that are -inf for the label (N,): the NLL is infinite."""
    wrong = np.isneginf(np.take_along_axis(logits, labels[:, None], 1)[:, 0])
    check_rows(rows, wrong, logits, "a finite log-probability for the label", f"{_UNKNOWN_HINT}-inf{_FLOOR_HINT}")


# What is said of a log-probability that an API does not return.
_UNKNOWN_HINT = "; some APIs give "
_FLOOR_HINT = " for one that they do not return: give the probability that replaces it with --floor"


def _check_log_probabilities(rows: ScoreRows, values: np.ndarray, is_replaced: bool) -> None:
    """Raise `InputError` for what is no log-probability; `is_replaced` says that a floor replaces an unknown one."""
    expected = "logarithms of probabilities, which are at most 0,"
    check_rows(rows, (values > TOLERANCE).any(1), values, expected)
    if not is_replaced:
        unknown = (values == _NOT_RETURNED).any(1)
        check_rows(rows, unknown, values, expected, f"{_UNKNOWN_HINT}-9999{_FLOOR_HINT}")


def _raised_log_probabilities(
    rows: ScoreRows, values: np.ndarray, floor: Floor
) -> tuple[np.ndarray, Floor, tuple[ValueNote, ...]]:
    least = math.log(floor.value)
    notes = _low_notes(rows.data_name, values < least, floor, "softmax")
    return np.maximum(values, values.dtype.type(least)), floor, notes


def _log_odds_of_log_probabilities(values: np.ndarray, floor: float) -> np.ndarray:
    """Return log p - log(1 - p) of values log p, where p and 1 - p are at least `floor`."""
    log_p = np.maximum(values.astype(np.float64), math.log(floor))
    return log_p - np.log(np.maximum(-np.expm1(np.minimum(log_p, 0)), floor))


def _logits_of_probabilities(
    rows: ScoreRows, values: np.ndarray, kind: ScoreKind, link: Link, floor: Floor | float | None
) -> tuple[np.ndarray, Floor, tuple[ValueNote, ...]]:
    """Return what `as_logits` does, of probabilities or percentages (N, K)."""
    check_rows(rows, ~np.isfinite(values).all(1), values, "finite numbers")
    values, total = values.astype(np.float64), 100.0 if kind == "percentages" else 1.0
    unit = rounding_unit(values, total)
    probabilities = values / total if total > 1 else values
    slack, roundoff = sum_tolerance(probabilities, unit)
    _check_range(rows, values, probabilities, total, max(1 + slack, MOST) if link == "softmax" else MOST)
    if link == "softmax":
        off = np.abs(probabilities.sum(1) - 1) > slack
        hint = ", which a softmax gives; for probabilities that are independent, give link sigmoid"
        expected = f"{kind} whose sum is {total:g} within {slack * total:.1g}"
        check_rows(rows, off, values, expected, hint if off.all() else "")
    if isinstance(floor, Floor):
        _check_precision(rows, values, probabilities, unit, floor, link)
    if floor is None:
        floor = Floor(max(unit / 2, HALF_FLOOR if roundoff == HALF else 0.0, _FLOOR), decimals_of_unit(unit))
    floor = _as_floor(floor)
    notes = _probability_notes(rows.data_name, probabilities, unit, roundoff, floor, link)
    logits = np.log(floor.raised(probabilities, link))
    if link == "sigmoid":
        logits -= np.log(floor.raised(1 - probabilities, link))
    return logits, floor, notes


def _check_precision(
    rows: ScoreRows, values: np.ndarray, probabilities: np.ndarray, unit: float, floor: Floor, link: Link
) -> None:
    """Raise `InputError` for zeros that may be more than the `floor` of the first table, with more decimals."""
    if not floor.follows_from_values or unit / 2 <= 1.01 * floor.value:
        return
    low = (probabilities < floor.value).any(1)
    low = low | (probabilities > 1 - floor.value).any(1) if link == "sigmoid" else low
    decimals = decimals_of_unit(unit) or 0
    first = MOST_DECIMALS + 1 if floor.decimals is None else floor.decimals
    # By chance, a decimal of a number is 0 once in 10. A row that sums to 1 has one number less that can differ.
    is_inside = (probabilities > 0) & (probabilities < 1)
    numbers = is_inside.sum() - (is_inside.any(1).sum() if link == "softmax" else 0)
    if numbers * (first - decimals) * math.log(10) > CHANCE:
        precision = "which are not rounded" if floor.decimals is None else f"rounded to {floor.decimals} decimals"
        rounded = f"; these are rounded to {counted(decimals, 'decimal')}, so a 0 may be as much as {unit / 2:g}"
        hint = f"{rounded}: give --floor {unit / 2:g} to the fit"

        check_rows(rows, low, values, f"probabilities like those of the first table, {precision},", hint)


def _check_range(rows: ScoreRows, values: np.ndarray, probabilities: np.ndarray, total: float, most: float) -> None:
    """Raise `InputError` for probabilities outside [0, most]; `values` are these as the table has them."""
    wrong = ((probabilities < 0) | (probabilities > most)).any(1)
    is_percent = total == 1 and bool((values >= 0).all() and FEWEST_PERCENT < values.max() <= 100 + TOLERANCE)
    hint = "; if they are percentages, give --kind percentages" if is_percent else ""
    check_rows(rows, wrong, values, f"numbers within [0, {total:g}]", hint)


def _probability_notes(
    data_name: str, values: np.ndarray, unit: float, roundoff: float, floor: Floor, link: Link
) -> tuple[ValueNote, ...]:
    subject, size = f"the probabilities of {data_name}", len(values)
    notes = [*_low_notes(data_name, values < floor.value, floor, link)]
    if link == "sigmoid" and (high := (values > 1 - floor.value).any(1)).any():
        most = f"{1 - floor.value:.12g}"
        template = f"{{rows}} of {{data_name}} {{have}} probabilities above {most}, which are taken as {most}"
        number = int(high.sum())
        notes.append(ValueNote(fill_in(template, number, data_name), template, number))
    if are_decisions(values):
        decisions = "0 and 1 only, which are decisions rather than probabilities"
        notes.append(ValueNote(f"{subject} are {decisions}", f"{{rows}} of {{data_name}} {{are}} {decisions}", size))
    if unit:
        confidence = values.max(1) if link == "softmax" else np.maximum(values, 1 - values).max(1)
        tied = size - len(np.unique(confidence))
        rounded = f"rounded to {counted(max(1, decimals_of_unit(unit) or 0), 'decimal')}"
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


def _low_notes(data_name: str, is_low: np.ndarray, floor: Floor, link: Link) -> tuple[ValueNote, ...]:
    """Return a note on the rows with low probabilities, where (N, K) `is_low`, if there are any."""
    if not is_low.any():
        return ()
    meaning = "share what the others leave of 1" if floor.is_shared(link) else f"are taken as {floor.value:.0e}"
    template = f"{{rows}} of {{data_name}} {{have}} probabilities below {floor.value:.0e}, which {meaning}"
    number = int(is_low.any(1).sum())
    return (ValueNote(fill_in(template, number, data_name), template, number),)


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
