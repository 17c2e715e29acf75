"""What numbers show of their kind and precision: probabilities, percentages, rounded, or in half precision."""

import math

import numpy as np

from ...errors import InputError
from ..meanings import ScoreKind
from ..reading.score_rows import ScoreRows

MOST_DECIMALS = 7  # numbers with more are not taken as rounded
TOLERANCE = 1e-5  # the tolerance for the sum of probabilities: more than the error of a float32 softmax
MOST = 1 + 2e-5  # the largest probability that is taken as 1: fastText adds 1e-5 to what it takes the logarithm of
FEWEST_PERCENT = 1.1  # numbers up to this are no percentages: a probability may be slightly more than 1
_MOST_SLACK = 0.05  # the largest tolerance by which rounded numbers still show that they are probabilities
# Unit roundoffs of formats with half precision, and the smallest positive probability of the first, halved.
HALF, _BRAIN, HALF_FLOOR = 2.0**-11, 2.0**-8, 2.0**-25
CHANCE = math.log(1e8)  # evidence in nats, as in `ProbabilityEvidence`
_SAMPLE = 1000  # rows by which most formats are told apart


def sums_show(values: np.ndarray, total: float) -> bool:
    """Return whether rows (N, K), K > 1, are certainly shares of `total`: not negative, with this sum in each row."""
    if values.ndim < 2 or values.shape[1] < 2:
        return False
    slack = 1.0
    for part in (values[:_SAMPLE], values):  # a few rows refute most tables
        if not ((part >= 0).all() and np.isfinite(part).all()):
            return False
        shares = part.astype(np.float64) / total
        slack, _ = sum_tolerance(shares, rounding_unit(part, total))
        if slack > _MOST_SLACK or (np.abs(shares.sum(1) - 1) > slack).any():
            return False
    return -len(values) * math.log(slack) > CHANCE


def sums_show_no_logits(values: np.ndarray) -> bool:
    """Return whether all rows (N, K) sum to 1, though some numbers are negative: certainly no logits of a softmax."""
    if not np.isfinite(values).all():
        return False
    off = np.abs(values.astype(np.float64).sum(1) - 1).max(initial=0)
    return bool((values < 0).any() and off <= TOLERANCE and -len(values) * math.log(TOLERANCE) > CHANCE)


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
    return bool(min(low, high) >= 5 and (low + high) * math.log(2) > CHANCE)


def rounding_unit(values: np.ndarray, total: float) -> float:
    """Return the unit of the last decimal of rounded shares of `total`, as a share of 1, or 0 if they are not rounded.

    Shares that are all 0 or 1 are decisions: they do not show to how many decimals a probability would be rounded.
    """
    # A few values tell most numbers of decimals apart; only the others need all values.
    tried = [d for d in range(MOST_DECIMALS + 1) if _is_rounded(values[:_SAMPLE], d)]
    decimals = next((d for d in tried if _is_rounded(values, d)), None)
    unit = 0.0 if decimals is None else 10.0**-decimals / total
    return unit if unit < 1 else 0.0


def decimals_of_unit(unit: float) -> int | None:
    """Return to how many decimals probabilities with this `rounding_unit` are rounded; None if they are not."""
    return round(-math.log10(unit)) if unit else None


def check_decimals(rows: ScoreRows, values: np.ndarray, kind: ScoreKind, decimals: int) -> None:
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


def sum_tolerance(shares: np.ndarray, unit: float) -> tuple[float, float]:
    """Return the tolerance for the sums of shares (N, K), and the unit roundoff of half precision, if that shows.

    It shows in the numbers themselves, or, if these were written with few digits, in sums that miss 1 on both sides.
    """
    slack = shares.shape[1] * unit / 2 + TOLERANCE
    off = shares.sum(1) - 1
    misses = np.abs(off)
    roundoff = 0.0
    if (misses > slack).any() and not are_decisions(shares):
        if min((off > slack).mean(), (off < -slack).mean()) >= 0.02:
            roundoff = next((u for u in (HALF, _BRAIN) if np.quantile(misses, 0.98) <= 4 * u), 0.0)
        elif (np.float16(shares[:_SAMPLE]) == shares[:_SAMPLE]).all() and (np.float16(shares) == shares).all():
            roundoff = HALF
        elif not (np.float32(shares).view(np.uint32) & 0xFFFF).any() and (np.float32(shares) == shares).all():
            roundoff = _BRAIN
    return max(slack, 4 * roundoff), roundoff


def are_decisions(values: np.ndarray) -> bool:
    return bool(((values == 0) | (values == 1)).all())
