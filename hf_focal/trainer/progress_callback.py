"""Callback that reports training progress to the loss, and delays checkpoints to the end of an epoch."""

from concurrent.futures import wait
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState

from .sample_order import ends_epoch


class TrainingCallback(TrainerCallback):
    """Reports the progress of a `FocalTrainer` to its loss, and delays checkpoints to the end of an epoch."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.save_at_epoch_end = False

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        self.save_at_epoch_end = False
        self.trainer.begin_training(train_dataloader)

    def on_epoch_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        # In a resumed epoch on several processes Trainer does not reach the sampler.
        if hasattr(train_dataloader, "set_epoch"):  # a user's own loader may lack it
            train_dataloader.set_epoch(int(state.epoch or 0))

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.loss.set_progress(min(state.global_step / state.max_steps, 1.0))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.loss.end_step()
        # A run resumed from an epoch's last step begins with the next epoch, so whatever the end of this epoch logs
        # and evaluates must precede the checkpoint.
        if control.should_save and ends_epoch(state):
            control.should_save, self.save_at_epoch_end = False, True

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.check_labels_seen()
        if self.save_at_epoch_end:
            control.should_save, self.save_at_epoch_end = True, False

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        wait(self.trainer.checkpoint_pushes)
