"""Encoders: fine-tuned, and linear heads on their embeddings."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from papers.data.text_tasks import TEXT_LOGIT_TASKS
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    set_seed,
)

from benchmarks.text_logits.runs import Run
from benchmarks.text_logits.texts import splits_of, training_rows
from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss

MAX_LENGTH = 64  # tokens of a text, or of a pair of texts
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LogitsOf = Callable[[str, str], Tensor]  # of a task and split


def encode(rows: pd.DataFrame, tokenizer: Any) -> list[dict[str, Any]]:
    pairs = rows["pair"].tolist() if "pair" in rows else None
    encoded = tokenizer(rows["text"].tolist(), pairs, truncation=True, max_length=MAX_LENGTH)
    return [{name: encoded[name][i] for name in encoded} for i in range(len(rows))]


@torch.no_grad()
def outputs_by_length(
    forward: Callable[[Any], Tensor], inputs: list[dict[str, Any]], collate: Any, batch_size: int = 64
) -> Tensor:
    """Return what `forward` makes of batches of similar lengths, in the order of `inputs`, float32."""
    order = np.argsort([len(row["input_ids"]) for row in inputs], kind="stable")
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    outputs = torch.cat([forward(collate([inputs[i] for i in batch]).to(DEVICE)).float().cpu() for batch in batches])
    return outputs[torch.from_numpy(order.argsort())]


def training_arguments(run: Run, **options: Any) -> FocalTrainingArguments:
    """Return the arguments that all fine-tuning shares, with those of one kind of model in `options`."""
    return FocalTrainingArguments(
        output_dir="out/text_logits",
        loss=run.loss,
        seed=run.seed,
        num_train_epochs=run.epochs,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        max_grad_norm=1.0,
        bf16=True,  # the logits are computed in float32
        use_cpu=DEVICE == "cpu",
        train_sampling_strategy="group_by_length",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **options,
    )


def fine_tune(run: Run, data: Path, models: Path) -> LogitsOf:
    tokenizer = AutoTokenizer.from_pretrained(models / run.model)
    rows = training_rows(data, run)
    inputs = encode(rows, tokenizer)
    columns = {name: [row[name] for row in inputs] for name in inputs[0]} | {"labels": rows["label"].tolist()}
    args = training_arguments(
        run,
        learning_rate={"minilm": 2e-4, "mpnet": 1e-4}[run.model],
        weight_decay=0.01,
        per_device_train_batch_size=32,
        logging_strategy="no",
    )
    set_seed(run.seed)  # the head's initial weights
    model = AutoModelForSequenceClassification.from_pretrained(
        models / run.model,
        num_labels=TEXT_LOGIT_TASKS[run.task].num_classes,
        problem_type="single_label_classification",
        dtype=torch.float32,
    )
    collate = DataCollatorWithPadding(tokenizer)
    train_dataset = Dataset.from_dict(columns)
    FocalTrainer(model, args, collate, train_dataset, processing_class=tokenizer).train()
    model.eval()

    def logits_of(task: str, split: str) -> Tensor:
        inputs = encode(splits_of(data, task)[split], tokenizer)
        return outputs_by_length(lambda batch: model(**batch).logits, inputs, collate)

    return logits_of


@cache
def embeddings(path: Path, data: Path, task: str, split: str, run: Run | None = None) -> Tensor:
    """Return the mean of the last hidden states of each text of a split, or of a run's training texts, (N, width)."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, dtype=torch.float32).to(DEVICE).eval()

    def mean_state(batch: dict[str, Tensor]) -> Tensor:
        mask = batch["attention_mask"].unsqueeze(-1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = model(**batch).last_hidden_state
        return (states.float() * mask).sum(1) / mask.sum(1)

    rows = training_rows(data, run) if run else splits_of(data, task)[split]
    return outputs_by_length(mean_state, encode(rows, tokenizer), DataCollatorWithPadding(tokenizer))


def fit_probe(run: Run, data: Path, models: Path) -> LogitsOf:
    """Fit a linear head to frozen embeddings, each feature scaled to a standard deviation of 1."""
    states_of = partial(embeddings, models / run.model, data)
    states = states_of(run.task, "train", replace(run, loss="", epochs=0, wrong_labels=0.0, ridge=0.0))
    mean, deviation = states.mean(0), states.std(0)
    labels = torch.tensor(training_rows(data, run)["label"].to_numpy())
    head = torch.nn.Linear(states.shape[1], TEXT_LOGIT_TASKS[run.task].num_classes)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    loss = build_loss(run.loss)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, run.epochs)
    for _ in range(run.epochs):
        optimizer.zero_grad()
        (loss(head((states - mean) / deviation), labels) + run.ridge * head.weight.square().sum()).backward()
        optimizer.step()
        schedule.step()
    head.requires_grad_(False)
    return lambda task, split: head((states_of(task, split) - mean) / deviation)
