"""Structured vector and matrix scaling: per-class corrections that can still be folded into the last linear layer.

T is fitted first, by NLL. Then the centered logits x = (z - mean z) / T become A x + b, as in structured vector and
matrix scaling [Berta, Holzmüller, Jordan, and Bach, *Structured Matrix Scaling for Multi-Class Calibration*, 2025]. In
the place of x, the paper uses log-probabilities, which are not linear in z. A ridge penalty keeps A near the identity
and b near 0, so with few samples, the correction is nearly that of the temperature alone. The penalized mean NLL is
convex in A and b.
"""

import warnings

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ..validation import Array, InputError
from .corrections import AffineScaling
from .temperature_grid import CalibrationSamples, refuse_probabilities
from .temperature_scaling import nll_temperature

# Elements of a block of samples: 2 MiB of float64 for a CPU's cache, more on accelerators.
_CPU_BLOCK, _DEVICE_BLOCK = 2**18, 2**24
# The gradient norm at which the search ends, and the norm above which a result causes a warning.
_GRADIENT_NORM, _LARGEST_GRADIENT_NORM = 2e-7, 1e-6


def fit_vector_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> AffineScaling:
    """Fit softmax((1 + v) ⊙ (z - mean z) / T + b): first T by NLL, then v and b by NLL + K/N (Σ v² + Σ b²).

    Unlike with a temperature, predictions may change. `fit_calibration` reports how many of them change, and whether
    vector scaling is better than a temperature on held-out samples.

    Args:
        logits: `(..., K)`, any floating dtype, on any device, all finite.
        labels: `(...)`, integers in `[0, K)`, or `ignore_index` for samples to leave out.
        bias: whether to fit b; False keeps b = 0, for a model whose last layer has no bias.
        ignore_index: the label to leave out.

    Raises:
        TypeError, ValueError: as in `fit_temperature` with `objective="nll"`, and for infinite logits.
    """
    return _fit(logits, labels, "vector", bias, ignore_index)


def fit_matrix_scaling(logits: Array, labels: Array, *, bias: bool = True, ignore_index: int = -100) -> AffineScaling:
    """Fit softmax((I + diag(v) + M) (z - mean z) / T + b), where M has a zero diagonal.

    The penalty has the additional term K(K-1)/N Σ M². Everything else is as in `fit_vector_scaling`.
    """
    return _fit(logits, labels, "matrix", bias, ignore_index)


def _fit(logits: Array, labels: Array, method: str, bias: bool, ignore_index: int) -> AffineScaling:
    samples = CalibrationSamples(logits, labels, ignore_index)
    refuse_probabilities(samples.evidence)
    if not len(samples):
        raise InputError("labels", f"must have one that is not ignore_index {ignore_index}, got none")
    features = samples.logits().double()
    if not features.isfinite().all():
        raise InputError(
            "logits", f"must be finite for {method} scaling, got -inf: use a temperature for masked classes"
        )
    nll_before = float(torch.nn.functional.cross_entropy(features, samples.labels))
    temperature = 1.0 if samples.are_constant else nll_temperature(samples)
    features = (features - features.mean(1, keepdim=True)).div_(temperature)

    objective = _PenalizedNLL(features, samples.labels, method == "matrix", bias)
    matrix, b = objective.minimum()
    nll_after, *_ = objective.nll_and_gradients(matrix, b)
    matrix = matrix.cpu() if method == "matrix" else matrix.cpu().diag()
    return AffineScaling(method, temperature, b.cpu(), matrix, nll_before, nll_after, len(samples))


class _PenalizedNLL:
    """The mean NLL of softmax(A x + b) plus the penalty, as a function of one vector that holds b and A - I.

    For vector scaling, only the diagonal of A is stored. The part of the NLL that depends on the labels is linear in A
    and b. Only its coefficients are kept, so a pass over the samples needs nothing but the probabilities.
    """

    def __init__(self, features: Tensor, labels: Tensor, full: bool, bias: bool) -> None:
        self._features, self._full, self._bias = features, full, bias
        size, num_classes = features.shape
        counts = torch.bincount(labels, minlength=num_classes).to(features) / size
        if full:
            of_labels = features.new_zeros(num_classes, num_classes).index_add_(0, labels, features) / size
            self._identity = torch.eye(num_classes).to(features)
            penalty = torch.full_like(self._identity, num_classes * (num_classes - 1) / size)
            penalty.fill_diagonal_(num_classes / size)
        else:
            own = features.gather(1, labels[:, None]).squeeze(1)
            of_labels = features.new_zeros(num_classes).index_add_(0, labels, own) / size
            self._identity = torch.ones_like(of_labels)
            penalty = torch.full_like(of_labels, num_classes / size)
        self._counts, self._of_labels, self._penalty = counts, of_labels, penalty
        self._bias_penalty = num_classes / size
        block = _CPU_BLOCK if features.device.type == "cpu" else _DEVICE_BLOCK
        self._step = max(1, block // num_classes)

    def minimum(self) -> tuple[Tensor, Tensor]:
        """Return the A (for vector scaling, its diagonal) and b that minimize the function."""
        # In units of 1/√h, where h is the Hessian's diagonal at the start, all unknowns have about the same curvature.
        scale = self._curvature().rsqrt_().cpu().numpy()
        last: list[float] = []

        def scaled(unknowns: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self(unknowns * scale)
            last[:] = [float(np.linalg.norm(gradient))]
            return value, gradient * scale

        # At the end, each entry of the scaled gradient is below gtol, so the gradient's norm is below _GRADIENT_NORM.
        gtol = _GRADIENT_NORM * scale.min() / len(scale) ** 0.5
        options = {"maxcor": 30, "maxiter": 2000, "maxfun": 4000, "ftol": 0.0, "gtol": gtol}
        found = minimize(scaled, np.zeros(len(scale)), jac=True, method="L-BFGS-B", options=options)
        unknowns = found.x * scale
        norm = float(np.linalg.norm(self(unknowns)[1]))
        if norm > _LARGEST_GRADIENT_NORM:
            warnings.warn(f"the fit ended at a gradient of {norm:.2g}: {found.message}", stacklevel=5)
        return self._split(unknowns)

    def __call__(self, unknowns: np.ndarray) -> tuple[float, np.ndarray]:
        matrix, b = self._split(unknowns)
        nll, by_matrix, by_bias = self.nll_and_gradients(matrix, b)
        change = matrix - self._identity
        value = nll + float((self._penalty * change.square()).sum() + self._bias_penalty * b.square().sum())
        by_matrix += 2 * self._penalty * change
        by_bias = by_bias + 2 * self._bias_penalty * b if self._bias else torch.zeros_like(b)
        return value, torch.cat([by_bias, by_matrix.flatten()]).cpu().numpy()

    def _split(self, unknowns: np.ndarray) -> tuple[Tensor, Tensor]:
        values = torch.from_numpy(unknowns).to(self._features)
        b, change = values[: len(self._counts)], values[len(self._counts) :]
        return self._identity + change.view_as(self._identity), b

    def nll_and_gradients(self, matrix: Tensor, b: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the mean NLL, without the penalty, and its gradients with respect to A and b."""
        size = len(self._features)
        log_sums = torch.zeros((), dtype=torch.float64, device=b.device)
        by_matrix, by_bias = torch.zeros_like(matrix), torch.zeros_like(b)
        for block in self._features.split(self._step):
            logits = torch.addmm(b, block, matrix.T) if self._full else torch.addcmul(b, block, matrix)
            peak = logits.amax(1, keepdim=True)
            terms = logits.sub_(peak).exp_()
            sums = terms.sum(1)
            log_sums += sums.log().sum() + peak.sum()
            weights = sums.reciprocal_().div_(size)
            if self._full:
                terms.mul_(weights[:, None])
                by_bias += terms.sum(0)
                by_matrix.addmm_(terms.T, block)
            else:
                by_bias.addmv_(terms.T, weights)
                by_matrix.addmv_(terms.mul_(block).T, weights)
        label_part = float((self._of_labels * matrix).sum() + self._counts @ b)
        return float(log_sums) / size - label_part, by_matrix - self._of_labels, by_bias - self._counts

    def _curvature(self) -> Tensor:
        """Return the diagonal of the Hessian at A = I and b = 0, in the order of the unknowns."""
        by_matrix, by_bias = torch.zeros_like(self._identity), torch.zeros_like(self._counts)
        for block in self._features.split(self._step):
            probabilities = block.softmax(1)
            spread = probabilities.sub_(probabilities.square()).div_(len(self._features))
            by_bias += spread.sum(0)
            squares = block.square()
            by_matrix += spread.T @ squares if self._full else squares.mul_(spread).sum(0)
        return torch.cat([by_bias + 2 * self._bias_penalty, (by_matrix + 2 * self._penalty).flatten()])
