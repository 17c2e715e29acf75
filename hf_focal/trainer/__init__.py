"""Who trains: `FocalTrainer`, `FocalSeq2SeqTrainer`, their arguments, and the loss for any other trainer."""

from .adafocal import gamma_history
from .arguments import FocalSeq2SeqTrainingArguments, FocalTrainingArguments
from .dynamics import Dynamics, dynamics_history
from .loss_function import LossFunction, loss_func
from .seq2seq import FocalSeq2SeqTrainer
from .trainer import FocalTrainer

__all__ = [
    "Dynamics",
    "FocalSeq2SeqTrainer",
    "FocalSeq2SeqTrainingArguments",
    "FocalTrainer",
    "FocalTrainingArguments",
    "LossFunction",
    "dynamics_history",
    "gamma_history",
    "loss_func",
]
