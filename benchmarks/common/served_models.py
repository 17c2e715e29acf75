"""Models that are served: the texts, words, and images that they are trained on, and their training."""

import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from papers.data.text_tasks import FINE_TUNING_TASKS, multi_hot, read_task
from PIL import Image
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    ResNetConfig,
    ResNetForImageClassification,
    set_seed,
)

from benchmarks.common.runtimes import Inputs
from benchmarks.common.trainers import QUIET
from hf_focal import FocalTrainer, FocalTrainingArguments

MULTI_LABEL = "multi_label_classification"
TASKS = {"softmax": "sst", "sigmoid": "goemotions", "one logit": "trec_qa", "words": "sst_words", "images": "cifar10"}
TRAIN = {"softmax": 300, "sigmoid": 500, "one logit": 400, "words": 200, "images": 3000}  # samples
EPOCHS = {"softmax": 4, "sigmoid": 4, "one logit": 4, "words": 3, "images": 15}
HELD_OUT = 500  # samples
BATCH, MAX_LENGTH = 32, 64
LINKS = {"sigmoid": "sigmoid", "one logit": "sigmoid"}  # of the others, "softmax"
AUTO = {"words": AutoModelForTokenClassification, "images": AutoModelForImageClassification}
Batches = list[tuple[Inputs, torch.Tensor]]  # inputs and labels


@dataclass
class Samples:
    """Texts, with a second text or None, lists of words, or images (3, 32, 32); and the labels of each."""

    inputs: list[Any]
    pairs: list[str] | None
    labels: list[Any]

    def select(self, rows: np.ndarray) -> "Samples":
        inputs, labels = ([column[row] for row in rows] for column in (self.inputs, self.labels))
        return Samples(inputs, self.pairs and [self.pairs[row] for row in rows], labels)


def read(data: Path, head: str, part: str) -> Samples:
    """Read the part "train", "validation", or "test" of the data for a head."""
    if head == "images":
        table = pd.read_parquet(data / "cifar10" / f"{'test' if part == 'test' else 'train'}.parquet")
        if part != "test":  # the last ones of the training samples are held out
            table = table[-HELD_OUT:] if part == "validation" else table[:-HELD_OUT]
        return Samples([pixels(image["bytes"]) for image in table["image"]], None, table["label"].tolist())
    if head == "words":  # the leaves of the trees, as in (2 word)
        table = pd.read_parquet(data / "sst" / f"{'dev' if part == 'validation' else part}.parquet")
        sentences = [re.findall(r"\((\d) ([^()]+)\)", tree) for tree in table["tree"]]
        words = [[word for _, word in leaves] for leaves in sentences]
        return Samples(words, None, [[int(sentiment) for sentiment, _ in leaves] for leaves in sentences])
    task = FINE_TUNING_TASKS[TASKS[head]]
    table = read_task(data, task, [part])[part]
    pairs, labels = None, table["label"].tolist()
    if head == "sigmoid":
        labels = multi_hot(table["label"], task.num_classes).tolist()
    if head == "one logit":
        pairs, labels = table["pair"].tolist(), [[float(label)] for label in labels]
    return Samples(table["text"].tolist(), pairs, labels)


def pixels(file: bytes) -> torch.Tensor:
    """An image file as float32 (3, H, W) within [-1, 1]."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(file)).convert("RGB"))).permute(2, 0, 1) / 127.5 - 1


def drawn(samples: Samples, size: int, seed: int) -> Samples:
    return samples.select(np.random.default_rng(seed).permutation(len(samples.inputs))[:size])


def encoded(tokenizer: Any, samples: Samples, head: str) -> list[dict[str, Any]]:
    """The inputs and labels of each sample; with words, the first token of each has its label."""
    if head == "images":
        images = zip(samples.inputs, samples.labels, strict=True)
        return [{"pixel_values": image, "labels": label} for image, label in images]
    options = {"truncation": True, "max_length": MAX_LENGTH, "is_split_into_words": head == "words"}
    tokens, labels = tokenizer(samples.inputs, samples.pairs, **options), samples.labels
    if head == "words":
        labels = [token_labels(tokens.word_ids(row), word_labels) for row, word_labels in enumerate(labels)]
    return [{name: tokens[name][row] for name in tokens} | {"labels": labels[row]} for row in range(len(labels))]


def token_labels(word_ids: list[int | None], word_labels: list[int]) -> list[int]:
    """The label of each token: that of its word for the first token of a word, and else -100."""
    return [
        -100 if word is None or word in word_ids[:token] else word_labels[word] for token, word in enumerate(word_ids)
    ]


def collator(tokenizer: Any, head: str) -> Any:
    if head == "images":
        return DefaultDataCollator()
    return (DataCollatorForTokenClassification if head == "words" else DataCollatorWithPadding)(tokenizer)


def untrained(encoder: str, head: str, num_labels: int) -> Any:
    if head == "images":
        sizes = {"embedding_size": 32, "hidden_sizes": [32, 64, 128], "depths": [1, 1, 1]}
        return ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", num_labels=num_labels))
    options = {"problem_type": MULTI_LABEL} if head in LINKS else {}
    auto = AUTO.get(head, AutoModelForSequenceClassification)
    return auto.from_pretrained(encoder, num_labels=num_labels, **options)


def train(encoder: str, head: str, samples: Samples, seed: int, folder: Path) -> None:
    """Train a model on all samples, and save it and its tokenizer."""
    tokenizer = None if head == "images" else AutoTokenizer.from_pretrained(encoder)
    features = encoded(tokenizer, samples, head)
    set_seed(seed)  # the head's initial weights
    classes = {"softmax": 2, "words": 5, "images": 10}
    model = untrained(encoder, head, classes[head] if head in classes else len(samples.labels[0]))
    with tempfile.TemporaryDirectory() as checkpoints:
        args = FocalTrainingArguments(
            output_dir=checkpoints,
            loss="cross_entropy",
            seed=seed,
            num_train_epochs=EPOCHS[head],
            learning_rate=1e-3 if head == "images" else 2e-4,
            per_device_train_batch_size=BATCH if head == "images" else 16,
            train_sampling_strategy="random" if head == "images" else "group_by_length",
            use_cpu=True,
            **QUIET,
        )
        dataset: Any = features if head == "images" else Dataset.from_list(features)
        collate = collator(tokenizer, head)
        FocalTrainer(model, args, train_dataset=dataset, data_collator=collate, processing_class=tokenizer).train()
    for part in (model, tokenizer):
        if part is not None:
            part.save_pretrained(folder)


def by_length(features: list[dict[str, Any]]) -> np.ndarray:
    """The rows of the features, those with similar numbers of tokens together."""
    return np.argsort([len(row.get("input_ids", ())) for row in features], kind="stable")


def batches_of(tokenizer: Any, samples: Samples, head: str, size: int = BATCH) -> Batches:
    """Return the inputs and the labels of each batch: samples of similar length."""
    features, collate, batches = encoded(tokenizer, samples, head), collator(tokenizer, head), []
    order = by_length(features)
    for start in range(0, len(order), size):
        batch = dict(collate([features[row] for row in order[start : start + size]]))
        labels = batch.pop("labels")
        batches.append((batch, labels))
    return batches
