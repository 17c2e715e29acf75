"""Minimize the penalized NLL of softmax(A x + b) on several subsets of the same samples, all at once.

Cross-fitting fits the same parameters to all samples, and to those outside each fold. If all of these problems fit one
block of memory, one takes nearly as long as all, so they are searched at once. Otherwise, those of the folds start
where that of all samples ended, because they differ little. The search is L-BFGS (Nocedal and Wright, *Numerical
Optimization*, 2006, algorithm 7.4), which starts from the curvature at its start, and then needs only gradients: one
pass over the samples computes those of all problems.
"""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..utils.caller_warnings import warn

# Elements of a block of samples: 1 MiB of float64 for a CPU's cache, more on accelerators.
_CPU_BLOCK, _DEVICE_BLOCK, _FEWEST_IN_BLOCK = 2**17, 2**24, 64
# The norm of the gradient, where features are of the order of 1, at which a search ends, and above which it warns.
_GRADIENT_NORM, _LARGEST_GRADIENT_NORM = 1e-8, 1e-6
_MOST_STEPS, _MOST_HALVINGS, _MOST_PAIRS = 500, 60, 10


class PenalizedNLL:
    """The mean NLL of softmax(A x + b) plus a penalty, for each of F subsets of the samples.

    A is "scalar", a number; "diagonal"; or "full". The P unknowns of a problem are b and the number; or the rows of a
    matrix (K, J), whose first column is b, and whose others are the diagonal of A, or A.

    Args:
        features: x, (K, N), float64, of the order of 1.
        labels: (N,), classes.
        weights: (F, N), float64: 1 for the samples of a problem, and 0 for others. The first problem has (nearly) all.
        groups: slices of the samples: those that each of the other problems leaves out.
        fitted: (F, K), bool: the classes of each problem. The others have a probability of 0.
        form: that of A.
        center: (F,): the penalty on A is that of A - center I.
        penalties: (F, 3): the factors of Σ b², and of Σ (A - center I)² on the diagonal and off it.
        bias: whether b is fitted; False keeps b = 0.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        groups: list[slice],
        fitted: Tensor,
        form: str,
        center: Tensor,
        penalties: Tensor,
        bias: bool,
    ) -> None:
        self._features, self._weights, self._groups = features, weights, groups
        self._elements = _CPU_BLOCK if features.device.type == "cpu" else _DEVICE_BLOCK
        self._full, self._scalar, (num_classes, size) = form == "full", form == "scalar", features.shape
        # A class that is not fitted has the logit -inf, and neither its row nor its column of A changes.
        self._masks = torch.zeros_like(fitted, dtype=features.dtype).masked_fill_(~fitted, -torch.inf)
        identity = torch.eye(num_classes).to(features) if self._full else features.new_ones(num_classes, 1)
        offset_factor, diagonal_factor, other_factor = penalties.T[:, :, None, None]
        penalty = torch.where(identity > 0, diagonal_factor, other_factor)
        self._penalty = self._unknowns(offset_factor.expand(-1, num_classes, 1), penalty)
        fitted_rows = fitted[:, :, None]
        free = fitted_rows & fitted[:, None] if self._full else fitted_rows | self._scalar
        self._free = self._unknowns(fitted_rows & bias, free)
        self._center = self._unknowns(torch.zeros_like(penalty[:, :, :1]), center[:, None, None] * identity)
        # The whole Hessian pays for few unknowns and many samples.
        self._is_dense = 1 < int(self._free.any(0).sum()) <= min(100 + size / 50, 512)
        self._sizes = weights.sum(1, keepdim=True)
        self._of_labels = torch.zeros_like(self._center)
        for x, w, samples in self._blocks():
            hits = torch.zeros_like(x).scatter_(0, labels[None, samples], 1.0)
            self._of_labels += self._sums(hits * w[:, None], x)

    def minima(self) -> tuple[Tensor, Tensor]:
        """Return the minimum of each problem, (F,), and b and A there, (F, K, J); of a scalar A, J is 2."""
        first = self._part(slice(0, 1))
        if len(self._weights) == 1 or len(self._features) * self._weights.numel() <= self._elements:
            value, unknowns = self._search(self._center, first)
        else:
            value, unknowns = first._search(first._center, first)
            others = self._part(slice(1, None))
            values, other_unknowns = others._search(torch.where(others._free, unknowns, others._center), first)
            value, unknowns = torch.cat([value, values]), torch.cat([unknowns, other_unknowns])
        return value, self._matrices(unknowns)

    def _part(self, problems: slice) -> "PenalizedNLL":
        """Return some of the problems."""
        part = copy.copy(self)
        for name in ("_weights", "_masks", "_penalty", "_free", "_center", "_sizes", "_of_labels"):
            setattr(part, name, getattr(self, name)[problems])
        return part

    def _search(self, unknowns: Tensor, first: "PenalizedNLL") -> tuple[Tensor, Tensor]:
        """Return the minima, (F,), and the unknowns there, (F, P), where gradients are small, from a start (F, P)."""
        value, gradient = self._value(unknowns)
        solve = self._inverse_hessian(unknowns[0], first)
        pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(_MOST_STEPS):
            searching = torch.linalg.vector_norm(gradient, dim=1, keepdim=True) > _GRADIENT_NORM
            if not searching.any():
                return value, unknowns
            direction = -_quasi_newton(gradient, pairs, solve) * searching
            slope, size = (direction * gradient).sum(1), torch.ones_like(value)
            for _ in range(_MOST_HALVINGS):
                moved = unknowns + size[:, None] * direction
                new_value, new_gradient = self._value(moved)
                too_far = ~(new_value <= value + 1e-4 * size * slope + 1e-14 * value.abs())
                if not too_far.any():
                    break
                size = torch.where(too_far, size / 2, size)
            else:
                break
            step, change = moved - unknowns, new_gradient - gradient
            product = (step * change).sum(1, keepdim=True)
            pairs = [*pairs[1 - _MOST_PAIRS :], (step, change, torch.where(product > 0, 1 / product, 0.0))]
            unknowns, value, gradient = moved, new_value, new_gradient
        if (norm := float(gradient.norm(dim=1).max())) > _LARGEST_GRADIENT_NORM:
            warn(f"the fit ended at a gradient of {norm:.2g}")
        return value, unknowns

    def _value(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the functions (F,), and their gradients by the unknowns, (F, P)."""
        log_sums, sums = unknowns.new_zeros(len(unknowns)), torch.zeros_like(unknowns)
        matrices = self._matrices(unknowns)
        for x, w, _ in self._blocks():
            logits = self._logits(x, matrices)
            peak = logits.amax(1, keepdim=True)
            terms = logits.sub_(peak).exp_()
            total = terms.sum(1, keepdim=True)
            w = w[:, None]
            log_sums += (total.log() + peak).mul_(w).sum((1, 2))
            sums += self._sums(terms.mul_(w / total), x)
        change = unknowns - self._center
        pull = self._penalty * change
        value = (log_sums - (self._of_labels * unknowns).sum(1)) / self._sizes.squeeze(1) + (pull * change).sum(1)
        return value, ((sums - self._of_labels) / self._sizes + 2 * pull) * self._free

    def _inverse_hessian(self, unknowns: Tensor, first: "PenalizedNLL") -> Callable[[Tensor], Tensor]:
        """Return the product of (F, P) with the inverses of about the Hessians at unknowns (P,).

        The probabilities are those of the first problem. The Hessian of another one is that of all samples minus that
        of those that it leaves out. Of many unknowns, it is the diagonal of that of all samples.
        """
        free, penalty = self._free, 2 * self._penalty
        if not self._is_dense:
            diagonal = first._diagonal(unknowns) / first._sizes + penalty
            return lambda gradient: gradient / diagonal
        if len(free) == 1:
            hessian = first._hessian(unknowns, slice(None))[None]
        else:
            group_hessians = torch.stack([first._hessian(unknowns, group) for group in self._groups])
            total = group_hessians.sum(0, keepdim=True)
            hessian = torch.cat([total, total - group_hessians])[-len(free) :]
        hessian = hessian / self._sizes[:, :, None] * (free[:, :, None] & free[:, None])
        diagonal = hessian.diagonal(dim1=1, dim2=2)
        diagonal += penalty + 1e-9 * diagonal.amax(1, keepdim=True) + ~free
        factor = torch.linalg.cholesky(hessian)
        return lambda gradient: torch.cholesky_solve(gradient[:, :, None], factor).squeeze(2)

    def _hessian(self, unknowns: Tensor, samples: slice) -> Tensor:
        """Return the Hessian of the sum of some samples' NLLs at unknowns (P,) of one problem, (P, P)."""
        matrices, num_classes = self._matrices(unknowns[None]), len(self._features)
        width = matrices.shape[2]
        row_blocks = unknowns.new_zeros(num_classes, width, width)
        hessian = unknowns.new_zeros(num_classes * width, num_classes * width)
        for x, w, _ in self._blocks(samples, width):
            p = self._probabilities(x, w, matrices)
            # The derivatives of each logit by the unknowns of its row, (1 or K, J, B).
            ones = torch.ones_like(x)
            factors = torch.cat([ones[:1], x])[None] if self._full else torch.stack([ones, x], 1)
            means = p[:, None] * factors
            hessian.addmm_(means.flatten(0, 1), means.flatten(0, 1).T, alpha=-1)
            row_blocks += means @ factors.transpose(1, 2)
        rows = hessian.view(num_classes, width, num_classes, width).diagonal(dim1=0, dim2=2)
        rows += row_blocks.permute(1, 2, 0)
        return self._tied(self._tied(hessian).T)

    def _diagonal(self, unknowns: Tensor) -> Tensor:
        """Return the diagonal of the Hessian of the sum of the NLLs at unknowns (P,) of one problem, (P,)."""
        matrices, diagonal = self._matrices(unknowns[None]), torch.zeros_like(unknowns)
        for x, w, _ in self._blocks():
            p = self._probabilities(x, w, matrices)
            diagonal += self._sums((p - p.square())[None], x.square()).squeeze(0)
            if self._scalar:
                products = p * x
                diagonal[-1] += products.square().sum() - products.sum(0).square().sum()
        return diagonal

    def _blocks(self, samples: slice = slice(None), width: int = 1) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Yield blocks of the features and of the weights, and the samples that they are of."""
        features, weights = self._features[:, samples], self._weights[:, samples]
        step = max(_FEWEST_IN_BLOCK, self._elements // (len(features) * len(weights) * width))
        for start in range(0, weights.shape[1], step):
            block = slice(start, start + step)
            yield features[:, block], weights[:, block], block

    def _unknowns(self, offset_part: Tensor, matrix_part: Tensor) -> Tensor:
        """Return (F, P), given what belongs to b, (F, K, 1), and to A, (F, K, J - 1)."""
        if self._scalar:
            return torch.cat([offset_part.squeeze(2), matrix_part[:, 0]], 1)
        return torch.cat([offset_part, matrix_part], 2).flatten(1)

    def _matrices(self, unknowns: Tensor) -> Tensor:
        """Return b and A as (F, K, J)."""
        if self._scalar:
            return torch.stack([unknowns[:, :-1], unknowns[:, -1:].expand_as(unknowns[:, :-1])], 2)
        return unknowns.view(len(unknowns), len(self._features), -1)

    def _logits(self, x: Tensor, matrices: Tensor) -> Tensor:
        """Return A x + b, (F, K, B)."""
        b, A = (matrices[:, :, 0] + self._masks)[:, :, None], matrices[:, :, 1:]
        if self._full:
            return torch.addmm(b.flatten(0, 1), A.flatten(0, 1), x).view(*b.shape[:2], -1)
        return torch.addcmul(b, x, A)

    def _probabilities(self, x: Tensor, weights: Tensor, matrices: Tensor) -> Tensor:
        """Return the probabilities of one problem, (K, B), times its weights."""
        return self._logits(x, matrices).softmax(1).squeeze(0) * weights

    def _sums(self, terms: Tensor, x: Tensor) -> Tensor:
        """Return the derivatives by the unknowns, (F, P), given those by the logits, (F, K, B)."""
        if self._full:
            by_matrix = (terms.flatten(0, 1) @ x.T).view(*terms.shape[:2], -1)
        else:
            by_matrix = torch.bmm(terms.transpose(0, 1), x[:, :, None]).transpose(0, 1)
        return self._tied(torch.cat([terms.sum(2, keepdim=True), by_matrix], 2).flatten(1))

    def _tied(self, derivatives: Tensor) -> Tensor:
        """Return derivatives by the unknowns, (..., P), given those by rows, (..., K J): a scalar A is in each row."""
        if not self._scalar:
            return derivatives
        return torch.cat([derivatives[:, ::2], derivatives[:, 1::2].sum(1, keepdim=True)], 1)


def _quasi_newton(
    gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]], solve: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the product of gradients (F, P) with the inverse Hessians that follow from the last steps.

    The `pairs` are steps, the changes of the gradients with them, and the inverses of their products. `solve` is the
    product with the first inverse Hessians.
    """
    product, shares = gradient, []
    for step, change, inverse in reversed(pairs):
        shares.append(inverse * (step * product).sum(1, keepdim=True))
        product = product - shares[-1] * change
    product = solve(product)
    for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        product = product + (share - inverse * (change * product).sum(1, keepdim=True)) * step
    return product
