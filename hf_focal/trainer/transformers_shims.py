"""Work around bugs of Transformers' Trainer, and check the parts of it on which this package relies."""

import inspect
import json
import logging
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch.utils.data import DataLoader
from transformers import DefaultFlowCallback, PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import has_length

_logger = logging.getLogger(__name__)


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


class SeededByEpoch(LengthGroupedSampler):
    """Transformers' `LengthGroupedSampler`, seeded for each epoch.

    The original draws from PyTorch's global generator. If the models of several processes drew different amounts from
    it, the processes would use different orders: some samples would be seen twice and others never.
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


def check_position(checkpoint: str | Path | None, trainer: Trainer) -> None:
    """Raise ValueError if training on a dataset without a length would resume after its first pass over the data.

    Trainer would then start again with the first sample. `ignore_data_skip` accepts that, so nothing is raised.
    """
    file = Path(checkpoint or "", "trainer_state.json")
    if not checkpoint or trainer.args.ignore_data_skip or has_length(trainer.train_dataset) or not file.is_file():
        return
    if json.loads(file.read_text(encoding="utf-8"))["epoch"] > 1:  # exactly 1 if `max_steps` ended the first pass
        raise ValueError(
            "resume_from_checkpoint must be of the first pass over a train_dataset without a length, got "
            f"{str(checkpoint)!r} of a later one: Trainer would start again with the first sample; "
            "ignore_data_skip=True accepts that"
        )


def load_renamed_weights(trainer: Trainer, checkpoint: str | None) -> None:
    """Load a checkpoint's weights again if Trainer could not match them with the model's parameters.

    Transformers saves the weights of some models (ViT, SegFormer, Mixtral, ...) under names that differ from the names
    in memory, and `from_pretrained` renames them. Trainer does not when it resumes or loads the best model: parameters
    whose names are not in the files then keep their values, with only a warning.
    """
    model: Any = trainer.model
    if checkpoint is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # they save the in-memory names
        return
    if not isinstance(model, PreTrainedModel) or _saved_names(checkpoint) <= model.state_dict().keys():
        return
    saved = type(model).from_pretrained(checkpoint, config=deepcopy(model.config), dtype=model.dtype)
    model.load_state_dict(saved.state_dict())
    _logger.warning("%s was loaded with its weights renamed; disregard missing and unexpected keys above", checkpoint)


def _saved_names(checkpoint: str) -> set[str]:
    """Return the names of the weights in a checkpoint's safetensors files."""
    names: set[str] = set()
    for file in Path(checkpoint).glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            names |= set(weights.keys())
    return names


def add_callbacks(trainer: Any, *callbacks: TrainerCallback) -> None:
    """Add callbacks to a trainer. If `enable_jit_checkpoint` is on, they precede the callback of that option."""
    later = []
    if trainer.args.enable_jit_checkpoint:  # its callback saves at the end of a step: ours come first
        later = [one for one in trainer.callback_handler.callbacks if not isinstance(one, DefaultFlowCallback)]
    for callback in later:
        trainer.remove_callback(callback)
    for callback in (*callbacks, *later):
        trainer.add_callback(callback)
