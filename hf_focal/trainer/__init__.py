"""Who trains: `FocalTrainer`, `FocalSeq2SeqTrainer`, their arguments, and the loss for any other trainer."""

from .adafocal import gamma_history
from .arguments import FocalSeq2SeqTrainingArguments, FocalTrainingArguments
from .class_weights import ClassWeights, class_weight_history
from .dynamics import Dynamics, dynamics_history
from .loss_function import LossFunction, loss_func
from .seq2seq import FocalSeq2SeqTrainer
from .trainer import FocalTrainer

__all__ = [
    "ClassWeights",
    "Dynamics",
    "FocalSeq2SeqTrainer",
    "FocalSeq2SeqTrainingArguments",
    "FocalTrainer",
    "FocalTrainingArguments",
    "LossFunction",
    "class_weight_history",
    "dynamics_history",
    "gamma_history",
    "loss_func",
]
