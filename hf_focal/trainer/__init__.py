"""Who trains: `FocalTrainer`, its arguments, and the loss for any other trainer."""

from .arguments import FocalTrainingArguments
from .loss_function import LossFunction, loss_func
from .trainer import FocalTrainer

__all__ = ["FocalTrainer", "FocalTrainingArguments", "LossFunction", "loss_func"]
