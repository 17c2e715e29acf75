"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

import logging
from collections.abc import Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import datasets
import torch
from accelerate.data_loader import IterableDatasetShard
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput, TrainOutput, has_length

from ..losses import CrossEntropyFamily, LossConfig, Scheduled, build_loss
from ..metrics import CalibrationMetrics
from ..temperature import OBJECTIVES, Temperature, fit_temperature
from ..temperature_stream import TemperatureCurves
from .adafocal import GammaUpdates
from .arguments import FocalTrainingArguments
from .checks import Head, check_model, check_not_empty, head_of
from .evaluation import CollectedConfidences, CollectedLogits, StreamedEvaluation, StreamedTemperature
from .linear_head import deferrable_head, deferred
from .loss_function import LossFunction
from .resume import TrainingCallback
from .sampling import SeededByEpoch, last_batch_rows, without_first_label

_logger = logging.getLogger(__name__)

# Where trainer_state.json keeps what a resumed training needs, among its "stateful_callbacks".
_STATE = "FocalTrainer"


class FocalTrainer(Trainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, plain cross-entropy included, is Σ rows / items of the whole optimiser step, so neither the gradient
    nor the logged loss depends on how the step is cut into micro-batches and processes (the loss that most models
    compute themselves does, and so does MMCE, which is no sum over rows). Samples that the distributed sampler repeats
    to fill up the last batch of an epoch weigh nothing. A training that is resumed from a checkpoint goes on as if it
    had never stopped.
    `evaluate()` and `predict()` add the calibration metrics of `CalibrationMetrics` (``eval_ece``, ``eval_adaece``,
    ``eval_nll``, ...) without keeping logits; after `fit_temperature` also those at that temperature
    (``eval_ece_post_t``, ...). A scheduled γ follows ``global_step / max_steps`` and is logged as ``gamma``. The γ of
    AdaFocal move at the end of each epoch, or every `args.gamma_update_steps` steps, by the calibration of
    `calibration_dataset`; they and the edges of their bins are logged as ``gamma_0``, ... and ``gamma_edge_0``, ...
    (`gamma_history` collects them).

    Args:
        model: a classifier: its output is a mapping with `logits`, a tuple that begins with them, or the logits
            themselves, (..., K) for labels (...).
        args: `FocalTrainingArguments`.
        calibration_dataset: held-out data, or the key of one of several evaluation sets: what AdaFocal measures, and
            what `fit_temperature` uses unless told otherwise. The evaluation set if not given.
        *trainer_args, **trainer_kwargs: whatever `transformers.Trainer` takes, except `compute_loss_func`.

    Attributes:
        loss: the loss module; loss_config: the `LossConfig` that it was built from.
        temperature: the `Temperature` fitted to the model as it is now, or None. Training or folding ends its life.
        temperature_curves: of a language model, the `TemperatureCurves` that it was last taken from.

    Raises:
        TypeError: args that are no `FocalTrainingArguments`.
        ValueError: several GPUs without a launcher, an empty dataset, a `compute_loss_func`, a model that is no
            single-label classifier, a language model whose labels are shifted already or that FocalSeq2SeqTrainer is
            for, tensor or sequence parallelism, `even_batches=False` on several processes, or the
            training set as `calibration_dataset`. `train` raises it for a calibration set with fewer labels than
            AdaFocal has bins.
    """

    _trains_seq2seq = False

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
            raise ValueError("compute_loss_func must not be given: the loss is args.loss")
        self.temperature: Temperature | None = None
        self.temperature_curves: TemperatureCurves | None = None
        self._calibration_when_fitted: Any = None
        self._sink: StreamedEvaluation | CollectedLogits | None = None
        self._labels_required = self._serves_update = False
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
        self.compute_loss_func = LossFunction(self.loss, self.args.loss_reduction, shift_labels)
        vocabulary = self.head is not Head.CLASSES
        self._linear_head = deferrable_head(self.model, self.loss, self.args) if vocabulary else None

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        self.temperature = None
        try:
            output = super().train(*args, **kwargs)
        finally:
            self._gamma_updates.due = False  # a later evaluation is none of the training's
        return output._replace(training_loss=output.metrics["train_loss"])

    # Training

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and isinstance(self.loss, CrossEntropyFamily) and isinstance(self.loss.policy, Scheduled):
            logs["gamma"] = self.loss.policy.gamma
        if "train_runtime" in logs:  # the summary: Trainer's loss is of the steps since the training was last resumed
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step - self._first_step, 1)
        super().log(logs, start_time)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.get("labels")
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

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches = list(islice(map(self._without_repeats, epoch_iterator), num_batches))
        if self.head is Head.NEXT_TOKENS:
            batches = [without_first_label(batch) for batch in batches]
        if batches and not has_length(self.train_dataset) and batches[-1].get("labels") is not None:
            # Trainer takes no step where a stream ends within an accumulation: its gradient would go into the next
            # one. Micro-batches without labels, which weigh nothing, complete it.
            ignored = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], -100)}
            batches += [ignored] * (num_batches - len(batches))
        return super().get_batch_samples(iter(batches), num_batches, device)

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

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            return SeededByEpoch(sampler, seed)
        return sampler

    def average_running_loss(self) -> None:
        """Give each process the mean of all of the training loss since it was last logged.

        What is logged is the mean anyway; the summary at the end and a checkpoint would take the process's own.
        """
        if self.args.world_size > 1:
            self._tr_loss.copy_(self.accelerator.reduce(self._tr_loss, "mean"))

    def _save_checkpoint(self, model, trial) -> None:
        self.average_running_loss()
        self.state.stateful_callbacks[_STATE] = {
            "num_processes": self.args.world_size,
            "loss": str(self.loss_config),
            "loss_state": dict(self.loss.state_dict()),
            "gamma_update_due": self._gamma_updates.due,
            "first_step": self._first_step,
            "total_loss": self._total_loss_scalar,
            "running_loss": float(self._tr_loss),
            "step_of_last_log": self._globalstep_last_logged,
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

    # Evaluation

    def held_out_dataset(self, dataset: Any = None, name: str = "calibration_dataset") -> Any:
        """The dataset, or that of several evaluation sets which it is the key of, if the model was not trained on it.

        Args:
            dataset: the calibration set if not given, or else the evaluation set.
            name: what an error calls it.

        Raises:
            ValueError: there is none, there are several to choose from, or it is the training set.
        """
        for default in (self.calibration_dataset, self.eval_dataset):
            dataset = default if dataset is None else dataset
        dataset = self._evaluation_set(name, dataset)
        if dataset is None:
            raise ValueError(
                f"{name} must be given: the trainer has neither a calibration_dataset nor an eval_dataset"
            )
        if isinstance(dataset, dict):
            raise ValueError(f"{name} must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        self._check_held_out(name, dataset)
        check_not_empty(name, dataset)
        return dataset

    def _evaluation_set(self, name: str, dataset: Any) -> Any:
        """The dataset itself, or that of several evaluation sets which it is the key of."""
        if not isinstance(dataset, str):
            return dataset
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {}
        if dataset not in sets:
            raise ValueError(
                f"{name} must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
            )
        return sets[dataset]

    def _check_held_out(self, name: str, dataset: Any) -> None:
        train = self.train_dataset
        same = dataset is not None and dataset is train
        if isinstance(dataset, datasets.Dataset) and isinstance(train, datasets.Dataset):
            same = dataset._fingerprint == train._fingerprint  # loaded twice, say
        if same:
            raise ValueError(
                f"{name} must be held out, got the training set: its confidence says nothing about others"
            )

    def evaluate(
        self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval", **generation: Any
    ) -> dict[str, float]:
        dataset = self._evaluation_set("eval_dataset", self.eval_dataset if eval_dataset is None else eval_dataset)
        # One of several sets is evaluated by a call of its own, from within.
        self._serves_update = self._gamma_updates.due and dataset is self.held_out_dataset()
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **generation)
        finally:
            self._serves_update = False

    def get_eval_dataloader(self, eval_dataset=None):
        if eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset:
            return super().get_eval_dataloader(eval_dataset)
        # With persistent workers Trainer would give the loader of another dataset, or keep this one for the next.
        kept = self.__dict__.pop("_eval_dataloaders", None)
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.__dict__.pop("_eval_dataloaders", None)
            if kept is not None:
                self._eval_dataloaders = kept

    def evaluation_loop(
        self, dataloader, description, prediction_loss_only=None, ignore_keys=None, metric_key_prefix="eval"
    ) -> EvalLoopOutput:
        if self.temperature is not None and self._calibration() != self._calibration_when_fitted:
            self.temperature = None  # it has been folded into the model
        streamed = self._streamed()
        with self._into(streamed, labels_required=description == "Evaluation"):
            self._check_measurable(dataloader)
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
            )
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in streamed.compute().items()}
        if self._serves_update:
            self._gamma_updates.update(*streamed.before.samples())
        if metrics:
            # Trainer's loss is a mean over batches. Any other metric of the same name is the user's own.
            output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update(metrics | output.metrics)
        return output

    def _streamed(self) -> StreamedEvaluation:
        # A vocabulary's classes are too many for figures of each, and no table has them.
        classwise = self.head is Head.CLASSES
        return StreamedEvaluation(self.loss, self.args.calibration_bins, self.temperature, classwise)

    def measure(self, dataset: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure a dataset before and, if one is fitted, after temperature scaling, without keeping logits.

        What `evaluate` reports are the `compute()` of the two; their `bins()` are a reliability diagram's.

        Args:
            dataset: labelled data, or the key of one of several evaluation sets.

        Returns:
            The `CalibrationMetrics` of all processes' rows, equal on each of them; the second is None without a
            temperature.

        Raises:
            ValueError: an empty dataset, or one without labels.
        """
        return self._collect(self._evaluation_set("dataset", dataset), self._streamed())

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        if self._labels_required and inputs.get("labels") is None:
            raise ValueError("the dataset to measure must have labels: a column 'label' or 'labels'")
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    @contextmanager
    def _into(self, sink: StreamedEvaluation | CollectedLogits, labels_required: bool):
        """Send the logits and labels of every batch that is evaluated meanwhile to `sink`."""
        self._sink, self._labels_required = sink, labels_required
        try:
            yield
        finally:
            self._sink, self._labels_required = None, False

    def _check_measurable(self, dataloader: DataLoader) -> None:
        if isinstance(dataloader.dataset, IterableDatasetShard) and self.args.world_size > 1:
            raise ValueError(
                "args.accelerator_config must not have dispatch_batches=False for a stream that is measured: the rows "
                "that fill up its last batch cannot be told from its own"
            )
        check_not_empty("the dataset to measure", dataloader.dataset)

    def _num_measured_rows(self, num_rows: int) -> int:
        """How many rows of this process's evaluation batch are not the sampler's repeats."""
        if self.accelerator.num_processes == 1:
            return num_rows
        if num_rows > self.args.per_device_eval_batch_size:
            raise ValueError(
                f"labels must have one row a sample to be measured on several processes, got {num_rows} rows in a "
                f"batch of at most {self.args.per_device_eval_batch_size} samples"
            )
        state = self.accelerator.gradient_state
        return self._num_own_rows(num_rows, state.remainder) if state.end_of_dataloader else num_rows

    def _num_own_rows(self, num_rows: int, remainder: int) -> int:
        """How many rows of this process's last batch are not repeats that fill up the last global batch.

        Args:
            num_rows: rows of this process's batch.
            remainder: rows of the global batch that are not repeats; 0 or less if none are.
        """
        if remainder <= 0:
            return num_rows
        return min(max(remainder - self.accelerator.process_index * num_rows, 0), num_rows)

    def measure_confidences(self) -> tuple[Tensor, Tensor]:
        """Top-1 confidences (N,) of the held-out data and whether each prediction is right (N,), bool, on the CPU.

        Nothing else is gathered; equal on all processes.
        """
        return self._collect(self.held_out_dataset(), CollectedConfidences())

    def _collect(self, dataset: Any, collected: Any) -> Any:
        """What `collected` (of the evaluation module) gathers from a pass over the dataset."""
        dataloader = self.get_eval_dataloader(dataset)
        self._check_measurable(dataloader)
        with self._into(collected, labels_required=True):
            super().evaluation_loop(dataloader, "Calibration", prediction_loss_only=True)
        # As after predict(), or the progress bar of this pass would go on in the next one.
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, {})
        return collected.gather()

    def fit_temperature(self, dataset: Any = None, objective: str = "ece") -> Temperature:
        """Fit the temperature of the model's logits on held-out data; later evaluations report it too.

        Args:
            dataset: labelled data that the model was not trained on, or the key of one of several evaluation sets; if
                not given the calibration set, or else the evaluation set. Its logits are kept in memory, except
                those over a vocabulary.
            objective: "ece", the grid 0.1 … 10.0 of the papers' tables, or "nll"; see `hf_focal.fit_temperature`. Of
                language models' tokens both are taken from the grid (`hf_focal.TemperatureStream`).

        Raises:
            ValueError: no dataset, an empty one, the training set itself, one without labels, an unknown objective, or
                what `hf_focal.fit_temperature` raises.
        """
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
        dataset = self.held_out_dataset(dataset, "dataset")
        if self.head is Head.CLASSES:
            logits, labels = self._collect(dataset, CollectedLogits())
            self.temperature = fit_temperature(logits, labels, objective, num_bins=self.args.calibration_bins)
        else:
            self.temperature_curves = self._collect(dataset, StreamedTemperature(self.args.calibration_bins)).compute()
            self.temperature = self.temperature_curves.fit(objective)
        self._calibration_when_fitted = self._calibration()
        return self.temperature

    def _calibration(self) -> Any:
        """What `fold_temperature` has recorded in the model's config, as text that later folding does not change."""
        return repr(getattr(getattr(self.model, "config", None), "calibration", None))
