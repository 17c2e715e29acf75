"""Checks of the Transformers release, the process setup, and the datasets of a trainer."""

import inspect
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import datasets
import transformers
from accelerate.data_loader import IterableDatasetShard
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import has_length


def check_setup(trainer: Trainer) -> None:
    """Check the Transformers release, and how the processes of a trainer are set up.

    Raises RuntimeError if Trainer lacks one of the internal names that docs/architecture.md lists, because training or
    a push would then silently behave differently. Raises ValueError if the setup of the processes is not supported.
    """
    names = {*vars(Trainer), *vars(trainer)}
    missing = [name for name in ("callback_handler", "gather_function", "_push_from_checkpoint") if name not in names]
    if "_internal_call" not in inspect.signature(Trainer.save_model).parameters:
        missing.append("save_model(_internal_call=...)")
    if missing:
        raise RuntimeError(
            f"transformers {transformers.__version__} must have Trainer.{missing[0]}, which it lacks: install another "
            "release, or a newer hf_focal"
        )
    args = trainer.args
    if args.n_gpu > 1:
        raise ValueError(
            f"args.n_gpu must be at most 1 per process, got {args.n_gpu}: DataParallel is not supported; start one "
            f"process for each GPU with `accelerate launch --num_processes {args.n_gpu} script.py`, or make one "
            "GPU visible with CUDA_VISIBLE_DEVICES=0"
        )
    if args.world_size > 1 and args.loss_reduction == "sum" and not args.average_tokens_across_devices:
        raise ValueError(
            "args.average_tokens_across_devices must be True with loss_reduction='sum', got False: the sum is over "
            "the samples of all processes"
        )
    if max(trainer.get_tp_size(), trainer.get_cp_size(), trainer.get_sp_size()) > 1:
        raise ValueError(
            "args.parallelism_config must have data parallelism alone, got a split model or sequence: samples would "
            "be counted more than once"
        )
    if args.world_size > 1 and not trainer.accelerator.even_batches:
        raise ValueError(
            "args.accelerator_config must have even_batches, got even_batches=False: processes with unequal numbers "
            "of batches would wait for each other"
        )


def evaluation_set(name: str, dataset: Any, eval_dataset: Any) -> Any:
    """Return `dataset` or, if it is a string, the evaluation set with this key; raise ValueError if there is none."""
    if not isinstance(dataset, str):
        return dataset
    sets = eval_dataset if isinstance(eval_dataset, dict) else {}
    if dataset not in sets:
        raise ValueError(
            f"{name} must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
        )
    return sets[dataset]


def same_data(first: Any, second: Any) -> bool:
    """Return whether two datasets are the same object, or the same data loaded twice."""
    if isinstance(first, datasets.Dataset) and isinstance(second, datasets.Dataset):
        return getattr(first, "_fingerprint", first) == getattr(second, "_fingerprint", second)
    return first is not None and first is second


def check_held_out(name: str, dataset: Any, train_dataset: Any) -> None:
    if same_data(dataset, train_dataset):
        raise ValueError(
            f"{name} must be held out, got the training set: its confidence says nothing about other data"
        )


def check_not_empty(name: str, dataset: Any) -> None:
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_not_empty(f"{name}[{key!r}]", part)
    elif has_length(dataset) and len(dataset) == 0:
        raise ValueError(f"{name} must hold at least one sample, got an empty dataset")


def check_measurable(dataloader: DataLoader, num_processes: int) -> None:
    if isinstance(dataloader.dataset, IterableDatasetShard) and num_processes > 1:
        raise ValueError(
            "args.accelerator_config must have dispatch_batches for a stream that is measured, got "
            "dispatch_batches=False: the samples that fill up its last batch cannot be told apart from real ones"
        )
    check_not_empty("the dataset to measure", dataloader.dataset)


def search_objective(trainer: Any, compute_objective: Any) -> Any:
    """Return the objective of a hyperparameter search: `compute_objective`, or by default a function of the metrics.

    The default returns the NLL, which compares losses, options of a loss, and a loss that changes during training.
    (Trainer's own default would add up all metrics.) Raises ValueError without `compute_objective` for several
    evaluation sets or if the trainer has `compute_metrics`.
    """
    if compute_objective is None and (trainer.compute_metrics or isinstance(trainer.eval_dataset, dict)):
        raise ValueError("compute_objective must be given with compute_metrics or several evaluation sets, got None")
    return compute_objective or itemgetter("eval_nll")


def labels_of(batch: Mapping[str, Any], dataset: str) -> Tensor:
    """Return the labels of a batch. If it has none, raise ValueError with a message that contains `dataset`."""
    if batch.get("labels") is None:
        raise ValueError(f"{dataset} must have a column 'label' or 'labels', got {', '.join(batch)}")
    return batch["labels"]
