"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

from collections.abc import Sized
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_utils import EvalLoopOutput

from ..losses import ByBin, CrossEntropyFamily, LossConfig, Scheduled, build_loss
from ..temperature import Temperature, fit_temperature
from .arguments import FocalTrainingArguments
from .evaluation import StreamedEvaluation
from .loss_function import LossFunction


class FocalTrainer(Trainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, plain cross-entropy included, is Σ rows / items of the whole optimiser step, so the gradient does not
    depend on how the step is cut into micro-batches and processes (the loss that most models compute themselves does).
    `evaluate()` and `predict()` add the calibration metrics of `CalibrationMetrics` (``eval_ece``, ``eval_adaece``,
    ``eval_nll``, ...) without keeping logits; after `fit_temperature` also those at that temperature
    (``eval_ece_post_t``, ...). A scheduled γ follows ``global_step / max_steps`` and is logged as ``gamma``.

    Args:
        model: a classifier: its output has `logits` (..., K) for labels (...).
        args: `FocalTrainingArguments`.
        **kwargs: whatever `transformers.Trainer` takes, except `compute_loss_func`.

    Attributes:
        loss: the loss module.
        temperature: the last fitted `Temperature`, or None.

    Raises:
        ValueError: several GPUs without a launcher, an empty dataset, a `compute_loss_func`, a model that is no
            single-label classifier, or a loss that this trainer does not drive.
    """

    def __init__(self, model: nn.Module | None = None, args: FocalTrainingArguments | None = None, **kwargs: Any):
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
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func must not be given: the loss is args.loss")
        for name in ("train_dataset", "eval_dataset"):
            _check_not_empty(name, kwargs.get(name))
        self.loss = build_loss(args.loss)
        if isinstance(self.loss, CrossEntropyFamily) and isinstance(self.loss.policy, ByBin):
            raise ValueError(
                f"args.loss {args.loss!r} needs γ updates on a calibration set, which this trainer does not do yet"
            )
        self.temperature: Temperature | None = None
        self._streamed: StreamedEvaluation | None = None
        super().__init__(
            model=model, args=args, compute_loss_func=LossFunction(self.loss, args.loss_reduction), **kwargs
        )
        _check_model(self.model)
        self.add_callback(_ProgressCallback(self.loss))

    @property
    def loss_config(self) -> LossConfig:
        """The loss as the value that can be printed, saved and parsed."""
        return LossConfig.parse(self.args.loss)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and isinstance(self.loss, CrossEntropyFamily) and isinstance(self.loss.policy, Scheduled):
            logs["gamma"] = self.loss.policy.gamma
        super().log(logs, start_time)

    def evaluation_loop(
        self, dataloader, description, prediction_loss_only=None, ignore_keys=None, metric_key_prefix="eval"
    ) -> EvalLoopOutput:
        self._streamed = StreamedEvaluation(self.loss, self.args.calibration_bins, self.temperature)
        output = super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
        )
        streamed, self._streamed = self._streamed, None
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in streamed.compute().items()}
        if metrics:
            # Trainer's loss is a mean over batches. Any other metric of the same name is the user's own.
            output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update(metrics | output.metrics)
        return output

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss, logits, labels = super().prediction_step(model, inputs, False, ignore_keys)
        if labels is not None:
            scores = logits[0] if isinstance(logits, tuple) else logits
            own = self._num_own_rows(len(labels))
            self._streamed.update(scores[:own], labels[:own])
        return (loss, None, None) if prediction_loss_only else (loss, logits, labels)

    def _num_own_rows(self, batch_size: int) -> int:
        """How many rows of this process's batch are not the sampler's repeats that fill up the last global batch."""
        state = self.accelerator.gradient_state
        if not state.end_of_dataloader or state.remainder <= 0:
            return batch_size
        return min(max(state.remainder - self.accelerator.process_index * batch_size, 0), batch_size)

    def fit_temperature(self, dataset: Any = None, objective: str = "ece") -> Temperature:
        """Fit the temperature of the model's logits on held-out data; later evaluations report it too.

        Args:
            dataset: labelled data that the model was not trained on; the evaluation set if not given.
            objective: "ece", the grid 0.1 … 10.0 of the papers' tables, or "nll"; see `hf_focal.fit_temperature`.

        Raises:
            ValueError: no dataset, an empty one, the training set itself, or one without labels.
        """
        dataset = self.eval_dataset if dataset is None else dataset
        if dataset is None:
            raise ValueError("dataset must be given: the trainer has no eval_dataset to fit a temperature on")
        if isinstance(dataset, dict):
            raise ValueError(f"dataset must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        if dataset is self.train_dataset:
            raise ValueError(
                "dataset must be held out, got the training set: its confidence says nothing about others"
            )
        _check_not_empty("dataset", dataset)
        predictions = self.predict(dataset)
        if predictions.label_ids is None:
            raise ValueError("dataset must have labels, got a dataset without a column 'label' or 'labels'")
        logits = predictions.predictions
        logits = logits[0] if isinstance(logits, tuple) else logits
        self.temperature = fit_temperature(
            torch.from_numpy(logits),
            torch.from_numpy(predictions.label_ids),
            objective=objective,
            num_bins=self.args.calibration_bins,
        )
        return self.temperature


class _ProgressCallback(TrainerCallback):
    """Tells the loss how much of the training is done. The trainer's state has the step, so resuming is exact."""

    def __init__(self, loss):
        self.loss = loss

    def on_step_begin(self, args, state, control, **kwargs):
        self.loss.set_progress(min(state.global_step / state.max_steps, 1.0))


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
