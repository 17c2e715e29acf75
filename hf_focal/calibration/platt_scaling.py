"""Platt scaling: a slope and an intercept for the logits of sigmoid heads.

The corrected probability is `σ(a z + b)` with a > 0 [Platt, *Probabilistic Outputs for Support Vector Machines and
Comparisons to Regularized Likelihood Methods*, 1999]. The NLL is minimized against Platt's targets, (N₊ + 1) / (N₊ +
2) for ones and 1 / (N₋ + 2) for zeros, so the minimum is finite even if a threshold separates ones from zeros [Lin,
Lin, and Weng, *A Note on Platt's Probabilistic Outputs for Support Vector Machines*, 2007]. A temperature never moves
a probability across ½; the intercept does, which heads need that are trained with a `pos_weight`, or on another share
of ones.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..errors import InputError
from ..validation import Array, check_sigmoid_scores
from .corrections import Correction
from .temperature_scaling import UnsuitableLogitsError

_MIN_COUNT = 20  # with fewer ones or zeros, a label says too little about its own slope and intercept
_MOST_STEPS = 100  # Newton's method needs about 10


def fit_platt_scaling(
    logits: Array, labels: Array, *, per_label: bool = False, smooth: bool = True, ignore_index: int = -100
) -> Correction:
    """Fit the slope a and the intercept b of σ(a z + b), by NLL, on a calibration set.

    Args:
        logits: `(..., L)`, any floating dtype, on any device, finite where the label is known.
        labels: `(..., L)`, each 0 or 1, or `ignore_index` or NaN where it is unknown.
        per_label: fit one slope and intercept per label. A label with fewer than 20 ones or zeros, or whose own slope
            would not be positive, gets the shared ones, which are fitted to all labels together.
        smooth: minimize the NLL against Platt's targets. False takes the plain labels 0 and 1, for which there is no
            minimum if a threshold separates them.
        ignore_index: the label to leave out, neither 0 nor 1.

    Raises:
        InputError: arguments with the wrong dtype, shape, or range; infinite logits; no ones or no zeros;
            logits that are all equal, or that rank zeros above ones, which no a > 0 corrects; with `smooth=False`,
            separable labels.
    """
    z, one, known = check_sigmoid_scores("logits", logits, labels, ignore_index)
    check_platt(z, one, known)
    slopes, intercepts = _shared(z[known], one[known], torch.ones(1, int(known.sum()), dtype=torch.bool), smooth)
    slope, intercept = float(slopes), float(intercepts)
    return Correction.platt(
        *(_per_label(z, one, known, smooth, slope, intercept) if per_label else (slope, intercept))
    )


def fit_subsets(z: Tensor, one: Tensor, subsets: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a and b of σ(a z + b) to each of some subsets, (F, N), of logits and of whether their labels are 1, (N,).

    Returns a and b, (F,). Raises as `fit_platt_scaling` does.
    """
    for subset in subsets:
        check_platt(z, one, subset)
    return _shared(z, one, subsets, True)


def _shared(z: Tensor, one: Tensor, subsets: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    slopes, intercepts, has_minimum = _fit(z.expand(subsets.shape), one.expand(subsets.shape), subsets, smooth)
    if not has_minimum.all():
        raise InputError(
            "labels", "must overlap for plain targets, got ones and zeros that a threshold separates: use smooth=True"
        )
    if not (slopes > 0).all():
        raise UnsuitableLogitsError(
            "logits",
            f"must be larger for ones than for zeros, got a slope of {float(slopes.min()):.3g}: the head ranks "
            "backwards, so check the order of the classes, or which label is 1",
        )
    return slopes, intercepts


def check_platt(z: Tensor, one: Tensor, known: Tensor) -> None:
    """Raise `InputError` if the known entries of (N, L) have infinite or equal logits, or no ones, or no zeros."""
    known_logits = z[known]
    if not known_logits.isfinite().all():
        wrong = float(known_logits[~known_logits.isfinite()][0])
        raise InputError("logits", f"must be finite for Platt scaling, got {wrong}: use a temperature")
    ones, total = int(one[known].sum()), known_logits.numel()
    if not 0 < ones < total:
        raise InputError("labels", f"must have both ones and zeros for Platt scaling, got {ones} ones of {total}")
    if (known_logits == known_logits[0]).all():
        raise InputError("logits", f"must differ for Platt scaling, got {float(known_logits[0]):.4g} for all {total}")


def _per_label(
    z: Tensor, one: Tensor, known: Tensor, smooth: bool, slope: float, intercept: float
) -> tuple[Tensor, Tensor]:
    """Return the slopes and the intercepts of the labels, which are the shared ones where a label has too few."""
    ones, zeros = (one & known).sum(0), (~one & known).sum(0)
    low, high = z.masked_fill(~known, torch.inf).amin(0), z.masked_fill(~known, -torch.inf).amax(0)
    fits = (ones >= _MIN_COUNT) & (zeros >= _MIN_COUNT) & (low < high)
    slopes, intercepts = torch.full_like(low, slope), torch.full_like(low, intercept)
    if fits.any():
        a, b, has_minimum = _fit(z[:, fits].T, one[:, fits].T, known[:, fits].T, smooth)
        good = has_minimum & (a > 0)
        slopes[fits], intercepts[fits] = torch.where(good, a, slope), torch.where(good, b, intercept)
    return slopes, intercepts


def _fit(z: Tensor, one: Tensor, known: Tensor, smooth: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Fit L problems at once, by Newton's method with step halving: z, one, and known are (L, N).

    Returns a and b, and whether the minimum was found, all (L,). Each row has ones, zeros, and logits that differ.
    """
    weight = known.double()
    count = weight.sum(1, keepdim=True)
    z = torch.where(known, z, 0)
    # In units of their deviation, the logits of every problem have the same scale.
    peak = z.abs().amax(1, keepdim=True)
    z = z / peak  # sums of squares of large logits overflow
    mean = z.sum(1, keepdim=True) / count
    deviation = (((z - mean).square() * weight).sum(1, keepdim=True) / count).sqrt()
    x = (z - mean) / deviation * weight
    ones = (one.double() * weight).sum(1, keepdim=True)
    high, low = ((ones + 1) / (ones + 2), 1 / (count - ones + 2)) if smooth else (1.0, 0.0)
    target = torch.where(one, high, low)
    share = (target * weight).sum(1, keepdim=True) / count
    a, b = torch.zeros_like(share), torch.logit(share)

    def nll(a: Tensor, b: Tensor) -> Tensor:
        u = a * x + b
        return ((softplus(u) - target * u) * weight).sum(1, keepdim=True) / count

    value = nll(a, b)
    for _ in range(_MOST_STEPS):
        p = torch.sigmoid(a * x + b)
        residual, curvature = (p - target) * weight, p * (1 - p) * weight
        by_a, by_b = (part.sum(1, keepdim=True) / count for part in (residual * x, residual))
        aa, ab, bb = (part.sum(1, keepdim=True) / count for part in (curvature * x * x, curvature * x, curvature))
        determinant = (aa * bb - ab * ab).clamp(min=torch.finfo(torch.float64).tiny)
        step_a, step_b = (bb * by_a - ab * by_b) / determinant, (aa * by_b - ab * by_a) / determinant
        gain, size = step_a * by_a + step_b * by_b, torch.ones_like(a)  # twice what a full step is expected to gain
        moving = gain > 1e-18
        for _ in range(60):
            new = nll(a - size * step_a, b - size * step_b)
            too_far = moving & ~(new <= value - 1e-4 * size * gain + 1e-14 * value.abs())  # but for rounding
            if not too_far.any():
                break
            size = torch.where(too_far, size / 2, size)
        else:  # at the precision of the NLL
            moving = moving & ~too_far
        a, b = torch.where(moving, a - size * step_a, a), torch.where(moving, b - size * step_b, b)
        value = torch.where(moving, new, value)
        if not moving.any():
            break
    # With plain targets, the slope of labels that a threshold separates grows without bound.
    has_minimum = (smooth | ((value > 1e-9) & (a.abs() < 1e4))).squeeze(1)
    slope = a / deviation / peak
    return slope.squeeze(1), (b - a * mean / deviation).squeeze(1), has_minimum
