"""Checks of how a training is spread over devices and processes."""

from transformers import Trainer

from .training_arguments import FocalTrainingArguments


def check_processes(args: FocalTrainingArguments) -> None:
    if args.n_gpu > 1:
        raise ValueError(
            f"args.n_gpu must be at most 1 a process, got {args.n_gpu}: DataParallel is not supported; start one "
            f"process for each GPU with `accelerate launch --num_processes {args.n_gpu} script.py`, or make one "
            "GPU visible with CUDA_VISIBLE_DEVICES=0"
        )
    if args.world_size > 1 and args.loss_reduction == "sum" and not args.average_tokens_across_devices:
        raise ValueError(
            "args.average_tokens_across_devices must be True with loss_reduction='sum', got False: the sum is over "
            "the samples of all processes"
        )


def check_data_parallelism(trainer: Trainer) -> None:
    if max(trainer.get_tp_size(), trainer.get_cp_size(), trainer.get_sp_size()) > 1:
        raise ValueError(
            "args.parallelism_config must have data parallelism alone, got a split model or sequence: samples would "
            "be counted more than once"
        )
    if trainer.args.world_size > 1 and not trainer.accelerator.even_batches:
        raise ValueError(
            "args.accelerator_config must have even_batches, got even_batches=False: processes with unequal numbers "
            "of batches would wait for each other"
        )
