"""Bias correction, and structured vector and matrix scaling: corrections that can be folded into the last layer.

T is fitted first, by NLL. Then the centered logits x = (z - mean z) / T become A x + b, as in structured vector and
matrix scaling [Berta, Holzmüller, Jordan, and Bach, *Structured Matrix Scaling for Multi-Class Calibration*, 2025]. In
the place of x, the paper uses log-probabilities, which are not linear in z. A ridge penalty keeps A near the identity
and b near 0, so with few samples, the correction is nearly that of the temperature alone. The penalized mean NLL is
convex in A and b. Vector scaling has a second prior, for which log-probabilities were made linear in z.

Bias correction is softmax(z / T + b) [Alexandari, Kundaje, and Shrikumar, *Maximum Likelihood with Bias-Corrected
Calibration is Hard-To-Beat at Label Shift Adaptation*, 2020], here with the same penalty on b, and T without one.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..validation import Array
from .corrections import Correction
from .penalized_nll import PenalizedNLL
from .platt_scaling import fit_subsets
from .temperature_grid import CalibrationSamples, refuse_probabilities
from .temperature_scaling import UnsuitableLogitsError, nll_temperature

AFFINE_METHODS = ("temperature", "bias", "vector", "matrix")  # that `AffineFits` fits
_ENOUGH = 5  # samples of a class
_PRIOR_ODDS = 3.0  # nats, of the first of the two priors of vector scaling


def fit_vector_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> Correction:
    """Fit softmax((1 + v) ⊙ (z - mean z) / T + b): first T by NLL, then v and b by NLL + K/N Σ v² + min(K, 5)/N Σ b².

    Unlike with a temperature, predictions may change. `fit_correction` reports how many of them change, and whether
    vector scaling is better than a temperature on held-out samples. A class that (nearly) no sample has keeps the
    parameters that all classes share: T, the mean factor of the others, and the offset 0.

    In the place of x = (z - mean z) / T, the paper has log-probabilities, so a factor also moves its class. This helps
    where rare classes need offsets. Here, x - c takes their place, with the mean c of log Σ exp x, where the penalized
    likelihood is then at least e³ times as large.

    Args:
        logits: `(..., K)`, any floating dtype, on any device, all finite.
        labels: `(...)`, integers in `[0, K)`, or `ignore_index` for samples to leave out.
        bias: whether to fit b; False keeps b = 0, for a model whose last layer has no bias.
        ignore_index: the label to leave out.

    Raises:
        InputError: as in `fit_temperature` with `objective="nll"`, and for infinite logits.
    """
    return _fit_all(logits, labels, "vector", bias, ignore_index)


def fit_matrix_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> Correction:
    """Fit softmax((I + diag(v) + M) (z - mean z) / T + b), where M has a zero diagonal.

    The penalty has the additional term K(K-1)/N Σ M². Everything else is as in `fit_vector_scaling`.
    """
    return _fit_all(logits, labels, "matrix", bias, ignore_index)


def fit_bias_correction(logits: Array, labels: Array, *, ignore_index: int = -100) -> Correction:
    """Fit softmax(z / T + b), with Σ b = 0: T and b together by NLL + min(K, 5)/N Σ b².

    So few samples give nearly T. With two classes, it is Platt scaling of the difference of the two logits.
    Predictions may change. As in `fit_vector_scaling`, a class that (nearly) no sample has gets the offset 0.

    Args:
        logits, labels, ignore_index: as in `fit_vector_scaling`.

    Raises:
        InputError: as in `fit_vector_scaling`; no T > 0 has the smallest NLL, because the logits rank
            backwards; and for two classes, as in `fit_platt_scaling`.
    """
    return _fit_all(logits, labels, "bias", True, ignore_index)


def _fit_all(logits: Array, labels: Array, method: str, bias: bool, ignore_index: int) -> Correction:
    samples = CalibrationSamples(logits, labels, ignore_index)
    if not len(samples):
        raise InputError("labels", f"must have one that is not ignore_index {ignore_index}, got none")
    return AffineFits(samples).fit(method, bias)[0]


class AffineFits:
    """Fits to all samples and, for cross-fitting, to those outside each fold.

    Args:
        samples: the samples.
        folds: (N,), the number of each sample's fold, from 0 on; None for fits to all samples alone.
    """

    def __init__(self, samples: CalibrationSamples, folds: Tensor | None = None) -> None:
        refuse_probabilities(samples.evidence)
        self._samples, labels = samples, samples.labels
        sizes = [len(labels)] if folds is None else folds.bincount().tolist()
        self._groups = [slice(*ends) for ends in pairwise(np.cumsum([0, *sizes]).tolist())]
        self._order = slice(None) if folds is None else folds.argsort(stable=True)
        self._labels = labels[self._order]
        # The first problem has all samples, and each other one leaves out a fold.
        self._subsets = labels.new_ones(1 if folds is None else 1 + len(sizes), len(labels), dtype=torch.bool)
        for number, group in enumerate(self._groups if folds is not None else [], 1):
            self._subsets[number, group] = False

    def fit(self, method: str, bias: bool = True) -> list[Correction]:
        """Fit "temperature", "bias", "vector", or "matrix" to all samples, and then without each fold.

        Raises:
            InputError: as `fit_bias_correction` and `fit_vector_scaling` do.
        """
        if not self._samples.logits().isfinite().all():
            raise UnsuitableLogitsError(
                "logits", f"must be finite for {method} scaling, got -inf: use a temperature for masked classes"
            )
        T, says_nothing = self._temperatures
        if method == "temperature":
            return [Correction.temperature(value) for value in T.tolist()]
        if method == "bias" and self._samples.num_classes == 2:
            return self._fit_platt()
        x, unit = self._features
        counts = torch.stack([self._labels[subset].bincount(minlength=len(x)) for subset in self._subsets])
        fitted = ~_are_too_few(counts)
        weights = (self._subsets & fitted[:, self._labels]).double()
        sizes, num_classes = weights.sum(1), fitted.sum(1).double()
        ridge = num_classes / sizes
        if method == "bias":
            label_features = x.gather(0, self._labels[None])[0]
            are_wrong = torch.stack([label_features < x[classes].amax(0) for classes in fitted])
            ridge = ridge * ~(are_wrong & (weights > 0)).any(1)  # no T is the best one, so T stays near 1
        else:  # so large a T would leave nothing for A to correct
            typical = unit * (self._subsets * x.amax(0)).sum(1) / self._subsets.sum(1)
            T = torch.where(says_nothing, typical, T)
        penalties = [offset_penalty(num_classes, sizes), ridge * (T / unit) ** 2]
        penalties.append((num_classes - 1) * penalties[1])
        form = {"bias": "scalar", "vector": "diagonal", "matrix": "full"}[method]

        factors = torch.stack(penalties, 1)

        def minima(shift: float) -> tuple[Tensor, Tensor]:
            features = x - shift if shift else x
            groups = self._groups if len(T) > 1 else []
            values, parameters = PenalizedNLL(
                features, self._labels, weights, groups, fitted, form, unit / T, factors, bias
            ).minima()
            parameters[:, :, 0] -= shift * parameters[:, :, 1]
            return values, parameters

        values, parameters = minima(0.0)
        if method == "vector" and bias:  # the second prior; its shift is that of all samples
            scale = unit / float(T[0])
            others, other = minima(float((x * scale).logsumexp(0).mean()) / scale)
            parameters = torch.where((others < values - _PRIOR_ODDS / sizes)[:, None, None], other, parameters)
        b, A = parameters[:, :, 0].cpu(), parameters[:, :, 1:].cpu() / unit
        return [self._correction(method, *problem) for problem in zip(A, b, fitted.cpu(), strict=True)]

    def _correction(self, method: str, A: Tensor, b: Tensor, fitted: Tensor) -> Correction:
        b = (b - b[fitted].mean()).masked_fill(~fitted, 0) if b.any() else b  # a shift changes no probability
        if method == "bias":
            if not float(A[0]) > 0:
                raise UnsuitableLogitsError(
                    "logits",
                    f"must not rank the labels backwards, got {float(A[0]):.3g} as the best 1/T: check the order of "
                    "the classes",
                )
            return Correction.bias(1 / float(A[0]), b)
        # The others are fitted among themselves, given that the label is one of them, so nothing drives the absent
        # classes out. These get the mean factor and, like the mean of the others, the offset 0.
        diagonal = A.diagonal() if method == "matrix" else A[:, 0]
        diagonal[~fitted] = diagonal[fitted].mean()
        return Correction(A if method == "matrix" else diagonal, b, centered=True)

    def _fit_platt(self) -> list[Correction]:
        z = self._samples.logits()[self._order].double()
        slopes, intercepts = fit_subsets(z[:, 1] - z[:, 0], self._labels == 1, self._subsets)
        return [
            Correction.bias(1 / slope, [-intercept / 2, intercept / 2])
            for slope, intercept in zip(slopes.tolist(), intercepts.tolist(), strict=True)
        ]

    @cached_property
    def _features(self) -> tuple[Tensor, float]:
        """The centered logits (K, N), float64, in the order of the folds, over their deviation; and the deviation."""
        z = self._samples.logits()[self._order].T.double().contiguous()
        z = z - z.mean(0)
        largest = float(z.abs().max()) or 1.0  # its square may be infinite
        unit = largest * float((z / largest).square().mean().sqrt()) or 1.0
        return z.div_(unit), unit

    @cached_property
    def _temperatures(self) -> tuple[Tensor, Tensor]:
        """The T of each problem by NLL, (F,), and whether its logits say less about the labels than chance."""
        samples = self._samples
        value, at_end = (1.0, False) if samples.are_constant else nll_temperature(samples)
        x, unit = self._features
        T = x.new_full((len(self._subsets),), value)
        says_nothing = torch.full_like(T, at_end, dtype=torch.bool)
        if len(T) > 1:
            subsets = self._subsets.double()
            # Where all predictions are right, or worse than chance, the NLL has no minimum.
            label_gap, chance_gap = subsets @ samples.label_gaps[self._order] / unit, subsets @ x.amax(0)
            is_special = (label_gap == 0) | (label_gap >= (1 - 1e-6) * chance_gap)
            zero = torch.zeros_like(T)
            penalties = torch.stack([zero, is_special.double(), zero], 1)
            every = torch.ones(len(T), len(x), dtype=torch.bool, device=x.device)
            center = torch.full_like(T, unit / value)
            parameters = PenalizedNLL(
                x, self._labels, subsets, self._groups, every, "scalar", center, penalties, False
            ).minima()[1]
            T[1:] = unit / parameters[1:, 0, 1]
            for number in is_special.nonzero().flatten().tolist():
                subset = self._subsets[number]
                part = CalibrationSamples(unit * x[:, subset].T, self._labels[subset], -100)
                T[number], says_nothing[number] = (1.0, False) if part.are_constant else nll_temperature(part)
        return T, says_nothing


def _are_too_few(counts: Tensor) -> Tensor:
    """Return whether samples say too little about each class to fit parameters of its own, given counts (..., K).

    A class has no samples, or fewer than 5 and than a fifth of the classes' mean number.
    """
    most = counts.double().mean(-1, keepdim=True) / 5
    return counts < most.clamp(max=_ENOUGH)


def absent_classes(labels: Tensor, num_classes: int) -> list[int]:
    """Return the numbers of the classes that labels (N,) say too little about to fit parameters of their own."""
    return _are_too_few(labels.bincount(minlength=num_classes)).nonzero().flatten().tolist()


def offset_penalty(num_classes: Tensor, size: Tensor) -> Tensor:
    """Return the factor of Σ b² in the penalty: K/N, but at most 5/N.

    As a prior of b, it has a deviation of √(1 / 2K), but at least 0.3: classes differ in how often they occur as much
    if there are many. In structured scaling, offsets cost less, too, because 1 + v multiplies log-probabilities.
    """
    return num_classes.clamp(max=5) / size
