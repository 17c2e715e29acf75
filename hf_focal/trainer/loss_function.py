"""The loss of a micro-batch: a model's logits, the labels that they predict, and the number to divide by."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError, require
from ..losses import ClassBalanced, Loss, LossConfig, RecallLoss, SigmoidLoss, build_loss
from ..tasks.heads import Head
from .auxiliary_loss import auxiliary_fields
from .batch_labels import counted_labels
from .deferred_logits import DeferredLogits


class LossFunction:
    """A loss that `Trainer(compute_loss_func=...)` calls: ``(outputs, labels, num_items_in_batch) -> loss``.

    `num_items_in_batch` is the number of labels in the whole optimizer step. A soft target counts as one label,
    whatever its number of classes.
    """

    def __init__(self, loss: Loss, reduction: str = "mean", head: Head = Head.CLASSES, auxiliary: Any = None):
        require(reduction in ("mean", "sum"), "reduction", f"must be 'mean' or 'sum', got {reduction!r}")
        self.loss, self.reduction, self.head, self.auxiliary = loss, reduction, head, auxiliary
        self.sigmoid = isinstance(loss, SigmoidLoss)

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        self.logits_of(outputs)  # first, since models without logits have differently named labels
        if labels is None:
            raise InputError(
                "labels", "must be in the batch, got None: the dataset needs a column 'label' or 'labels'"
            )
        if not isinstance(labels, Tensor):
            raise TypeError(f"labels must be a tensor of class indices, got {type(labels).__name__}")
        logits, labels = self.logits_and_targets(outputs, labels)
        options: Any = {"reduction": "sum"} if self.reduction == "sum" else {"num_items": num_items_in_batch}
        if isinstance(logits, DeferredLogits):
            total = logits.loss(self.loss, labels, **options)
        else:
            total = self.loss(logits, labels, **options)
        if self.auxiliary is not None:
            items = counted_labels({"labels": labels}, self.head)["labels"]
            total = total + self.auxiliary(outputs, items, num_items_in_batch, self.reduction)
        return total

    def logits_and_targets(self, outputs: Any, labels: Tensor) -> tuple[Tensor | DeferredLogits, Tensor]:
        """Return the logits (..., K) of a model's output and the labels (...) that they predict."""
        logits = self.logits_of(outputs)
        if self.sigmoid and logits.shape == (*labels.shape, 1):
            return logits, labels.unsqueeze(-1)  # one logit
        if self.head is Head.PIXELS:
            return logits_of_pixels(logits, labels), labels
        return (logits[..., :-1, :], labels[..., 1:]) if self.head is Head.NEXT_TOKENS else (logits, labels)

    def logits_of(self, outputs: Any) -> Any:
        """Return the logits of a model's output: the field `logits` of a mapping, the first element of a tuple (after
        an empty place for the loss), or the output itself. For answer spans, stack the logits of starts and ends as
        (N, 2, L)."""
        names = ("start_logits", "end_logits")
        if self.head is Head.SPANS and isinstance(outputs, tuple):
            return torch.stack(without_loss(outputs)[:2], 1)
        if self.head is Head.SPANS and all(name in outputs for name in names):
            return torch.stack([outputs[name] for name in names], 1)
        if not isinstance(outputs, Mapping):
            return outputs if isinstance(outputs, Tensor | DeferredLogits) else without_loss(outputs)[0]
        require(
            "logits" in outputs,
            "model",
            f"must have logits of the labels' classes in its output, got {', '.join(map(str, outputs))}: there is no "
            "softmax that could be calibrated",
        )
        return outputs["logits"]


def without_loss(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a model's outputs without the loss in front, which is None or a scalar, as the model gets no labels."""
    first = outputs[0] if len(outputs) > 1 else outputs
    return outputs[1:] if first is None or (isinstance(first, Tensor) and not first.ndim) else outputs


def loss_of_head(head: Head, config: LossConfig) -> Loss:
    """Build the loss of `config` for a kind of head. Raises InputError if the loss weights classes, but the head
    predicts positions, as in extractive question answering."""
    loss = build_loss(config, "sigmoid" if head is Head.LABELS else "softmax")
    problem = f"must not weight classes for extractive question answering, got {config}: positions are not classes"
    require(head is not Head.SPANS or not isinstance(loss, RecallLoss | ClassBalanced), "args.loss", problem)
    return loss


def logits_of_pixels(logits: Tensor, labels: Tensor) -> Tensor:
    """Convert logits (N, K, h, w) to (N, H, W, K) for labels (N, H, W), with the models' own interpolation."""
    require(
        logits.ndim == 4 and labels.ndim == 3 and len(logits) == len(labels),
        "labels",
        f"must be (N, H, W) for logits (N, K, h, w) in semantic segmentation, got labels {tuple(labels.shape)} for "
        f"logits {tuple(logits.shape)}",
    )
    # With the classes last in memory, each pixel's logits are contiguous, and the loss needs no copy.
    logits = logits.contiguous(memory_format=torch.channels_last)
    if logits.shape[-2:] != labels.shape[-2:]:
        logits = F.interpolate(logits, labels.shape[-2:], mode="bilinear", align_corners=False)
    return logits.permute(0, 2, 3, 1)


class StockLossFunction(LossFunction):
    """A `LossFunction` for stock trainers. It rejects outputs and labels of models that it does not support."""

    def logits_and_targets(self, outputs: Any, labels: Tensor) -> tuple[Tensor | DeferredLogits, Tensor]:
        logits = self.logits_of(outputs)
        require(
            self.sigmoid or not (labels.is_floating_point() or labels.shape == logits.shape),
            "labels",
            f"must be class indices for loss_func, got {labels.dtype} {tuple(labels.shape)} for logits "
            f"{tuple(logits.shape)}: a model of problem_type 'multi_label_classification' needs "
            "loss_func(..., link='sigmoid'); a regression has no probabilities; soft targets are for FocalTrainer",
        )
        fields = auxiliary_fields(outputs)
        require(
            not fields,
            "model.config.output_router_logits",
            f"must be False for loss_func, got an output with {', '.join(fields)}, whose coefficient it does not "
            "know: use FocalTrainer",
        )
        logits, targets = super().logits_and_targets(outputs, labels)
        require(
            self.sigmoid or logits.shape[:-1] == targets.shape,
            "labels",
            f"must match the logits one to one, got {tuple(labels.shape)} for {tuple(logits.shape)}: a head that "
            "aligns them otherwise (CTC) or has several labels per sample is not supported",
        )
        return logits, targets


def loss_func(
    loss: str | Mapping[str, Any] | LossConfig,
    reduction: str = "mean",
    shift_labels: bool = False,
    link: str = "softmax",
) -> LossFunction:
    """Return a loss for any stock trainer: ``Trainer(..., compute_loss_func=loss_func("focal:gamma=3"))``.

    The mean divides by `num_items_in_batch`, so the gradient does not depend on how a batch is split into accumulation
    steps and processes. MMCE is an exception, because it is not a sum over samples; ``mmce:gather=true`` computes MMCE
    over the samples of all processes. The loss ``recall`` always takes the recall over all processes.

    Args:
        loss: anything that `LossConfig.parse` accepts.
        reduction: "mean" over the items of an optimizer step, or their "sum".
        shift_labels: whether position i predicts label i + 1. Set it for causal language models, also with TRL's
            `SFTTrainer` (which, as announced, drops `compute_loss_func` in TRL 2.0). If the name of the model's class
            does not end in ForCausalLM (GPT2LMHeadModel), the first label of each sequence must be -100, because
            Trainer counts it.
        link: "sigmoid" for several labels per sample, or for a single logit. Unknown labels must then be -100, because
            Trainer would count a NaN as a label.

    Raises:
        InputError: what `LossConfig.parse` raises, or a loss that only `FocalTrainer` can drive: its γ changes during
            training, it averages recall over steps, or it weights classes by their numbers of training labels. The
            returned function raises InputError for floating labels and labels of the logits' shape, unless `link` is
            "sigmoid"; for labels that do not match the logits one to one (CTC); for an output without logits; and for
            an output with the auxiliary loss of a mixture of experts.

    Examples:
        >>> import torch
        >>> from hf_focal import loss_func
        >>> function = loss_func("focal:gamma=3")  # for Trainer(..., compute_loss_func=function)
        >>> round(function({"logits": torch.tensor([[1.0, 0.0]])}, torch.tensor([0])).item(), 4)
        0.0061
    """
    built = build_loss(loss, link)
    problem = f"got {LossConfig.parse(loss)}, which {built.trainer_duty}: use FocalTrainer"
    require(built.trainer_duty is None, "loss", f"must be one that a stock Trainer can drive, {problem}")
    return StockLossFunction(built, reduction, Head.NEXT_TOKENS if shift_labels else Head.CLASSES)
