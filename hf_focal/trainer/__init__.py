"""Trainers with a calibrated loss, their arguments, and the loss for any other trainer."""

from .checkpoints import last_complete_checkpoint
from .focal_trainer import FocalTrainer
from .loss_function import LossFunction, loss_func
from .seq2seq_trainer import FocalSeq2SeqTrainer
from .training_arguments import FocalSeq2SeqTrainingArguments, FocalTrainingArguments
from .training_callbacks import gamma_history

__all__ = [
    "FocalSeq2SeqTrainer",
    "FocalSeq2SeqTrainingArguments",
    "FocalTrainer",
    "FocalTrainingArguments",
    "LossFunction",
    "gamma_history",
    "last_complete_checkpoint",
    "loss_func",
]
