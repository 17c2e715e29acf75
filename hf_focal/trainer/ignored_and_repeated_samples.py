"""Masking of labels that must not count: those of ignored pixels, of first tokens, and of repeated samples."""

from typing import Any

import torch
from accelerate import PartialState
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
from accelerate.state import GradientState
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader
from transformers.trainer_utils import has_length

from ..tasks.heads import Head


def without_ignored(batch: dict[str, Any], head: Head, model: nn.Module) -> dict[str, Any]:
    """Return the batch with -100 in place of the labels that must not count.

    These labels are NaN, the labels of pixels that the model's configuration says to ignore, and the label of the
    first token of each sequence. For extractive question answering, the starts and ends of the answers become `labels`
    (N, 2). As in the models' own loss, -100 replaces positions beyond the sequence, and 0 replaces negative positions.
    """
    if head is Head.SPANS and {"start_positions", "end_positions"} <= batch.keys():
        batch = dict(batch)
        columns = [batch.pop(name).reshape(-1) for name in ("start_positions", "end_positions")]
        positions = torch.stack(columns, 1).clamp(min=0)
        sequence = batch["input_ids"] if "input_ids" in batch else batch["inputs_embeds"]
        return {**batch, "labels": positions.masked_fill(positions >= sequence.shape[1], -100)}
    labels = batch.get("labels")
    if head is Head.LABELS and labels is not None and labels.is_floating_point():
        return {**batch, "labels": labels.masked_fill(labels.isnan(), -100)}  # Trainer counts labels that are not -100
    if head not in (Head.PIXELS, Head.NEXT_TOKENS) or labels is None or labels.is_floating_point():
        return batch  # the loss handles missing and floating labels
    if head is Head.PIXELS:
        config = getattr(model, "config", None)
        default = getattr(config, "loss_ignore_index", 255)  # UperNet's name
        ignored = getattr(config, "semantic_loss_ignore_index", default)
        labels = labels.long()  # in uint8, -100 would be 156
        return {**batch, "labels": labels.masked_fill(labels == ignored, -100)}
    # No token precedes the first. Trainer counts its label for some causal language models but not for others.
    labels = labels.clone()
    labels[..., 0] = -100
    return {**batch, "labels": labels}


def padded_positions(logits: Tensor, head: Head, model: Any) -> Tensor:
    """Pad the logits (N, 2, L) of answer spans with -inf to the length of the model's longest possible sequence, so
    that all batches have the same number of classes. Return logits of other heads unchanged."""
    if head is not Head.SPANS:
        return logits
    longest = getattr(model.config, "max_position_embeddings", 4096)  # some models have no limit
    return F.pad(logits, (0, max(0, longest - logits.shape[-1])), value=-torch.inf)


def without_repeats(batch: Any, loader: DataLoader, dataset: Any) -> Any:
    """Return the training batch with -100 as the labels of samples that only fill up the last batch of an epoch.

    `loader` is the loader of a whole epoch as Accelerate prepared it, even in a resumed epoch. `dataset` is the
    training set.
    """
    if PartialState().num_processes == 1 or not GradientState().end_of_dataloader or batch.get("labels") is None:
        return batch
    own = _num_own_samples(len(batch["labels"]), _num_distinct_in_last_batch(loader, dataset))
    if own < len(batch["labels"]):
        batch["labels"] = batch["labels"].clone()
        batch["labels"][own:] = -100
    return batch


def num_measured_samples(num_samples: int, batch_size: int) -> int:
    """Return how many of the `num_samples` samples in this process's evaluation batch are not repeats. On several
    processes, raise ValueError if there are more than `batch_size` of them."""
    if PartialState().num_processes == 1:
        return num_samples
    if num_samples > batch_size:
        raise ValueError(
            f"labels must have one entry per sample to be measured on several processes, got {num_samples} in a batch "
            f"of at most {batch_size} samples"
        )
    state = GradientState()
    return _num_own_samples(num_samples, state.remainder) if state.end_of_dataloader else num_samples


def _num_own_samples(num_samples: int, distinct: int) -> int:
    """Return how many of this process's `num_samples` samples are among the first `distinct` samples of the last
    global batch. Return all of them if `distinct` is 0 or less, because the batch then has no repeats."""
    if distinct <= 0:
        return num_samples
    return min(max(distinct - PartialState().process_index * num_samples, 0), num_samples)


def _num_distinct_in_last_batch(loader: DataLoader, dataset: Any) -> int:
    """Return how many samples in an epoch's last global batch are not repeats; at most 0 if there are no repeats."""
    # The loader's `remainder` does not help: the loader of a resumed epoch does not set it, and it is wrong for
    # samplers that yield more or fewer samples than the dataset has.
    if isinstance(loader, DataLoaderDispatcher):  # the first process reads for all processes and counts the samples
        return loader.gradient_state.remainder
    if isinstance(loader.dataset, IterableDatasetShard):
        shard, num_samples = loader.dataset, len(dataset) if has_length(dataset) else 0
        batch_size = shard.batch_size
    else:
        shard = loader.batch_sampler
        # A batch sampler that assigns samples to processes itself (`batch_rebalance`) may repeat them anywhere.
        if not isinstance(shard, BatchSamplerShard) or not isinstance(shard.batch_sampler, BatchSampler):
            return 0
        if shard.drop_last or shard.num_processes == 1:
            return 0
        sampler: Any = shard.batch_sampler.sampler
        num_samples, batch_size = len(sampler), shard.batch_sampler.batch_size
    return num_samples % (batch_size * (1 if shard.split_batches else shard.num_processes))
