"""Temperature scaling: one number that corrects confidence and leaves every prediction unchanged.

The corrected probabilities are `softmax(z / T)` [Guo et al. 2017], with T fitted on held-out logits, never on the test
set. The NLL is convex in 1/T. When the calibration set is resampled, the T fitted by ECE varies about twice as much as
the T fitted by NLL. `temperature_grid` explains how ECE and NLL follow from each sample's gaps `d = max z - z`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..metrics import CalibrationMetrics, adaptive_calibration_error
from ..metrics.bins import bin_index, binned_error
from ..utils.caller_warnings import warn
from ..validation import Array, check_count, check_sigmoid_scores
from .fitted_temperature import Temperature
from .temperature_grid import (
    LOG2E,
    OBJECTIVES,
    STREAM_OBJECTIVES,
    CalibrationSamples,
    check_grid,
    check_grid_end,
    check_objective,
    grid_text,
    refuse_probabilities,
    row_sums,
    sum_by_bin,
    warn_constant,
)

_MIN_POSITIVES = 20  # with fewer positives, a label says too little about its own T
_END = 1e6  # the end of the range of T, in units of the logits
# From this share of the gap at chance on, the labels' mean gap says that the logits carry no information.
INFORMATIVE = 1 - 1e-9
# What to say of a T at the end of its range.
NO_INFORMATION = {
    "softmax": (
        "the logits say less about the labels than chance, so T makes all classes about equally likely: are the "
        "labels those of these logits? Vector scaling or a bias may help"
    ),
    "sigmoid": (
        "the logits say less about the labels than a probability of 1/2 would, so T moves all probabilities there: "
        "are the labels those of these logits? Platt scaling, whose intercept moves all alike, may help"
    ),
}


def fit_temperature(
    logits: Array,
    labels: Array,
    objective: str = "nll",
    num_bins: int = 15,
    grid: Sequence[float] | np.ndarray | None = None,
    ignore_index: int = -100,
    *,
    link: str = "softmax",
    per_label: bool = False,
) -> Temperature:
    """Fit the temperature of `softmax(logits / T)`, or of `σ(logits / T)`, on a calibration set.

    Args:
        logits: `(..., K)`, any floating dtype, on any device. -inf masks a class.
        labels: `(...)`, integers in `[0, K)`, or `ignore_index` for samples to leave out.
        objective: `"nll"`: the T with the smallest mean negative log-likelihood [Guo et al. 2017]. `"ece"`: the T of
            `grid` with the smallest ECE (the first one in a tie, as in the papers' loop) [Mukhoti et al. 2020].
            `"adaece"`, only with the softmax: the T of `grid` with the smallest AdaECE [Ghosh et al. 2022].
        num_bins: number of bins M: equal-width bins ((i-1)/M, i/M] for the ECE, equal-mass bins for the AdaECE.
        grid: temperatures to try, in order; 0.1, 0.2, …, 10.0 if None. Must be None for `"nll"`.
        ignore_index: the label to leave out; with a sigmoid, neither 0 nor 1.
        link: "sigmoid" for several labels per sample, or for a single logit. Then the logits and labels are both
            `(..., L)`, and each label is 0 or 1 or, if unknown, `ignore_index` or NaN.
        per_label: fit one T per label (`Temperature.values`), too; only with the sigmoid and `"nll"`.

    Returns:
        A `Temperature`, accurate to float64: a T from the grid is the one that a float64 loop would find, although
        most of the grid may be evaluated only approximately (see `_screen`). Warns if T is at an end of the grid, or
        if T makes both ECE and NLL worse. Warns and returns T = 1 for constant logits and, with `"nll"`, if all
        predictions are correct. With `"nll"`, logits that say less about the labels than chance get a T so large that
        all classes are about equally likely; `at_grid_end` is then True, and a warning says so.

    Raises:
        InputError: arguments with the wrong dtype, shape, or range; softmax probabilities given as logits; no labels
            left; with `"nll"` or the sigmoid, a label whose probability is 0 at every T.

    Examples:
        >>> import torch
        >>> from hf_focal import fit_temperature
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = 2 * torch.randn(2000, 3, generator=generator)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        >>> round(fit_temperature(2 * logits, labels).value, 1)  # twice as sure as it should be
        2.0
    """
    if link not in ("softmax", "sigmoid"):
        raise InputError("link", f"must be 'softmax' or 'sigmoid', got {link!r}")
    if per_label and link == "softmax":
        raise InputError("per_label", "must come with link 'sigmoid', got link 'softmax'")
    check_objective(objective, OBJECTIVES if link == "softmax" else STREAM_OBJECTIVES)
    check_count("num_bins", num_bins)
    if objective == "nll" and grid is not None:
        raise InputError("grid", f"must be None for objective='nll', which searches no grid, got {grid!r}")
    temperatures = check_grid(grid)
    if link == "sigmoid":
        return _fit_sigmoid(logits, labels, objective, num_bins, temperatures, ignore_index, per_label)

    samples = CalibrationSamples(logits, labels, ignore_index)
    refuse_probabilities(samples.evidence)
    if not len(samples):
        raise InputError("labels", f"must have one that is not ignore_index {ignore_index}, got none")
    at_grid_end, grid_of_t = False, ""
    if samples.are_constant:
        warn_constant()
        candidates = np.array([1.0])
    elif objective == "ece":
        candidates = _screen(samples, temperatures, num_bins)
    elif objective == "adaece":
        candidates = temperatures[[np.argmin([_adaece(samples, t, num_bins) for t in temperatures])]]
    else:
        value, at_grid_end = nll_temperature(samples)
        if at_grid_end:
            warn(NO_INFORMATION["softmax"], NoInformationWarning)
        candidates = np.array([value])
    ece, nll = _exact(samples, [1.0, *candidates], num_bins)
    best = 1 + int(ece[1:].argmin())
    value = float(candidates[best - 1])
    if objective != "nll" and not samples.are_constant:
        at_grid_end = check_grid_end(value, temperatures, "use objective='nll' or a wider grid")
        grid_of_t = grid_text(temperatures)
    ece_before, ece_after, nll_before, nll_after = (float(values[i]) for values in (ece, nll) for i in (0, best))
    if ece_after > ece_before and nll_after > nll_before:
        warn(f"T = {value:.4g} makes ECE and NLL of the calibration set worse: include 1 in the grid")
    return Temperature(
        value=value,
        objective=objective,
        ece_before=ece_before,
        ece_after=ece_after,
        nll_before=nll_before,
        nll_after=nll_after,
        num_samples=len(samples),
        num_bins=num_bins,
        at_grid_end=at_grid_end,
        grid=grid_of_t,
    )


def _exact(samples: CalibrationSamples, temperatures: Sequence[float], num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays, float64: the ECE and the mean NLL at each of the `temperatures`."""
    surplus = torch.zeros(len(temperatures), num_bins, dtype=torch.float64, device=samples.labels.device)
    nll = surplus.new_zeros(len(temperatures))
    for part, gaps in samples.gaps(torch.float64):
        correct, label_gaps = samples.correct[part], samples.label_gaps[part]
        terms = torch.empty_like(gaps)
        for i, temperature in enumerate(temperatures):
            sums = torch.exp2(torch.mul(gaps, -LOG2E / temperature, out=terms), out=terms).sum(1)
            confidence = 1 / sums
            surplus[i] += sum_by_bin(bin_index(confidence, num_bins), confidence - correct, num_bins)
            nll[i] += (sums.log() + label_gaps / temperature).sum()
    return binned_error(surplus, len(samples)).cpu().numpy(), (nll / len(samples)).cpu().numpy()


def _screen(samples: CalibrationSamples, temperatures: np.ndarray, num_bins: int) -> np.ndarray:
    """Return the temperatures, in order, that may have the smallest ECE; all others provably do not.

    One pass over the logits gives an interval that contains the ECE at each temperature. A temperature is kept if the
    lower end of its interval does not exceed the smallest upper end of all intervals.
    """
    method = row_sums(tuple(temperatures), samples.num_classes, samples.labels.device)
    sums = samples.grid_sums(method, num_bins)
    ece, slack = sums.ece(), sums.ece_error(method.error)
    return temperatures[(ece - slack <= (ece + slack).min()).cpu().numpy()]


def _adaece(samples: CalibrationSamples, temperature: float, num_bins: int) -> float:
    """Return the AdaECE at a temperature, computed from float64 confidences."""
    parts = [1 / torch.exp2(gaps * (-LOG2E / temperature)).sum(1) for _, gaps in samples.gaps(torch.float64)]
    return adaptive_calibration_error(torch.cat(parts), samples.correct, num_bins, inputs="confidences")


class NoInformationWarning(UserWarning):
    """The logits say less about the labels than chance, so T is at the end of its range."""


class NoTemperatureWarning(UserWarning):
    """The NLL falls as T -> 0, so no T is the best one, and T is 1."""


class UnsuitableLogitsError(InputError):
    """Logits without any fault of their own have no such correction."""


class InfiniteNLLError(UnsuitableLogitsError):
    """A label's logit is -inf, so the NLL is infinite at every temperature."""


def nll_temperature(samples: CalibrationSamples) -> tuple[float, bool]:
    """Return the T with the smallest mean NLL, and whether it is the end of its range. If there is none, T is 1."""
    label_gap = float(samples.label_gaps.mean())
    if not math.isfinite(label_gap):
        infinite = "must be finite for the labels, got -inf for one: the NLL is infinite at every T"
        raise InfiniteNLLError("logits", infinite)
    chance_gap, has_masks = _mean_gap(samples)
    value, at_end = _nll_optimum(
        label_gap, chance_gap, lambda beta, dtype: _gap_moments(samples, beta, dtype, has_masks)
    )
    if value is None:
        warn(
            f"no T can be fitted, so T = 1: all {len(samples)} samples are predicted correctly, and the NLL falls as "
            "T -> 0; use a larger calibration set, or a bias correction, which is regularized",
            NoTemperatureWarning,
        )
    return value or 1.0, at_end


def _nll_optimum(
    label_gap: float, chance_gap: float, moments: Callable[[float, torch.dtype], tuple[float, float]]
) -> tuple[float | None, bool]:
    """Return the T with the smallest mean NLL, and whether it is the end of its range; None and False if T -> 0.

    The derivative of the NLL with respect to β = 1/T, `mean d_y - mean E_β[d]`, increases with β and is 0 at this T.
    `E_β` is the expectation over the classes under softmax(βz).

    Args:
        label_gap: mean d_y; 0 if all predictions are correct, so that the NLL falls as T -> 0.
        chance_gap: mean E_0[d]; if it does not exceed `label_gap`, the logits say less about the labels than chance,
            and T is the end of its range.
        moments: returns, from β and the precision to compute in, mean E_β[βd] and the mean of the variances of βd.
    """
    if label_gap == 0:
        return None, False
    if label_gap >= INFORMATIVE * chance_gap:
        return end_of_range(chance_gap), True
    # Newton's method for log E_β[d] = log(mean d_y) as a function of log β; both are logarithms because E_β[d] falls
    # about like a power of β. It starts at the scale of the gaps, so multiplying the logits by c multiplies T by c.
    # Passes in float32 come close to the root, and the last ones are in float64. Where float32 cannot hold the gaps,
    # all are in float64.
    log_beta, low, high = -math.log(label_gap), -math.inf, math.inf
    dtype = torch.float32 if 1e-25 < label_gap < 1e25 else torch.float64
    while True:
        beta = math.exp(log_beta)
        gap, variance = moments(beta, dtype)
        excess = gap - beta * label_gap
        low, high = (log_beta, high) if excess > 0 else (low, log_beta)
        is_finite = gap > 0 and variance > 0
        step = math.log(gap / (beta * label_gap)) * gap / variance if is_finite else math.copysign(2, excess)
        step = min(max(step, -2.0), 2.0)
        if not low <= log_beta + step <= high and math.isfinite(low + high):
            step = (low + high) / 2 - log_beta
        log_beta += step
        if dtype == torch.float64 and abs(step) < 1e-7:  # the convergence is quadratic
            return math.exp(-log_beta), False
        if dtype == torch.float32 and abs(step) < 1e-3:
            low, high, dtype = -math.inf, math.inf, torch.float64  # rounding may have moved the bounds past the root


def end_of_range(chance_gap: float) -> float:
    """Return the largest T, at which all classes are about equally likely, for gaps of this mean at chance."""
    return max(1.0, _END * chance_gap)


def _mean_gap(samples: CalibrationSamples) -> tuple[float, bool]:
    """Return the mean over samples of E[d] if all unmasked classes are equally likely, and whether any is masked."""
    total, num_masked = torch.zeros(2, dtype=torch.float64, device=samples.labels.device)
    for _, gaps in samples.gaps(torch.float64):
        masked = gaps.isinf()
        total += (gaps.masked_fill_(masked, 0).sum(1) / (~masked).sum(1)).sum()
        num_masked += masked.sum()
    return float(total) / len(samples), bool(num_masked)


def _gap_moments(samples: CalibrationSamples, beta: float, dtype: torch.dtype, has_masks: bool) -> tuple[float, float]:
    """Return the means over samples of the expectation and of the variance of βd under softmax(βz), β > 0.

    Those of d itself would not be finite for very large logits.
    """
    totals = torch.zeros(2, dtype=torch.float64, device=samples.labels.device)
    for _, gaps in samples.gaps(dtype):
        gaps = gaps.mul_(beta)
        terms = torch.exp2(gaps * -LOG2E)
        if has_masks:
            gaps.masked_fill_(gaps.isinf(), 0)  # their terms are 0
        sums = terms.sum(1)
        first = terms.mul_(gaps).sum(1) / sums
        variance = terms.mul_(gaps).sum(1) / sums - first.square()
        totals += torch.stack([first, variance], 1).sum(0, dtype=torch.float64)
    mean, variance = (totals / len(samples)).tolist()
    return mean, variance


def _fit_sigmoid(
    logits: Array,
    labels: Array,
    objective: str,
    num_bins: int,
    temperatures: np.ndarray,
    ignore_index: int,
    per_label: bool,
) -> Temperature:
    """Fit the temperature of ``σ(logits / T)``, or one temperature per label."""
    if per_label and objective != "nll":
        raise InputError("objective", f"must be 'nll' with per_label, got {objective!r}")
    z, one, known = check_sigmoid_scores("logits", logits, labels, ignore_index)

    def measured(scaled: Tensor) -> dict[str, float]:
        metrics = CalibrationMetrics(num_bins, keep_samples=False, link="sigmoid")
        metrics.update(scaled, one.long().masked_fill(~known, -100))
        return metrics.compute()

    before = measured(z)
    if not before["num_entries"]:
        raise InputError(
            "labels", f"must have at least one that is not {ignore_index} or NaN, got none of {known.numel()}"
        )
    if ((z >= 0) & (z <= 1)).all():
        warn("all logits are in [0, 1]: if they are probabilities p, give torch.logit(p) instead")
    at_grid_end, values, fallback = False, [], []
    signed = torch.where(one, z, -z)
    if (known & (signed == -math.inf)).any():
        raise InputError(
            "logits", "must not give a label probability 0 at every T, got an infinite logit with the wrong sign"
        )
    if objective == "ece":
        value = float(temperatures[np.argmin([measured(z / float(t))["ece"] for t in temperatures])])
        at_grid_end = check_grid_end(value, temperatures, "use objective='nll' or a wider grid")
    else:
        shared, at_grid_end = _sigmoid_optimum(signed[known])
        if at_grid_end:
            warn(NO_INFORMATION["sigmoid"], NoInformationWarning)
        elif shared is None:
            warn(
                "no T can be fitted, so T = 1: the signs of the logits predict all labels, or the logits are 0; use a "
                "larger calibration set, or Platt scaling, which is regularized",
                NoTemperatureWarning,
            )
        value = 1.0 if shared is None else shared
    divisor: Any = value
    if per_label:
        for label in range(z.shape[1]):
            known_entries = known[:, label]
            enough = int(one[known_entries, label].sum()) >= _MIN_POSITIVES
            label_temperature = _sigmoid_optimum(signed[known_entries, label])[0] if enough else None
            values.append(value if label_temperature is None else label_temperature)
            fallback += [label] if label_temperature is None else []
        divisor = torch.tensor(values, dtype=z.dtype)
    after = measured(z / divisor)
    return Temperature(
        value=value,
        objective=objective,
        ece_before=before["ece"],
        ece_after=after["ece"],
        nll_before=before["nll"],
        nll_after=after["nll"],
        num_samples=int(before["num_entries"]),
        num_bins=num_bins,
        at_grid_end=at_grid_end,
        values=tuple(values),
        fallback=tuple(fallback),
        grid=grid_text(temperatures) if objective == "ece" else "",
    )


def _sigmoid_optimum(signed: Tensor) -> tuple[float | None, bool]:
    """Return the T with the smallest mean of softplus(-s / T), and whether it is the end of its range.

    T is the end of its range if the logits say less about the labels than p = 1/2, and None if the mean falls as T ->
    0, or if all logits are 0.

    Each s in `signed` is the logit z of an entry with label 1, or -z for label 0: σ(s / T) is the last probability of
    softmax([0, s] / T), whose one gap is |s|.
    """
    signed = signed[signed.isfinite()]  # where it is infinite, the NLL is 0 at every T
    scale = float(signed.abs().mean()) if len(signed) else 0.0
    if not scale:
        return None, False
    signed = signed / scale  # float32 holds it, whatever the scale
    exact = signed.abs()
    gaps = {torch.float64: exact, torch.float32: exact.float()}

    def moments(beta: float, dtype: torch.dtype) -> tuple[float, float]:
        gap = gaps[dtype] * beta
        other = torch.sigmoid(-gap)
        mean = gap * other
        variance = (mean * gap).sub_(mean.square())
        return float(mean.sum(dtype=torch.float64)) / len(gap), float(variance.sum(dtype=torch.float64)) / len(gap)

    label_gap = float(signed.clamp(max=0).mean().abs())
    value, at_end = _nll_optimum(label_gap, float(exact.mean()) / 2, moments)
    if at_end:
        return max(1.0, _END * scale), True
    return None if value is None else scale * value, False
