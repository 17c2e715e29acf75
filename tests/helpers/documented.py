"""The Python examples of the README and the guides, and the names that they assume."""

import re
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).parents[2]


def examples_of(page: Path) -> list[str]:
    """The Python code blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_example(example: str, page: Path, names: dict[str, Any]) -> None:
    """Run a block in the namespace `names`, which keeps its definitions; tracebacks name the page."""
    exec(compile(example, str(page), "exec"), names)


def reviews_and_encoder(folder: Path) -> None:
    """The files of the guide from a CSV to the Hub, with a tiny encoder in the place of the known one."""
    random = torch.Generator().manual_seed(0)
    for name, size in (("reviews", 1600), ("reviews_test", 300)):
        labels = torch.randint(2, (size,), generator=random)
        shown = labels ^ (torch.rand(size, generator=random) < 0.2)
        texts = [("bad poor awful", "good fine nice")[label] for label in shown.tolist()]
        names = [("negative", "positive")[label] for label in labels.tolist()]
        Dataset.from_dict({"text": texts, "label": names}).to_csv(folder / f"{name}.csv")
    tokenizer = train_word_tokenizer(["good fine nice", "bad poor awful"], vocab_size=10)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=10, **sizes)).save_pretrained(folder / "minilm")
    tokenizer.save_pretrained(folder / "minilm")


def answers_and_language_model(folder: Path) -> None:
    """The file of the guide on TRL, with a tiny language model in the place of the known one."""
    words = ["good", "fine", "nice", "bad", "poor", "awful"]
    rows = [{"prompt": f"{first} ", "completion": second} for first in words for second in words]
    Dataset.from_list(rows).to_json(folder / "answers.jsonl")
    tokenizer = train_word_tokenizer([" ".join(words)], vocab_size=20)
    tokenizer.eos_token = tokenizer.pad_token
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "smollm")
    tokenizer.save_pretrained(folder / "smollm")


def classifier() -> dict[str, Any]:
    """A small model, its tokenizer and three tokenized splits."""
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer(["good fine nice", "bad poor awful"], vocab_size=10)
    config = GPCNNConfig(vocab_size=10, embedding_size=4, num_filters=4, num_layers=1, hidden_size=4, num_labels=2)

    def split(size):
        labels = torch.randint(2, (size,)).tolist()
        texts = [("good fine", "bad awful")[label if torch.rand(()) < 0.8 else 1 - label] for label in labels]
        return Dataset.from_dict({**tokenizer(texts), "label": labels})

    splits = {"train": split(160), "validation": split(20), "test": split(20)}
    return {"model": GPCNNForSequenceClassification(config), "tokenizer": tokenizer, **splits}
