"""Bias correction, and structured vector and matrix scaling: corrections that can be folded into the last layer.

T is fitted first, by NLL. Then the centered logits x = (z - mean z) / T become A x + b, as in structured vector and
matrix scaling [Berta, Holzmüller, Jordan, and Bach, *Structured Matrix Scaling for Multi-Class Calibration*, 2025]. In
the place of x, the paper uses log-probabilities, which are not linear in z. A ridge penalty keeps A near the identity
and b near 0, so with few samples, the correction is nearly that of the temperature alone. The penalized mean NLL is
convex in A and b.

Bias correction is softmax(z / T + b) [Alexandari, Kundaje, and Shrikumar, *Maximum Likelihood with Bias-Corrected
Calibration is Hard-To-Beat at Label Shift Adaptation*, 2020], here with the same penalty on b, and T without one.
"""

import warnings
from typing import Any

import numpy as np
import scipy  # which imports its parts on first use
import torch
from torch import Tensor

from ..validation import Array, InputError
from .corrections import Correction
from .platt_scaling import fit_platt_scaling
from .temperature_grid import CalibrationSamples, refuse_probabilities
from .temperature_scaling import nll_temperature

# Elements of a block of samples: 2 MiB of float64 for a CPU's cache, more on accelerators.
_CPU_BLOCK, _DEVICE_BLOCK = 2**18, 2**24
# The gradient norm at which the search ends, and the norm above which a result causes a warning.
_GRADIENT_NORM, _LARGEST_GRADIENT_NORM = 2e-7, 1e-6
_ENOUGH = 5  # samples of a class
# Norms of the scaled gradient at which the search in float32 is scaled anew, and at which it ends: above the second,
# values in float32 differ by more than their rounding.
_SINGLE_NORMS = (5e-2, 2e-3)


def fit_vector_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> Correction:
    """Fit softmax((1 + v) ⊙ (z - mean z) / T + b): first T by NLL, then v and b by NLL + K/N Σ v² + min(K, 5)/N Σ b².

    Unlike with a temperature, predictions may change. `fit_correction` reports how many of them change, and whether
    vector scaling is better than a temperature on held-out samples. A class that (nearly) no sample has keeps the
    parameters that all classes share: T, the mean factor of the others, and the offset 0.

    Args:
        logits: `(..., K)`, any floating dtype, on any device, all finite.
        labels: `(...)`, integers in `[0, K)`, or `ignore_index` for samples to leave out.
        bias: whether to fit b; False keeps b = 0, for a model whose last layer has no bias.
        ignore_index: the label to leave out.

    Raises:
        InputError: as in `fit_temperature` with `objective="nll"`, and for infinite logits.
    """
    return _fit(logits, labels, "vector", bias, ignore_index)


def fit_matrix_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> Correction:
    """Fit softmax((I + diag(v) + M) (z - mean z) / T + b), where M has a zero diagonal.

    The penalty has the additional term K(K-1)/N Σ M². Everything else is as in `fit_vector_scaling`.
    """
    return _fit(logits, labels, "matrix", bias, ignore_index)


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
    samples = _samples(logits, labels, "bias", ignore_index)
    z = samples.logits().double()
    if samples.num_classes == 2:
        platt = fit_platt_scaling((z[:, 1] - z[:, 0])[:, None], samples.labels[:, None])
        return Correction.bias(1 / platt.A, [-platt.b / 2, platt.b / 2])
    z, labels = z - z.mean(1, keepdim=True), samples.labels
    fitted = _fitted_classes(labels, z.shape[1])
    if not fitted.all():
        if fitted.sum() == 1:
            return Correction.bias(nll_temperature(samples)[0], torch.zeros(len(fitted), dtype=torch.float64))
        z, labels = _among(fitted, z, labels)
    largest = float(z.abs().max()) or 1.0  # its square may be infinite
    T, penalty = largest * float((z / largest).square().mean().sqrt()), 0.0
    all_right = bool((z.gather(1, labels[:, None]).squeeze(1) >= z.amax(1)).all())
    if samples.are_constant or all_right:  # no T is the best one, so T stays near 1
        T, penalty = 1.0 if samples.are_constant else nll_temperature(samples)[0], z.shape[1] / len(z)
    scale, offsets = _PenalizedNLL(z / T, labels, "bias", True, penalty).minimum()
    if not float(scale) > 0:
        raise InputError(
            "logits",
            f"must be larger for the labels, got 1/T = {float(scale) / T:.3g} as the best: they rank backwards",
        )
    b = torch.zeros(len(fitted), dtype=torch.float64)
    b[fitted] = offsets.cpu() - offsets.cpu().mean()
    return Correction.bias(T / float(scale), b)


def _samples(logits: Array, labels: Array, method: str, ignore_index: int) -> CalibrationSamples:
    samples = CalibrationSamples(logits, labels, ignore_index)
    refuse_probabilities(samples.evidence)
    if not len(samples):
        raise InputError("labels", f"must have one that is not ignore_index {ignore_index}, got none")
    if not samples.logits().isfinite().all():
        raise InputError(
            "logits", f"must be finite for {method} scaling, got -inf: use a temperature for masked classes"
        )
    return samples


def _fit(logits: Array, labels: Array, method: str, bias: bool, ignore_index: int) -> Correction:
    samples = _samples(logits, labels, method, ignore_index)
    features = samples.logits().double()
    temperature, says_nothing = (1.0, False) if samples.are_constant else nll_temperature(samples)
    if says_nothing:  # so large a T would leave nothing for A to correct
        temperature = float((features.amax(1) - features.mean(1)).mean())
    features = (features - features.mean(1, keepdim=True)).div_(temperature)

    num_classes = features.shape[1]
    fitted = _fitted_classes(samples.labels, num_classes)
    if fitted.all():
        A, b = _PenalizedNLL(features, samples.labels, method, bias).minimum()
        return Correction(A / temperature, b, centered=True)
    matrix, b = torch.eye(num_classes, dtype=torch.float64), torch.zeros(num_classes, dtype=torch.float64)
    if fitted.sum() > 1:
        # The others are fitted among themselves, given that the label is one of them, so nothing drives the absent
        # classes out. These get the mean factor and, like the mean of the others, the offset 0.
        found, offsets = _PenalizedNLL(*_among(fitted, features, samples.labels), method, bias).minimum()
        found = found.cpu() if method == "matrix" else found.cpu().diag()
        matrix *= found.diagonal().mean()
        matrix[fitted.nonzero(), fitted.nonzero().T] = found
        b[fitted] = offsets.cpu() - offsets.cpu().mean()
    return Correction((matrix if method == "matrix" else matrix.diagonal()) / temperature, b, centered=True)


def _fitted_classes(labels: Tensor, num_classes: int) -> Tensor:
    """Return whether each class has enough samples for parameters of its own, bool (K,), on the CPU."""
    fitted = torch.ones(num_classes, dtype=torch.bool)
    fitted[absent_classes(labels, num_classes)] = False
    return fitted


def _among(fitted: Tensor, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features and labels of the samples of some classes, in these classes alone."""
    columns = fitted.to(features.device)
    kept = columns[labels]
    return features[kept][:, columns].contiguous(), (columns.cumsum(0) - 1)[labels[kept]]


def absent_classes(labels: Tensor, num_classes: int) -> list[int]:
    """Return the numbers of the classes that labels (N,) say too little about to fit parameters of their own.

    These have no samples, or fewer than 5 and than a fifth of the classes' mean number.
    """
    counts = torch.bincount(labels, minlength=num_classes)
    return (counts < min(_ENOUGH, len(labels) / num_classes / 5)).nonzero().flatten().tolist()


def offset_penalty(num_classes: int, size: int) -> float:
    """Return the factor of Σ b² in the penalty: K/N, but at most 5/N.

    As a prior of b, it has a deviation of √(1 / 2K), but at least 0.3: classes differ in how often they occur as much
    if there are many. In structured scaling, offsets cost less, too, because 1 + v multiplies log-probabilities.
    """
    return min(num_classes, 5) / size


class _PenalizedNLL:
    """The mean NLL of softmax(A x + b) plus the penalty, as a function of one vector that holds b and A - I.

    For vector scaling, only the diagonal of A is stored; for bias correction, only its one number, of which
    `scale_penalty` is the penalty. The part of the NLL that depends on the labels is linear in A and b. Only its
    coefficients are kept, so a pass over the samples needs nothing but the probabilities.
    """

    def __init__(self, features: Tensor, labels: Tensor, method: str, bias: bool, scale_penalty: float = 0.0) -> None:
        self._exact, self._single = features, features.float()
        self._full, self._shared, self._bias = method == "matrix", method == "bias", bias
        size, num_classes = features.shape
        counts = torch.bincount(labels, minlength=num_classes).to(features) / size
        if self._full:
            of_labels = features.new_zeros(num_classes, num_classes).index_add_(0, labels, features) / size
            self._identity = torch.eye(num_classes).to(features)
            penalty = torch.full_like(self._identity, num_classes * (num_classes - 1) / size)
            penalty.fill_diagonal_(num_classes / size)
        else:
            own = features.gather(1, labels[:, None]).squeeze(1)
            of_labels = features.new_zeros(num_classes).index_add_(0, labels, own) / size
            of_labels = of_labels.sum(0, keepdim=True) if self._shared else of_labels
            self._identity = torch.ones_like(of_labels)
            penalty = torch.full_like(of_labels, scale_penalty if self._shared else num_classes / size)
        self._of_labels, self._of_identity = self._joined(counts, of_labels), float((of_labels * self._identity).sum())
        self._penalty = torch.cat([torch.full_like(counts, offset_penalty(num_classes, size)), penalty.flatten()])
        # The probabilities at the unknowns of the last gradient, for products with the Hessian.
        self._probabilities, self._last = torch.empty_like(self._single), np.full(len(self._penalty), np.nan)
        block = _CPU_BLOCK if features.device.type == "cpu" else _DEVICE_BLOCK
        self._step = max(1, block // num_classes)

    def minimum(self) -> tuple[Tensor, Tensor]:
        """Return the A (of vector scaling, its diagonal) and b that minimize the function.

        Newton's method in a trust region. Conjugate gradients solve for its steps; their products with the Hessian,
        most of the work, are in float32, and so are the gradients until they are small.
        """
        unknowns, scale = np.zeros(len(self._penalty)), np.ones(len(self._penalty))

        def scaled(x: np.ndarray, features: Tensor) -> tuple[float, np.ndarray]:
            value, gradient = self(x * scale, features)
            return value, gradient * scale

        def product(x: np.ndarray, direction: np.ndarray, features: Tensor) -> np.ndarray:
            if not np.array_equal(x * scale, self._last):  # the last step was rejected
                self(x * scale, features)
            return self._hessian_product(direction * scale) * scale

        stages = [*((self._single, norm) for norm in _SINGLE_NORMS), (self._exact, None)]
        for features, tolerance in stages:
            if not np.array_equal(unknowns, self._last):
                self(unknowns, self._single)
            # In units of 1/√h, where h is the Hessian's diagonal, all unknowns have about the same curvature.
            scale = self._curvature().rsqrt_().cpu().numpy()
            # At the end, the scaled gradient's norm is below gtol, so the gradient's norm is below _GRADIENT_NORM.
            gtol = tolerance or _GRADIENT_NORM * scale.min()
            options: dict[str, Any] = {"gtol": gtol, "maxiter": 50}
            found = scipy.optimize.minimize(
                scaled, unknowns / scale, features, jac=True, hessp=product, method="trust-ncg", options=options
            )
            unknowns = found.x * scale
        if not found.success:  # such as from a start where all predictions are certain, so that the Hessian is 0
            options = {"maxcor": 30, "maxiter": 2000, "maxfun": 4000, "ftol": 0.0, "gtol": gtol / len(scale) ** 0.5}
            found = scipy.optimize.minimize(scaled, found.x, self._exact, jac=True, method="L-BFGS-B", options=options)
            unknowns = found.x * scale
        norm = float(np.linalg.norm(found.jac / scale))
        if norm > _LARGEST_GRADIENT_NORM:
            warnings.warn(f"the fit ended at a gradient of {norm:.2g}: {found.message}", stacklevel=5)
        change, b = self._split(unknowns, self._exact)
        return self._identity + change, b

    def __call__(self, unknowns: np.ndarray, features: Tensor) -> tuple[float, np.ndarray]:
        """Return the function and its gradient, in the precision of `features`; keep the probabilities."""
        self._last = unknowns.copy()
        change, b = self._split(unknowns, features)
        matrix = change + self._identity.to(features)
        log_sums = torch.zeros((), dtype=torch.float64, device=features.device)
        by_matrix, by_bias = torch.zeros_like(matrix), torch.zeros_like(b)
        for block, kept in zip(features.split(self._step), self._probabilities.split(self._step), strict=True):
            logits = torch.addmm(b, block, matrix.T) if self._full else torch.addcmul(b, block, matrix)
            peak = logits.amax(1, keepdim=True)
            terms = logits.sub_(peak).exp_()
            sums = terms.sum(1, keepdim=True)
            log_sums += sums.log().sum() + peak.sum()
            kept.copy_(terms.div_(sums))
            self._add(terms, block, by_matrix, by_bias)
        given = torch.from_numpy(unknowns).to(self._penalty)
        gradient = self._joined(by_bias, by_matrix).div_(len(features)) - self._of_labels
        value = float(log_sums) / len(features) - float(self._of_labels @ given) - self._of_identity
        value += float(self._penalty @ given.square())
        return value, gradient.add_(self._penalty * given, alpha=2).cpu().numpy()

    def _hessian_product(self, direction: np.ndarray) -> np.ndarray:
        """Return the Hessian at the unknowns of the last gradient times a vector."""
        change, b = self._split(direction, self._single)
        by_matrix, by_bias = torch.zeros_like(change), torch.zeros_like(b)
        for block, kept in zip(self._single.split(self._step), self._probabilities.split(self._step), strict=True):
            logits = torch.addmm(b, block, change.T) if self._full else torch.addcmul(b, block, change)
            terms = logits.mul_(kept)
            terms.addcmul_(kept, terms.sum(1, keepdim=True), value=-1)
            self._add(terms, block, by_matrix, by_bias)
        product = self._joined(by_bias, by_matrix).div_(len(self._single)).cpu().numpy()
        return product + 2 * self._penalty.cpu().numpy() * direction

    def _curvature(self) -> Tensor:
        """Return the diagonal of the Hessian at the unknowns of the last gradient."""
        by_matrix, by_bias = self._identity.float().zero_(), self._single.new_zeros(self._single.shape[1])
        for block, kept in zip(self._single.split(self._step), self._probabilities.split(self._step), strict=True):
            self._add(kept - kept.square(), block.square(), by_matrix, by_bias)
        return torch.cat([by_bias, by_matrix.flatten()]).double().div_(len(self._single)) + 2 * self._penalty

    def _add(self, terms: Tensor, block: Tensor, by_matrix: Tensor, by_bias: Tensor) -> None:
        """Add the sum over samples of `terms` to `by_bias`, and that of their products with `block` to `by_matrix`."""
        by_bias += terms.sum(0)
        if self._full:
            by_matrix.addmm_(terms.T, block)
        else:
            by_matrix += (terms * block).sum() if self._shared else (terms * block).sum(0)

    def _split(self, unknowns: np.ndarray, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return A - I (for vector scaling, its diagonal) and b, in the dtype and on the device of `like`."""
        b, change = torch.from_numpy(unknowns).to(like).tensor_split([like.shape[1]])
        return change.view_as(self._identity), b

    def _joined(self, of_bias: Tensor, of_matrix: Tensor) -> Tensor:
        return torch.cat([of_bias * self._bias, of_matrix.flatten()]).double()
