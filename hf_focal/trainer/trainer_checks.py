"""Checks of the processes, the datasets and the release of Transformers that a trainer is given."""

import inspect
from typing import Any

import datasets
import transformers
from accelerate.data_loader import IterableDatasetShard
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import has_length

from .training_arguments import FocalTrainingArguments


def check_private_names(trainer: Trainer) -> None:
    """Check the private names of Transformers that docs/architecture.md lists.

    Raises:
        RuntimeError: the installed release lacks one, so training or a push would silently behave differently.
    """
    missing = [name for name in ("callback_handler", "gather_function") if not hasattr(trainer, name)]
    if not hasattr(Trainer, "_push_from_checkpoint"):
        missing.append("_push_from_checkpoint")
    if "_internal_call" not in inspect.signature(Trainer.save_model).parameters:
        missing.append("save_model(_internal_call=...)")
    if missing:
        raise RuntimeError(
            f"transformers {transformers.__version__} must have Trainer.{missing[0]}, which it lacks: install another "
            "release, or a newer hf_focal"
        )


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


def evaluation_set(name: str, dataset: Any, eval_dataset: Any) -> Any:
    """The dataset itself, or the one of several evaluation sets with that key."""
    if not isinstance(dataset, str):
        return dataset
    sets = eval_dataset if isinstance(eval_dataset, dict) else {}
    if dataset not in sets:
        raise ValueError(
            f"{name} must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
        )
    return sets[dataset]


def check_single(name: str, dataset: Any) -> None:
    if dataset is None:
        raise ValueError(
            f"{name} must be given, got None: the trainer has neither a calibration_dataset nor an eval_dataset"
        )
    if isinstance(dataset, dict):
        raise ValueError(f"{name} must be one of the evaluation sets, got all of them: {', '.join(dataset)}")


def check_held_out(name: str, dataset: Any, train_dataset: Any) -> None:
    same = dataset is not None and dataset is train_dataset
    if isinstance(dataset, datasets.Dataset) and isinstance(train_dataset, datasets.Dataset):
        # Loaded twice, it is the same data.
        same = getattr(dataset, "_fingerprint", dataset) == getattr(train_dataset, "_fingerprint", train_dataset)
    if same:
        raise ValueError(
            f"{name} must be held out, got the training set: its confidence says nothing about other data"
        )


def check_not_empty(name: str, dataset: Any) -> None:
    for key, part in dataset.items() if isinstance(dataset, dict) else [(None, dataset)]:
        if has_length(part) and len(part) == 0:
            where = name if key is None else f"{name}[{key!r}]"
            raise ValueError(f"{where} must hold at least one sample, got an empty dataset")


def check_measurable(dataloader: DataLoader, num_processes: int) -> None:
    if isinstance(dataloader.dataset, IterableDatasetShard) and num_processes > 1:
        raise ValueError(
            "args.accelerator_config must have dispatch_batches for a stream that is measured, got "
            "dispatch_batches=False: the samples that fill up its last batch cannot be told from its own"
        )
    check_not_empty("the dataset to measure", dataloader.dataset)


def check_token_columns(dataset: Any) -> None:
    if not has_length(dataset):
        raise ValueError(
            f"train_dataset must have a length for max_tokens_per_batch, got {type(dataset).__name__}, a stream"
        )
    missing = {"input_ids", "labels"} - set(dataset[0])
    if missing:
        raise ValueError(
            f"train_dataset must have input_ids and labels for max_tokens_per_batch, got {sorted(dataset[0])}"
        )
