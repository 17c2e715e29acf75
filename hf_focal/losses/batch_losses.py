"""Losses that depend on more than one sample: MMCE, and losses weighted by the recall or rarity of the classes."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import require
from ..validation import check_number
from .base_loss import IGNORE_INDEX, Loss, option, register
from .checks import accumulation_dtype, check_labels, constant, is_transformed, sum_dtype
from .loss_modules import focal, focal_form
from .margin import Form

_KERNEL_WIDTH = 0.4


def num_processes() -> int:
    """Return the number of processes of `torch.distributed`, or 1 if `torch.distributed` is not in use."""
    initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if initialized else 1


def sum_over_processes(counts: Tensor) -> Tensor:
    """Sum `counts` over all processes, each of which must call this."""
    counts = counts.clone()
    if num_processes() > 1:
        torch.distributed.all_reduce(counts)
    return counts


def mmce(logits: Tensor, labels: Tensor, *, weighted: bool = False, ignore_index: int = -100) -> Tensor:
    """Compute the maximum mean calibration error of the batch, a differentiable scalar (Kumar et al. 2018).

    ``MMCE² = Σ_ij w_i w_j exp(-|r_i - r_j| / 0.4)``, where r_i is the top-1 confidence of sample i. Of the m samples,
    n are predicted correctly and have c_i = 1; the others have c_i = 0. There are two forms of the weights w_i:

    - plain (equation 4): ``w_i = (c_i - r_i) / m``,
    - weighted (equation 6): ``w_i = (1 - r_i) / n`` if c_i = 1, ``w_i = -r_i / (m - n)`` if c_i = 0.

    Published code leaves out the square root of the plain form and normalizes the weighted form differently. If no
    sample is right, or none is wrong, the weighted form leaves that group out. A sort and a cumulative sum replace the
    m × m matrix of the kernel.

    Logits are (..., K), and labels (...) are integers in [0, K) or `ignore_index`. The result is float32 (float64 for
    float64 logits); it is 0 if all labels are ignored.
    """
    return _mmce(*_confidences(logits, labels, ignore_index), weighted=weighted).to(accumulation_dtype(logits))


def _mmce_of_all_processes(logits: Tensor, labels: Tensor, weighted: bool) -> Tensor:
    """Compute `mmce` over the samples of all processes, as a term T to add to the loss of each sample.

    Each process differentiates T only with respect to its own n confidences, and counts with the share n / N in the
    mean over all N samples. With N / n times their gradients, those of the processes add up to that of T. Where labels
    are one-dimensional, every process must have as many, as the samplers of `Trainer` ensure.
    """
    local = torch.stack(_confidences(logits, labels, IGNORE_INDEX))
    size = local.shape[1]
    if labels.ndim != 1:  # exchanging the numbers of tokens makes the host wait for the device
        size = max(map(int, _all_gather(torch.tensor(size, device=local.device))))
    parts = _all_gather(F.pad(local.detach(), (0, size - local.shape[1])))  # padding does not count
    parts[torch.distributed.get_rank()] = local
    confidence, correct, counts = torch.cat(parts, dim=1)
    term = _mmce(confidence, correct, counts, weighted=weighted)
    scale = counts.sum() / local[2].sum().clamp(min=1)
    return (term + (scale - 1) * (term - term.detach())).to(accumulation_dtype(logits))


def _all_gather(tensor: Tensor) -> list[Tensor]:
    """Return the `tensor` of every process, in the order of ranks; all of these tensors must have the same shape."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor)
    return parts


def _confidences(logits: Tensor, labels: Tensor, ignore_index: int) -> list[Tensor]:
    """Return top-1 confidences, hits (1 or 0), and 0 for ignored samples or else 1, each (m,) in `sum_dtype`."""
    labels, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels, ignore_index))
    probabilities = torch.softmax(logits.reshape(-1, logits.shape[-1]), dim=-1, dtype=accumulation_dtype(logits))
    confidence, prediction = probabilities.max(-1)
    return [row.to(sum_dtype(logits.device)) for row in (confidence, prediction == labels, ~ignored)]


def _mmce(confidence: Tensor, correct: Tensor, counts: Tensor, *, weighted: bool) -> Tensor:
    if weighted:
        right, wrong = correct * counts, (1 - correct) * counts
        weight = (1 - confidence) * right / right.sum().clamp(min=1) - confidence * wrong / wrong.sum().clamp(min=1)
    else:
        weight = (correct - confidence) * counts / counts.sum().clamp(min=1)
    confidence, order = confidence.sort()
    weight = weight[order]
    scaled = confidence / _KERNEL_WIDTH
    # Σ_j w_j exp(-(r_i - r_j) / h) over r_j < r_i, as two factors, which cannot overflow for confidences in [0, 1].
    # Ties are summed separately: their kernel is 1 with derivative 0, in whatever order the sort left them.
    first = torch.searchsorted(confidence.detach(), confidence.detach())
    last = torch.searchsorted(confidence.detach(), confidence.detach(), right=True)
    below = torch.exp(-scaled) * F.pad((weight * torch.exp(scaled)).cumsum(0), (1, 0))[first]
    sums = F.pad(weight.cumsum(0), (1, 0))
    squared = (weight * (2 * below + sums[last] - sums[first])).sum()
    # The clamp gives the root the gradient 0 instead of NaN if every sample is right with confidence 1.
    return squared.clamp(min=1e-16).sqrt().where(squared > 1e-16, 0)


@register
class MMCE(Loss):
    """Cross-entropy plus λ times the maximum mean calibration error of the batch, `mmce` (Kumar et al. 2018).

    MMCE is not a sum over samples. The loss of each sample is its cross-entropy plus the whole term λ · MMCE, so that
    the mean loss is the mean cross-entropy plus λ · MMCE. With several micro-batches or processes, each computes its
    own term, and these terms are averaged with the numbers of samples as weights. With ``gather=True``, there is one
    term over the samples of all processes. All processes must then compute the loss equally often while gradients are
    enabled; under `torch.no_grad`, each process uses only its own samples.
    """

    name, summary = "mmce", "cross-entropy + λ · maximum mean calibration error"
    source = "Kumar et al. 2018"
    lam: float = option(2.0, "λ, the weight of the MMCE term: 2 for images, 8 for documents")
    weighted: bool = option(False, "the weighted form of the term")
    gather: bool = option(False, "on several processes: one term over the samples of all, not one for each")

    def __post_init__(self) -> None:
        self.lam = check_number("lam", self.lam, 0)

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.gather and torch.is_grad_enabled() and num_processes() > 1:
            term = self.lam * _mmce_of_all_processes(logits, labels, self.weighted)
        else:
            term = self.lam * mmce(logits, labels, weighted=self.weighted)
        return focal(logits, labels, 0.0) + torch.where(labels.long() != IGNORE_INDEX, term, 0.0)


@torch.no_grad()
def hits_and_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (2, K), int64: the numbers of correctly predicted samples and of all samples of each class.

    Logits are (..., K). Labels (...) are integers in [0, K), or -100 for samples to leave out.
    """
    index, ignored = (tensor.reshape(-1) for tensor in check_labels(logits, labels))
    num_classes = logits.shape[-1]
    right = (logits.reshape(-1, num_classes).argmax(-1) == index) & ~ignored
    # Not bincount, which waits for the device to find the largest label.
    counts = torch.zeros(2 * num_classes, dtype=torch.int64, device=logits.device)
    counts = counts.scatter_add(0, torch.cat([index, index + num_classes]), torch.cat([right, ~ignored]).long())
    return counts.view(2, num_classes)


def _recall(hits_and_counts: Tensor) -> Tensor:
    """Return the recall of each class, (K,) in `sum_dtype`; it is 0 for a class without samples."""
    hits, counts = hits_and_counts
    return hits.to(sum_dtype(counts.device)) / counts.clamp(min=1)


def _weighted_focal(logits: Tensor, labels: Tensor, gamma: float, weights: Tensor) -> Tensor:
    """Return focal losses times the weights of the labels' classes; a weight of 0 gives loss and gradient 0."""
    values = focal(logits, labels, gamma)
    index = labels.long()
    weight = weights.to(values.dtype)[index.where(index >= 0, 0)]
    # Infinite cross-entropy (of a label masked by -inf) times weight 0 would be NaN.
    return values.masked_fill(weight == 0, 0.0) * weight


@register
class RecallLoss(Loss):
    """Cross-entropy or focal loss times ``1 - R_y``, where R_y is the recall of the label's class (Tian et al. 2021).

    The weights carry no gradient; as in the paper, a class that is always predicted correctly has weight 0. With
    `ema` = α, R starts at 0 and is updated at the end of each optimizer step (`end_step`) by ``R_c ← α · hits_c /
    samples_c + (1 - α) · R_c`` for each class c with samples. Hits and samples are counted over all micro-batches and
    processes of the step, but only in training mode with gradients enabled. Without `ema`, R is the recall in the
    current micro-batch: in training mode with gradients enabled, over the samples of all processes; otherwise, over
    those of this process only, without waiting for the other processes.

    Attributes:
        recall: (K,), the average recall R with `ema`; None without `ema`, and before the first logits.
    """

    name, summary = "recall", "(1 - recall of the class) · -log p, or · focal"
    source = "Tian et al. 2021"
    changes_during_training = True
    ema: float | None = option(None, "α of the average recall over the steps, in (0, 1]; if absent the batch's")
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")

    def __post_init__(self) -> None:
        valid = self.ema is None or 0 < check_number("ema", self.ema) <= 1
        require(valid, "ema", f"must be within (0, 1], got {self.ema}")
        self.gamma = check_number("gamma", self.gamma, 0)
        self.trainer_duty = None if self.ema is None else "averages recall over the steps of the training"
        self.recall: Tensor | None = None
        self._counts: Tensor | None = None  # hits and samples (2, K) of this process since the last step

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled()
        if self.ema is None:
            counts = hits_and_counts(logits, labels)
            recall = _recall(sum_over_processes(counts) if trains else counts)
        else:
            recall = self._average(logits)
            if trains:
                counts = hits_and_counts(logits, labels)
                if is_transformed(counts):
                    raise NotImplementedError("logits must be plain tensors while ema counts, got those of torch.func")
                self._counts = counts if self._counts is None else self._counts + counts
        return _weighted_focal(logits, labels, self.gamma, 1 - recall)

    def _average(self, logits: Tensor) -> Tensor:
        """Return `recall` on the device of `logits`; for the first logits, start it at 0."""
        num_classes, dtype = logits.shape[-1], sum_dtype(logits.device)
        if self.recall is None:
            self.recall = torch.zeros(num_classes, dtype=dtype, device=logits.device)
        known = len(self.recall)
        require(known == num_classes, "logits", f"must have {known} classes as before, got {num_classes}")
        self.recall = self.recall.to(logits.device, dtype)
        return self.recall

    def end_step(self) -> None:
        if self._counts is None or self.recall is None or self.ema is None:
            return
        counts, self._counts = sum_over_processes(self._counts), None
        moved = self.ema * _recall(counts) + (1 - self.ema) * self.recall
        self.recall = torch.where(counts[1] > 0, moved, self.recall)

    def get_extra_state(self) -> dict:
        """Return the average recall as JSON values, which PyTorch puts into `state_dict`."""
        return {} if self.recall is None else {"recall": self.recall.tolist()}

    def set_extra_state(self, state: dict) -> None:
        self.recall, self._counts = None, None
        if "recall" in state:
            values = [check_number("recall", value, 0, 1) for value in state["recall"]]
            self.recall = torch.tensor(values, dtype=torch.float64)


def class_balanced_weights(counts: Sequence[int], beta: float = 1.0) -> list[float]:
    """Compute class weights ``w_c ∝ 1 / E_c``; `counts` are the numbers n_c of samples per class (Cui et al. 2019).

    ``E_c = (1 - β^n_c) / (1 - β)`` is the effective number of samples of class c. For β = 1, E_c is the limit n_c, so
    the weights are inversely proportional to the counts; for β = 0, all classes with samples have the same weight. A
    class without samples gets weight 0. The mean weight of the samples is 1. (In the paper, the mean weight of the
    classes is 1; if many classes are rare, most samples then have a weight far below 1.) Raises InputError if there
    are no samples, a count is negative, or β is outside [0, 1].
    """
    check_number("beta", beta, 0, 1)
    n = torch.as_tensor(counts, dtype=torch.float64)
    valid = n.ndim == 1 and bool(n.any() and (n >= 0).all())
    require(valid, "counts", f"must be one number of samples per class, some above 0, got {n.tolist()}")
    effective = n if beta == 1 else -torch.expm1(n * torch.log(torch.tensor(beta, dtype=torch.float64)))
    effective = effective.where(effective > 0, torch.inf)
    return (n.sum() / (n / effective).sum() / effective).tolist()


@register
class ClassBalanced(Loss):
    """Cross-entropy or focal loss times the weight of the label's class, by default from `class_balanced_weights` of
    the numbers of training samples (Cui et al. 2019).

    `FocalTrainer` counts the samples when training begins; without it, call `set_class_counts` first.

    Attributes:
        weights: the weight of each class, or None until the samples are counted.
        alike: whether all classes have weight 1 while `weights` is None, for evaluation without training samples. If
            False, the loss raises InputError while `weights` is None.
    """

    name, source = "class_balanced", "Cui et al. 2019"
    summary = "w · -log p, or · focal, w the inverse of the class's number of training samples"
    beta: float | None = option(1.0, "β of the effective number of samples, in [0, 1]", unless=("weights",))
    gamma: float = option(0.0, "γ of the focal loss that is weighted, at least 0")
    weights: Sequence[float] | None = option(None, "instead of beta: the weight of each class, 1/2/5, used as given")

    def __post_init__(self) -> None:
        self.beta = check_number("beta", 1.0 if self.beta is None else self.beta, 0, 1)
        self.gamma = check_number("gamma", self.gamma, 0)
        self.has_fixed_weights = self.weights is not None
        values: Any = self.weights
        values = values.tolist() if hasattr(values, "tolist") else values  # of an array or a tensor
        self.weights = None if values is None else [check_number("weights", weight, 0) for weight in values]
        self.trainer_duty = None if self.has_fixed_weights else "weights classes by their numbers of training samples"
        self.alike = False

    def elementwise(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights = self.weights_of_classes(logits)
        if weights is None:
            return focal(logits, labels, self.gamma)
        return _weighted_focal(logits, labels, self.gamma, weights)

    def form(self, u: Tensor, statistic: Any, num_classes: int) -> Form:
        """Return the form of the unweighted loss, for `SigmoidLoss`, which multiplies it by the weights."""
        return focal_form(u, self.gamma)

    def weights_of_classes(self, logits: Tensor) -> Tensor | None:
        """Return the weights (K,) of the K classes of `logits`, or None if all classes have weight 1."""
        if self.weights is None:
            how = "given or counted from the training samples (FocalTrainer counts them, or call set_class_counts)"
            require(self.alike, "weights", f"must be {how}, got None")
            return None
        num_classes, num_weights = logits.shape[-1], len(self.weights)
        fits = num_weights == num_classes or (num_weights < num_classes and not self.has_fixed_weights)
        what = "weights" if self.has_fixed_weights else "the classes of the training samples"
        require(fits, what, f"must be {num_classes}, as the logits' classes, got {num_weights}")
        # The last classes may have no training samples.
        numbers = (*self.weights, *[0.0] * (num_classes - num_weights))
        return constant(numbers, logits, accumulation_dtype(logits))

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Set the weights from the number of training samples of each class (see `class_balanced_weights`)."""
        self.weights = class_balanced_weights(counts, self.beta or 0.0)

    def set_label_counts(self, counts: Sequence[int]) -> None:
        """Set the weights of a sigmoid head's labels from the number of ones of each label; the mean weight is 1.

        A label without ones is weighted as if it had a single one, so that its zeros are learned.
        """
        weights = class_balanced_weights([max(count, 1) for count in counts], self.beta or 0.0)
        self.weights = [weight * len(weights) / sum(weights) for weight in weights]

    def get_extra_state(self) -> dict:
        """Return the weights as JSON values, which PyTorch puts into `state_dict`."""
        return {} if self.weights is None else {"weights": list(self.weights)}

    def set_extra_state(self, state: dict) -> None:
        if "weights" in state and not self.has_fixed_weights:
            self.weights = [check_number("weights", weight, 0) for weight in state["weights"]]
