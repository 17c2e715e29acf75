"""How calibration changes in the course of a training (figures 1 to 4 and 10 of Mukhoti et al. 2020)."""

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import IntervalStrategy, has_length

from ...calibration.folding import last_layers
from ...losses import ClosedFormLoss, Loss
from ...metrics import CalibrationMetrics
from ...metrics.input_checks import check_count
from ...trainer.evaluation_accumulators import class_indices
from ...trainer.model_heads import Head
from ...trainer.training_arguments import FocalTrainingArguments
from ..reports.dynamics_figures import write_dynamics

if TYPE_CHECKING:
    from ...trainer.focal_trainer import FocalTrainer

_logger = logging.getLogger(__name__)

_PREFIX = "dynamics_"
_DISTRIBUTIONS = f"{_PREFIX}distributions"
_MEASURES = (
    *("nll", "nll_correct", "nll_incorrect", "entropy", "entropy_correct", "entropy_incorrect"),
    *("error", "ece"),
)
# Of gradient norms: four bins a factor of 10. They fall by many of them while samples are learnt.
_EDGES = 10 ** np.linspace(-6, 3, 37)


class Dynamics(TrainerCallback):
    """Measures the model before the first step and at the end of each epoch, and draws the figures at the end.

    ``trainer.add_callback(Dynamics(trainer, test_dataset))``. A fixed sample of the training set and one of the test
    set are measured without dropout; the training takes the steps that it would take without. What is measured is
    logged like any metric, under names that begin with ``dynamics_``:

    - ``train_`` and ``test_``: ``nll``, ``entropy``, both also as ``_correct`` and ``_incorrect``: the means over the
      rightly and the wrongly predicted samples, in nats; ``error`` and ``ece``, fractions. What is undefined, as
      the NLL of wrong predictions where there are none, is left out.
    - ``weight_norm``: the L2 norm of the last linear layer's weight W.
    - ``feature_norm``: the mean L2 norm of its input h over the training samples.
    - ``gradient_norm``: the mean over them of ‖∂L/∂W‖ = ‖∂L/∂z‖ · ‖h‖, L being the training loss of the one sample and
      z its logits. Not of losses that take more than a row's logits and label (not a `ClosedFormLoss`), as MMCE.

    At some epochs `trainer.state.log_history` also keeps the bins of the reliability diagrams and a histogram of the
    gradient norms. `dynamics_history` collects all of it, also after a training that was resumed. At the end of the
    training the main process writes the figures of `hf_focal.reports.write_dynamics`.

    Feature and gradient norms are left out, with a warning, where the layer's outputs are not the logits row by row:
    a head that classifies all tokens and picks one of them, the Tree-LSTM.

    Args:
        trainer: a `FocalTrainer` with a classifier.
        test_dataset: labelled data, or the key of one of several evaluation sets; if not given the trainer's
            calibration set, or else its evaluation set.
        num_samples: how many samples of either set, chosen by `args.seed`; if not given a twentieth of the training
            set, at most 1,000. A forward pass over these is a few per cent of an epoch's time.
        epochs: the epochs, counted from 1 (0: before the first step), at whose ends the distributions are kept; by
            default the first, the last, and those at a third and two thirds.
        folder: of the figures; the folder "report" in `args.output_dir` if not given.

    Raises:
        ValueError: a model of another kind, a set without a length, a test set that is empty or the training set, a
            model that `torch_compile` compiles (nothing is seen of its layers) or that FSDP or ZeRO-3 cuts up,
            `num_samples` below 1, or several last layers.
        TypeError: a `num_samples` that is no int, or a head that does not end in a linear layer.
    """

    def __init__(
        self,
        trainer: "FocalTrainer",
        test_dataset: Any = None,
        *,
        num_samples: int | None = None,
        epochs: Collection[int] | None = None,
        folder: str | Path | None = None,
    ):
        args = trainer.args
        if trainer.head is not Head.CLASSES:
            raise ValueError(f"model must be a classifier of samples or tokens, got {type(trainer.model).__name__}")
        if args.torch_compile:
            raise ValueError("args.torch_compile must be False, got True: the last layer's input is not seen")
        if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
            raise ValueError("the model must be whole on each process, got one that FSDP or ZeRO-3 cuts up")
        if not has_length(trainer.train_dataset):
            raise ValueError(
                f"train_dataset must have a length, got {type(trainer.train_dataset).__name__}: a fixed sample of it "
                "is measured"
            )
        if num_samples is None:
            num_samples = min(max(len(trainer.train_dataset) // 20, 1), 1000)
        check_count("num_samples", num_samples)
        _last_linear(trainer.model)
        self.trainer = trainer
        self.epochs = None if epochs is None else frozenset(epochs)
        self.folder = Path(args.output_dir, "report") if folder is None else Path(folder)
        test_dataset = trainer.held_out_dataset(test_dataset, "test_dataset")
        self.train_samples = _sample(trainer.train_dataset, num_samples, args.seed)
        self.test_samples = _sample(test_dataset, num_samples, args.seed)

    def on_train_begin(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step == 0:  # what is wrong with the data or the model shows before the training
            self.measure()

    def on_epoch_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Logging would tell Trainer that what it is to log at this step has been logged.
        should_log = control.should_log
        self.measure()
        control.should_log = should_log

    def on_train_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            write_dynamics(self.folder, dynamics_history(state.log_history), title=str(self.trainer.loss_config))

    def measure(self) -> None:
        """Measure the model as it is, and log it. All processes call it."""
        trainer, state = self.trainer, self.trainer.state
        layer = _last_linear(trainer.model)
        train, test = (_Sums(trainer.loss, trainer.args.calibration_bins) for _ in range(2))
        # A loader draws a seed for its workers: the training must not miss it.
        with torch.random.fork_rng(devices=[]):
            hook = layer.register_forward_hook(train.see)
            try:
                trainer._collect(self.train_samples, train)
            finally:
                hook.remove()
            trainer._collect(self.test_samples, test)

        values = {"weight_norm": float(torch.linalg.vector_norm(layer.weight.detach().float())), **train.norms()}
        for split, sums in (("train", train), ("test", test)):
            metrics = sums.metrics.compute()
            values |= {f"{split}_{name}": metrics[name] for name in _MEASURES if not math.isnan(metrics[name])}
        if state.global_step == 0 and train.unlike_logits:
            _logger.warning(
                "the outputs of the last layer of %s are not its logits row by row: feature and gradient norms are "
                "not measured",
                type(trainer.model).__name__,
            )
        logs = {f"{_PREFIX}{name}": value for name, value in values.items()}
        where = {"epoch": state.epoch, "step": state.global_step}
        if trainer.args.logging_strategy == IntervalStrategy.NO:  # for `dynamics_history`, not for the screen
            state.log_history.append(logs | where)
        else:
            trainer.log(logs)
        if self._keeps_distributions():
            kept = {"train_bins": train.bins(), "test_bins": test.bins()}
            if "gradient_norm" in values:
                kept["gradient_norms"] = {"edges": _EDGES.tolist(), "count": train.histogram.tolist()}
            state.log_history.append({_DISTRIBUTIONS: kept} | where)

    def _keeps_distributions(self) -> bool:
        epoch, last = math.ceil(self.trainer.state.epoch), self.trainer.state.num_train_epochs
        if self.epochs is not None:
            return epoch in self.epochs
        return epoch in {1, math.ceil(last / 3), math.ceil(2 * last / 3), last}


def dynamics_history(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `Dynamics` measured, from `trainer.state.log_history`.

    Returns:
        For each measurement ``"step"``, ``"epoch"`` and what `Dynamics` lists, without the prefix; at the epochs whose
        distributions were kept also ``"train_bins"`` and ``"test_bins"``, each the fields of `ReliabilityBins` as
        lists (None for the means of an empty bin), and ``"gradient_norms"``: the ``"count"`` of samples between two
        ``"edges"``, norms beyond the outer edges being counted in the outer bins.
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
    """What a pass over one split adds up of this process's rows, and then of all processes'."""

    def __init__(self, loss: Loss, num_bins: int):
        self.loss, self.has_gradients = loss, isinstance(loss, ClosedFormLoss)
        self.metrics = CalibrationMetrics(num_bins, classwise=False)
        self.num_rows, self.feature_norm, self.gradient_norm = 0, 0.0, 0.0
        self.histogram = np.zeros(len(_EDGES) - 1, dtype=np.int64)
        self.unlike_logits = False
        self._seen: tuple[Tensor, Tensor] | None = None

    def see(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """The forward hook of the last layer."""
        self._seen = inputs[0], output

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (N, ..., K) and labels (N, ...), or soft targets (N, ..., K), of the pass that was seen."""
        classes = class_indices(logits, labels)
        self.metrics.update(logits, classes)
        if self._seen is None:
            return
        features, output = (tensor[: len(logits)] for tensor in self._seen)
        if output.shape != logits.shape or not torch.equal(output.to(logits.dtype), logits):
            self.unlike_logits = True
            return
        kept = classes != -100
        wide = torch.promote_types(logits.dtype, torch.float32)
        feature_norms = torch.linalg.vector_norm(features.to(wide), dim=-1)[kept].cpu().double()
        self.num_rows += len(feature_norms)
        self.feature_norm += float(feature_norms.sum())
        if not self.has_gradients:
            return
        # The backward pass of the loss's rows over the logits has the closed form: the cross-entropy family's is the
        # slope φ'(ce) times softmax - onehot. Not of the loss as a module, whose hooks see what is trained on.
        with torch.enable_grad():
            leaf = logits.detach().to(wide).requires_grad_()
            (gradient,) = torch.autograd.grad(self.loss(leaf, labels, reduction="sum"), leaf)
        gradient_norms = torch.linalg.vector_norm(gradient, dim=-1)[kept].cpu().double() * feature_norms
        self.gradient_norm += float(gradient_norms.sum())
        self.histogram += np.histogram(gradient_norms.numpy().clip(_EDGES[0], _EDGES[-1]), _EDGES)[0]

    def gather(self) -> "_Sums":
        """The sums of all processes, equal on each of them."""
        own = (self.metrics, self.num_rows, self.feature_norm, self.gradient_norm, self.histogram, self.unlike_logits)
        metrics, *sums, histograms, unlike = zip(*gather_object([own]), strict=True)
        self.metrics = reduce(CalibrationMetrics.merge, metrics)
        self.num_rows, self.feature_norm, self.gradient_norm = map(sum, sums)
        self.histogram, self.unlike_logits = sum(histograms), any(unlike)
        return self

    def norms(self) -> dict[str, float]:
        if not self.num_rows or self.unlike_logits:
            return {}
        norms = {"feature_norm": self.feature_norm / self.num_rows}
        return norms | ({"gradient_norm": self.gradient_norm / self.num_rows} if self.has_gradients else {})

    def bins(self) -> dict[str, list]:
        """The reliability diagram's bins as JSON values."""
        fields = vars(self.metrics.bins())
        return {
            name: [None if math.isnan(value) else value for value in values.tolist()]
            for name, values in fields.items()
        }


def _last_linear(model: nn.Module) -> nn.Linear:
    layers = last_layers(model)
    if len(layers) != 1:
        raise ValueError(f"model must have one last layer, got {type(model).__name__}, which has {len(layers)}")
    if not isinstance(layers[0], nn.Linear):
        raise TypeError(
            f"the last layer must be linear, got {type(layers[0]).__name__} of {type(model).__name__}: the norm of "
            "its gradient is another"
        )
    return layers[0]


def _sample(dataset: Any, size: int, seed: int) -> Dataset:
    """`size` rows of the dataset, the same for the same seed; all, if it has not more."""
    if not has_length(dataset):
        raise ValueError(f"test_dataset must have a length, got {type(dataset).__name__}: a fixed sample is measured")
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    indices = order[:size].sort().values.tolist()
    # Trainer removes unused columns, and groups by length, of Datasets alone.
    return dataset.select(indices) if isinstance(dataset, datasets.Dataset) else Subset(dataset, indices)
