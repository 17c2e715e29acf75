"""`FocalSeq2SeqTrainer`: the calibrated trainer for encoder-decoder models."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
import torch
from accelerate.data_loader import DataLoaderShard
from torch import nn
from torch.utils.data import DataLoader, Sampler
from transformers import Seq2SeqTrainer
from transformers.trainer_utils import EvalLoopOutput, has_length

from ..errors import require
from ..utils.model_wrappers import unwrap
from .focal_trainer import FocalTrainer
from .training_arguments import FocalSeq2SeqTrainingArguments


class FocalSeq2SeqTrainer(FocalTrainer, Seq2SeqTrainer):
    """`FocalTrainer` for encoder-decoder language models (Marian, T5, BART, mBART, ...).

    The loss and the metrics of `evaluate()` and `predict()` are computed over the target tokens under teacher forcing,
    without padding. With `args.predict_with_generate`, `predict()` also generates sequences, and so does `evaluate()`
    if `compute_metrics` is given. Both methods take arguments of `generate`:
    ``trainer.predict(test, num_beams=4, **calibrated_generation(T))``.

    The arguments and errors are those of `FocalTrainer`, with `FocalSeq2SeqTrainingArguments` as `args`. With
    `args.max_tokens_per_batch`, `train` also raises InputError if the training set has no length or no token ids.

    Examples:
        >>> from hf_focal import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments
        >>> from transformers import MarianConfig, MarianMTModel
        >>> sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 12, "pad_token_id": 11}
        >>> heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1, "decoder_start_token_id": 11}
        >>> args = FocalSeq2SeqTrainingArguments("out", loss="focal:gamma=1", max_steps=1, report_to="none")
        >>> pairs = [{"input_ids": [1, 2, 3], "labels": [4, 5, 6]}] * 8
        >>> trainer = FocalSeq2SeqTrainer(MarianMTModel(MarianConfig(**sizes, **heads)), args, train_dataset=pairs)
        >>> trainer.train().global_step
        epoch ...: trained in ...
        1
    """

    _arguments = FocalSeq2SeqTrainingArguments
    _trains_seq2seq = True

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        # They are added before labels of repeated samples become -100: mBART reads the target language from labels.
        return super().get_batch_samples(map(self._with_decoder_inputs, epoch_iterator), num_batches, device)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(model, self._with_decoder_inputs(inputs), *args, **kwargs)

    def _with_decoder_inputs(self, batch: Any) -> Any:
        """Add the decoder's inputs (N, L) to a batch: the labels shifted right. The model itself gets no labels."""
        labels = batch.get("labels")
        if labels is None or batch.get("decoder_input_ids") is not None:
            return batch
        model = unwrap(self.model)
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            shifted = model.prepare_decoder_input_ids_from_labels(labels=labels)
        else:  # M2M100 (NLLB) and others shift the labels only in their forward pass
            shifted = labels.roll(1, -1)
            shifted[..., 0] = model.config.decoder_start_token_id
            shifted = shifted.masked_fill(shifted == -100, model.config.pad_token_id)
        batch["decoder_input_ids"] = shifted
        return batch

    def get_train_dataloader(self) -> DataLoader:
        loader = super().get_train_dataloader()
        if self.args.max_tokens_per_batch is None:
            return loader
        lengths, processes = token_lengths(self.train_dataset), (self.args.world_size, self.args.process_index)
        batches = TokenBatches(lengths, self.args.max_tokens_per_batch, *processes, self.data_seed)
        names = ("collate_fn", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "worker_init_fn")
        options = {name: getattr(loader, name) for name in names}
        return DataLoaderShard(loader.dataset, device=self.args.device, batch_sampler=batches, **options)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **generation: Any
    ) -> dict[str, float]:
        # For several evaluation sets, Trainer calls this method again for each, without the arguments of `generate`.
        outer = vars(self).get("_generation", {})
        self._generation = outer | generation
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **self._generation)
        finally:
            self._generation = outer

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        # Seq2SeqTrainer keeps the samples that the sampler repeats to fill up the last batch, because a model may
        # generate several sequences per sample (huggingface/transformers#27025).
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None, **generation: Any
    ) -> tuple[Any, Any, Any]:
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        # Seq2SeqTrainer's step uses the model's own loss and would measure nothing.
        loss, labels = None, inputs.get("labels")
        if labels is None:  # `DataCollatorForSeq2Seq` adds `labels=None`, which the superclass takes for labels
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
        if labels is not None or self._pass.labels_required:
            loss, *_ = super().prediction_step(model, inputs, True, ignore_keys)
        if labels is not None:  # without labels, these inputs are the beginnings of the sequences to generate
            target_inputs = ("labels", "decoder_input_ids", "decoder_attention_mask")
            inputs = {name: value for name, value in inputs.items() if name not in target_inputs}
        _, generated, _ = Seq2SeqTrainer.prediction_step(self, model, inputs, False, ignore_keys, **generation)
        return loss, generated, labels


class TokenBatches(Sampler[list[int]]):
    """One process's batches of an epoch, each with at most `max_tokens` tokens including padding.

    Samples are sorted by length and cut into batches. Each epoch shuffles the samples of equal length, and then the
    batches. Some batches are split in two so that all processes have the same number of batches. No sample is repeated
    or left out.

    `lengths` (N,) has the number of tokens of each sample; a sample longer than `max_tokens` forms its own batch.
    Process k has the batches k, k + num_processes, ... of an epoch. Raises InputError if there are fewer samples than
    processes, or if the batches cannot be divided equally among the processes.
    """

    def __init__(self, lengths: Any, max_tokens: int, num_processes: int = 1, process_index: int = 0, seed: int = 0):
        self.lengths = np.asarray(lengths)
        problem = f"must be those of at least {num_processes} samples, got {len(self.lengths)}"
        require(len(self.lengths) >= num_processes, "lengths", problem)
        self.ends = _ends_of_batches(np.sort(self.lengths), max_tokens, num_processes)
        self.num_processes, self.process_index, self.seed = num_processes, process_index, seed
        self.epoch = 0
        self.sampler = self  # where Accelerate looks for `set_epoch` in a resumed epoch

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        order = np.lexsort((generator.random(len(self.lengths)), self.lengths))
        batches = np.split(order, self.ends[:-1])
        for number in generator.permutation(len(batches))[self.process_index :: self.num_processes]:
            yield batches[number].tolist()

    def __len__(self) -> int:
        return len(self.ends) // self.num_processes


def _ends_of_batches(lengths: np.ndarray, max_tokens: int, multiple: int) -> list[int]:
    """Return the index at which each batch of the sorted `lengths` ends; their number is a multiple of `multiple`."""
    ends, start = [], 0
    while start < len(lengths):
        # The lengths are sorted, so the last sample of a batch is its longest.
        tokens = lengths[start : start + max_tokens] * np.arange(1, len(lengths[start : start + max_tokens]) + 1)
        start += max(1, int(np.searchsorted(tokens, max_tokens, side="right")))
        ends.append(start)
    while len(ends) % multiple:
        sizes = np.diff(ends, prepend=0)
        largest = int(sizes.argmax())
        problem = f"{len(ends)} batches of one sample cannot be divided equally among {multiple} processes"
        require(sizes[largest] > 1, "max_tokens", f"must let more samples share a batch, got {max_tokens}: {problem}")
        ends.insert(largest, ends[largest] - int(sizes[largest]) // 2)
    return ends


def token_lengths(dataset: Any) -> np.ndarray:
    """Return each sample's number of tokens in ``input_ids`` or in ``labels``, whichever is larger: (N,), int64.

    Raises InputError for a dataset without a length or without these columns.
    """
    problem = f"must have a length for max_tokens_per_batch, got {type(dataset).__name__}, a stream"
    require(has_length(dataset), "train_dataset", problem)
    problem = f"must have input_ids and labels for max_tokens_per_batch, got {sorted(dataset[0])}"
    require({"input_ids", "labels"} <= set(dataset[0]), "train_dataset", problem)
    # A custom transform may change the lengths, so it must be applied to each sample.
    if isinstance(dataset, datasets.Dataset) and dataset.format["type"] != "custom":
        table = dataset.select_columns(["input_ids", "labels"]).with_format("arrow")[:]
        sides = [pc.list_value_length(table[name]).to_numpy() for name in ("input_ids", "labels")]
        return np.maximum(*sides).astype(np.int64)
    return np.array([max(len(sample["input_ids"]), len(sample["labels"])) for sample in dataset], dtype=np.int64)
