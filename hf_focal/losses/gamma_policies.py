"""Policies that choose γ from the probability p of the true class.

γ ≥ 0 gives focal loss, ``(1-p)^γ · ce``, and γ < 0 gives inverse focal loss, ``(1+p)^|γ| · ce``, with the
cross-entropy ce = -log p. No gradient flows through the choice of γ.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import scipy  # which imports its parts on first use
import torch
from torch import Tensor

from ..errors import require
from ..validation import check_confidences, check_count, check_number
from .checks import constant


def increasing(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


class GammaPolicy:
    """Base class of the policies. They hold plain numbers, so they work on any device.

    Attributes:
        changes_during_training: whether γ changes as a model trains, so that a trainer must update the policy.
        some_negative: whether any γ may be negative; False saves time.
    """

    changes_during_training: bool = False
    some_negative: bool = True

    def __call__(self, p: Tensor) -> float | Tensor:
        """Return γ: one float for all samples, or a tensor with the shape and dtype of `p`."""
        raise NotImplementedError

    def set_progress(self, fraction: float) -> None:
        """Tell the policy what fraction of the training is done. Only `ScheduledGamma` depends on this fraction."""

    def state_dict(self) -> dict:
        """Return the part of the policy's state that changes during training, as JSON values."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Restore a state that `state_dict` returned."""


class ConstantGamma(GammaPolicy):
    """The same γ for every sample."""

    def __init__(self, gamma: float):
        self.gamma = check_number("gamma", gamma)

    def __call__(self, p: Tensor) -> float:
        return self.gamma


class ScheduledGamma(GammaPolicy):
    """γ that is constant within each stage of the training (FLSc of Mukhoti et al. 2020, section 4).

    Args:
        stages: pairs ``(start, gamma)``, such as ``(0, 5), (100/350, 3), (250/350, 2)``. A stage begins when the
            fraction `start` of the training is done. The starts increase, from 0 in the first pair, and are below 1.
    """

    changes_during_training = True

    def __init__(self, *stages: tuple[float, float]):
        self.starts = [check_number("start", start) for start, _ in stages]
        self.gammas = [check_number("gamma", gamma, 0) for _, gamma in stages]
        valid = self.starts[:1] == [0] and increasing([*self.starts, 1.0])
        require(valid, "stages", f"must start at 0 and increase within [0, 1), got starts {self.starts}")
        self.progress = 0.0

    @property
    def gamma(self) -> float:
        """γ of the current stage."""
        return [gamma for start, gamma in zip(self.starts, self.gammas, strict=True) if start <= self.progress][-1]

    def __call__(self, p: Tensor) -> float:
        return self.gamma

    def set_progress(self, fraction: float) -> None:
        self.progress = check_number("fraction", fraction, 0, 1)

    def state_dict(self) -> dict:
        return {"progress": self.progress}

    def load_state_dict(self, state: dict) -> None:
        self.set_progress(state["progress"])


def _look_up(p: Tensor, edges: Sequence[float], values: Sequence[float]) -> Tensor:
    """Look up the value of each p's bin: ``values[i]`` where ``edges[i-1] <= p < edges[i]``."""
    bounds, bin_values = (constant(tuple(numbers), p) for numbers in (edges, values))
    return bin_values[torch.bucketize(p, bounds, right=True)]


class SampleDependentGamma(GammaPolicy):
    """γ that depends on the sample's true-class probability (FLSD of Mukhoti et al. 2020, section 4).

    Args:
        thresholds: the values of p at which γ changes, each in (0, 1), in increasing order.
        gammas: values of γ, one more than `thresholds`; ``gammas[i]`` applies where ``thresholds[i-1] <= p <
            thresholds[i]``.
    """

    some_negative = False

    def __init__(self, thresholds: Sequence[float], gammas: Sequence[float]):
        self.thresholds = [check_number("thresholds", threshold) for threshold in thresholds]
        self.gammas = [check_number("gammas", gamma, 0) for gamma in gammas]
        valid = bool(self.thresholds) and increasing([0.0, *self.thresholds, 1.0])
        require(valid, "thresholds", f"must increase within (0, 1), got {self.thresholds}")
        sizes = f"{len(self.gammas)} gammas for {len(self.thresholds)} thresholds"
        valid = len(self.gammas) == len(self.thresholds) + 1
        require(valid, "gammas", f"must have one more value than thresholds, got {sizes}")

    def __call__(self, p: Tensor) -> Tensor:
        return _look_up(p, self.thresholds, self.gammas)


class AdaFocalGamma(GammaPolicy):
    """One γ per bin of probabilities (Ghosh et al. 2022).

    In training, a sample gets the γ of the bin that its true-class probability falls into. The edges of the bins and
    their γ are updated from the top-1 confidences of held-out data (`adafocal_update`).

    Args:
        bins: the number of bins, at least 1. At first, γ = 1 in each bin, and the edges are ``i / bins``.
        lam: λ, which sets how fast γ follows the calibration gap; at least 0.
        switch: S in (0, 1]; a positive γ that falls below S becomes -S (inverse focal), and a negative γ that rises
            above -S becomes S (focal).
        gamma_max: the largest γ allowed, at least 1.
        gamma_min: the smallest γ allowed, at most ``-switch``.
    """

    changes_during_training = True

    def __init__(
        self, bins: int = 15, lam: float = 1.0, switch: float = 0.2, gamma_max: float = 20.0, gamma_min: float = -2.0
    ):
        check_count("bins", bins)
        self.lam, self.switch = check_number("lam", lam, 0), check_number("switch", switch)
        require(0 < self.switch <= 1, "switch", f"must be within (0, 1], got {switch}")
        self.gamma_max = check_number("gamma_max", gamma_max, 1)  # 1 is where every bin starts
        self.gamma_min = check_number("gamma_min", gamma_min)
        valid = self.gamma_min <= -self.switch
        require(valid, "gamma_min", f"must be at most -switch = {-self.switch}, got {gamma_min}")
        self.gammas = [1.0] * bins
        self.edges = [i / bins for i in range(bins + 1)]

    def __call__(self, p: Tensor) -> Tensor:
        # Only the inner edges matter: a p below the first or above the last of them belongs to an outer bin.
        return _look_up(p, self.edges[1:-1], self.gammas)

    @property
    def some_negative(self) -> bool:  # type: ignore[override]
        return min(self.gammas) < 0

    def update(self, confidence: Tensor, correct: Tensor) -> None:
        """Update γ and the edges from the calibration of held-out samples; see `adafocal_update`."""
        limits = {name: getattr(self, name) for name in ("lam", "switch", "gamma_max", "gamma_min")}
        self.gammas, self.edges = adafocal_update(self.gammas, confidence, correct, **limits)

    def state_dict(self) -> dict:
        return {"gammas": list(self.gammas), "edges": list(self.edges)}

    def load_state_dict(self, state: dict) -> None:
        gammas, edges = list(state["gammas"]), list(state["edges"])
        expected = f"must have {len(self.gammas)} gammas and {len(self.edges)} edges"
        same = len(gammas) == len(self.gammas) and len(edges) == len(self.edges)
        require(same, "state", f"{expected}, got {len(gammas)} and {len(edges)}")
        self.gammas, self.edges = gammas, edges


def adafocal_update(
    gammas: Sequence[float],
    confidence: Tensor,
    correct: Tensor,
    *,
    lam: float = 1.0,
    switch: float = 0.2,
    gamma_max: float = 20.0,
    gamma_min: float = -2.0,
) -> tuple[list[float], list[float]]:
    """Return M new γ and M + 1 edges after one step of AdaFocal's update (Ghosh et al. 2022, algorithm 1), in float64.

    The confidences are split into M bins of equal mass, lowest confidence first. The γ of each bin is multiplied by
    ``exp(λ · gap)`` if γ > 0, or else by ``exp(-λ · gap)``, where gap is the bin's mean confidence minus its accuracy;
    `switch` and the bounds then apply (see `AdaFocalGamma`). As in AdaECE, each sample counts with the mean accuracy
    of all samples of its confidence. The order of the samples therefore does not matter, and a perfectly calibrated
    constant predictor keeps its γ.

    `gammas` are M values of γ, one per bin, `confidence` (N,) top-1 confidences in [0, 1], N ≥ M, and `correct` (N,),
    bool or 0/1, whether each prediction is right.
    """
    confidence, hits = (values.double() for values in check_confidences(confidence, correct))
    num_bins, num_samples = len(gammas), len(hits)
    expected = f"must hold at least one sample for each of the {num_bins} bins"
    advice = "use a larger calibration set or fewer bins"
    require(num_samples >= num_bins, "confidence", f"{expected}, got {num_samples}: {advice}")
    confidence, order = torch.sort(confidence)
    _, tie, tie_size = torch.unique_consecutive(confidence, return_inverse=True, return_counts=True)
    accuracy = (torch.bincount(tie, weights=hits[order]) / tie_size)[tie]  # of all samples with the same confidence
    confidence_bins = torch.tensor_split(confidence, num_bins)
    new_gammas = []
    for gamma, bin_p, bin_hits in zip(gammas, confidence_bins, torch.tensor_split(accuracy, num_bins), strict=True):
        gap = float(bin_p.mean() - bin_hits.mean())
        exponent = lam * gap if gamma > 0 else -lam * gap
        moved = gamma * math.exp(min(exponent, 700.0))  # far beyond any bound, but no overflow
        if abs(moved) < switch:
            moved = -switch if gamma > 0 else switch
        new_gammas.append(min(max(moved, gamma_min), gamma_max))
    edges = [0.0, *(float(values[0]) for values in confidence_bins[1:]), 1.0]
    return new_gammas, edges


def gamma_for_threshold(p0: float) -> float:
    """Return the γ for which the gradients of focal loss and cross-entropy are equal at probability `p0`.

    With this γ, focal loss has the larger gradient below `p0` and the smaller one above it (Mukhoti et al. 2020,
    proposition 2). FLSD-53 uses 5 and 3 because γ(0.2) = 4.85 and γ(0.25) = 3.07. γ falls to 0 as `p0` nears 0.5.
    Raises InputError unless `p0` is in (0, 0.5); for p0 ≥ 0.5, the gradients are equal for no γ > 0.

    Examples:
        >>> from hf_focal import gamma_for_threshold
        >>> round(gamma_for_threshold(0.25), 4)
        3.0702
    """
    valid = 0 < check_number("p0", p0) < 0.5
    require(valid, "p0", f"must be within (0, 0.5), where a gamma with g(p0, gamma) = 1 exists, got {p0}")
    # The ratio g of the gradients is 1 at p0. With d = -p0 log p0 / (1 - p0), x = γ d, and 1 - e = -log(1 - p0) / d:
    # log g = log1p(x) - (1 - e) x.
    d = -p0 * math.log(p0) / (1 - p0)
    if p0 < 0.25:
        e = 1 + math.log1p(-p0) / d
    else:  # e falls to 0 at p0 = 0.5; t is exact, so nothing cancels in this formula
        t = 1 - 2 * p0
        e = (math.atanh(t) + t * math.log1p(-t * t) / 2 - t * math.log(2)) / ((1 - p0) * d)
    if e < 1e-3:  # W₋₁ loses its digits near the branch point; this series gives x there
        x = 2 * e * (1 + e * (4 / 3 + e * (14 / 9 + e * 232 / 135)))
    else:
        x = -float(scipy.special.lambertw((e - 1) * math.exp(e - 1), -1).real) / (1 - e) - 1
    return x / d
