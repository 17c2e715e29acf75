"""`FocalSeq2SeqTrainer`: the calibrated trainer of encoder-decoder models."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
import torch
from accelerate.data_loader import DataLoaderShard
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Seq2SeqTrainer
from transformers.trainer_utils import EvalLoopOutput

from .focal_trainer import FocalTrainer
from .token_count_batches import TokenBatches
from .trainer_checks import check_token_columns
from .training_arguments import FocalSeq2SeqTrainingArguments


class FocalSeq2SeqTrainer(FocalTrainer, Seq2SeqTrainer):
    """`FocalTrainer` for encoder-decoder language models (Marian, T5, BART, mBART, ...), over their target tokens.

    `evaluate()` and `predict()` measure the tokens under teacher forcing, without padding, also where
    `args.predict_with_generate` makes `predict()` generate (and `evaluate()`, if there are `compute_metrics`).
    Both take arguments of `generate`: ``trainer.predict(test, num_beams=4, **calibrated_generation(T))``.

    Args:
        model: a model of Transformers for sequence-to-sequence language modelling.
        args: `FocalSeq2SeqTrainingArguments`.
        *trainer_args, **trainer_kwargs: arguments of `FocalTrainer`.

    Raises:
        TypeError, ValueError: what `FocalTrainer` raises; a model of another kind. `train` raises ValueError for
            batches by tokens if the training set has no length or no token ids.
    """

    _trains_seq2seq = True

    def __init__(
        self,
        model: nn.Module | None = None,
        args: FocalSeq2SeqTrainingArguments | None = None,
        *trainer_args: Any,
        **trainer_kwargs: Any,
    ) -> None:
        args = FocalSeq2SeqTrainingArguments("tmp_trainer") if args is None else args
        if not isinstance(args, FocalSeq2SeqTrainingArguments):
            raise TypeError(f"args must be FocalSeq2SeqTrainingArguments, got {type(args).__name__}")
        self._generation: dict[str, Any] = {}
        super().__init__(model, args, *trainer_args, **trainer_kwargs)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        # Before labels of repeated samples are set to -100, in which mBART would find no language.
        return super().get_batch_samples(map(self._with_decoder_inputs, epoch_iterator), num_batches, device)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: int | Tensor | None = None,
    ) -> Any:
        return super().compute_loss(model, self._with_decoder_inputs(inputs), return_outputs, num_items_in_batch)

    def _with_decoder_inputs(self, batch: Any) -> Any:
        """The batch with the decoder's inputs: models derive them from labels, which they do not see here."""
        if batch.get("decoder_input_ids") is None and batch.get("labels") is not None:
            model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
            batch["decoder_input_ids"] = decoder_inputs(model, batch["labels"])
        return batch

    def get_train_dataloader(self) -> DataLoader:
        loader = super().get_train_dataloader()
        if self.args.max_tokens_per_batch is None:
            return loader
        batches = TokenBatches(
            token_lengths(self.train_dataset),
            self.args.max_tokens_per_batch,
            self.accelerator.num_processes,
            self.accelerator.process_index,
            self.data_seed,
        )
        kept = ("collate_fn", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "worker_init_fn")
        options = {name: getattr(loader, name) for name in kept}
        return DataLoaderShard(loader.dataset, device=self.args.device, batch_sampler=batches, **options)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **generation: Any,
    ) -> dict[str, float]:
        # Trainer evaluates each of several sets by another call of this method, without the arguments of `generate`.
        outer = self._generation
        self._generation = outer | generation
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **self._generation)
        finally:
            self._generation = outer

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        # Seq2SeqTrainer keeps the samples that the sampler repeats to fill up the last batch.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **generation: Any,
    ) -> tuple[Any, Any, Any]:
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        # Seq2SeqTrainer's step takes the model's own loss and would measure nothing.
        loss, labels = None, inputs.get("labels")
        if labels is None:  # `DataCollatorForSeq2Seq` adds None as labels, which the super class takes for labels
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
        if labels is not None or self._labels_required:
            loss, *_ = super().prediction_step(model, inputs, True, ignore_keys)
        if labels is not None:  # otherwise they are the beginnings of the sequences to generate
            of_targets = ("labels", "decoder_input_ids", "decoder_attention_mask")
            inputs = {name: value for name, value in inputs.items() if name not in of_targets}
        _, generated, _ = Seq2SeqTrainer.prediction_step(self, model, inputs, False, ignore_keys, **generation)
        return loss, generated, labels


def decoder_inputs(model: PreTrainedModel, labels: Tensor) -> Tensor:
    """The decoder's inputs (N, L) for labels (N, L), -100 ignored: the labels shifted right."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels)
    # M2M100 (NLLB) and others shift them only in their forward pass.
    shifted = labels.roll(1, -1)
    shifted[..., 0] = model.config.decoder_start_token_id
    return shifted.masked_fill(shifted == -100, model.config.pad_token_id)


def token_lengths(dataset: Any) -> np.ndarray:
    """The number of tokens in the longer of ``input_ids`` and ``labels`` of each sample (N,), int64.

    Raises:
        ValueError: the dataset has no length, or no such columns.
    """
    check_token_columns(dataset)
    # A transform must be applied to each sample to know the result.
    if isinstance(dataset, datasets.Dataset) and dataset.format["type"] != "custom":
        table = dataset.select_columns(["input_ids", "labels"]).with_format("arrow")[:]
        sides = [pc.list_value_length(table[name]).to_numpy() for name in ("input_ids", "labels")]
        return np.maximum(*sides).astype(np.int64)
    return np.array([max(len(sample["input_ids"]), len(sample["labels"])) for sample in dataset], dtype=np.int64)
