"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import TrainOutput, has_length

from ..losses import ClassBalanced, CrossEntropyFamily, LossConfig, ScheduledGamma, build_loss
from .auxiliary_loss import AuxiliaryLoss
from .class_counts import class_counts
from .deferred_logits import deferrable_head, deferred
from .epoch_sampling import SeededByEpoch, last_batch_rows, without_first_label
from .gamma_updates import GammaUpdates
from .loss_function import LossFunction
from .model_heads import Head, check_model, check_not_empty, head_of
from .publishing_trainer import PublishingTrainer
from .segmentation_labels import ignored_label, with_ignored
from .training_arguments import FocalTrainingArguments
from .training_callback import TrainingCallback

_logger = logging.getLogger(__name__)

# Where trainer_state.json keeps what a resumed training needs, among its "stateful_callbacks".
_STATE = "FocalTrainer"


class FocalTrainer(PublishingTrainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, plain cross-entropy included, is Σ rows / items of the whole optimiser step, so neither the gradient
    nor the logged loss depends on how the step is cut into micro-batches and processes (the loss that most models
    compute themselves does, and so do MMCE and the recall of a batch, which are no sums over rows). Samples that the
    distributed sampler repeats to fill up the last batch of an epoch weigh nothing. A training that is resumed from a
    checkpoint goes on as if it had never stopped.
    `evaluate()` and `predict()` add the calibration metrics of `CalibrationMetrics` (``eval_ece``, ``eval_adaece``,
    ``eval_nll``, ...) without keeping logits; after `fit_temperature` also those at that temperature
    (``eval_ece_post_t``, ...). A scheduled γ follows ``global_step / max_steps`` and is logged as ``gamma``. The γ of
    AdaFocal move at the end of each epoch, or every `args.gamma_update_steps` steps, by the calibration of
    `calibration_dataset`; they and the edges of their bins are logged as ``gamma_0``, ... and ``gamma_edge_0``, ...
    (`gamma_history` collects them). `push_to_hub()` publishes the model with its temperature folded in, and a model
    card with what was measured.
    Models for semantic segmentation are trained and measured pixel by pixel, at the labels' height and width; pixels
    labelled `config.semantic_loss_ignore_index` (255) count for nothing. An auxiliary head (UperNet, BEiT) gets no
    gradient, for which DDP would wait: switch it off (`use_auxiliary_head=False`).
    What a mixture of experts adds to its own loss where `output_router_logits` is on (the balance of its routers times
    a coefficient) is added to this one, once a step, and logged apart as ``aux_loss``; ``eval_loss`` is without it.

    Args:
        model: a classifier: its output is a mapping with `logits`, a tuple that begins with them, or the logits
            themselves, (..., K) for labels (...); those of a semantic segmentation are (N, K, h, w) for (N, H, W).
        args: `FocalTrainingArguments`.
        calibration_dataset: held-out data, or the key of one of several evaluation sets: what AdaFocal measures, and
            what `fit_temperature` uses unless told otherwise. The evaluation set if not given.
        *trainer_args, **trainer_kwargs: whatever `transformers.Trainer` takes, except `compute_loss_func`.

    Attributes:
        loss: the loss module; loss_config: the `LossConfig` that it was built from.
        temperature: the `Temperature` fitted to the model as it is now, or None. Training or folding ends its life.
        temperature_curves: of a language model or a segmentation, the `TemperatureCurves` that it was last taken from.
        confusion: of a classifier of tokens or pixels, the `ConfusionMatrix` of what was last evaluated or measured.

    Raises:
        TypeError: args that are no `FocalTrainingArguments`.
        ValueError: several GPUs without a launcher, an empty dataset, a `compute_loss_func`, a model that is no
            single-label classifier, a segmentation by masks, a language model whose labels are shifted already or that
            FocalSeq2SeqTrainer is for, tensor or sequence parallelism, `even_batches=False` on several processes, or
            the training set as `calibration_dataset`. `train` raises it for a calibration set with fewer labels than
            AdaFocal has bins.
    """

    _trains_seq2seq = False
    _num_items: Any = None  # labels since the training began, -100 left out

    def __init__(
        self,
        model: nn.Module | None = None,
        args: FocalTrainingArguments | None = None,
        *trainer_args: Any,
        calibration_dataset: Any = None,
        **trainer_kwargs: Any,
    ):
        args = FocalTrainingArguments("tmp_trainer") if args is None else args
        if not isinstance(args, FocalTrainingArguments):
            raise TypeError(f"args must be FocalTrainingArguments, got {type(args).__name__}")
        if args.n_gpu > 1:
            raise ValueError(
                f"args.n_gpu must be at most 1 a process, got {args.n_gpu}: DataParallel is not supported; start one "
                f"process for each GPU with `accelerate launch --num_processes {args.n_gpu} script.py`, or make one "
                "GPU visible with CUDA_VISIBLE_DEVICES=0"
            )
        if args.world_size > 1 and args.loss_reduction == "sum" and not args.average_tokens_across_devices:
            raise ValueError(
                "args.average_tokens_across_devices must be True with loss_reduction='sum', got False: the sum is "
                "over the rows of all processes"
            )
        if trainer_kwargs.pop("compute_loss_func", None) is not None:
            raise ValueError("compute_loss_func must be None, got one: the loss is args.loss")
        super().__init__(model, args, *trainer_args, **trainer_kwargs)
        self.calibration_dataset = self._evaluation_set("calibration_dataset", calibration_dataset)
        for name in ("train_dataset", "eval_dataset", "calibration_dataset"):
            check_not_empty(name, getattr(self, name))
        self._check_held_out("calibration_dataset", self.calibration_dataset)
        check_model(self.model)
        self.head = head_of(self.model)
        if (self.head is Head.TARGET_TOKENS) != self._trains_seq2seq:
            expected = "FocalSeq2SeqTrainer" if self.head is Head.TARGET_TOKENS else "FocalTrainer"
            raise ValueError(f"model must be one for this trainer, got {type(self.model).__name__}: use {expected}")
        if max(self.get_tp_size(), self.get_cp_size(), self.get_sp_size()) > 1:
            raise ValueError(
                "args.parallelism_config must have data parallelism alone, got a model or a sequence that is cut up: "
                "rows would be counted more than once"
            )
        if args.world_size > 1 and not self.accelerator.even_batches:
            raise ValueError(
                "args.accelerator_config must have even_batches, got even_batches=False: processes with unequal "
                "numbers of batches would wait for each other"
            )
        self.label_names = ["labels"]  # also for models that do not take labels
        self.build_loss()
        self._gamma_updates = GammaUpdates(self)
        self.add_callback(TrainingCallback(self))
        self.add_callback(self._gamma_updates)

    def build_loss(self) -> None:
        """Build `loss` from `args.loss`; called again as training starts: γ that move begin anew, and a search over
        hyper-parameters may have set another loss."""
        self.loss_config = LossConfig.parse(self.args.loss)
        self.loss = build_loss(self.loss_config)
        shift_labels = self.head is Head.NEXT_TOKENS
        pixels = self.head is Head.PIXELS
        self._auxiliary = AuxiliaryLoss(self.model)
        self.compute_loss_func = LossFunction(
            self.loss, self.args.loss_reduction, shift_labels, pixels, self._auxiliary
        )
        vocabulary = self.head.generates
        self._linear_head = deferrable_head(self.model, self.loss, self.args) if vocabulary else None

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        self.temperature = None
        if self.calibration():  # of the weights as they were
            del self.model.config.calibration
        try:
            output = super().train(*args, **kwargs)
        finally:
            self._gamma_updates.due = False  # a later evaluation is none of the training's
        return output._replace(training_loss=output.metrics["train_loss"])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if (
            "loss" in logs
            and isinstance(self.loss, CrossEntropyFamily)
            and isinstance(self.loss.policy, ScheduledGamma)
        ):
            logs["gamma"] = self.loss.policy.gamma
        if "loss" in logs and self._auxiliary.running is not None:
            total, share = self.accelerator.reduce(self._auxiliary.running, "sum").tolist()
            logs["aux_loss"], self._auxiliary.running = total / max(share, 1e-9), None
        if "train_runtime" in logs:  # the summary: Trainer's loss is of the steps since the training was last resumed
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step - self._first_step, 1)
        super().log(logs, start_time)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: int | Tensor | None = None,
    ) -> Any:
        inputs = self.prepare_labels(inputs)
        labels: Any = inputs.get("labels")
        if self._sink is not None:  # an evaluation, perhaps before any training
            self.count_classes()
        with deferred(self._linear_head if model.training else None):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self._sink is not None:
            own = self._num_measured_rows(len(labels))
            logits, targets = self.compute_loss_func.rows(outputs, labels)
            self._sink.update(logits[:own], targets[:own])
        if not return_outputs:
            return loss
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        # Trainer takes the first of a tuple for the loss, which a model without labels does not return.
        return loss, outputs if isinstance(outputs, Mapping) else (None, *outputs)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        epoch_iterator = map(self._without_repeats, map(self.prepare_labels, epoch_iterator))
        batches = list(islice(epoch_iterator, num_batches))
        if self.head is Head.NEXT_TOKENS:
            batches = [without_first_label(batch) for batch in batches]
        if batches and not has_length(self.train_dataset) and batches[-1].get("labels") is not None:
            # Trainer takes no step where a stream ends within an accumulation: its gradient would go into the next
            # one. Micro-batches without labels, which weigh nothing, complete it.
            ignored = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], -100)}
            batches += [ignored] * (num_batches - len(batches))
        samples, num_items = super().get_batch_samples(iter(batches), num_batches, device)
        if num_items is not None:
            self._num_items = num_items if self._num_items is None else self._num_items + num_items
        return samples, num_items

    def prepare_labels(self, batch: Any) -> Any:
        """The batch with the labels of pixels that do not count set to -100."""
        return with_ignored(batch, ignored_label(self.model)) if self.head is Head.PIXELS else batch

    def _without_repeats(self, batch: Any) -> Any:
        """The batch, with the labels of samples that fill up the last global batch of an epoch set to be ignored."""
        state = self.accelerator.gradient_state
        if self.args.world_size == 1 or not state.end_of_dataloader or batch.get("labels") is None:
            return batch
        remainder = last_batch_rows(self.callback_handler.train_dataloader, self.train_dataset)
        own = self._num_own_rows(len(batch["labels"]), remainder)
        if own < len(batch["labels"]):
            batch["labels"] = batch["labels"].clone()
            batch["labels"][own:] = -100
        return batch

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            return SeededByEpoch(sampler, seed)
        return sampler

    def check_labels_seen(self) -> None:
        """Raise where all labels since the training began were -100: its loss is 0, and would stay so."""
        if self._num_items is not None and not self.accelerator.reduce(torch.as_tensor(self._num_items)):
            raise ValueError("train_dataset must have labels that count, got -100 alone in a whole epoch")

    def count_classes(self, train_dataloader: DataLoader | None = None) -> None:
        """Count the training rows of each class for a loss that weighs classes by them and has no counts yet."""
        if not isinstance(self.loss, ClassBalanced) or not self.loss.needs_class_counts:
            return
        if train_dataloader is None and not has_length(self.train_dataset):  # none, or a stream
            if not self.loss.alike:
                _logger.warning("without training rows to count, the loss %s weighs classes alike", self.loss_config)
            self.loss.alike = True
            return
        loader = self.get_train_dataloader() if train_dataloader is None else train_dataloader
        self.loss.set_class_counts(class_counts(self, loader))

    def average_running_loss(self) -> None:
        """Give each process the mean of all of the training loss since it was last logged.

        What is logged is the mean anyway; the summary at the end and a checkpoint would take the process's own.
        """
        if self.args.world_size > 1:
            self._tr_loss.copy_(self.accelerator.reduce(self._tr_loss, "mean"))
            if self._auxiliary.running is not None:
                self._auxiliary.running = self.accelerator.reduce(self._auxiliary.running, "mean")

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.average_running_loss()
        running = self._auxiliary.running
        self.state.stateful_callbacks[_STATE] = {
            "num_processes": self.args.world_size,
            "loss": str(self.loss_config),
            "loss_state": dict(self.loss.state_dict()),
            "gamma_update_due": self._gamma_updates.due,
            "first_step": self._first_step,
            "total_loss": self._total_loss_scalar,
            "running_loss": float(self._tr_loss),
            "step_of_last_log": self._globalstep_last_logged,
            "running_auxiliary": None if running is None else running.tolist(),
        }
        super()._save_checkpoint(model, trial)

    def _load_callback_state(self) -> None:
        own = self.state.stateful_callbacks.pop(_STATE, None)  # of no callback, which Trainer would warn about
        super()._load_callback_state()
        if own is not None:
            self.state.stateful_callbacks[_STATE] = own

    def begin_training(self) -> None:
        """Begin a training, or go on where the one that wrote the checkpoint stopped."""
        self.build_loss()
        self._gamma_updates.due = False
        self._first_step = self.state.global_step
        self._num_items = None
        saved = self.state.stateful_callbacks.get(_STATE)
        if saved is None:
            return
        if saved["loss"] != str(self.loss_config):
            _logger.warning(
                "the checkpoint was trained with the loss %s, training goes on with %s",
                saved["loss"],
                self.loss_config,
            )
            return
        self.loss.load_state_dict(saved["loss_state"])
        self._gamma_updates.due = saved["gamma_update_due"]
        self._first_step = saved["first_step"]
        self._total_loss_scalar = saved["total_loss"]
        self._tr_loss.fill_(saved["running_loss"])
        self._globalstep_last_logged = saved["step_of_last_log"]
        if saved.get("running_auxiliary") is not None:
            self._auxiliary.running = torch.tensor(saved["running_auxiliary"], device=self.args.device)
