"""The loss of an optimizer step: which labels count, how many there are, and auxiliary losses of the model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from ..losses import ClassBalanced, Loss, LossConfig, RecallLoss, SigmoidLoss, build_loss
from ..losses.base_loss import divide
from ..tasks.heads import Head, without_adapter
from ..validation import InputError, require
from .deferred_logits import DeferredLogits

# Field of a model's output -> names under which the model or its configuration may hold the field's coefficient.
_FIELDS = {
    "aux_loss": ("router_aux_loss_coef", "aux_loss_coef"),
    "encoder_aux_loss": ("router_aux_loss_coef",),
    "decoder_aux_loss": ("router_aux_loss_coef",),
    "encoder_z_loss": ("router_z_loss_coef",),
    "decoder_z_loss": ("router_z_loss_coef",),
}
_logger = logging.getLogger(__name__)


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


def labels_of(batch: Mapping[str, Any], dataset: str) -> Tensor:
    """Return the labels of a batch. If it has none, raise InputError with the name of its `dataset`."""
    require(
        batch.get("labels") is not None, dataset, f"must have a column 'label' or 'labels', got {', '.join(batch)}"
    )
    return batch["labels"]


def counted_labels(batch: Any, head: Head) -> Any:
    """Return a batch in which each soft target (..., K) is one label (...), because Trainer counts the labels that are
    not -100."""
    labels = batch.get("labels")
    if head is Head.LABELS or not isinstance(labels, Tensor) or not labels.is_floating_point() or not labels.ndim:
        return batch
    ignored = (labels == -100).all(-1)
    return {**batch, "labels": torch.zeros_like(ignored, dtype=torch.int64).masked_fill(ignored, -100)}


def check_same_rows(inputs: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    """Raise InputError unless the inputs of a forward pass in an evaluation are those of its `batch`, or begin with
    them, as where an override of `compute_loss` repeats the batch."""
    seen, size = len(inputs["labels"]), len(batch["labels"])
    begins = seen == size or all(
        torch.equal(inputs[name][:size].to(value.device), value)
        for name, value in batch.items()
        if isinstance(value, Tensor) and isinstance(inputs.get(name), Tensor) and value.ndim
    )
    expected = f"must get the {size} samples of an evaluation's batch, or inputs that begin with them"
    require(begins, "compute_loss", f"{expected}, got {seen} others")


def warn_of_labels(batch: Mapping[str, Any], head: Head, chosen: bool) -> bool:
    """Warn of labels that a model with one softmax per label is probably not meant for: those of the next tokens, or
    several per sample. Return False if the batch has no labels to tell by.

    `chosen` is whether the model's configuration had a problem type.
    """
    labels, inputs = batch.get("labels"), batch.get("input_ids")
    if head is not Head.CLASSES or not isinstance(labels, Tensor):
        return head is not Head.CLASSES
    labeled = labels != -100
    if not labeled.any():
        return False
    if isinstance(inputs, Tensor) and labels.shape == inputs.shape and torch.equal(labels[labeled], inputs[labeled]):
        _logger.warning(
            "the labels are the input_ids, and the model is not known as a language model: label i is compared with "
            "logits i, which a language model computes for token i + 1. Give the trainer the model of Transformers "
            "itself, or labels that are shifted to the left"
        )
    elif not chosen and labels.is_floating_point() and labels.ndim > 1 and is_one_hot(labels):
        _logger.warning(
            "the labels are floating-point rows with one 1 each: they are soft targets of one softmax. If a sample "
            "can have several labels, set model.config.problem_type = 'multi_label_classification'; if not, set it "
            "to 'single_label_classification', or give the numbers of the classes as labels"
        )
    return True


def is_one_hot(labels: Tensor) -> bool:
    return bool((((labels == 0) | (labels == 1)).all(-1) & (labels.sum(-1) == 1)).all())


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


def auxiliary_fields(outputs: Any) -> list[str]:
    """Return the names of an output's fields that hold an auxiliary loss: none unless `output_router_logits` is on."""
    return [name for name in _FIELDS if isinstance(outputs.get(name), Tensor)] if isinstance(outputs, Mapping) else []


class AuxiliaryLoss:
    """The term that a model adds to its own loss if `output_router_logits` is on. In an optimizer step, the terms of
    the micro-batches are weighted by their numbers of labels."""

    def __init__(self, model: nn.Module):
        self._model: Any = without_adapter(model)
        # (2,): sums over the micro-batches since the last log, of share · term and of share, where share is
        # the fraction of the step's labels that the micro-batch has.
        self.running: Tensor | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items: Any, reduction: str) -> Tensor | float:
        """Return the term to add to the loss of a micro-batch with `labels` (...).

        `num_items` is the number of labels in the whole optimizer step, or None if the micro-batch is the whole step.
        The term is multiplied by the micro-batch's number of labels and, unless `reduction` is "sum", divided by
        `num_items`.
        """
        fields = auxiliary_fields(outputs)
        if not fields:
            return 0.0
        term = torch.stack([self._coefficient(name) * outputs[name].to(labels.device) for name in fields]).sum()
        count = (labels != -100).sum()
        share = divide(count, count if num_items is None else num_items)
        if torch.is_grad_enabled():
            seen = torch.stack([share * term.detach(), share]).float()
            self.running = seen if self.running is None else self.running + seen
        return term * (count if reduction == "sum" else share)

    def mean(self, accelerator: Accelerator) -> float | None:
        """Return the mean of the terms on all processes since the last log, or None without terms; reset `running`."""
        if self.running is None:
            return None
        total, share = accelerator.reduce(self.running, "sum").tolist()
        self.running = None
        return total / max(share, 1e-9)

    def state(self, accelerator: Accelerator) -> list[float] | None:
        """Replace `running` by its average over all processes, and return this average as a list (None if not set)."""
        self.running = None if self.running is None else accelerator.reduce(self.running, "mean")
        return None if self.running is None else self.running.tolist()

    def _coefficient(self, field: str) -> float:
        config: Any = getattr(self._model, "config", None)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        for owner, name in product((self._model, text), _FIELDS[field]):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise InputError(
            "model",
            f"must have a {_FIELDS[field][0]}, the coefficient of {field}, got none in {type(self._model).__name__}: "
            "set output_router_logits=False to train without",
        )


@dataclass
class LoggedLoss:
    """Sums of the losses of all steps, kept because Trainer's own sums restart at 0 in a resumed run. All processes
    must call each method."""

    first_step: int  # the number of steps before the first one that is summed
    last_log: int  # the step of the last log
    total: float = 0.0  # up to the last log
    pending: Tensor | float = 0.0  # since the last log

    def reduce(self, accelerator: Accelerator) -> float:
        """Replace `pending` by its average over all processes, a float, and return this average."""
        if isinstance(self.pending, Tensor):
            self.pending = float(accelerator.reduce(self.pending, "mean"))
        return self.pending

    def mean_since_last_log(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of the steps since the last log, and record `step` as the step of the last log."""
        pending, steps = self.reduce(accelerator), step - self.last_log
        self.total, self.pending, self.last_log = self.total + pending, 0.0, step
        return pending / steps

    def mean(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of all steps after `first_step`, up to `step`."""
        return (self.total + self.reduce(accelerator)) / max(step - self.first_step, 1)


def without_ignored(batch: dict[str, Any], head: Head, model: nn.Module) -> dict[str, Any]:
    """Return the batch with -100 in place of the labels that must not count.

    These labels are NaN, the labels of pixels that the model's configuration says to ignore, and the label of the
    first token of each sequence. For extractive question answering, the starts and ends of the answers become `labels`
    (N, 2). As in the models' own loss, -100 replaces positions beyond the sequence, and 0 replaces negative positions.
    """
    if head is Head.SPANS and {"start_positions", "end_positions"} <= batch.keys():
        batch = dict(batch)
        columns = [batch.pop(name).reshape(-1) for name in ("start_positions", "end_positions")]
        positions = torch.stack(columns, 1).clamp(min=0)
        sequence = batch["input_ids"] if "input_ids" in batch else batch["inputs_embeds"]
        return {**batch, "labels": positions.masked_fill(positions >= sequence.shape[1], -100)}
    labels = batch.get("labels")
    if head is Head.LABELS and labels is not None and labels.is_floating_point():
        return {**batch, "labels": labels.masked_fill(labels.isnan(), -100)}  # Trainer counts labels that are not -100
    if head not in (Head.PIXELS, Head.NEXT_TOKENS) or labels is None or labels.is_floating_point():
        return batch  # the loss handles missing and floating labels
    if head is Head.PIXELS:
        config = getattr(model, "config", None)
        default = getattr(config, "loss_ignore_index", 255)  # UperNet's name
        ignored = getattr(config, "semantic_loss_ignore_index", default)
        labels = labels.long()  # in uint8, -100 would be 156
        return {**batch, "labels": labels.masked_fill(labels == ignored, -100)}
    # No token precedes the first. Trainer counts its label for some causal language models but not for others.
    labels = labels.clone()
    labels[..., 0] = -100
    return {**batch, "labels": labels}


def padded_positions(logits: Tensor, head: Head, model: Any) -> Tensor:
    """Pad the logits (N, 2, L) of answer spans with -inf to the length of the model's longest possible sequence, so
    that all batches have the same number of classes. Return logits of other heads unchanged."""
    if head is not Head.SPANS:
        return logits
    limit = getattr(model.config, "max_position_embeddings", None) or 0
    longest = limit if limit > 0 else 4096  # some models have no limit, and XLNet's is -1
    problem = f"must be sequences of at most {longest} tokens to be measured, got {logits.shape[-1]}: truncate them"
    require(logits.shape[-1] <= longest, "eval_dataset", problem)
    return F.pad(logits, (0, longest - logits.shape[-1]), value=-torch.inf)
