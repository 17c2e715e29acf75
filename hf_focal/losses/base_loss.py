"""Base classes, options and registry of the losses."""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar, dataclass_transform, get_type_hints

from torch import Tensor, nn

from .number_checks import at_least_0, require

IGNORE_INDEX = -100


class Option(NamedTuple):
    """An option of a loss. `unless` names options that replace it; `always_shown` keeps a default in the short form.

    `kind` is its type: float, int, bool, ``tuple[float, ...]`` or a `Literal` of choices, perhaps ``| None``.
    """

    kind: Any
    default: Any
    help: str
    unless: tuple[str, ...] = ()
    always_shown: bool = False


def option(default: Any, help: str, *, unless: tuple[str, ...] = (), always_shown: bool = False) -> Any:
    """A field of a loss class that users can set; see `Option`."""
    return field(default=default, metadata={"help": help, "unless": unless, "always_shown": always_shown})


class Loss(nn.Module):
    """A loss over classes. Subclasses define `elementwise`; this class reduces its values.

    Attributes:
        name, summary, source: what `build_loss` calls the loss, its formula and its paper.
        options: its options by name, which `register` collects from the fields.
        changes_during_training: whether values from different epochs are not comparable.
        trainer_duty: what the loss does that needs a trainer's help, in words; None if nothing.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    options: ClassVar[dict[str, Option]] = {}
    changes_during_training = False
    trainer_duty: str | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "Loss":
        # The `__init__` that `dataclass` writes for a subclass does not call that of nn.Module.
        loss = super().__new__(cls)
        nn.Module.__init__(loss)
        return loss

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One value per label, 0 where the label is -100, for logits (..., K) and labels (...) or soft ones (..., K).

        float32, or float64 for float64 logits.
        """
        raise NotImplementedError

    def forward(
        self, logits: Tensor, labels: Tensor, reduction: str = "mean", num_items: int | Tensor | None = None
    ) -> Tensor:
        """The reduced loss.

        Args:
            logits: (..., K), any floating dtype.
            labels: (...) integers in [0, K), or -100 to be ignored. Cross-entropy, focal loss with one γ for all
                samples, label smoothing and the Brier score also take soft targets: floating, of the logits' shape, a
                distribution per sample or -100 throughout.
            reduction: "mean" over the labels that are not ignored (0 if all are), "sum", or "none".
            num_items: divide the sum by this number instead, as trainers do that accumulate gradients; numbers below 1
                count as 1. A tensor's value is not checked, because reading it would wait for its device.

        Returns:
            A scalar, or for "none" a tensor of labels' shape: float32 (float64 for float64 logits).

        Raises:
            TypeError, ValueError: arguments of a wrong type, dtype, shape or range.
        """
        check_reduction(reduction, num_items)
        if reduction == "none":
            return self.elementwise(logits, labels)
        return self.total(logits, labels, 1 if reduction == "sum" else num_items)

    def total(self, logits: Tensor, labels: Tensor, divisor: float | Tensor | None) -> Tensor:
        """The sum of `elementwise` over `divisor`, by default the number of labels that are not ignored."""
        values = self.elementwise(logits, labels)
        if divisor is None:
            soft = labels.shape != values.shape
            divisor = ((labels != IGNORE_INDEX).any(-1) if soft else labels.long() != IGNORE_INDEX).sum()
        return divide(values.sum(), divisor)

    def set_progress(self, fraction: float) -> None:
        """Tell the loss which fraction of the training is done. Scheduled γ depends on it."""

    def end_step(self) -> None:
        """Tell the loss, in every process, that an optimizer step was taken. Averages of recall depend on it."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.options)

    def __prepare_scriptable__(self) -> NoReturn:
        # `torch.jit.script` calls this method; its own error would name one of many things that it does not support.
        raise NotImplementedError(
            f"torch.jit.script must be given no loss, got {type(self).__name__}: TorchScript has no autograd "
            "functions; use torch.compile"
        )


LOSSES: dict[str, type[Loss]] = {}
"""The registered losses by name."""

LossType = TypeVar("LossType", bound=type[Loss])


@dataclass_transform(eq_default=False, field_specifiers=(option,))
def register(loss: LossType) -> LossType:
    """Turn a loss class into a dataclass and let `build_loss` find it by its `name`.

    Raises ValueError if another class has the name. Defining the same class again, as in a notebook, replaces it.
    """
    known = LOSSES.get(loss.name, loss)
    same = (known.__module__, known.__qualname__) == (loss.__module__, loss.__qualname__)
    require(same, f"name must be new, got {loss.name!r}, the name of {known.__module__}.{known.__qualname__}")
    dataclass(eq=False, repr=False)(loss)
    hints = get_type_hints(loss)  # also where annotations are strings
    loss.options = {
        item.name: Option(hints[item.name], item.default, **item.metadata)
        for item in fields(loss)  # type: ignore[arg-type]  # by now it is a dataclass
    }
    LOSSES[loss.name] = loss
    return loss


def check_reduction(reduction: str, num_items: int | Tensor | None) -> None:
    require(reduction in ("mean", "sum", "none"), f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if num_items is not None:
        valid = reduction == "mean"
        require(valid, f"reduction must be 'mean' with num_items, which divides the sum, got {reduction!r}")
        if not isinstance(num_items, Tensor):
            at_least_0("num_items", num_items)
        else:  # Trainer makes it one number per GPU where a process has several
            require(num_items.numel() == 1, f"num_items must be one number, got {num_items.numel()}")


def divide(total: Tensor, num_items: float | Tensor) -> Tensor:
    """The total over `num_items`, at least 1: without items it is 0/1, not 0/0."""
    if not isinstance(num_items, Tensor):
        return total / num_items if num_items > 1 else total
    # A scalar on the CPU divides as it is; copying it to the device would wait for the device.
    if num_items.device.type != "cpu":
        num_items = num_items.to(total.device)
    return total / num_items.reshape(()).clamp(min=1)
