"""Fine-tuning of pretrained encoders: what fine_tuning.py and yes_or_no.py share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed

from hf_focal import FocalTrainer, FocalTrainingArguments


def new_trainer(
    encoder: Path,
    splits: Mapping[str, Dataset],
    folder: Path,
    *,
    num_labels: int,
    problem_type: str,
    max_length: int,
    seed: int,
    held_out: str | None = None,
    **arguments: Any,
) -> tuple[FocalTrainer, dict[str, Dataset]]:
    """Make a trainer of a classifier on a pretrained encoder, and encode the splits.

    The splits, "train" and others, have the columns "text", perhaps "pair", and "labels"; `max_length` tokens are kept
    of a text or a pair. `held_out` is the split that AdaFocal updates γ on, at most 500 samples of it. The seed is
    that of the head and of the training, and `arguments` are other training arguments.
    """
    tokenizer = AutoTokenizer.from_pretrained(encoder)

    def encode(batch: dict) -> dict:
        return tokenizer(batch["text"], batch.get("pair"), truncation=True, max_length=max_length)

    encoded = {}
    for name, split in splits.items():
        inputs = [column for column in split.column_names if column != "labels"]
        encoded[name] = split.map(encode, batched=True, remove_columns=inputs)
    args = FocalTrainingArguments(
        output_dir=str(folder),
        seed=seed,
        warmup_steps=0.1,
        weight_decay=0.01,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **arguments,
    )
    set_seed(seed)  # the head's initial weights
    model = AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=num_labels, problem_type=problem_type
    )
    calibration = None
    if held_out is not None:
        calibration = encoded[held_out].select(range(min(500, len(encoded[held_out]))))
    trainer = FocalTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"],
        calibration_dataset=calibration,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    return trainer, encoded
