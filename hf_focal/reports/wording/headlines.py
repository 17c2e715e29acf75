"""One line on a result: how the mean confidence compares with the accuracy, before and after the correction."""

import math
from collections.abc import Mapping

import numpy as np

from ...calibration.calibration_fit import score_trade
from ..figures.reliability_marks import wilson_interval
from ..results.run_results import RunResult
from .number_format import differing_decimals

SMALL_ECE = 0.02  # probabilities with a larger ECE are not called right, even if they are right on average


def description(result: RunResult) -> str:
    """Return one line: the name of the model or loss, and its headline."""
    return f"{result.name}: {_headline(result)}"


def headline_of(result: RunResult) -> str:
    """Return the headline as a sentence; "" without measured values."""
    if not result.post or math.isnan(result.pre.get("ece", math.nan)):
        return ""
    text = _headline(result)
    return f"{text[0].upper()}{text[1:]}."


def _headline(result: RunResult) -> str:
    """Say how the mean confidence compares with the accuracy, and what the correction made of the confidence."""
    corrected = result.correction_title(3)
    if result.link == "sigmoid":
        before, after = _of_probabilities(result)
    elif "confidence" in result.pre and "accuracy" in result.pre:
        before, after = _of_confidences(result)
    else:
        before, after = _of_ece(result)
    return f"{before}; after {corrected}: {after}{_trade(result)}" if result.method else before


def _of_probabilities(result: RunResult) -> tuple[str, str]:
    """Say how the probabilities of a sigmoid are before, and after a correction."""
    (mean, share), (mean_after, _) = result.pre_bins.means(), result.post_bins.means()
    gap = gap_beyond_noise(mean, share, result.pre_bins.count.sum())
    verdict = "too high" if gap > 0 else "too low"
    if not gap:
        verdict = "right on average"
        verdict += ", but not at every level" if is_miscalibrated(result.pre_intervals) else ""
    digits = differing_decimals(mean, share, 1) if gap else 1
    numbers = f"{100 * mean:.{digits}f}% on average, and {100 * share:.{digits}f}% {result.outcome}"
    return f"probabilities {verdict}: {numbers}", f"{100 * mean_after:.{digits}f}%"


def _of_confidences(result: RunResult) -> tuple[str, str]:
    """Say how the confidences of a softmax are before, and after a correction."""
    confidence, accuracy = result.pre["confidence"], result.pre["accuracy"]
    gap = gap_beyond_noise(confidence, accuracy, result.pre.get("num_samples", 1))
    verdict = "overconfident" if gap > 0 else "underconfident"
    if not gap:
        verdict = "neither over- nor underconfident on average"
        verdict += ", but not calibrated at every level" if is_miscalibrated(result.pre_intervals) else ""
    digits = differing_decimals(confidence, accuracy, 0) if gap else 0
    before = f"{verdict}: says {100 * confidence:.{digits}f}%, right {100 * accuracy:.{digits}f}%"
    new_confidence, new_accuracy = (result.post.get(name, math.nan) for name in ("confidence", "accuracy"))
    changed = f", right {100 * new_accuracy:.{digits}f}%" if new_accuracy != accuracy else ""
    return before, f"says {100 * new_confidence:.{digits}f}%{changed}"


def _of_ece(result: RunResult) -> tuple[str, str]:
    """Give the ECE before, and after a correction, of a result without a mean confidence."""
    before, after = (f"{100 * side.get('ece', math.nan):.1f}%" for side in (result.pre, result.post))
    return f"ECE {before}", after


def _trade(result: RunResult) -> str:
    """Return what the correction gains and loses if it improves only one of NLL and ECE, or else ""."""
    if result.lacks_new_prior:
        return ""
    if result.fit.cross_fit and not result.has_own_test_data:  # where `post` is optimistic
        text = score_trade(result.fit.cross_fit.before, result.fit.cross_fit.after)
        return f"; cross-fitted, {text}" if text else ""
    text = score_trade(result.pre, result.post)
    return f"; {text}" if text else ""


def gap_beyond_noise(mean: float, share: float, size: float) -> float:
    """Return the mean probability minus the share of ones among `size` samples, or 0 if chance may explain it."""
    low, high = wilson_interval(np.array(share), np.array(max(size, 1)))
    return 0.0 if low <= mean <= high else mean - share


def is_miscalibrated(intervals: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether the interval of the ECE shows that the ECE is larger than one that hardly matters."""
    return intervals.get("ece", (0.0, 1.0))[0] > SMALL_ECE
