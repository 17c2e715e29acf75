"""Callback that measures calibration, norms, and gradients in training.

These are the measurements of figures 1 to 4 and 10 of Mukhoti et al. 2020, and of the figures that motivate AdaFocal
[Ghosh et al. 2022].
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any

import datasets
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import IntervalStrategy

from hf_focal.losses import Loss, MarginLoss
from hf_focal.metrics import CalibrationMetrics
from hf_focal.tasks.heads import Head
from hf_focal.trainer.accumulators import class_indices
from hf_focal.trainer.focal_trainer import FocalTrainer
from hf_focal.validation import check_count

_logger = logging.getLogger(__name__)

_PREFIX = "dynamics_"
_DISTRIBUTIONS = f"{_PREFIX}distributions"
_MEASURES = (
    *("nll", "nll_correct", "nll_incorrect", "entropy", "entropy_correct", "entropy_incorrect"),
    *("error", "ece", "adaece"),
)
_RELIABILITY_BINS = 25  # of figure 1
# Edges of four bins per factor of 10, because gradient norms fall by orders of magnitude as samples are learned.
_EDGES = 10 ** np.linspace(-6, 3, 37)


class DynamicsCallback(TrainerCallback):
    """Measures the model before the first step and after each epoch.

    Add the callback to an existing trainer: ``trainer.add_callback(DynamicsCallback(trainer, test_dataset))``. It
    evaluates fixed subsets of the training set and of the test set without dropout, and does not affect the training.
    Results are logged as metrics whose names begin with ``dynamics_``, followed by

    - ``train_`` or ``test_`` and a metric of that subset: ``nll`` or ``entropy``, in nats, maybe with the suffix
      ``_correct`` or ``_incorrect`` for a mean over the correctly or the wrongly predicted samples; ``error``,
      ``ece``, or ``adaece``, as fractions. Undefined values are left out.
    - ``weight_norm``: the L2 norm of the weight W of the last linear layer.
    - ``feature_norm``: the mean L2 norm of that layer's input h over the training samples.
    - ``gradient_norm``: the mean over the training samples of ‖∂L/∂W‖ = ‖∂L/∂z‖ · ‖h‖, where L is the training loss of
      one sample and z its logits; only for a `MarginLoss`, which is a sum over samples.

    `dynamics_history` collects them, even after training is resumed, with the mean confidence and the accuracy of each
    of `args.calibration_bins` bins of equal mass and, at the epochs in `epochs`, 25 bins of a reliability diagram and
    a histogram of the gradient norms. Feature and gradient norms are left out, with a warning, if the outputs of the
    last layer are not the logits of the samples, as in the Tree-LSTM.

    Args:
        trainer: a `FocalTrainer` with a classifier, neither compiled nor sharded (FSDP, ZeRO-3), whose head ends in
            one linear layer.
        test_dataset: labeled data, or the key of an evaluation set; by default, the calibration or evaluation set.
        num_samples: number of samples drawn from each of the two sets, with the seed `args.seed`. The default is a
            twentieth of the training set, at most 1,000: measuring then takes a few percent of an epoch's time.
        epochs: epochs whose reliability diagrams and gradient norms are kept, counted from 1; 0 is before the first
            step. The default is the first and last epochs and the epochs at one third and two thirds of training.
    """

    def __init__(
        self,
        trainer: FocalTrainer,
        test_dataset: Any = None,
        *,
        num_samples: int | None = None,
        epochs: Collection[int] | None = None,
    ):
        args = trainer.args
        if trainer.head is not Head.CLASSES:
            raise ValueError(f"model must be a classifier of samples or tokens, got {type(trainer.model).__name__}")
        if args.torch_compile:
            raise ValueError("args.torch_compile must be False, got True: hooks do not run in compiled models")
        if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
            raise ValueError("model must be whole on each process, got one that FSDP or ZeRO-3 shards")
        if num_samples is None:
            num_samples = min(max(len(trainer.train_dataset) // 20, 1), 1000)
        check_count("num_samples", num_samples)
        _last_linear(trainer.model)
        self.trainer = trainer
        self.epochs = None if epochs is None else frozenset(epochs)
        test_dataset = trainer.held_out_dataset(test_dataset, "test_dataset")
        self.train_samples = _sample(trainer.train_dataset, num_samples, args.seed)
        self.test_samples = _sample(test_dataset, num_samples, args.seed)

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == 0:  # errors in the data or the model surface before training
            self.measure()

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # Logging here must not cancel the Trainer's own logging of this step.
        should_log = control.should_log
        self.measure()
        control.should_log = should_log

    def measure(self) -> None:
        """Measure the current model, and log the results. All processes must call this method."""
        trainer, state = self.trainer, self.trainer.state
        layer = _last_linear(trainer.model)
        train, test = (_Sums(trainer.loss, trainer.args.calibration_bins) for _ in range(2))
        # Each data loader draws a seed for its workers, which must not change the random numbers of training.
        with torch.random.fork_rng(devices=[]):
            hook = layer.register_forward_hook(train.observe)
            try:
                trainer.collect(self.train_samples, train)
            finally:
                hook.remove()
            trainer.collect(self.test_samples, test)

        values = {"weight_norm": float(torch.linalg.vector_norm(layer.weight.detach().float())), **train.norms()}
        for split, sums in (("train", train), ("test", test)):
            metrics = sums.metrics.compute()
            values |= {f"{split}_{name}": metrics[name] for name in _MEASURES if not math.isnan(metrics[name])}
        if state.global_step == 0 and train.outputs_differ:
            _logger.warning(
                "the outputs of the last layer of %s are not the logits of the samples: feature and gradient norms "
                "are not measured",
                type(trainer.model).__name__,
            )
        logs = {f"{_PREFIX}{name}": value for name, value in values.items()}
        where = {"epoch": state.epoch, "step": state.global_step}
        if trainer.args.logging_strategy == IntervalStrategy.NO:  # for `dynamics_history`, without printing
            state.log_history.append(logs | where)
        else:
            trainer.log(logs)
        distributions = {"train_equal_mass": train.equal_mass(), "test_equal_mass": test.equal_mass()}
        if self._keeps_diagrams():
            distributions |= {"train_bins": train.bins(), "test_bins": test.bins()}
            if "gradient_norm" in values:
                distributions["gradient_norms"] = {"edges": _EDGES.tolist(), "count": train.histogram.tolist()}
        state.log_history.append({_DISTRIBUTIONS: distributions} | where)

    def _keeps_diagrams(self) -> bool:
        epoch, last = math.ceil(self.trainer.state.epoch), self.trainer.state.num_train_epochs
        if self.epochs is not None:
            return epoch in self.epochs
        return epoch in {1, math.ceil(last / 3), math.ceil(2 * last / 3), last}


def dynamics_history(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Collect the measurements of a `DynamicsCallback` from `trainer.state.log_history`.

    Each has "step", "epoch", the metrics without the prefix ``dynamics_``, and "train_equal_mass" and
    "test_equal_mass": the "confidence" and the "accuracy" of each bin of equal mass, lowest confidence first. At the
    callback's `epochs`, there are also "train_bins" and "test_bins", the fields of `ReliabilityBins` as lists (None
    for the means of an empty bin), and "gradient_norms", a histogram with the "count" of samples between consecutive
    "edges". The first and the last count include norms beyond the edges.
    """
    history = []
    for entry in log_history:
        if f"{_PREFIX}weight_norm" in entry:
            values = {name.removeprefix(_PREFIX): value for name, value in entry.items() if name.startswith(_PREFIX)}
            history.append({"step": entry["step"], "epoch": entry["epoch"], **values})
        elif _DISTRIBUTIONS in entry:
            history[-1] |= entry[_DISTRIBUTIONS]
    return history


class _Sums:
    """Metrics, sums of norms, and gradient-norm histogram of a split in this process or, after `gather`, in all."""

    def __init__(self, loss: Loss, num_bins: int):
        self.loss, self.has_gradients = loss, isinstance(loss, MarginLoss)
        self.metrics = CalibrationMetrics(num_bins, classwise=False)
        self.sums = np.zeros(3)  # number of samples, feature norms, gradient norms
        self.histogram = np.zeros(len(_EDGES) - 1, dtype=np.int64)
        self.outputs_differ = False
        self._observed: tuple[Tensor, Tensor] | None = None

    def observe(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep the input and the output of the last layer, whose forward hook this is."""
        self._observed = inputs[0], output

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...), or soft targets (N, ..., K), of the batch that `observe` saw."""
        classes = class_indices(logits, labels)
        self.metrics.update(logits, classes)
        if self._observed is None:
            return
        features, output = (tensor[: len(logits)] for tensor in self._observed)
        if output.shape != logits.shape or not torch.equal(output.to(logits.dtype), logits):
            self.outputs_differ = True
            return
        labeled = classes != -100
        wide = torch.promote_types(logits.dtype, torch.float32)
        feature_norms = torch.linalg.vector_norm(features.to(wide), dim=-1)[labeled].cpu().double().numpy()
        gradient_norms = np.zeros(0)
        if self.has_gradients:
            # Do not call the module itself: its hooks are there to observe training.
            with torch.enable_grad():
                leaf = logits.detach().to(wide).requires_grad_()
                (gradient,) = torch.autograd.grad(self.loss.elementwise(leaf, labels).sum(), leaf)
            gradient_norms = torch.linalg.vector_norm(gradient, dim=-1)[labeled].cpu().double().numpy() * feature_norms
        self.sums += len(feature_norms), feature_norms.sum(), gradient_norms.sum()
        self.histogram += np.histogram(gradient_norms.clip(_EDGES[0], _EDGES[-1]), _EDGES)[0]

    def gather(self) -> "_Sums":
        """Add up the sums of all processes, and return this object."""
        own = (self.metrics, self.sums, self.histogram, self.outputs_differ)
        metrics, sums, histograms, differ = zip(*gather_object([own]), strict=True)
        self.metrics = reduce(lambda mine, other: mine.merge(other), metrics)
        self.sums, self.histogram, self.outputs_differ = sum(sums), sum(histograms), any(differ)
        return self

    def norms(self) -> dict[str, float]:
        count, *sums = self.sums.tolist()
        if not count or self.outputs_differ:
            return {}
        names = ("feature_norm", "gradient_norm") if self.has_gradients else ("feature_norm",)
        return {name: value / count for name, value in zip(names, sums, strict=False)}

    def equal_mass(self) -> dict[str, list[float]]:
        """Return the mean confidence and the accuracy of each bin of equal mass, as JSON values.

        As in AdaECE, each sample counts with the mean accuracy of all samples of its confidence.
        """
        confidence, hits = (values.double() for values in self.metrics.samples())
        confidence, order = torch.sort(confidence)
        _, tie, size = torch.unique_consecutive(confidence, return_inverse=True, return_counts=True)
        accuracy = (torch.bincount(tie, weights=hits[order]) / size)[tie]
        count = min(self.metrics.num_bins, len(hits))
        return {
            name: [float(part.mean()) for part in values.tensor_split(count)]
            for name, values in (("confidence", confidence), ("accuracy", accuracy))
        }

    def bins(self) -> dict[str, list]:
        """Return the bins of the reliability diagram as JSON values."""
        diagram = CalibrationMetrics(_RELIABILITY_BINS, classwise=False)
        diagram.update_from_confidences(*self.metrics.samples())
        fields = vars(diagram.bins())
        return {
            name: [None if math.isnan(value) else value for value in values.tolist()]
            for name, values in fields.items()
        }


def _last_linear(model: nn.Module) -> nn.Linear:
    name = type(model).__name__
    if hasattr(model, "distillation_classifier"):
        raise ValueError(f"model must have one last layer, got {name}, which has 2")
    heads = ("classifier", "classification_head", "score")
    head = next((getattr(model, head) for head in heads if hasattr(model, head)), None)
    if isinstance(head, nn.Sequential):
        head = head[-1]
    layer = next((getattr(head, part) for part in ("out_proj", "out") if hasattr(head, part)), head)
    if not isinstance(layer, nn.Linear):
        raise TypeError(f"the head must be a Linear layer, or end in one, got {type(layer).__name__} in {name}")
    return layer


def _sample(dataset: Any, size: int, seed: int) -> Dataset:
    """Draw at most `size` samples of the dataset. The same seed draws the same samples."""
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    indices = order[:size].sort().values.tolist()
    # Keep the type: the Trainer removes unused columns only from a `datasets.Dataset`.
    return dataset.select(indices) if isinstance(dataset, datasets.Dataset) else Subset(dataset, indices)
