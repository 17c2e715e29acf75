"""The Python examples of the README and the guides, and the names that they assume."""

import re
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from hf_focal.experiments.data.tokenizer_training import train_word_tokenizer
from hf_focal.experiments.models import GPCNNConfig, GPCNNForSequenceClassification

ROOT = Path(__file__).parents[1]


def examples_of(page: Path) -> list[str]:
    """The Python code blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_example(example: str, page: Path, names: dict[str, Any]) -> None:
    """Run a block in the namespace `names`, which keeps its definitions; tracebacks name the page."""
    exec(compile(example, str(page), "exec"), names)


def classifier() -> dict[str, Any]:
    """A small model, its tokenizer and three tokenised splits."""
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer(["good fine nice", "bad poor awful"], vocab_size=10)
    config = GPCNNConfig(vocab_size=10, embedding_size=4, num_filters=4, num_layers=1, hidden_size=4, num_labels=2)

    def split(size):
        labels = torch.randint(2, (size,)).tolist()
        texts = [("good fine", "bad awful")[label if torch.rand(()) < 0.8 else 1 - label] for label in labels]
        return Dataset.from_dict({**tokenizer(texts), "label": labels})

    splits = {"train": split(160), "validation": split(20), "test": split(20)}
    return {"model": GPCNNForSequenceClassification(config), "tokenizer": tokenizer, **splits}
