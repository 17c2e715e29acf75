"""Base class, options, and registry of the losses."""

import re
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, get_type_hints

from torch import Tensor, nn

from ..errors import InputError, require
from ..validation import check_number

IGNORE_INDEX = -100


class Option(NamedTuple):
    """An option of a loss.

    `kind` is the type of its value: float, int, bool, ``tuple[float, ...]``, or a `Literal` of choices; with
    ``| None``, the value may also be None. `unless` names the options that replace this one and cannot be given with
    it. If `always_shown`, the short form of a `LossConfig` shows the option even if it has its default value.
    """

    kind: Any
    default: Any
    help: str
    unless: tuple[str, ...] = ()
    always_shown: bool = False


def option(default: Any, help: str, *, unless: tuple[str, ...] = (), always_shown: bool = False) -> Any:
    """Declare a field of a loss class that users can set; see `Option`."""
    return field(default=default, metadata={"help": help, "unless": unless, "always_shown": always_shown})


class Loss(nn.Module):
    """Base class of the losses. Subclasses define `elementwise`; this class reduces the values that it returns.

    Attributes:
        name, summary, source: the name by which `build_loss` finds the loss, its formula, and its paper.
        options: the options of the loss by name, which `register` collects from the fields of the class.
        changes_during_training: whether the loss function itself changes during training, so that its values from
            different epochs are not comparable.
        trainer_duty: a phrase that says what the loss does with a trainer's help; None if it needs no help.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    options: ClassVar[dict[str, Option]] = {}
    changes_during_training = False
    trainer_duty: str | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "Loss":
        # The `__init__` that `dataclass` generates for a subclass does not call that of nn.Module.
        loss = super().__new__(cls)
        nn.Module.__init__(loss)
        return loss

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (...), for logits (..., K) and labels (...) or soft targets (..., K).

        Where the label is -100, the loss is 0. Losses are float32, or float64 for float64 logits.
        """
        raise NotImplementedError

    def forward(
        self, logits: Tensor, labels: Tensor, reduction: str = "mean", num_items: int | Tensor | None = None
    ) -> Tensor:
        """Compute the loss and reduce it.

        Args:
            logits: (..., K), any floating dtype.
            labels: (...), integers in [0, K), or -100 for samples to ignore. Cross-entropy, focal loss with one γ for
                all samples, label smoothing, and the Brier score also accept soft targets: a floating-point tensor
                (..., K) that has a distribution, or -100 for every class, for each sample.
            reduction: "mean" over the labels that are not ignored (0 if all labels are ignored), "sum", or "none".
            num_items: with "mean", divide the sum by this number instead of the number of labels that are not ignored,
                as trainers that accumulate gradients do. Numbers below 1 count as 1.

        Returns a scalar, or for "none" a tensor (...): float32 (float64 for float64 logits). Raises InputError for an
        argument of the wrong dtype or shape, or out of range.
        """
        check_reduction(reduction, num_items)
        if reduction == "none":
            return self.elementwise(logits, labels)
        return self.total(logits, labels, 1 if reduction == "sum" else num_items)

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        """Divide the sum of the losses by `divisor`; None stands for the number of labels that are not ignored."""
        values = self.elementwise(logits, labels)
        if divisor is None:
            soft = labels.shape != values.shape
            divisor = ((labels != IGNORE_INDEX).any(-1) if soft else labels.long() != IGNORE_INDEX).sum()
        return divide(values.sum(), divisor)

    def set_progress(self, fraction: float) -> None:
        """Tell the loss what fraction of the training is done. A scheduled γ depends on this fraction."""

    def end_step(self) -> None:
        """Tell the loss that an optimizer step was taken, so that `RecallLoss` updates its average.

        Every process must call this method: it may sum over processes.
        """

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.options)


LOSSES: dict[str, type[Loss]] = {}
"""The registered losses by name."""

LossType = TypeVar("LossType", bound=type[Loss])


@dataclass_transform(eq_default=False, field_specifiers=(option,))
def register(loss: LossType) -> LossType:
    """Turn a loss class into a dataclass and let `build_loss` find it by its `name`.

    Raises InputError if the name, which is that of a run's folder, too, has other characters than letters, digits, "_"
    and "-", or if a different class has it. If the same class is defined again, as in a notebook, the new
    definition replaces the old one.
    """
    plain = re.fullmatch(r"[\w-]+", loss.name) is not None
    require(plain, "name", f"must have letters, digits, '_' and '-' only, got {loss.name!r}")
    known = LOSSES.get(loss.name, loss)
    same = (known.__module__, known.__qualname__) == (loss.__module__, loss.__qualname__)
    require(same, "name", f"must be new, got {loss.name!r}, the name of {known.__module__}.{known.__qualname__}")
    dataclass(eq=False, repr=False)(loss)
    hints = get_type_hints(loss)  # resolves annotations that are strings
    loss.options = {
        item.name: Option(hints[item.name], item.default, **item.metadata)
        for item in fields(loss)  # type: ignore[arg-type]  # by now it is a dataclass
    }
    LOSSES[loss.name] = loss
    return loss


def check_reduction(reduction: str, num_items: int | Tensor | None) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise InputError("reduction", f"must be 'mean', 'sum' or 'none', got {reduction!r}")
    if num_items is None:
        return
    valid = reduction == "mean"
    require(valid, "reduction", f"must be 'mean' with num_items, which divides the sum, got {reduction!r}")
    if isinstance(num_items, Tensor):  # if a process has several GPUs, Trainer passes one number per GPU
        require(num_items.numel() == 1, "num_items", f"must be one number, got {num_items.numel()}")
    else:
        check_number("num_items", num_items, 0)


def divide(total: Tensor, num_items: float | Tensor) -> Tensor:
    """Divide `total` by `num_items`, but at least by 1: without items, the result is 0/1, not 0/0."""
    return total / at_least_1(num_items, total)


def at_least_1(num_items: float | Tensor, like: Tensor) -> float | Tensor:
    """Return `num_items`, but at least 1: a number, or a scalar tensor () that can divide tensors like `like`."""
    if not isinstance(num_items, Tensor):
        return max(num_items, 1)
    # A scalar on the CPU can be used as it is; copying it to the device would wait for the device.
    if not num_items.is_cpu:
        num_items = num_items.to(like.device)
    return num_items.reshape(()).clamp(min=1)
