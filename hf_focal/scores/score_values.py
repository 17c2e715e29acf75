"""The numbers in columns of scores, what they show of their kind and precision, and their logits."""

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..utils.arrow_values import numpy_values
from ..validation import InputError
from .class_labels import is_lists, is_text_type
from .table_files import ScoreRows

_MOST_DECIMALS = 7  # numbers with more are not taken as rounded
_FLOOR = 1e-12  # the smallest probability of a class, unless the probabilities are rounded
_EXACT = 1e-5  # the tolerance for the sum of probabilities: more than the error of a float32 softmax
_MOST_SLACK = 0.05  # the largest tolerance by which rounded numbers still show that they are probabilities
# Unit roundoffs of formats with half precision, and the smallest positive probability of the first, halved.
_HALF, _BRAIN, _HALF_FLOOR = 2.0**-11, 2.0**-8, 2.0**-25
# The kinds of numbers in a column of confidences: the least one, the greatest one, and what is expected of them.
CONFIDENCE_KINDS = {
    "probabilities": (0.0, 1.0, "numbers within [0, 1]"),
    "percentages": (0.0, 100.0, "numbers within [0, 100]"),
    "log-probabilities": (-math.inf, _EXACT, "logarithms of probabilities, which are at most 0,"),
}
_NOT_RETURNED = -9999.0  # OpenAI's number for the log-probability of a token outside of the most likely ones
_CHANCE = math.log(1e8)  # evidence in nats, as in `ProbabilityEvidence`
_SAMPLE = 1000  # rows by which most formats are told apart
_MASKED = -1e4  # the largest number that is used in the place of -inf to mask a class


class ValueNote(NamedTuple):
    """What a reader should know of the numbers of a table.

    Attributes:
        text: of the whole table.
        batch_template: the same of a table in batches, with {rows} for the number of rows and {source} for its name.
        rows: the number of rows of which `batch_template` speaks, which is added up over the batches.
    """

    text: str
    batch_template: str
    rows: int


def score_values(rows: ScoreRows, columns: tuple[str, ...]) -> np.ndarray:
    """Return the columns of scores, (N, K), or (N,) for one column of numbers; null becomes NaN.

    Raises:
        InputError: they hold something else than numbers or lists of as many numbers.
    """
    if len(columns) > 1:
        parts = [score_values(rows, (column,)) for column in columns]
        if lists := [column for column, part in zip(columns, parts, strict=True) if part.ndim > 1]:
            raise InputError("score_column", f"must hold one number in each row, got lists in {lists[0]!r}")
        return np.stack(parts, 1)
    column = rows.column("score_column", columns[0])
    if is_text_type(column.type) and len(column) and str(column[0].as_py()).rstrip().endswith(("]", ")")):
        column = _lists(column)
    if isinstance(column, pa.FixedSizeListArray):
        size, flat = column.type.list_size, column.flatten()
    elif is_lists(column):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        size = int(lengths[0])
        if len(wrong := np.flatnonzero(lengths != size)):
            problem = f"{lengths[wrong[0]]} in {rows.where(wrong[0])}"
            raise InputError(
                "score_column", f"must hold {size} numbers in each list, as in the first row, got {problem}"
            )
        flat = column.flatten()
    else:
        size, flat = 0, column
    if is_text_type(flat.type):
        try:
            flat = flat.cast(pa.float64())
        except pa.ArrowException as error:
            texts = flat.to_pylist()
            row, text = next(((i, text) for i, text in enumerate(texts) if not _is_number(text)), (0, texts[0]))
            where = rows.where(row // max(size, 1))
            raise InputError(
                "score_column", f"must hold numbers, got {text!r} in {columns[0]!r} in {where}"
            ) from error
    if pa.types.is_null(flat.type) or pa.types.is_decimal(flat.type):
        flat = flat.cast(pa.float64())
    if not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)):
        raise InputError("score_column", f"must hold numbers, got {flat.type} in {columns[0]!r}")
    values = numpy_values(flat)
    # Arrow's arrays are read-only, which PyTorch does not take.
    values = values.copy() if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    return values.reshape(-1, size) if size else values


def _lists(texts: pa.Array) -> pa.Array:
    """Return the lists in texts such as "[0.1, 0.9]", "[0.1 0.9]" or "array([0.1, 0.9])", as lists of texts."""
    inner = pc.struct_field(pc.extract_regex(texts, r"(?s)^[^\[\]]*\[\s*(?P<numbers>[^\[\]]*?)\s*\][^\[\]]*$"), 0)
    if inner.null_count > texts.null_count:
        return texts  # the caller names the text that is no number
    inner = pc.replace_substring_regex(inner, r"np\.float\d+\(([^()]*)\)", r"\1")  # what NumPy 2 writes in lists
    return pc.split_pattern_regex(inner, r"\s*,\s*|\s+")


def _is_number(text: str | None) -> bool:
    """Return whether a text of a column that is not numeric as a whole would be a number by itself."""
    try:
        return text is None or np.isfinite(float(text))
    except ValueError:
        return False


def check_rows(rows: ScoreRows, wrong: Any, values: np.ndarray, expected: str, hint: str = "") -> None:
    """Raise InputError that names the first row that is `wrong` and shows its values."""
    if wrong.any():
        row = int(wrong.argmax())
        listed = ", ".join(f"{value:g}" for value in np.atleast_1d(values[row])[:5])
        dots = ", ..." if np.size(values[row]) > 5 else ""
        problem = f"must hold {expected} in each row, got {listed}{dots} in {rows.where(row)}{hint}"
        raise InputError(rows.argument, problem)


def sums_show(values: np.ndarray, total: float) -> bool:
    """Return whether rows (N, K), K > 1, are certainly shares of `total`: not negative, with this sum in each row."""
    if values.ndim < 2 or values.shape[1] < 2:
        return False
    slack = 1.0
    for part in (values[:_SAMPLE], values):  # a few rows refute most tables
        if not ((part >= 0).all() and np.isfinite(part).all()):
            return False
        shares = part.astype(np.float64) / total
        slack, _ = _sum_slack(shares, _unit(part, total))
        if slack > _MOST_SLACK or (np.abs(shares.sum(1) - 1) > slack).any():
            return False
    return -len(values) * math.log(slack) > _CHANCE


def log_sums_show(values: np.ndarray) -> bool:
    """Return whether rows (N, K), K > 1, are certainly the logarithms of probabilities."""
    return bool(values.ndim > 1 and (values <= 0).all()) and sums_show(np.exp(values.astype(np.float64)), 1.0)


def ends_show_probabilities(values: np.ndarray) -> bool:
    """Return whether many numbers are close to 0 and to 1, and none is beyond.

    Of logits, about as many would be just outside [0, 1] as just inside, so n inside are a chance of 2^-n.
    """
    if not ((values >= 0) & (values <= 1)).all():
        return False
    low, high = (values <= 0.05).sum(), (values >= 0.95).sum()
    return bool(min(low, high) >= 5 and (low + high) * math.log(2) > _CHANCE)


def _unit(values: np.ndarray, total: float) -> float:
    """Return the unit of the last decimal of rounded shares of `total`, as a share of 1, or 0 if they are not rounded.

    Shares that are all 0 or 1 are decisions: they do not show to how many decimals a probability would be rounded.
    """
    # A few values tell most numbers of decimals apart; only the others need all values.
    tried = [d for d in range(_MOST_DECIMALS + 1) if _is_rounded(values[:_SAMPLE], d)]
    decimals = next((d for d in tried if _is_rounded(values, d)), None)
    unit = 0.0 if decimals is None else 10.0**-decimals / total
    return unit if unit < 1 else 0.0


def decimals_of(values: np.ndarray, kind: str) -> int | None:
    """Return to how many decimals probabilities are rounded, in units of 1; None if they are not, or for logits."""
    if kind not in ("probabilities", "percentages"):
        return None
    unit = _unit(values, 100.0 if kind == "percentages" else 1.0)
    return round(-math.log10(unit)) if unit else None


def check_decimals(rows: ScoreRows, values: np.ndarray, kind: str, decimals: int) -> None:
    """Raise `InputError` for probabilities with more decimals than the first rows, which decided on the floor."""
    digits = decimals - 2 if kind == "percentages" else decimals
    slack = 2.0**-24 * values if digits < 7 else 0.0
    wrong = (np.abs(np.round(values, digits) - values) > slack).any(1)
    if wrong.any():
        where = rows.where(int(wrong.argmax()))
        raise InputError(
            "floor",
            f"must be given, to replace a probability of 0: the first rows are rounded to {digits} decimals, but not "
            f"{where}",
        )


def _is_rounded(values: np.ndarray, decimals: int) -> bool:
    # The numbers may have been float32, which keeps up to 6 decimals, but not exactly.
    slack = 2.0**-24 * values if decimals < 7 else 0.0
    return bool((np.abs(np.round(values, decimals) - values) <= slack).all())


def _sum_slack(shares: np.ndarray, unit: float) -> tuple[float, float]:
    """Return the tolerance for the sums of shares (N, K), and the unit roundoff of half precision, if that shows.

    It shows in the numbers themselves, or, if these were written with few digits, in sums that miss 1 on both sides.
    """
    slack = shares.shape[1] * unit / 2 + _EXACT
    off = shares.sum(1) - 1
    misses = np.abs(off)
    roundoff = 0.0
    if (misses > slack).any() and not _are_decisions(shares):
        if min((off > slack).mean(), (off < -slack).mean()) >= 0.02:
            roundoff = next((u for u in (_HALF, _BRAIN) if np.quantile(misses, 0.98) <= 4 * u), 0.0)
        elif (np.float16(shares[:_SAMPLE]) == shares[:_SAMPLE]).all() and (np.float16(shares) == shares).all():
            roundoff = _HALF
        elif not (np.float32(shares).view(np.uint32) & 0xFFFF).any() and (np.float32(shares) == shares).all():
            roundoff = _BRAIN
    return max(slack, 4 * roundoff), roundoff


def _are_decisions(values: np.ndarray) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def as_confidences(
    rows: ScoreRows, column: str, values: np.ndarray, kind: str, *, is_decided: bool = False
) -> np.ndarray:
    """Return the confidences (N,) within [0, 1] of a column of a kind among `CONFIDENCE_KINDS`.

    Raises:
        InputError: a row cannot be of this kind; the message names the column and, if another kind fits and the first
            table has not decided (`is_decided`), its option.
    """
    low, high, expected = CONFIDENCE_KINDS[kind]
    others = [
        other
        for other, (least, most, _) in CONFIDENCE_KINDS.items()
        if other != kind and ((values >= least) & (values <= most)).all()
    ]
    remedy = f"; if it holds {others[0]}, give --kind {others[0]}" if others else ""
    remedy = ", like that of the first table" if is_decided else remedy
    hint = f"; {column!r} is taken as the confidence of the prediction{remedy}"
    check_rows(rows, ~((values >= low) & (values <= high)), values, expected, hint)
    if kind == "percentages":
        return values / 100
    return np.exp(np.minimum(values, 0)) if kind == "log-probabilities" else values


def as_logits(
    rows: ScoreRows, values: np.ndarray, kind: str, link: str, floor: float | None
) -> tuple[np.ndarray, float, tuple[ValueNote, ...]]:
    """Return the logits of scores (N, K) of a kind, what replaced a probability of 0 (0: nothing did), and notes.

    Raises:
        InputError: a row cannot be of this kind; the message names it.
    """
    if kind in ("logits", "log-probabilities"):
        check_rows(rows, np.isnan(values).any(1), values, "numbers, not NaN")
        if kind == "log-probabilities":
            expected = "logarithms of probabilities, which are at most 0,"
            check_rows(rows, (values > _EXACT).any(1), values, expected)
            unknown = (values == _NOT_RETURNED).any(1)
            check_rows(rows, unknown, values, expected, "; some APIs give -9999 for one that they do not return")
            if link == "sigmoid":
                floor = floor or _FLOOR
                log_p = np.maximum(values.astype(np.float64), math.log(floor))
                return log_p - np.log(np.maximum(-np.expm1(np.minimum(log_p, 0)), floor)), floor, ()
        if link == "sigmoid":
            return values, 0.0, ()
        values, notes = _with_masks(rows, values)
        check_rows(rows, ~np.isfinite(values.max(1)), values, "logits with a finite maximum")
        return values, 0.0, notes
    return _logits_of_probabilities(rows, values, kind, link, floor)


def _logits_of_probabilities(
    rows: ScoreRows, values: np.ndarray, kind: str, link: str, floor: float | None
) -> tuple[np.ndarray, float, tuple[ValueNote, ...]]:
    """Return what `as_logits` does, of probabilities or percentages (N, K)."""
    check_rows(rows, ~np.isfinite(values).all(1), values, "finite numbers")
    values, total = values.astype(np.float64), 100.0 if kind == "percentages" else 1.0
    stated_values, unit = values, _unit(values, total)
    values = values / total if total > 1 else values
    slack, roundoff = _sum_slack(values, unit)
    most = 1 + slack if link == "softmax" else 1 + _EXACT
    is_percent = total == 1 and bool((values >= 0).all() and (values <= 100 + _EXACT).all())
    hint = "; if they are percentages, give --kind percentages" if is_percent else ""
    wrong = ((values < 0) | (values > most)).any(1)
    check_rows(rows, wrong, stated_values, f"numbers within [0, {total:g}]", hint)
    if link == "softmax":
        off = np.abs(values.sum(1) - 1) > slack
        expected = f"{kind} whose sum is {total:g} within {slack * total:.1g}"
        hint = (
            ", which a softmax gives; for probabilities that are independent, give link sigmoid" if off.all() else ""
        )
        check_rows(rows, off, stated_values, expected, hint)
    least = max(unit / 2, _HALF_FLOOR if roundoff == _HALF else 0.0, _FLOOR)
    floor = least if floor is None else floor
    notes = _probability_notes(rows.source, values, unit, roundoff, floor, link)
    logits = np.log(np.maximum(values, floor))
    if link == "sigmoid":
        logits -= np.log(np.maximum(1 - values, floor))
    return logits, floor, notes


def _probability_notes(
    source: str, values: np.ndarray, unit: float, roundoff: float, floor: float, link: str
) -> tuple[ValueNote, ...]:
    notes: list[ValueNote] = []
    if (low := (values < floor)).any():
        least = f"{floor:.0e}"
        text = f"have probabilities below {least}, which are taken as {least}"
        number = int(low.any(1).sum())
        notes.append(ValueNote(f"{number:,} rows of {source} {text}", f"{{rows:,}} rows of {{source}} {text}", number))
    if _are_decisions(values):
        text = "are 0 and 1 only, which are decisions rather than probabilities"
        batch_template = f"{{rows:,}} rows of {{source}} {text}"
        notes.append(ValueNote(f"the probabilities of {source} {text}", batch_template, len(values)))
    if unit:
        confidence = values.max(1) if link == "softmax" else np.maximum(values, 1 - values).max(1)
        tied = len(values) - len(np.unique(confidence))
        decimals = max(1, round(-math.log10(unit)))
        rounded = f"rounded to {decimals} decimal{'s' * (decimals > 1)}"
        text = f"the probabilities of {source} are {rounded}: {tied:,} confidences are tied"
        notes.append(ValueNote(text, f"{{rows:,}} rows of {{source}} have probabilities {rounded}", len(values)))
    if roundoff:
        name = "half precision" if roundoff == _HALF else "bfloat16"
        text = f"the probabilities of {source} are numbers of {name}"
        batch_template = f"{{rows:,}} rows of {{source}} have probabilities that are numbers of {name}"
        if link == "softmax":
            text = f"the probabilities of {source} sum to 1 within {np.abs(values.sum(1) - 1).max():.0e}, as in {name}"
            batch_template = f"{{rows:,}} rows of {{source}} have probabilities whose sums are those of {name}"
        notes.append(ValueNote(text, batch_template, len(values)))
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
    values = np.where(masked, -np.inf, values)
    number = int(masked.any(1).sum())
    text, taken = f"the logit {low:.4g} in", "is taken as -inf: a masked class"
    batch_template = f"{text} {{rows:,}} rows of {{source}} {taken}"
    return values, (ValueNote(f"{text} {number:,} rows of {rows.source} {taken}", batch_template, number),)
