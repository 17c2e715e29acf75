"""Workarounds for Transformers' Trainer, each with its upstream issue, if there is one.

All of them are needed up to Transformers 5.24 and Accelerate 1.15, the newest releases they were checked with. This
file also checks the private names on which the package relies, and that the setup of the processes is supported.
"""

import inspect
import json
import logging
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from transformers import DefaultFlowCallback, PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import has_length

from ..errors import require
from ..utils.caller_warnings import warn
from ..utils.model_wrappers import plain_submodules

_logger = logging.getLogger(__name__)


def check_setup(trainer: Trainer) -> None:
    """Check the Transformers release, and how the processes of a trainer are set up.

    Raises RuntimeError if Trainer lacks one of the internal names that docs/architecture.md lists, because training or
    a push would then silently behave differently. Raises InputError if the setup of the processes is not supported.
    """
    names = {*vars(Trainer), *vars(trainer)}
    missing = [name for name in ("callback_handler", "gather_function", "_push_from_checkpoint") if name not in names]
    if "_internal_call" not in inspect.signature(Trainer.save_model).parameters:
        missing.append("save_model(_internal_call=...)")
    if missing:
        raise RuntimeError(
            f"transformers {transformers.__version__} has no Trainer.{missing[0]}, which hf_focal needs: install "
            "another release, or a newer hf_focal"
        )
    args = trainer.args
    require(
        args.n_gpu <= 1,
        "args.n_gpu",
        f"must be at most 1 per process, got {args.n_gpu}: DataParallel is not supported; start one process for each "
        f"GPU with `accelerate launch --num_processes {args.n_gpu} script.py`, or make one GPU visible with "
        "CUDA_VISIBLE_DEVICES=0",
    )
    require(
        args.world_size == 1 or args.loss_reduction != "sum" or args.average_tokens_across_devices,
        "args.average_tokens_across_devices",
        "must be True with loss_reduction='sum', got False: the sum is over the samples of all processes",
    )
    require(
        max(trainer.get_tp_size(), trainer.get_cp_size(), trainer.get_sp_size()) <= 1,
        "args.parallelism_config",
        "must have only data parallelism, got a split model or sequence: samples would be counted more than once",
    )
    require(
        args.world_size == 1 or trainer.accelerator.even_batches,
        "args.accelerator_config",
        "must have even_batches, got even_batches=False: processes with unequal numbers of batches would wait for "
        "each other",
    )
    if args.world_size == 1 and _should_be_several():
        warn(
            "`accelerate launch` started one process, as it does on CPUs, although --num_processes or its config asks "
            "for several: start two with `torchrun --nproc_per_node 2` in the place of `accelerate launch`"
        )


def _should_be_several() -> bool:
    """Return whether this is the only process of an `accelerate launch` that was to start several."""
    # It sets the second variable only for several processes or machines, and WORLD_SIZE if it starts them.
    return {"ACCELERATE_DYNAMO_USE_DYNAMIC", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ


class SeededByEpoch(LengthGroupedSampler):
    """Transformers' `LengthGroupedSampler`, seeded for each epoch.

    The original draws the order of the training set from PyTorch's global generator. (Pull request
    huggingface/transformers#48025 gave only the evaluation set a generator of its own.) If the models of several
    processes drew different amounts from it, the processes would use different orders: some samples would be seen
    twice and others never.
    """

    def __init__(self, sampler: LengthGroupedSampler, seed: int):
        super().__init__(sampler.batch_size, lengths=sampler.lengths)
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return super().__iter__()


def seed_by_epoch(loader: DataLoader, seed: int) -> DataLoader:
    """Return a training loader after replacing its sampler, if it groups by length, with a `SeededByEpoch`."""
    batches: Any = loader.batch_sampler
    batches = getattr(batches, "batch_sampler", batches)  # inside a process's BatchSamplerShard
    if isinstance(getattr(batches, "sampler", None), LengthGroupedSampler):
        batches.sampler = SeededByEpoch(batches.sampler, seed)
    return loader


def set_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch of the loader of a whole epoch, even if the rest of an epoch is resumed.

    In that case, Trainer sets the epoch on the loader of the remaining batches, whose `SkipBatchSampler` (from
    Accelerate) does not pass it on to the samplers of several processes; see huggingface/accelerate#2016.
    """
    if hasattr(loader, "set_epoch"):  # a user's own loader may lack it
        loader.set_epoch(epoch)


def completed(batches: list[Any], num_batches: int, dataset: Any) -> list[Any]:
    """Return the batches of a step, padded with unlabeled batches if `dataset` is a stream that ended within the step.

    Trainer takes no step after fewer than `num_batches` batches of a dataset without a length.
    """
    if not batches or has_length(dataset) or batches[-1].get("labels") is None:
        return batches
    ignored = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], -100)}
    return batches + [ignored] * (num_batches - len(batches))


def check_position(checkpoint: str | Path | None, trainer: Trainer) -> None:
    """Raise InputError if training on a dataset without a length would resume after its first pass over the data.

    Trainer would then start again with the first sample (huggingface/transformers#26413; #33544 would fix this). With
    `ignore_data_skip`, nothing is raised, because the user has asked for this.
    """
    file = Path(checkpoint or "", "trainer_state.json")
    if not checkpoint or trainer.args.ignore_data_skip or has_length(trainer.train_dataset) or not file.is_file():
        return
    require(
        json.loads(file.read_text(encoding="utf-8"))["epoch"] <= 1,  # exactly 1 if `max_steps` ended the first pass
        "resume_from_checkpoint",
        f"must be of the first pass over a train_dataset without a length, got {str(checkpoint)!r} of a later one: "
        "Trainer would start again with the first sample; to allow this, set ignore_data_skip=True",
    )


def load_renamed_weights(trainer: Trainer, checkpoint: str | None) -> None:
    """Load a checkpoint's weights again if Trainer could not match them with the model's parameters.

    Transformers saves the weights of some models (ViT, SegFormer, Mixtral, ...) under names that differ from the names
    in memory, and `from_pretrained` renames them. Trainer does not when it resumes or loads the best model: parameters
    whose names are not in the files then keep their values, with only a warning. See huggingface/transformers#43701
    and #48805; pull request #48822 would end this. The same goes for compiled submodules, which `FocalTrainer` saves
    under their plain names.
    """
    model: Any = trainer.model
    if checkpoint is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # they save the in-memory names
        return
    names, files = set[str](), list(Path(checkpoint).glob("model*.safetensors"))
    for file in files:
        with safe_open(file, "pt") as weights:
            names |= set(weights.keys())
    if not isinstance(model, PreTrainedModel) or names <= model.state_dict().keys():
        return
    with plain_submodules(model):
        if names <= model.state_dict().keys():
            for file in files:
                model.load_state_dict(load_file(file), strict=False)
        else:
            saved = type(model).from_pretrained(checkpoint, config=deepcopy(model.config), dtype=model.dtype)
            model.load_state_dict(saved.state_dict())
    _logger.warning("%s was loaded with its weights renamed; disregard missing and unexpected keys above", checkpoint)


def add_callbacks(trainer: Any, *callbacks: TrainerCallback) -> None:
    """Add callbacks to a trainer, before the callback of `enable_jit_checkpoint`, which saves at the end of a step."""
    later = []
    if trainer.args.enable_jit_checkpoint:
        later = [
            callback
            for callback in trainer.callback_handler.callbacks
            if not isinstance(callback, DefaultFlowCallback)
        ]
    for callback in later:
        trainer.remove_callback(callback)
    for callback in (*callbacks, *later):
        trainer.add_callback(callback)
