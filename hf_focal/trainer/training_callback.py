"""What makes a resumed training the one that was interrupted, beyond what Trainer restores."""

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from .gamma_updates import ends_epoch
from .training_arguments import FocalTrainingArguments

if TYPE_CHECKING:
    from .focal_trainer import FocalTrainer


class TrainingCallback(TrainerCallback):
    """Tells the loss of the training, and keeps what a resumed training would otherwise lose."""

    def __init__(self, trainer: "FocalTrainer"):
        self.trainer = trainer
        self.save_at_epoch_end = False

    def on_train_begin(
        self,
        args: FocalTrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        self.save_at_epoch_end = False
        self.trainer.begin_training()
        self.trainer.count_classes(train_dataloader)  # unless a checkpoint had them

    def on_epoch_begin(
        self,
        args: FocalTrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any,
        **kwargs: Any,
    ) -> None:
        # Trainer does not reach the sampler of a resumed epoch on several processes.
        if hasattr(train_dataloader, "set_epoch"):  # the user's own loader may have none
            train_dataloader.set_epoch(int(state.epoch or 0))

    def on_step_begin(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.loss.set_progress(min(state.global_step / state.max_steps, 1.0))

    def on_step_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.loss.end_step()
        # A training that is resumed from an epoch's last step begins with the next epoch: what the end of this one
        # logs and evaluates has to come before the checkpoint.
        if control.should_save and ends_epoch(state):
            control.should_save, self.save_at_epoch_end = False, True

    def on_epoch_end(
        self, args: FocalTrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.check_labels_seen()
        self.trainer.average_running_loss()
        if self.save_at_epoch_end:
            control.should_save, self.save_at_epoch_end = True, False
