"""What the training of pictures takes: batch statistics that are shared, and a set that is cut anew each epoch."""

from typing import Any

from accelerate.utils import broadcast
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from ...trainer import FocalTrainer


class BatchStatisticsTrainer(FocalTrainer):
    """`FocalTrainer` of models with batch normalisation: all processes measure with the same statistics."""

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        self.share_buffers()
        return super().evaluation_loop(*args, **kwargs)

    def collect(self, *args: Any, **kwargs: Any) -> Any:
        self.share_buffers()
        return super().collect(*args, **kwargs)

    def share_buffers(self) -> None:
        """Give all processes the first one's batch statistics, which are saved; each has moved on by its own batch."""
        broadcast(list(self.model.buffers()))


class NextEpoch(TrainerCallback):
    """Tells the training set, at `set_epoch`, which epoch begins. (accelerate does so on one process alone.)"""

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        train_dataloader.dataset.set_epoch(int(state.epoch))
