"""Trainers whose model returns its input as logits, datasets for them, and quiet training arguments."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, PreTrainedConfig, PreTrainedModel, PrinterCallback, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_focal import FocalTrainer, FocalTrainingArguments

BATCH_LOGITS = 2**20
QUIET: dict[str, Any] = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no"}


class Samples(Dataset[dict[str, Tensor]]):
    def __init__(self, **columns: Tensor):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


class RepeatedBatch(Dataset[dict[str, Tensor]]):
    """N samples of K classes of which one batch is in memory."""

    def __init__(self, num_samples: int, num_classes: int):
        generator = torch.Generator().manual_seed(0)
        self.num_samples, self.num_classes = num_samples, num_classes
        self.batch_size = min(num_samples, max(1, BATCH_LOGITS // num_classes))
        self.logits = torch.randn(self.batch_size, num_classes, generator=generator) * 3
        gumbel = torch.rand(self.logits.shape, generator=generator).log_().neg_().log_()
        self.labels = torch.sub(self.logits * 0.7, gumbel).argmax(1)  # a sample of softmax(0.7 z)

    def __len__(self) -> int:
        return self.num_samples

    def __getitems__(self, indices: list[int]) -> dict[str, Tensor]:
        return {"logits": self.logits[: len(indices)].clone(), "labels": self.labels[: len(indices)]}

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.num_samples, self.batch_size):
            part = slice(min(self.batch_size, self.num_samples - start))
            yield self.logits[part].clone(), self.labels[part]


class Identity(PreTrainedModel):
    """Returns its input as logits."""

    config_class = PreTrainedConfig
    main_input_name = "logits"

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.scale = nn.Parameter(torch.ones(()))
        self.post_init()

    def forward(self, logits: Tensor, labels: Tensor | None = None) -> SequenceClassifierOutput:
        logits = logits * self.scale
        return SequenceClassifierOutput(
            None if labels is None else nn.functional.cross_entropy(logits, labels), logits
        )


def accuracy(result: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())}


def new_trainer(folder: str, network: PreTrainedModel, stock: bool = False, **arguments: Any) -> Trainer:
    """Make a trainer that prints nothing; `stock` is Transformers' own."""
    of_trainer: dict[str, Any] = {
        name: arguments.pop(name) for name in ("train_dataset", "data_collator") if name in arguments
    }
    args = (TrainingArguments if stock else FocalTrainingArguments)(folder, **(QUIET | arguments))
    if stock:
        of_trainer["compute_metrics"] = accuracy
    trainer = (Trainer if stock else FocalTrainer)(network, args, **of_trainer)
    trainer.remove_callback(PrinterCallback)
    return trainer


def identity_trainer(folder: str, data: RepeatedBatch, stock: bool = False, **arguments: Any) -> Trainer:
    """Make a trainer of `Identity` on the CPU for `RepeatedBatch`, which makes its batches by itself."""
    arguments |= {"use_cpu": True, "ddp_find_unused_parameters": False, "remove_unused_columns": False}
    network = Identity(PreTrainedConfig(num_labels=data.num_classes))
    return new_trainer(folder, network, stock, data_collator=lambda batch: batch, **arguments)
