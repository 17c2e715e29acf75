"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sized
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import IterableDatasetShard
from huggingface_hub import CommitInfo, run_as_future
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedModel, Trainer
from transformers.trainer_utils import (
    PREFIX_CHECKPOINT_DIR,
    HubStrategy,
    PredictionOutput,
    TrainOutput,
    get_last_checkpoint,
    has_length,
)

from ..calibration import CalibrationFit, Temperature, TemperatureStream, fit_correction, fit_temperature
from ..calibration.calibration_record import (
    drop_calibration_entries,
    folded_temperature,
    is_folded,
    recorded_calibration,
)
from ..calibration.clusters import cluster_keys
from ..calibration.folding import has_bias
from ..calibration.temperature_grid import OBJECTIVES, STREAM_OBJECTIVES, check_objective, few_samples
from ..calibration.trial_runs import first_rows
from ..errors import InputError, require
from ..hub.card_contents import CardData, Training
from ..hub.cross_encoder_folder import copy_settings, set_sigmoid
from ..hub.hub_publishing import HubError, create_repository, publish, repository_of, start_upload
from ..hub.trainer_card import trained_model, training_settings, write_card
from ..losses import ClassBalanced, LossConfig, ScheduledGamma
from ..metrics import CalibrationMetrics, ConfusionMatrix
from ..recommendation import default_correction
from ..reports import RunResult, write_report
from ..reports.output_folder import write_results
from ..reports.wording.model_warnings import warnings_of
from ..reports.wording.next_steps import steps_after_training
from ..scores.analysis.example_selection import find_examples
from ..scores.correction_files.correction_json import write_correction
from ..scores.meanings import Link
from ..tasks.heads import Head, head_of, label_names_of, task_of_model, without_adapter
from ..tasks.task import own_auto_class
from ..utils.model_wrappers import plain_submodules, unwrap
from ..utils.weights_hash import hash_sampled_weights
from .accumulators import (
    Accumulator,
    CollectedLogits,
    CombinedAccumulator,
    PageScores,
    TemperatureSums,
    TopConfidences,
)
from .auxiliary_loss import AuxiliaryLoss
from .batch_labels import counted_labels, padded_positions, warn_of_labels, without_ignored
from .checkpoints import FocalCheckpoint, check_step_size, read_state, write_state
from .class_counts import class_counts
from .deferred_logits import deferrable_head, deferred, set_ddp_default
from .evaluation_pass import EvaluationPass, add_metrics
from .evaluation_sets import check_held_out, check_not_empty, evaluation_set, first_sample, same_data, set_name
from .input_keys import InputKeys
from .logged_loss import LoggedLoss
from .loss_function import LossFunction, loss_of_head, without_loss
from .model_checks import check_correction, check_model, set_problem_type
from .padding_effect import warn_of_left_padding
from .repeated_samples import num_measured_samples, without_repeats
from .saved_model_folding import fold_into_saved, is_folded_in_saved, weight_files
from .shown_inputs import is_pair, shown_inputs
from .streamed_evaluation import StreamedEvaluation, kept_samples
from .trained_result import trained_result
from .training_arguments import FocalTrainingArguments
from .training_callbacks import GammaUpdates, ProgressAndLines, TrainingCallback, gamma_history, print_lines
from .transformers_shims import add_callbacks, check_position, check_setup, completed, seed_by_epoch

_logger = logging.getLogger(__name__)


class FocalTrainer(Trainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, including plain cross-entropy, is summed over all samples (or tokens) of an optimizer step and, unless
    `args.loss_reduction` is "sum", divided by their number. So neither the gradient nor the logged loss depends on how
    the step is split into micro-batches and processes (except for MMCE, and for recall loss without `ema`). Samples
    that a distributed sampler repeats to fill up the last batch of an epoch have no weight. A resumed run ends like a
    run that was never interrupted.

    `evaluate()` and `predict()` report the metrics of `CalibrationMetrics` (``eval_ece``, ``eval_nll``, ...) without
    keeping logits and, after a fit, also those of the corrected logits (``eval_ece_corrected``, ...). Each evaluation
    prints one line; ``trainer.add_callback(PrinterCallback)`` prints all logs. A scheduled γ follows
    ``global_step / max_steps`` and is logged as ``gamma``. AdaFocal's γ are updated after each epoch, or every
    `args.gamma_update_steps` steps, on `calibration_dataset`; the function `gamma_history` lists γ and the bin edges.

    Semantic segmentation is trained and measured pixel by pixel, at the labels' height and width. Auxiliary heads
    (UperNet, BEiT) and pixels labeled `config.semantic_loss_ignore_index` (255) are left out. The auxiliary loss of a
    mixture of experts (`output_router_logits`) is added once per step and logged as ``aux_loss``.

    Args:
        model: a classifier or a language model, of Transformers or any `nn.Module`. It is called without labels. Its
            output is a mapping with `logits`, a tuple that begins with the logits (after a loss that is None), or the
            logits alone. The logits are (..., K) for labels (...) or, in semantic segmentation, (N, K, h, w) for
            labels (N, H, W). If it comes in `torch.compile` or `DataParallel`, the wrapper runs the forward passes,
            but `trainer.model` is the model inside, which is checked, corrected, and saved. On several processes,
            Accelerate's wrapper runs it instead.
        calibration_dataset: held-out data, or the key of one of several evaluation sets. AdaFocal measures the model's
            calibration on it, and `fit_temperature` uses it by default. If not given, the evaluation set is used.
        *trainer_args, **trainer_kwargs: arguments of `transformers.Trainer`, except `compute_loss_func`.

    Attributes:
        loss, loss_config: the loss module, and the `LossConfig` from which it was built.
        fit: the `CalibrationFit` of the last `fit_correction` or `fit_temperature`, with its `dataset`, or None. It is
            of the model as it is now: training the model, and folding a correction into it, end it. So does any
            other change of its weights, with a warning, except under FSDP.
        confusion: the `ConfusionMatrix` of the last evaluation of a token or pixel classifier, or None.
        deferred_head (Linear | None): the head of a language model that trains without stored logits (`linear_loss`).

    Raises:
        TypeError: args that are not `FocalTrainingArguments`.
        InputError: an empty dataset; a `compute_loss_func`; a model that needs FocalSeq2SeqTrainer, or whose head has
            neither a softmax nor sigmoids; several GPUs without a launcher; tensor or sequence parallelism;
            `even_batches=False` on several processes; the training set as `calibration_dataset`. `train` raises
            InputError for fewer calibration labels than bins, for a FocalTrainer checkpoint without the loss's state,
            and, unless `args.max_steps` is set, for one whose steps have another number of samples.

    Examples:
        >>> from hf_focal import FocalTrainer, FocalTrainingArguments
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=10, **sizes))
        >>> rows = [{"input_ids": [2, 3, 4], "labels": 0}, {"input_ids": [5, 6, 7], "labels": 1}] * 20
        >>> args = FocalTrainingArguments("out", loss="flsd53", max_steps=2, report_to="none")
        >>> trainer = FocalTrainer(model, args, train_dataset=rows, eval_dataset=rows)
        >>> trainer.train().global_step
        epoch ...: trained in ...
        2
        >>> sorted(trainer.evaluate())[:3]
        ['epoch', 'eval_accuracy', 'eval_ace']
    """

    # Construction

    _arguments: type[FocalTrainingArguments] = FocalTrainingArguments
    _trains_seq2seq = _fine_tunes_texts = False

    def __init__(
        self,
        model: nn.Module | None = None,
        args: FocalTrainingArguments | None = None,
        *trainer_args: Any,
        calibration_dataset: Any = None,
        **trainer_kwargs: Any,
    ):
        args = self._arguments("tmp_trainer") if args is None else args
        if not isinstance(args, self._arguments):
            raise TypeError(f"args must be {self._arguments.__name__}, got {type(args).__name__}")
        self._wrapped_model: nn.Module | None = None  # if it has a wrapper
        model = self._without_wrapper(model)
        set_ddp_default(model, args)
        super().__init__(model, args, *trainer_args, **trainer_kwargs)
        require(self.compute_loss_func is None, "compute_loss_func", "must be None, got one: the loss is args.loss")
        check_setup(self)
        if self._wrapped_model is not None and self.args.world_size > 1:
            message = "on several processes, the model runs without its wrapper: set torch_compile=True to compile it"
            _logger.warning(message)
        self.calibration_dataset = self._evaluation_set("calibration_dataset", calibration_dataset)
        for name in ("train_dataset", "eval_dataset", "calibration_dataset"):
            check_not_empty(name, getattr(self, name))
        check_held_out("calibration_dataset", self.calibration_dataset, self.train_dataset)
        self._chosen_problem_type = getattr(getattr(self.model, "config", None), "problem_type", None) is not None
        check_model(self.model)
        set_problem_type(self.model)
        self.head = head_of(self.model)
        seq2seq = self.head is Head.TARGET_TOKENS
        other = f"{type(self.model).__name__}: use {'FocalSeq2SeqTrainer' if seq2seq else 'FocalTrainer'}"
        require(seq2seq == self._trains_seq2seq, "model", f"must be one for this trainer, got {other}")
        if self._has_one_sigmoid:
            set_sigmoid(self.model.config)
        self.label_names = ["labels"]  # also for models that do not take labels
        self.fit = None
        self.confusion: ConfusionMatrix | None = None
        self._pass = EvaluationPass()
        self._example: dict[str, Tensor] | None = None  # two rows of an evaluation, on which a fold is tried
        self._labels_checked = self._padding_checked = False
        self.checkpoint_pushes: list[Future] = []
        self.build_loss()
        self._logged_loss = LoggedLoss(0, 0)
        self._gamma_updates = GammaUpdates(self)
        add_callbacks(self, TrainingCallback(self), self._gamma_updates, FocalCheckpoint())
        print_lines(self)

    def call_model_init(self, trial: Any = None) -> Any:
        return self._without_wrapper(super().call_model_init(trial))

    def _without_wrapper(self, model: Any) -> Any:
        """Return the model inside its wrappers, such as `torch.compile`, and keep the wrapped model to run it."""
        inside = unwrap(model)
        self._wrapped_model = None if inside is model else model
        return inside

    @property
    def link(self) -> Link:
        return "sigmoid" if self.head is Head.LABELS else "softmax"

    @property
    def _has_one_sigmoid(self) -> bool:
        return self.head is Head.LABELS and self.model.config.num_labels == 1

    @property
    def _is_multiple_choice(self) -> bool:
        """Whether the model has one logit for each option of a multiple choice."""
        return type(without_adapter(self.model)).__name__.endswith("ForMultipleChoice")

    # Training

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train as `Trainer` does, and also resume the state of the loss and the updates of γ."""
        checkpoint: Any = resume_from_checkpoint
        checkpoint = get_last_checkpoint(self.args.output_dir) if checkpoint is True else checkpoint
        self.resumed_from: str | None = checkpoint or None
        self._saved_state = read_state(checkpoint) if checkpoint else None
        check_position(checkpoint, self)
        check_step_size(self._saved_state, self._step_size(), self.args)
        if checkpoint and self._saved_state is None:
            _logger.warning("%s was not saved by FocalTrainer: the state of the loss starts from scratch", checkpoint)
        self.fit = None
        try:
            output = super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self._gamma_updates.due = False  # later evaluations are not part of training
        return output._replace(training_loss=output.metrics["train_loss"])

    def _step_size(self) -> dict[str, int]:
        """Return the number of samples or, for batches of a number of tokens, of tokens in a step of all processes."""
        args: Any = self.args
        tokens = getattr(args, "max_tokens_per_batch", None)
        if tokens is None:
            return {"samples_per_step": self.get_total_train_batch_size(args)}
        return {"tokens_per_step": tokens * args.gradient_accumulation_steps * args.world_size}

    def begin_training(self, train_dataloader: DataLoader) -> None:
        """Prepare the loss for a new training run, or restore it from the checkpoint."""
        if (config := getattr(self.model, "config", None)) is not None:
            drop_calibration_entries(config)
            if recorded_calibration(config):  # the record describes the weights before this training run
                del config.calibration
        self.build_loss()
        self._train_dataloader, self._num_labels, self._gamma_updates.due = train_dataloader, None, False
        self._logged_loss = LoggedLoss(self.state.global_step, self.state.global_step)
        # Trainer looks for this entry, which a checkpoint of a different trainer lacks.
        self.state.stateful_callbacks.setdefault(FocalCheckpoint.__name__, FocalCheckpoint().state())
        saved = self._saved_state
        if saved is not None and not self.load_loss_state(saved):
            _logger.warning("training goes on with loss %s instead of %s", self.loss_config, saved["loss"])
        elif saved is not None:
            self._gamma_updates.due = saved["gamma_update_due"]
            self._logged_loss = LoggedLoss(**saved["logged_loss"])
            if saved["auxiliary_loss"] is not None:
                self._auxiliary.running = torch.tensor(saved["auxiliary_loss"], device=self.args.device)
        self._count_classes(train_dataloader)

    def get_train_dataloader(self) -> DataLoader:
        return seed_by_epoch(super().get_train_dataloader(), self.data_seed)

    @property
    def data_seed(self) -> int:
        """The seed for the order of the training samples."""
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        batches = [
            without_repeats(self.prepare_labels(batch), self._train_dataloader, self.train_dataset)
            for batch in islice(epoch_iterator, num_batches)
        ]
        batches = completed(batches, num_batches, self.train_dataset)
        counted = (counted_labels(batch, self.head) for batch in batches)
        _, num_items = super().get_batch_samples(counted, num_batches, device)
        if num_items is not None:
            self._num_labels = num_items if self._num_labels is None else self._num_labels + num_items
        return batches, num_items

    def check_labels_seen(self) -> None:
        """Raise InputError if all labels since training began were -100: the loss is 0 and would stay 0."""
        num_labels = 1 if self._num_labels is None else self.accelerator.reduce(torch.as_tensor(self._num_labels))
        require(num_labels > 0, "train_dataset", "must have labels other than -100, got none in a whole epoch")

    def hyperparameter_search(self, hp_space: Any = None, compute_objective: Any = None, *args: Any, **kw: Any) -> Any:
        """Search hyperparameters, by default for the smallest NLL, which compares losses and options of a loss.

        Trainer's own default would add up all metrics. Raises InputError without `compute_objective` for several
        evaluation sets or if the trainer has `compute_metrics`.
        """
        other = self.compute_metrics is not None or isinstance(self.eval_dataset, dict)
        problem = "must be given with compute_metrics or several evaluation sets, got None"
        require(compute_objective is not None or not other, "compute_objective", problem)
        return super().hyperparameter_search(hp_space, compute_objective or itemgetter("eval_nll"), *args, **kw)

    # Loss

    def build_loss(self) -> None:
        """Build `loss` from `args.loss`; each training run gets a new one."""
        self.loss_config = LossConfig.parse(self.args.loss)
        self.loss = loss_of_head(self.head, self.loss_config)
        self._auxiliary = AuxiliaryLoss(self.model)
        self.compute_loss_func: Any = LossFunction(self.loss, self.args.loss_reduction, self.head, self._auxiliary)
        self.deferred_head = deferrable_head(self.model, self.loss, self.args) if self.head.generates else None

    def load_loss_state(self, saved: dict[str, Any] | None) -> bool:
        """Load the state of the loss, such as γ, from what `read_state` returned; False if it is of another loss."""
        if saved is None or saved["loss"] != str(self.loss_config):
            return False
        self.loss.load_state_dict(saved["loss_state"])
        return True

    def _count_classes(self, train_dataloader: DataLoader | None = None) -> None:
        """Pass the class counts to the loss if the loss needs them and does not have them yet.

        In an evaluation without a training set whose labels can be counted, the loss weights all classes equally.
        """
        loss, train_dataset = getattr(self.loss, "entry_loss", self.loss), self.train_dataset
        if not isinstance(loss, ClassBalanced) or loss.weights is not None:
            return
        if train_dataloader is None and not has_length(train_dataset):
            if not loss.alike:
                message = "without training labels to count, the loss %s weights all classes equally"
                _logger.warning(message, self.loss_config)
            loss.alike = True
            return
        loader = self.get_train_dataloader() if train_dataloader is None else train_dataloader
        set_counts = loss.set_label_counts if self.head is Head.LABELS else loss.set_class_counts
        set_counts(self.class_counts(loader))

    def class_counts(self, train_dataloader: DataLoader) -> list[int]:
        """Return the number of training labels of each class, up to the last class that occurs; -100 does not count.

        The labels of a model with a sigmoid per label are counted where they are 1. See `class_counts` for where the
        labels are read.

        Raises InputError for an `IterableDataset`, whose labels cannot be counted before training.
        """
        dataset: Any = train_dataloader.dataset
        require(
            not isinstance(dataset, IterableDataset),
            "train_dataset",
            f"must have a length with loss {self.loss_config}, which counts its labels beforehand, got "
            f"{type(dataset).__name__}, a stream: give class_balanced:weights=",
        )
        return class_counts(train_dataloader, self.head, self.args, self.prepare_labels)

    def prepare_labels(self, batch: Any) -> Any:
        """Return the batch with -100 in place of labels that must not count; see `without_ignored`."""
        return without_ignored(batch, self.head, self.model)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        self._logged_loss.pending = self._logged_loss.pending + loss
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the mean loss over the labels of the whole optimizer step; in an evaluation, add to its metrics."""
        inputs = self.prepare_labels(inputs)
        if self._pass.accumulator is not None:  # in an evaluation, perhaps before any training
            self._count_classes()
            num_items_in_batch = None  # Trainer counts a soft target once for each class
        if not self._labels_checked:
            self._labels_checked = warn_of_labels(inputs, self.head, self._chosen_problem_type)
        runs = self._wrapped_model if self._wrapped_model is not None and model is self.model else model
        with deferred(self.deferred_head if model.training else None):
            loss, outputs = super().compute_loss(runs, dict(inputs), True, num_items_in_batch)
        self._measure(model, inputs, outputs)
        if not return_outputs or isinstance(outputs, Mapping):
            return (loss, outputs) if return_outputs else loss
        # Trainer drops the first element of a tuple as the loss, but a model that gets no labels returns no loss.
        return loss, (None, outputs) if isinstance(outputs, Tensor) else (None, *without_loss(outputs))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as `Trainer` does, with the loss of all samples since the last log."""
        step, filtered = self.state.global_step, self.args.logging_nan_inf_filter
        # What Trainer logs during training; a callback may log the same names between two steps.
        if {"loss", "learning_rate"} <= logs.keys() and step > self._logged_loss.last_log:
            if not filtered:
                logs["loss"] = self._logged_loss.mean_since_last_log(step, self.accelerator)
            if (auxiliary := self._auxiliary.mean(self.accelerator)) is not None:
                logs["aux_loss"] = auxiliary
            if isinstance(policy := getattr(self.loss, "policy", None), ScheduledGamma):
                logs["gamma"] = policy.gamma
        if "train_loss" in logs and not filtered:  # the summary at the end of training
            logs["train_loss"] = self._logged_loss.mean(step, self.accelerator)
        super().log(logs, start_time)

    # Evaluation

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **generation: Any
    ) -> dict[str, float]:
        """Evaluate as `Trainer` does, with calibration metrics, also of the corrected logits if there is a `fit`."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        dataset = self._evaluation_set("eval_dataset", dataset)
        # For several evaluation sets, Trainer calls this method again for each of them.
        updates_gamma = self._gamma_updates.due and dataset is self.held_out_dataset()
        self._pass = EvaluationPass(updates_gamma=updates_gamma)
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **generation)
        finally:
            self._pass = EvaluationPass()

    def predict(self, *args: Any, **kwargs: Any) -> PredictionOutput:
        """Predict as `Trainer` does, with calibration metrics if the data have labels."""
        self._pass = EvaluationPass(labels_optional=True)
        try:
            return super().predict(*args, **kwargs)
        finally:
            self._pass = EvaluationPass()

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        accumulator: Accumulator | None = None,
    ) -> Any:
        """Run Trainer's loop, and add all logits and labels to `accumulator`, by default a `StreamedEvaluation`."""
        require(
            self.args.world_size == 1 or not isinstance(dataloader.dataset, IterableDatasetShard),
            "args.accelerator_config",
            "must have dispatch_batches for a stream that is measured, got dispatch_batches=False: the samples that "
            "fill up its last batch cannot be told apart from real ones",
        )
        check_not_empty("the dataset to measure", dataloader.dataset)
        streamed = self._new_evaluation() if accumulator is None else None
        self._pass = current = replace(self._pass, accumulator=streamed or accumulator)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, ProgressAndLines):
                callback.pass_name = getattr(accumulator, "pass_name", description.lower())
        try:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
            )
        finally:
            self._pass = EvaluationPass()
        if streamed is None:
            return output
        metrics = self._evaluation_metrics(streamed, metric_key_prefix, current.labels_required)
        if not streamed.num_samples and f"{metric_key_prefix}_loss" in output.metrics:
            metrics[f"{metric_key_prefix}_loss"] = math.nan  # Trainer's is 0, also where a prediction needs no labels
        self.confusion = streamed.confusion
        if current.updates_gamma:
            self._gamma_updates.update(*streamed.before.samples())
        add_metrics(output.metrics, metrics, metric_key_prefix)
        return output

    def _evaluation_metrics(
        self, streamed: StreamedEvaluation, prefix: str, labels_required: bool
    ) -> dict[str, float]:
        """Return the metrics over all processes, with a prefix; NaN where an evaluation has no labels to measure."""
        metrics = {f"{prefix}_{key}": value for key, value in streamed.compute().items()}
        if labels_required and not streamed.num_samples:
            _logger.warning("the evaluation set has no labels other than -100: %s_loss is NaN", prefix)
            best = self.args.metric_for_best_model or "loss"  # NaN is never the best
            metrics |= dict.fromkeys((f"{prefix}_loss", f"eval_{best.removeprefix('eval_')}"), math.nan)
        return metrics

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        inputs = self.prepare_labels(inputs)
        self._pass.begin_batch(model, inputs)
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if isinstance(logits, tuple):  # of an unlabeled batch, for which a model may return an empty loss
            logits = without_loss(logits)
            logits = logits[0] if len(logits) == 1 else logits
        self._pass.end_batch(type(self).__name__)
        return loss, logits, labels

    def _measure(self, model: nn.Module, inputs: dict[str, Any], outputs: Any) -> None:
        """Measure a forward pass if it is the one of the evaluated model over the evaluation's batch."""
        accumulator, batch = self._pass.accumulator, self._pass.batch_to_measure(model, inputs)
        if accumulator is None or batch is None:
            return
        self._example = self._example or first_rows(inputs)
        size = num_measured_samples(len(batch["labels"]), self.args.per_device_eval_batch_size)
        logits, targets = self.compute_loss_func.logits_and_targets(outputs, inputs["labels"])
        if not self._padding_checked and self.head in (Head.CLASSES, Head.LABELS):
            self._padding_checked = self._check_padding(model, inputs, logits)
        if isinstance(accumulator, CombinedAccumulator):
            for keys in accumulator.parts:
                if isinstance(keys, InputKeys):
                    keys.add(batch, size)
        accumulator.update(padded_positions(logits[:size], self.head, self.model), targets[:size])

    def _check_padding(self, model: nn.Module, inputs: dict[str, Any], logits: Tensor) -> bool:
        """Warn of padding on the left that changes logits; return whether this is known. All processes check it."""
        tokenizer = getattr(self.data_collator, "tokenizer", None) or self.processing_class
        if getattr(tokenizer, "padding_side", None) != "left":
            return True
        is_padded = warn_of_left_padding(model, inputs, logits, self.compute_loss_func.logits_of)
        return is_padded or self.args.world_size > 1

    def _new_evaluation(self, keeps_rows: bool = False) -> StreamedEvaluation:
        keep_samples = kept_samples(self.head, self._gamma_updates.policy is not None)
        correction = None if self.fit is None else self.fit.correction
        refined = (self.args.metric_for_best_model or "").endswith("nll_refined")  # it costs time
        options: Any = {"refined": refined, "keeps_rows": keeps_rows}
        return StreamedEvaluation(
            self.loss, self.args.calibration_bins, correction, self.head, keep_samples, **options
        )

    def measure(self, dataset: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure labeled data, or the evaluation set with the key `dataset`, before and after the correction.

        Returns two `CalibrationMetrics` over all processes; the second is None without a correction. For pixels, both
        have `keep_samples=False`, except with AdaFocal. Raises InputError for an empty dataset or one without labels.
        """
        streamed = self._new_evaluation(keeps_rows=True)
        self._measure_dataset(dataset, streamed)
        return streamed.before, streamed.after

    def _measure_dataset(self, dataset: Any, streamed: StreamedEvaluation, *others: Accumulator) -> tuple[str, ...]:
        """Add labeled data, or an evaluation set with a key, to an evaluation and to other accumulators.

        Return what to know of samples with the same input.
        """
        dataset, keys = self._evaluation_set("dataset", dataset), self._input_keys()
        self.collect(dataset, CombinedAccumulator(streamed, keys, *others))
        self.confusion = streamed.confusion
        clusters, notes = keys.usable(streamed.rows, self._data_name(dataset, "test"))
        if clusters is not None:
            streamed.set_clusters(clusters)
        return notes

    def _input_keys(self) -> InputKeys:
        return InputKeys(getattr(self.model, "main_input_name", "input_ids"), self.processing_class)

    def _data_name(self, dataset: Any, default: str) -> str:
        return f"the {set_name(dataset, self.eval_dataset, default)} data"

    def measure_confidences(self) -> tuple[Tensor, Tensor]:
        """Return the top-1 confidences (N,) and correctness (N,), bool, of the held-out data, both on the CPU."""
        return self.collect(self.held_out_dataset(), TopConfidences(self.link))

    def collect(self, dataset: Any, accumulator: Accumulator) -> Any:
        """Add a labeled dataset to an accumulator (see `accumulators`); return what `gather` returns."""
        # Rows grouped by length would not be in the order of the dataset.
        grouped = self.args.train_sampling_strategy == "group_by_length"
        dataloader = self.get_test_dataloader(dataset) if grouped else self.get_eval_dataloader(dataset)
        self.evaluation_loop(dataloader, "Calibration", prediction_loss_only=True, accumulator=accumulator)
        # End the pass as predict() does, or its progress bar would continue in the next pass.
        self.callback_handler.on_predict(self.args, self.state, self.control, {})
        return accumulator.gather()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset:
            return self._whole(super().get_eval_dataloader, eval_dataset, self.args.train_sampling_strategy)
        # With persistent workers, Trainer would reuse the evaluation set's loader for any other set.
        return self.get_test_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        return self._whole(super().get_test_dataloader, test_dataset, "random")

    def _whole(self, build: Callable[[Any], DataLoader], dataset: Any, sampling: str) -> DataLoader:
        """Build a loader that drops no samples, with `sampling` in place of `args.train_sampling_strategy`."""
        args = self.args
        previous = args.dataloader_drop_last, args.train_sampling_strategy
        args.dataloader_drop_last, args.train_sampling_strategy = False, sampling
        try:
            return build(dataset)
        finally:
            args.dataloader_drop_last, args.train_sampling_strategy = previous

    def _evaluation_set(self, name: str, dataset: Any) -> Any:
        """Return `dataset`, or the evaluation set with this key; raise InputError if there is none."""
        return evaluation_set(name, dataset, self.eval_dataset)

    # Fit

    @property
    def fit(self) -> CalibrationFit | None:
        """The fit of a correction to the model as it is now, or None; see the class."""
        if self._fit is None:
            return None
        record = self._recorded_calibration()
        if record != self._record_when_fitted and is_folded(record, self.head.generates):
            return None
        if self._weights_hash() != self._weights_when_fitted:
            _logger.warning("the model's weights have changed since the correction was fitted to them: fit it again")
            self.fit = None
        return self._fit

    @fit.setter
    def fit(self, fit: CalibrationFit | None) -> None:
        self._fit = fit
        self._record_when_fitted = {} if fit is None else self._recorded_calibration()
        self._weights_when_fitted = b"" if fit is None else self._weights_hash()

    def _weights_hash(self) -> bytes:
        # FSDP's shards in memory differ before and after a forward pass.
        return b"" if self.is_fsdp_enabled else hash_sampled_weights(self.model)

    def _recorded_calibration(self) -> dict[str, Any]:
        return recorded_calibration(getattr(self.model, "config", None))

    def fit_correction(
        self, dataset: Any = None, method: str | None = None, per_label: bool = False, *, clusters: Any = None
    ) -> CalibrationFit:
        """Fit a correction to a classifier's logits, in place of any earlier correction.

        Later evaluations also measure the corrected logits, and `save_calibrated` folds the correction into the
        weights. Vector, matrix, and Platt scaling may change predictions. The `CalibrationFit` has cross-fitted
        metrics.

        Args:
            dataset: see `held_out_dataset`. The logits are kept in memory.
            method: "none", "temperature", "auto", or, with one softmax, "bias", "vector" or "matrix", or, with
                sigmoids, "platt"; see `hf_focal.fit_correction`. By default, that of `calibrate_model`: "auto" with
                at least 10 rows of `dataset`; "temperature" with fewer, or with `per_label`.
            per_label: fit values for each label; only with sigmoids.
            clusters: a value for each row of `dataset`, such as its text; rows with equal ones may depend on each
                other (see `hf_focal.fit_correction`). By default, rows with the same input, or the same first text
                of two, if there are at least 10 different ones. Tokens of one row always may.

        Raises:
            InputError: what `held_out_dataset` and `hf_focal.fit_correction` raise; a model that does not classify
                samples or tokens (use `fit_temperature`); multiple choice with a method other than "temperature".
        """
        check_correction(self.model, self.head, method or "temperature")
        dataset = self.held_out_dataset(dataset, "dataset")
        collected, keys = CollectedLogits(link=self.link), self._input_keys()
        (logits, labels), _ = self.collect(dataset, CombinedAccumulator(collected, keys))
        is_known = (labels != -100).reshape(len(labels), -1).any(1).cpu().numpy()
        require(bool(is_known.any()), "labels", "must have one that is not ignore_index -100, got none")
        rows, notes = collected.rows, tuple[str, ...]()
        labeled = np.unique(rows[is_known])
        if clusters is not None:
            clusters = cluster_keys(clusters, len(dataset))[rows]
        else:
            found, notes = keys.usable(labeled, self._data_name(dataset, "calibration"))
            if found is not None:
                clusters = found[rows]
            elif len(np.unique(rows)) < len(rows):
                clusters = rows
        options: Any = {"num_bins": self.args.calibration_bins, "link": self.link, "per_label": per_label}
        options |= {"bias": has_bias(self.model, self._example), "clusters": clusters}
        fit = fit_correction(logits, labels, method or self._default_method(len(labeled), per_label), **options)
        self.fit = fit = replace(fit, dataset=dataset, cluster_notes=notes)
        return fit

    def fit_temperature(self, dataset: Any = None, objective: str = "nll", per_label: bool = False) -> Temperature:
        """Fit the temperature of the model's logits on held-out data, in place of any earlier correction.

        Later evaluations also measure the corrected logits. The `fit` is not cross-fitted; it has the `curves` of ECE
        and NLL over T if the logits were streamed.

        Args:
            dataset: see `held_out_dataset`. Logits of language models, answer spans, and pixels, and any logits above
                1 GiB, are streamed (see `hf_focal.calibration.TemperatureStream`). But logits of a fit by "adaece", or
                of several labels per sample, always stay in memory.
            objective: "nll", "ece", or "adaece"; see `hf_focal.fit_temperature`. T is searched over 0.1, 0.2, …, 10,
                except for "nll" with logits in memory. For classifiers, too few samples cause a warning.
            per_label: whether to fit one T per label by NLL, for a model with several labels per sample.

        Raises:
            InputError: what `held_out_dataset` and `hf_focal.fit_temperature` raise, or a dataset without labels.
        """
        check_objective(objective, OBJECTIVES if self.head is Head.CLASSES else STREAM_OBJECTIVES)
        problem = f"must be False for a model with a softmax, got {per_label}"
        require(not per_label or self.head is Head.LABELS, "per_label", problem)
        dataset = self.held_out_dataset(dataset, "dataset")
        store: Any = TemperatureSums(self.args.calibration_bins)
        if self.head in (Head.CLASSES, Head.LABELS):
            streams = self.head is Head.CLASSES and objective in STREAM_OBJECTIVES
            store = CollectedLogits(store if streams else None, self.link)
        collected = self.collect(dataset, store)
        curves = collected.compute() if isinstance(collected, TemperatureStream) else None
        if curves is not None:
            temperature = curves.fit(objective)
        else:
            logits, labels = collected
            options: Any = {"link": self.link, "per_label": per_label}
            temperature = fit_temperature(logits, labels, objective, self.args.calibration_bins, **options)
            if (warning := few_samples(objective, temperature.num_samples)) and self.args.should_log:
                _logger.warning(warning)
        fit = CalibrationFit.from_temperature(temperature, self.link)
        self.fit = replace(fit, curves=curves, dataset=dataset)
        return temperature

    def _fit_default(self, method: str | None, per_label: bool | None) -> None:
        """Fit a correction to the held-out data, as `finish` does."""
        held_out = self.held_out_dataset()
        num_samples = len(held_out) if isinstance(held_out, Sized) else 0  # of a stream, it is not known
        method = method or self._default_method(num_samples, bool(per_label))
        per_label = self.head is Head.LABELS and not self._has_one_sigmoid if per_label is None else per_label
        if method == "temperature":
            self.fit_temperature(held_out, per_label=per_label)
        else:
            self.fit_correction(held_out, method, per_label)

    def _default_method(self, num_samples: int, per_label: bool) -> str:
        """Return the method of `fit_correction` for this number of held-out samples."""
        has_choice = self.head in (Head.CLASSES, Head.LABELS) and not self._is_multiple_choice and not per_label
        return default_correction(has_choice, num_samples)

    def held_out_dataset(self, dataset: Any = None, name: str = "calibration_dataset") -> Any:
        """Return a dataset, or the evaluation set with a key; by default, `calibration_dataset`, else `eval_dataset`.

        Raises InputError, whose message has `name`, if that is None, several sets, an empty set, or the training set.
        """
        for default in (self.calibration_dataset, self.eval_dataset):
            dataset = default if dataset is None else dataset
        dataset = self._evaluation_set(name, dataset)
        problem = "must be given, got None: there is no calibration_dataset or eval_dataset"
        require(dataset is not None, name, problem)
        if isinstance(dataset, dict):
            raise InputError(name, f"must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        check_held_out(name, dataset, self.train_dataset)
        check_not_empty(name, dataset)
        return dataset

    # Saving

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as it was trained, without a correction. In a checkpoint, also save the state of the loss."""
        folder = Path(output_dir or self.args.output_dir)
        if self.is_world_process_zero():  # remove files of an earlier model in the same folder
            adapter_files = ["generation_config.json"] * (without_adapter(self.model) is not self.model)
            for name in ("temperature.json", "correction.json", "calibration.json", *adapter_files):
                (folder / name).unlink(missing_ok=True)
        if self.fit is not None and not _internal_call:
            _logger.warning("%s gets the model without its correction: use save_calibrated to save both", folder)
        # Other modules cannot be loaded again under other names (`load_renamed_weights`).
        pretrained = isinstance(without_adapter(self.model), PreTrainedModel)
        with plain_submodules(self.model) if pretrained else nullcontext():
            super().save_model(output_dir, _internal_call)
        if folder.name != f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}":
            return
        # The run that continues uses the reduced values too, so that a resumed run rounds in the same way.
        self._logged_loss.reduce(self.accelerator)
        state = {
            "num_processes": self.args.world_size,
            **self._step_size(),
            "loss": str(self.loss_config),
            "loss_state": dict(self.loss.state_dict()),
            "gamma_update_due": self._gamma_updates.due,
            "logged_loss": asdict(self._logged_loss),
            "auxiliary_loss": self._auxiliary.state(self.accelerator),
        }
        if self.args.should_save:
            write_state(folder, state)

    def save_calibrated(self) -> None:
        """Save the model in `args.output_dir` with its correction, if one is fitted. All processes must call it.

        The correction is folded into the saved weights or, where that is impossible (see `fold_correction`), recorded
        in the saved configuration, with a warning. ``correction.json`` has it, and ``temperature.json`` the fit
        of a temperature. A model with one logit that was a CrossEncoder of sentence-transformers stays one, with
        the sigmoid as its activation.
        """
        folder = Path(self.args.output_dir)
        earlier = weight_files(folder)
        self.save_model(_internal_call=True)  # without a push
        if not self.is_world_process_zero():
            return
        if (fit := self.fit) is not None:  # the files before the fold, which may fail
            if fit.temperature is not None:
                fit.temperature.save(folder / "temperature.json")
            has_class_names = self.head in (Head.CLASSES, Head.LABELS, Head.PIXELS) and not self._is_multiple_choice
            write_correction(folder / "correction.json", fit, label_names_of(self.model) if has_class_names else ())
            has_weights = weight_files(folder) != earlier
            fold_into_saved(self.model, folder, fit.correction, self._example, has_weights=has_weights)
        if self._has_one_sigmoid and (folder / "config.json").is_file():
            copy_settings(self.model.config.name_or_path, folder, one_logit=True)

    # Reporting and publishing

    def finish(
        self,
        test_dataset: Any,
        *,
        method: str | None = None,
        per_label: bool | None = None,
        no_examples: bool = False,
        publish_examples: bool = False,
        **card: Any,
    ) -> RunResult:
        """Fit a correction, report on test data, and save or publish the calibrated model with its card.

        Does `fit_temperature` or `fit_correction` on the held-out data, unless there is a `fit` and no other is asked
        for; `report`; and `push_to_hub` if `args.push_to_hub`, otherwise `save_calibrated` and `create_model_card`.
        Prints what was fitted and measured. All processes must call it.

        Args:
            test_dataset: labeled data that was used neither for training nor for the fit.
            method: as for `fit_correction`, with the same default for classifiers; for other models "temperature".
            per_label: whether to fit values for each label; by default, for a model with several labels.
            no_examples, publish_examples: as for `report`.
            **card: arguments of `create_model_card`.

        Returns:
            The result, as of `report`.
        """
        if self.fit is None or method is not None or per_label is not None:
            self._fit_default(method, per_label)
        fitted = self.fit
        result = self.report(test_dataset, no_examples=no_examples, publish_examples=publish_examples)
        self.accelerator.print(f"{fitted}\n{result.describe()}")
        if self.args.push_to_hub:
            self.push_to_hub(result=result, **card)
        else:
            self.save_calibrated()
            self.create_model_card(result=result, **card)
        folder = self.args.output_dir
        saved = "the model" if result.method is None else "the model with its correction"
        self.accelerator.print(f"{folder}: {saved}, its card, and report.html")
        for step in steps_after_training(result, str(folder), published=self.args.push_to_hub):
            self.accelerator.print(f"Next: {step}")
        return result

    def report(self, test_dataset: Any, *, no_examples: bool = False, publish_examples: bool = False) -> RunResult:
        """Measure data as `measure` does, and write ``report.html`` and the folder ``report`` to `args.output_dir`.

        All processes must call it. The page of a classifier of samples shows its most confident mistakes and least
        confident right answers: the text in the column "text" or behind the `input_ids`, or an image, or else the
        number of the row. The result's `pre` and `post` are the metrics before and after the correction.

        Args:
            test_dataset: labeled data, or the key of one of several evaluation sets.
            no_examples: leave these samples out of the page.
            publish_examples: write the page with its samples to ``report/examples.html``, too, which is published.

        Raises:
            InputError: as `measure`; or both `no_examples` and `publish_examples`.
            NotPublishedError: the report could not be written; the error's `result` holds the measurements.
        """
        both = no_examples and publish_examples
        require(not both, "publish_examples", "must not be given with no_examples, got both")
        shown = None
        if not no_examples and self.head in (Head.CLASSES, Head.LABELS):
            shown = PageScores(self.link, () if self._is_multiple_choice else label_names_of(self.model))
        result = self._measured_result(test_dataset, *filter(None, [shown]))
        if self.is_world_process_zero():
            examples = None
            if shown is not None and shown.scores is not None:
                dataset = self._evaluation_set("dataset", test_dataset)
                inputs = partial(shown_inputs, dataset, processor=self.processing_class)
                examples = find_examples(shown.scores, inputs, None if self.fit is None else self.fit.correction)
            write_results(self.args.output_dir, result, examples=examples, publish_examples=publish_examples)
        return result

    def _measured_result(self, dataset: Any, *accumulators: Accumulator) -> RunResult:
        """Measure a dataset, add it to other accumulators in the same pass, and return the result."""
        streamed, fit = self._new_evaluation(keeps_rows=True), self.fit
        notes = self._measure_dataset(dataset, streamed, *accumulators)
        measured_name, fit_name = dataset if isinstance(dataset, str) else None, None
        if fit is not None and same_data(fit.dataset, self._evaluation_set("dataset", dataset)):
            _logger.warning("the correction was fitted on these samples, so the results after it are optimistic")
            fit_name = measured_name = measured_name or "the calibration data"
        has_samples = self.head is Head.LABELS or (self.head is Head.CLASSES and self.confusion is None)
        result = trained_result(
            str(self.loss_config),
            fit,
            streamed.before,
            streamed.after,
            self.confusion,
            gamma_history(self.state.log_history),
            notes=notes,
            measured_on=measured_name,
            fitted_on=fit_name,
            auto_class=own_auto_class(type(without_adapter(self.model)).__name__),
            intervals=has_samples,
            label_names=label_names_of(self.model),
        )
        if self.is_world_process_zero():
            for warning in warnings_of(result):
                _logger.warning("%s", warning)
        return result

    def create_model_card(
        self,
        language: str | list[str] | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
        *,
        result: RunResult | None = None,
        test_dataset: Any = None,
    ) -> None:
        """Write ``README.md``, the card of the model that `save_calibrated` saved. All processes must call it.

        Raises InputError if there is no data to measure, or if the task is unknown.

        Args:
            language, license, tags: entries of the card's metadata.
            model_name: the Hub id; by default `args.hub_model_id` or the folder's name.
            finetuned_from: the model that was fine-tuned; by default the one that the model was loaded from.
            tasks: the Hub's name for the model's task; not needed for language models and most classifiers.
            dataset_tags, dataset, dataset_args: the Hub id of the training data or, without an id, their name; and the
                name of the dataset's configuration.
            result: the test set's metrics, if `write_report` has already written their report, whose diagrams the card
                then shows. By default, the metrics are measured, and their report is written.
            test_dataset: labeled data to measure, or the key of one of several evaluation sets. The default is the
                evaluation set, and the card says so. With `result`, the Hub id or path of the measured data.
        """
        names: Any = [tasks, dataset_tags, dataset, dataset_args]
        task, tag, data_name, data_config = (value[0] if isinstance(value, list | tuple) else value for value in names)
        task = task or task_of_model(without_adapter(self.model), self.head).pipeline
        data = CardData(tag or data_name)
        fit_dataset = None if self._fit is None else self._fit.dataset  # also of a correction that was folded since
        if result is not None:
            data = replace(data, test_dataset=test_dataset if isinstance(test_dataset, str) else None)
        else:
            test_dataset = self.eval_dataset if test_dataset is None else test_dataset
            test_dataset = self.held_out_dataset(test_dataset, "test_dataset")
            split = set_name(test_dataset, self.eval_dataset, "test")
            data = replace(data, measured_on=split, same_samples=same_data(fit_dataset, test_dataset))
            result = self._measured_result(test_dataset)
            if self.is_world_process_zero():
                write_report(Path(self.args.output_dir) / "report", result)
        if not self.is_world_process_zero():
            return
        if fit_dataset is not None:
            data = replace(data, fitted_on=set_name(fit_dataset, self.eval_dataset, "calibration"))
        generates, record = self.head.generates, self._recorded_calibration()
        model = trained_model(
            self.model,
            model_name or self.hub_model_id or repository_of(self.args),
            task,
            finetuned_from,
            takes_pairs=task == "text-classification" and self._takes_pairs(),
            folded_temperature=None if result.temperature.is_fitted else folded_temperature(record, generates),
        )
        settings = training_settings(self.args, self.state, **{"configuration of the dataset": data_config})
        training = Training(settings, self._fine_tunes_texts)
        folder = Path(self.args.output_dir)
        result = replace(result, fit=replace(result.fit, folded=is_folded_in_saved(folder, generates)))
        write_card(folder, result, model, data, training, language=language, license=license, tags=tags)

    def _takes_pairs(self) -> bool:
        """Return whether the model was trained on pairs of texts, by its first sample."""
        return is_pair(self.processing_class, first_sample(self.train_dataset, self.eval_dataset))

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **card: Any,
    ) -> CommitInfo | Future | None:
        """Publish the calibrated model with its card. All processes must call it.

        Everything is first saved in `args.output_dir`, by `save_calibrated` and `create_model_card` (with the
        arguments in `card`), then uploaded to `args.hub_model_id`. Fit a correction first, or the model is
        published as it was trained, with a warning. See also `transformers.Trainer.push_to_hub`.

        Returns:
            The commit on the main process, or a `Future` of it if not `blocking`; None on other processes.

        Raises:
            InputError: what `create_model_card` raises.
            HubError: what `hf_focal.hub.hub_publishing.publish` raises, with the command that repeats the upload.
        """
        token, revision = token or self.args.hub_token, revision or self.args.hub_revision
        private = self.args.hub_private_repo if private is None else private
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_calibrated()
        if self.fit is None and not self._recorded_calibration():
            _logger.warning(
                "the model is published without a correction, because none was fitted: see fit_temperature"
            )
        if self.hub_model_id is None:
            with suppress(HubError):  # `publish` raises it again after all files are written
                self.init_hf_repo(token, private)
        self.create_model_card(**card)
        if not self.is_world_process_zero():
            return None
        wait(self.checkpoint_pushes)
        name = self.hub_model_id or repository_of(self.args)
        options: Any = {"private": private, "token": token, "revision": revision, "commit_message": commit_message}
        return (publish if blocking else partial(run_as_future, publish))(self.args.output_dir, name, **options)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        private, token = self.args.hub_private_repo if private is None else private, token or self.args.hub_token
        self.hub_model_id = create_repository(repository_of(self.args), private=private, token=token)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push the model in a checkpoint, without the training state, while training continues."""
        args: Any = self.args
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
            return
        if not args.hub_always_push and not all(future.done() for future in self.checkpoint_pushes):
            return
        self.callback_handler.on_push_begin(args, self.state, self.control)
        options = {"token": args.hub_token, "revision": args.hub_revision}
        message = f"Training in progress, step {self.state.global_step}"
        push = start_upload(checkpoint_folder, args.output_dir, self.hub_model_id, commit_message=message, **options)
        self.checkpoint_pushes.append(push)
