"""The losses as modules with one face: ``loss(logits, labels, reduction=..., num_items=...)``."""

from typing import NoReturn

import torch
from torch import Tensor, nn

from . import functional
from .gamma_policies import GammaPolicy
from .inplace_autograd import RowForm
from .number_checks import at_least_0, require_tensors

IGNORE_INDEX = -100


class Loss(nn.Module):
    """A loss over classes. Subclasses define `rows`; this class alone says how rows are summed and divided."""

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Values of shape (...) for logits (..., K) and labels (...), or (..., K) if soft: 0 where labels are -100.

        float32, or float64 for float64 logits.
        """
        raise NotImplementedError

    @property
    def row_form(self) -> RowForm | None:
        """The loss as `linear_loss` needs it, or None for one that is more than a function of each row's logits."""
        return None

    def forward(
        self, logits: Tensor, labels: Tensor, reduction: str = "mean", num_items: int | Tensor | None = None
    ) -> Tensor:
        """The reduced loss.

        Args:
            logits: (..., K), any floating dtype.
            labels: (...) integers in [0, K), or -100 to be ignored. The cross-entropy family with one γ ≥ 0 for
                all rows also takes soft targets: floating, of the logits' shape, each row a distribution, or filled
                with -100 to be ignored.
            reduction: "mean" over the rows that count (0 if there are none), "sum", or "none": rows of labels' shape.
            num_items: divide the sum by this number instead, as a trainer that accumulates gradients must. Less than 1
                counts as 1: a step without items, whose sum is 0, has loss 0. A tensor is taken as it is, without
                waiting for its device to check the value.

        Returns:
            A scalar, or rows: float32 (float64 for float64 logits).

        Raises:
            TypeError: logits or labels that are no tensors, or of a wrong dtype.
            ValueError: wrong shapes, labels out of range, an unknown reduction, `num_items` together with "sum" or
                "none", or a number that is negative or not finite.
        """
        check_reduction(reduction, num_items)
        require_tensors(logits=logits, labels=labels)
        rows = self.rows(logits, labels)
        if reduction == "none":
            return rows
        if reduction == "sum":
            return rows.sum()
        if num_items is None:
            soft = labels.shape != rows.shape
            num_items = ((labels != IGNORE_INDEX).any(-1) if soft else labels.long() != IGNORE_INDEX).sum()
        return divide(rows.sum(), num_items)

    def __prepare_scriptable__(self) -> NoReturn:
        # What `torch.jit.script` calls; its own error is about one of many things here that it does not know.
        raise NotImplementedError(
            f"torch.jit.script must be given no loss, got {type(self).__name__}: TorchScript has no autograd "
            "functions; use torch.compile"
        )

    def set_progress(self, fraction: float) -> None:
        """Tell the loss how much of the training is done, in [0, 1]. Only a scheduled γ listens."""

    def end_step(self) -> None:
        """Tell the loss, in all processes, that an optimiser step was taken. Only an average of recall listens."""

    @property
    def moves(self) -> bool:
        """Whether the loss of the same logits changes during the training: losses of two epochs do not compare."""
        return False

    @property
    def driving(self) -> str | None:
        """What the loss does that a trainer must drive, in words; None where there is nothing."""
        return None


def check_reduction(reduction: str, num_items: int | Tensor | None) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if num_items is not None and reduction != "mean":
        raise ValueError(f"reduction must be 'mean' with num_items, which divides the sum, got {reduction!r}")
    if num_items is not None and not isinstance(num_items, Tensor):
        at_least_0("num_items", num_items)


def divide(total: Tensor, num_items: float | Tensor) -> Tensor:
    """The sum of the rows over `num_items`, at least 1.

    A batch in which every label is ignored has a sum of 0 and no items: its loss is 0, not 0/0.
    """
    if not isinstance(num_items, Tensor):
        return total / max(num_items, 1)
    # A scalar on the CPU divides as it is; a copy of it would wait for the rows' device.
    if num_items.ndim or num_items.device.type != "cpu":
        num_items = num_items.to(total.device)
    return total / num_items.clamp(min=1)


class CrossEntropyFamily(Loss):
    """Cross-entropy and everything that is a function of it: focal, FLSc, FLSD, inverse focal, AdaFocal."""

    def __init__(self, policy: GammaPolicy):
        super().__init__()
        self.policy = policy

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if labels.is_floating_point() and labels.shape == logits.shape:
            gamma = self.policy(labels)
            if isinstance(gamma, Tensor):
                raise ValueError(
                    f"labels must be class indices for {type(self.policy).__name__}, which chooses gamma from the "
                    f"probability of the one true class, got soft targets {tuple(labels.shape)}"
                )
            return functional.soft_target_focal(logits, labels, gamma)
        return functional.focal(logits, labels, self.policy)

    @property
    def row_form(self) -> RowForm:
        return functional.focal_form(self.policy)

    def set_progress(self, fraction: float) -> None:
        self.policy.set_progress(fraction)

    @property
    def moves(self) -> bool:
        return self.policy.moves

    @property
    def driving(self) -> str | None:
        return "changes γ during training" if self.moves else None

    def get_extra_state(self) -> dict:
        """γ where it moves, as JSON values: PyTorch puts it into `state_dict`."""
        return self.policy.state_dict()

    def set_extra_state(self, state: dict) -> None:
        self.policy.load_state_dict(state)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in vars(self.policy).items())


class LabelSmoothing(Loss):
    """`functional.label_smoothing` as a module."""

    def __init__(self, alpha: float = 0.05, convention: str = "torch"):
        super().__init__()
        functional.check_smoothing(alpha, convention)
        self.alpha, self.convention = alpha, convention

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.label_smoothing(logits, labels, self.alpha, convention=self.convention)

    @property
    def row_form(self) -> RowForm:
        return functional.label_smoothing_form(self.alpha, self.convention)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, convention={self.convention!r}"


class Brier(Loss):
    """`functional.brier` as a module."""

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.brier(logits, labels)

    @property
    def row_form(self) -> RowForm:
        return functional.brier_form()


class MMCE(Loss):
    """Cross-entropy plus λ times `functional.mmce`: by default its plain form, MMCE_w with ``weighted=True``.

    The MMCE of a batch is no sum over its rows: each row gets its cross-entropy plus the whole term, so that the mean
    is ``ce + λ · MMCE`` and the sum N times that. Over several micro-batches or processes the term is therefore the
    average of the parts' own MMCE, weighted by their rows, not the MMCE of the union.

    With ``gather=True`` it is the MMCE of the union of the processes: the confidences of all processes' rows of a
    micro-batch are gathered (`functional.mmce_of_all_processes`), and where rows are summed over the processes and
    divided by all of them, as Trainer does, loss and gradient are those of one process with all rows. Accumulated
    micro-batches are averaged still. All processes must then compute the loss equally often while gradients are
    enabled; under `torch.no_grad`, where evaluations may differ in number, each process takes its own rows.
    """

    def __init__(self, lam: float = 2.0, weighted: bool = False, gather: bool = False):
        super().__init__()
        self.lam, self.weighted, self.gather = at_least_0("lam", lam), weighted, gather

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        gather = self.gather and torch.is_grad_enabled() and num_processes() > 1
        mmce = functional.mmce_of_all_processes if gather else functional.mmce
        term = self.lam * mmce(logits, labels, weighted=self.weighted)
        return functional.cross_entropy(logits, labels) + torch.where(labels.long() != IGNORE_INDEX, term, 0.0)

    def extra_repr(self) -> str:
        return f"lam={self.lam}, weighted={self.weighted}, gather={self.gather}"


def num_processes() -> int:
    """Of `torch.distributed`; 1 where it is not used."""
    initialised = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if initialised else 1
