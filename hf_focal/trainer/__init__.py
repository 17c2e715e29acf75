"""Who trains: `FocalTrainer`, its arguments, and the loss for any other trainer."""

from .adafocal import gamma_history
from .arguments import FocalTrainingArguments
from .loss_function import LossFunction, loss_func
from .trainer import FocalTrainer

__all__ = ["FocalTrainer", "FocalTrainingArguments", "LossFunction", "gamma_history", "loss_func"]
