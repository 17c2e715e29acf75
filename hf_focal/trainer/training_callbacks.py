"""Callbacks that report training progress to the loss, delay checkpoints, and update AdaFocal's γ."""

import logging
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import IntervalStrategy, has_length

from ..errors import InputError, require
from ..losses import AdaFocalGamma
from .batch_labels import labels_of
from .checkpoints import read_state
from .transformers_shims import load_renamed_weights, set_epoch

_logger = logging.getLogger(__name__)

BUILT_IN = "built_in_"  # prefix of a built-in metric whose name compute_metrics returned, too


class TrainingCallback(TrainerCallback):
    """Reports the progress of a `FocalTrainer` to its loss, delays a checkpoint of an epoch's last step to the end of
    the epoch, and loads what Trainer leaves out: weights that it cannot match by their names, and the state of the
    loss that belongs to the best model."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.save_at_epoch_end = False

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.save_at_epoch_end = False
        load_renamed_weights(self.trainer, self.trainer.resumed_from)
        self.trainer.begin_training(kwargs["train_dataloader"])

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        set_epoch(kwargs["train_dataloader"], int(state.epoch or 0))

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.loss.set_progress(min(state.global_step / state.max_steps, 1.0))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.loss.end_step()
        # A run resumed from an epoch's last step begins with the next epoch, so whatever the end of this epoch logs
        # and evaluates must precede the checkpoint.
        if control.should_save and _ends_epoch(state):
            control.should_save, self.save_at_epoch_end = False, True

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.check_labels_seen()
        if self.save_at_epoch_end:
            control.should_save, self.save_at_epoch_end = True, False

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        wait(self.trainer.checkpoint_pushes)
        if args.load_best_model_at_end and (best := state.best_model_checkpoint) is not None:
            load_renamed_weights(self.trainer, best)
            self.trainer.load_loss_state(read_state(best))


class PrintedLines(PrinterCallback):
    """Prints the lines of `log_line` instead of all logs."""

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if state.is_local_process_zero and (line := log_line(logs or {}, args, state)):
            print(line, flush=True)


class ProgressAndLines(ProgressCallback):
    """Shows Trainer's progress bars with names, and prints the lines of `log_line` instead of all logs.

    The bar of a pass over an evaluation set has the name `pass_name`, which the trainer sets.
    """

    pass_name = "evaluation"

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description("training")

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        super().on_prediction_step(args, state, control, **kwargs)
        # A bar that TQDM_DISABLE hides has no name.
        if self.prediction_bar is not None and not getattr(self.prediction_bar, "desc", None):
            self.prediction_bar.set_description(self.pass_name)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is not None and (line := log_line(logs or {}, args, state)):
            self.training_bar.write(line)


def print_lines(trainer: Any) -> None:
    """Replace Trainer's callbacks that print all logs with callbacks that print the lines of `log_line`.

    Callbacks that a user adds later stay.
    """
    for printer, lines in ((PrinterCallback, PrintedLines), (ProgressCallback, ProgressAndLines)):
        if any(type(callback) is printer for callback in trainer.callback_handler.callbacks):
            trainer.remove_callback(printer)
            trainer.add_callback(lines)


def log_line(logs: Mapping[str, Any], args: Any, state: TrainerState) -> str | None:
    """Return the line to print for an evaluation, the end of training or, without evaluations, the training loss.

    Returns None for other logs, such as γ, which go only to `state.log_history` and the reporting integrations.
    """
    epoch = f"epoch {state.epoch or 0:.3g}"
    if "train_loss" in logs:
        return f"{epoch}: trained in {logs['train_runtime']:.0f} s, training loss {logs['train_loss']:.4f}"
    for name in logs:
        prefix = name.removesuffix("ece")
        keys = [f"{prefix}{key}" for key in ("nll", "error", "ece", "adaece")]
        if name.endswith("_ece") and logs.keys() >= {*keys}:
            nll, error, ece, adaece = (logs.get(f"{prefix}{BUILT_IN}{key[len(prefix) :]}", logs[key]) for key in keys)
            losses = [f"training loss {entry['loss']:.4f}, " for entry in state.log_history if "loss" in entry][-1:]
            return (
                f"{epoch}: {''.join(losses)}{prefix.rstrip('_')} NLL {nll:.4f}, error {100 * error:.2f}%, "
                f"ECE {100 * ece:.2f}%, AdaECE {100 * adaece:.2f}%"
            )
    return f"{epoch}: training loss {logs['loss']:.4f}" if "loss" in logs and args.eval_strategy == "no" else None


class GammaUpdates(TrainerCallback):
    """Updates AdaFocal's γ (Ghosh et al. 2022, algorithm 1).

    An update falls due at the end of an epoch, or every `args.gamma_update_steps` steps. It happens before the next
    step: as part of an evaluation of the calibration set if one runs by then, or else in a separate pass over the set.
    A checkpoint written in between records that the update is `due`, so that a resumed run performs the update.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.due = False
        self.step_of_last_update: int | None = None

    @property
    def policy(self) -> AdaFocalGamma | None:
        """The γ policy of the trainer's loss if the loss is AdaFocal, or None."""
        policy = getattr(self.trainer.loss, "policy", None)
        return policy if isinstance(policy, AdaFocalGamma) else None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.step_of_last_update = None
        if self.policy is None:
            return
        dataset = self.trainer.held_out_dataset()
        if self.trainer.calibration_dataset is None and args.should_log:
            _logger.warning(
                "calibration_dataset is not given: AdaFocal updates γ by the calibration of eval_dataset, which is "
                "then no longer an independent measure of it"
            )
        require(
            args.gamma_update_steps is not None or has_length(self.trainer.train_dataset),
            "gamma_update_steps",
            "must be given for a train_dataset without a length, got None: the ends of its epochs are not known "
            "beforehand",
        )
        _check_size(self.trainer, self.trainer.get_eval_dataloader(dataset), len(self.policy.gammas))
        every = args.gamma_update_steps or math.ceil(
            len(kwargs["train_dataloader"]) / args.gradient_accumulation_steps
        )
        if every >= state.max_steps and args.should_log:
            message = "γ stays 1: AdaFocal updates it every %d steps, and the training has %d; set gamma_update_steps"
            _logger.warning(message, every, state.max_steps)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # This is not in on_epoch_end, because a checkpoint of this step may be written before the epoch ends.
        every = args.gamma_update_steps
        falls_due = _ends_epoch(state) if every is None else state.global_step % every == 0
        self.due = self.due or (falls_due and self.policy is not None)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # A callback may end an epoch early.
        if self.policy is not None and args.gamma_update_steps is None:
            self.due = self.due or self.step_of_last_update != state.global_step

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.due:
            self.update(*self.trainer.measure_confidences())

    def update(self, confidence: Tensor, correct: Tensor) -> None:
        """Update γ from confidences (N,) and correctness (N,) on the calibration set, and log γ and the bin edges."""
        state, policy = self.trainer.state, self.policy
        self.due, self.step_of_last_update = False, state.global_step
        assert policy is not None  # otherwise no update would be due
        policy.update(confidence, correct)
        logs = {f"gamma_{index}": gamma for index, gamma in enumerate(policy.gammas)}
        logs |= {f"gamma_edge_{index}": edge for index, edge in enumerate(policy.edges)}
        if self.trainer.args.logging_strategy == IntervalStrategy.NO:  # for `gamma_history`, not for the screen
            state.log_history.append({**logs, "epoch": state.epoch, "step": state.global_step})
        else:
            self.trainer.log(logs)


def gamma_history(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return AdaFocal's γ after each update, from `trainer.state.log_history`.

    Returns:
        For M bins, a list with a dict ``{"step", "epoch", "gammas": [M floats], "edges": [M + 1 floats]}`` per update.
        For losses other than AdaFocal, the list is empty.
    """
    # The names are read by index, because in a checkpoint they are sorted as text.
    return [
        {
            "step": entry["step"],
            "epoch": entry["epoch"],
            "gammas": [entry[f"gamma_{index}"] for index in range(num_bins)],
            "edges": [entry[f"gamma_edge_{index}"] for index in range(num_bins + 1)],
        }
        for entry in log_history
        if (num_bins := sum(name.startswith("gamma_edge_") for name in entry) - 1) > 0
    ]


def _ends_epoch(state: TrainerState) -> bool:
    """Return whether the last step ended an epoch, if the training set has a length."""
    return state.epoch == int(state.epoch)


def _check_size(trainer: Any, dataloader: DataLoader, num_bins: int) -> None:
    """Raise InputError if the calibration set has fewer labels than `num_bins`. Reading one batch usually suffices."""
    # With a separate loader, all processes read the same batches, and none draws from PyTorch's global generator.
    options: Any = {"collate_fn": dataloader.collate_fn, "generator": torch.Generator()}
    count = 0
    for batch in DataLoader(dataloader.dataset, trainer.args.eval_batch_size, **options):
        labels = labels_of(trainer.prepare_labels(batch), "calibration_dataset")
        known = labels != -100
        is_soft = labels.is_floating_point() and trainer.link == "softmax"
        count += int((known.all(-1) if is_soft else known).sum())
        if count >= num_bins:
            return
    raise InputError(
        "calibration_dataset",
        f"must hold at least one labeled sample for each of the {num_bins} bins, got {count}: give more of them, or "
        "use fewer bins",
    )
