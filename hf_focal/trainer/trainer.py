"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

from collections.abc import Mapping, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_utils import EvalLoopOutput

from ..losses import CrossEntropyFamily, LossConfig, Scheduled
from ..temperature import OBJECTIVES, Temperature, fit_temperature
from .arguments import FocalTrainingArguments
from .evaluation import CollectedLogits, StreamedEvaluation
from .loss_function import LossFunction, build_driven_loss, logits_of


class FocalTrainer(Trainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, plain cross-entropy included, is Σ rows / items of the whole optimiser step, so the gradient does not
    depend on how the step is cut into micro-batches and processes (the loss that most models compute themselves does,
    and so does MMCE, which is no sum over rows).
    `evaluate()` and `predict()` add the calibration metrics of `CalibrationMetrics` (``eval_ece``, ``eval_adaece``,
    ``eval_nll``, ...) without keeping logits; after `fit_temperature` also those at that temperature
    (``eval_ece_post_t``, ...). A scheduled γ follows ``global_step / max_steps`` and is logged as ``gamma``.

    Args:
        model: a classifier: its output is a mapping with `logits`, a tuple that begins with them, or the logits
            themselves, (..., K) for labels (...).
        args: `FocalTrainingArguments`.
        *trainer_args, **trainer_kwargs: whatever `transformers.Trainer` takes, except `compute_loss_func`.

    Attributes:
        loss: the loss module; loss_config: the `LossConfig` that it was built from.
        temperature: the `Temperature` fitted to the model as it is now, or None. Training or folding ends its life.

    Raises:
        TypeError: args that are no `FocalTrainingArguments`.
        ValueError: several GPUs without a launcher, an empty dataset, a `compute_loss_func`, a model that is no
            single-label classifier, or a loss that this trainer does not drive.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: FocalTrainingArguments | None = None,
        *trainer_args: Any,
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
        if args.world_size > 1 and not args.average_tokens_across_devices:
            raise ValueError(
                "args.average_tokens_across_devices must be True: the loss is divided by the items of all processes"
            )
        if trainer_kwargs.pop("compute_loss_func", None) is not None:
            raise ValueError("compute_loss_func must not be given: the loss is args.loss")
        self.temperature: Temperature | None = None
        self._calibration_when_fitted: Any = None
        self._sink: StreamedEvaluation | CollectedLogits | None = None
        self._labels_required = False
        super().__init__(model, args, *trainer_args, **trainer_kwargs)
        for name in ("train_dataset", "eval_dataset"):
            _check_not_empty(name, getattr(self, name))
        _check_model(self.model)
        self.label_names = ["labels"]  # also for models that do not take labels
        self.build_loss()
        self.add_callback(_LossCallback(self))

    def build_loss(self) -> None:
        """Build `loss` from `args.loss`; called again as training starts, for a hyper-parameter search over losses."""
        self.loss_config = LossConfig.parse(self.args.loss)
        self.loss = build_driven_loss(self.loss_config)
        self.compute_loss_func = LossFunction(self.loss, self.args.loss_reduction)

    def train(self, *args: Any, **kwargs: Any):
        self.temperature = None
        return super().train(*args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and isinstance(self.loss, CrossEntropyFamily) and isinstance(self.loss.policy, Scheduled):
            logs["gamma"] = self.loss.policy.gamma
        super().log(logs, start_time)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.get("labels")
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self._sink is not None:
            own = self._num_own_rows(len(labels))
            self._sink.update(logits_of(outputs)[:own], labels[:own])
        if not return_outputs:
            return loss
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        # Trainer takes the first of a tuple for the loss, which a model without labels does not return.
        return loss, outputs if isinstance(outputs, Mapping) else (None, *outputs)

    def evaluation_loop(
        self, dataloader, description, prediction_loss_only=None, ignore_keys=None, metric_key_prefix="eval"
    ) -> EvalLoopOutput:
        if self.temperature is not None and self._calibration() != self._calibration_when_fitted:
            self.temperature = None  # it has been folded into the model
        streamed = StreamedEvaluation(self.loss, self.args.calibration_bins, self.temperature)
        with self._into(streamed, labels_required=description == "Evaluation"):
            _check_not_empty("the dataset to measure", dataloader.dataset)
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
            )
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in streamed.compute().items()}
        if metrics:
            # Trainer's loss is a mean over batches. Any other metric of the same name is the user's own.
            output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update(metrics | output.metrics)
        return output

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

    def _num_own_rows(self, num_rows: int) -> int:
        """How many rows of this process's batch are not the sampler's repeats that fill up the last global batch."""
        if self.accelerator.num_processes == 1:
            return num_rows
        if num_rows > self.args.per_device_eval_batch_size:
            raise ValueError(
                f"labels must have one row a sample to be measured on several processes, got {num_rows} rows in a "
                f"batch of at most {self.args.per_device_eval_batch_size} samples"
            )
        state = self.accelerator.gradient_state
        if not state.end_of_dataloader or state.remainder <= 0:
            return num_rows
        return min(max(state.remainder - self.accelerator.process_index * num_rows, 0), num_rows)

    def fit_temperature(self, dataset: Any = None, objective: str = "ece") -> Temperature:
        """Fit the temperature of the model's logits on held-out data; later evaluations report it too.

        Args:
            dataset: labelled data that the model was not trained on, or the key of one of several evaluation sets; the
                evaluation set if not given. Its logits are kept in memory.
            objective: "ece", the grid 0.1 … 10.0 of the papers' tables, or "nll"; see `hf_focal.fit_temperature`.

        Raises:
            ValueError: no dataset, an empty one, the training set itself, one without labels, an unknown objective, or
                what `hf_focal.fit_temperature` raises.
        """
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
        dataset = self.eval_dataset if dataset is None else dataset
        if dataset is None:
            raise ValueError("dataset must be given: the trainer has no eval_dataset to fit a temperature on")
        if isinstance(dataset, str):
            dataset = self.eval_dataset[dataset]
        if isinstance(dataset, dict):
            raise ValueError(f"dataset must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        if dataset is self.train_dataset:
            raise ValueError(
                "dataset must be held out, got the training set: its confidence says nothing about others"
            )
        _check_not_empty("dataset", dataset)
        collected = CollectedLogits()
        with self._into(collected, labels_required=True):
            super().evaluation_loop(self.get_eval_dataloader(dataset), "Calibration", prediction_loss_only=True)
        # As after predict(), or the progress bar of this pass would go on in the next one.
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, {})
        self.temperature = fit_temperature(*collected.gather(), objective, num_bins=self.args.calibration_bins)
        self._calibration_when_fitted = self._calibration()
        return self.temperature

    def _calibration(self) -> Any:
        """What `fold_temperature` has recorded in the model's config, as text that later folding does not change."""
        return repr(getattr(getattr(self.model, "config", None), "calibration", None))


class _LossCallback(TrainerCallback):
    """Builds the loss that the arguments ask for, and tells it how much of the training is done.

    The trainer's state has the step, so resuming is exact.
    """

    def __init__(self, trainer: FocalTrainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        if LossConfig.parse(args.loss) != self.trainer.loss_config:
            self.trainer.build_loss()

    def on_step_begin(self, args, state, control, **kwargs):
        self.trainer.loss.set_progress(min(state.global_step / state.max_steps, 1.0))


def _check_model(model: nn.Module) -> None:
    name = type(model).__name__
    if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        raise ValueError(f"model must be a classifier, got the causal language model {name}")
    config = getattr(model, "config", None)
    problem_type = getattr(config, "problem_type", None)
    if problem_type not in (None, "single_label_classification"):
        raise ValueError(f"model.config.problem_type must be 'single_label_classification', got {problem_type!r}")
    if "ForSequenceClassification" in name or "ForImageClassification" in name:
        if config.num_labels < 2:
            raise ValueError(f"model.config.num_labels must be at least 2, got {config.num_labels}: a regression head")
        # Transformers sets it at the first forward pass with labels, which never comes here.
        config.problem_type = "single_label_classification"


def _check_not_empty(name: str, dataset: Any) -> None:
    for key, part in dataset.items() if type(dataset) is dict else [(None, dataset)]:
        if isinstance(part, Sized) and len(part) == 0:
            where = name if key is None else f"{name}[{key!r}]"
            raise ValueError(f"{where} must hold at least one sample, got an empty dataset")
