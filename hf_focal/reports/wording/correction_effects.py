"""What a correction did to the metrics of a result: whether it helps, and what it harms."""

from math import nan, sqrt

from ...calibration.correction_methods import CORRECTION_METHODS
from ...metrics.metric_table import METRICS
from ..results.run_results import RunResult
from .headlines import SMALL_ECE
from .model_warnings import is_no_better_than_guessing
from .number_format import format_metric

_LOWERED = ("ece", "nll")  # the metrics that a correction should lower
# Classes are named that lose this much of their recall, or more than this share of it.
_LOST_RECALL, _LOST_SHARE = 0.1, 0.5
# Without an interval, as for tokens and pixels, an ECE must fall by this share to be called lower.
_CLEAR_FALL = 0.1


def lost_recall(result: RunResult) -> list[tuple[str, float, float]]:
    """Return the name and the recall before and after of the classes that lose much of it, the largest loss first.

    The 99% interval of the loss, for which the samples before and after count as independent, is above 0 [Agresti and
    Caffo 2000].
    """
    changes = result.subsets.class_changes
    if changes is None:
        return []
    losses = []
    columns = changes.name, changes.num_samples, changes.right_before, changes.right_after
    for name, size, old, new in zip(*columns, strict=True):
        if size and (old - new >= _LOST_RECALL * size or old - new > _LOST_SHARE * old):
            first, second = (old + 1) / (size + 2), (new + 1) / (size + 2)
            error = sqrt((first * (1 - first) + second * (1 - second)) / (size + 2))
            if first - second > 2.576 * error:
                losses.append((name, old / size, new / size))
    return sorted(losses, key=lambda loss: loss[2] - loss[1])


def temperature_is_worse(result: RunResult) -> bool:
    """Return whether cross-fitting shows that a temperature alone would raise the ECE or the NLL."""
    fit = result.fit.cross_fit
    temperature = (fit.scores or {}).get("temperature") if fit else None
    if fit is None or not temperature or not fit.before:
        return False
    return _is_clearly_higher(temperature["ece"], fit.before["ece"]) or temperature["nll"] > fit.before["nll"]


def raises_ece(result: RunResult) -> bool:
    """Return whether a correction raises the ECE: on test data beyond its intervals, or cross-fitted.

    A cross-fitted ECE counts unless test data show that the ECE falls.
    """
    if result.method is None or result.prior:
        return False
    fit, falls = result.fit.cross_fit, False
    if result.has_own_test_data:
        falls = "ECE" not in not_lowered(result)
        before, after = result.pre_intervals.get("ece"), result.post_intervals.get("ece")
        if before and after and after[0] > before[1]:
            return True
    return (
        not falls and fit is not None and bool(fit.before) and _is_clearly_higher(fit.after["ece"], fit.before["ece"])
    )


def _is_clearly_higher(ece: float, before: float) -> bool:
    """Return whether an ECE without an interval is higher by a tenth, and is one that matters."""
    return ece > max((1 + _CLEAR_FALL) * before, SMALL_ECE)


def lower_ece_methods(result: RunResult) -> list[str]:
    """Return the methods that cross-fitting shows to lower both the ECE and the NLL, the lowest ECE first."""
    fit = result.fit.cross_fit
    scores = (fit.scores or {}) if fit else {}
    lower = {
        name: score["ece"]
        for name, score in scores.items()
        if fit and name in CORRECTION_METHODS and all(score[key] < fit.before[key] for key in _LOWERED)
    }
    return sorted(lower, key=lambda name: lower[name])


def is_unchanged(result: RunResult) -> bool:
    """Return whether ECE and NLL are the same before and after the correction, as they are printed."""
    return bool(result.post) and all(
        format_metric(key, result.pre) == format_metric(key, result.post) for key in _LOWERED
    )


def increases_both(result: RunResult) -> bool:
    """Return whether the correction increases both ECE and NLL, as they are printed, on data that can show it."""
    if result.lacks_new_prior:
        return False
    increased = all(result.post.get(name, nan) > result.pre.get(name, nan) for name in _LOWERED)
    return increased and not is_unchanged(result)


def is_better_calibrated(result: RunResult) -> bool:
    """Return whether the correction lowers both ECE and NLL, beyond noise, of a model that is worth its error.

    The intervals of the ECE must be apart; without intervals, the ECE must fall by a tenth.
    """
    if not_lowered(result) or is_unchanged(result) or is_no_better_than_guessing(result):
        return False
    if result.pre_intervals.get("ece") and result.post_intervals.get("ece"):
        return not intervals_overlap(result)
    return result.post["ece"] < (1 - _CLEAR_FALL) * result.pre["ece"]  # both are known if the ECE is lowered


def not_lowered(result: RunResult) -> list[str]:
    """Return the names of the metrics that the correction should lower and does not."""
    # A comparison with NaN is False.
    return [METRICS[key].name for key in _LOWERED if not result.post.get(key, nan) < result.pre.get(key, nan)]


def intervals_overlap(result: RunResult) -> bool:
    """Return whether the intervals of the ECE before and after the correction are known, and overlap."""
    known = [side["ece"] for side in (result.pre_intervals, result.post_intervals) if side.get("ece")]
    return len(known) == 2 and max(low for low, _ in known) <= min(high for _, high in known)
