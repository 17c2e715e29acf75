"""`FocalSeq2SeqTrainer`: the calibrated trainer for encoder-decoder models."""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from torch import nn
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer
from transformers.trainer_utils import EvalLoopOutput

from .focal_trainer import FocalTrainer
from .seeded_and_token_batches import TokenBatches, token_lengths
from .training_arguments import FocalSeq2SeqTrainingArguments


class FocalSeq2SeqTrainer(FocalTrainer, Seq2SeqTrainer):
    """`FocalTrainer` for encoder-decoder language models (Marian, T5, BART, mBART, ...).

    The loss and the metrics of `evaluate()` and `predict()` are computed over the target tokens under teacher forcing,
    without padding. With `args.predict_with_generate`, `predict()` also generates sequences, and so does `evaluate()`
    if `compute_metrics` is given. Both methods take arguments of `generate`:
    ``trainer.predict(test, num_beams=4, **calibrated_generation(T))``.

    The arguments and errors are those of `FocalTrainer`, with `FocalSeq2SeqTrainingArguments` as `args`. With
    `args.max_tokens_per_batch`, `train` also raises ValueError if the training set has no length or no token ids.
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
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
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
        kept = ("collate_fn", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "worker_init_fn")
        options = {name: getattr(loader, name) for name in kept}
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
        # Seq2SeqTrainer keeps the samples that the sampler repeats to fill up the last batch.
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
        if labels is not None or self._labels_required:
            loss, *_ = super().prediction_step(model, inputs, True, ignore_keys)
        if labels is not None:  # without labels, these inputs are the beginnings of the sequences to generate
            of_targets = ("labels", "decoder_input_ids", "decoder_attention_mask")
            inputs = {name: value for name, value in inputs.items() if name not in of_targets}
        _, generated, _ = Seq2SeqTrainer.prediction_step(self, model, inputs, False, ignore_keys, **generation)
        return loss, generated, labels
