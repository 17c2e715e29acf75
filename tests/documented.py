"""The Python examples of the README and of the guides, and what they take for granted."""

import re
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import MarianConfig, MarianMTModel

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.data import train_bpe_tokenizer, train_word_tokenizer
from hf_focal.models import GPCNNConfig, GPCNNForSequenceClassification

ROOT = Path(__file__).parents[1]


def examples_of(page: Path) -> list[str]:
    """The blocks of Python code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_example(example: str, page: Path, names: dict[str, Any]) -> None:
    """Run a block in the namespace `names`, which keeps what it defines; a traceback names its page."""
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

    splits = {"train": split(24), "validation": split(20), "test": split(20)}
    imported = {"FocalTrainer": FocalTrainer, "FocalTrainingArguments": FocalTrainingArguments}  # by a first example
    return {"model": GPCNNForSequenceClassification(config), "tokenizer": tokenizer, **splits, **imported}


def translator() -> dict[str, Any]:
    """The same of an encoder-decoder model."""
    torch.manual_seed(0)
    tokenizer = train_bpe_tokenizer(["a b c d", "v w x y"], vocab_size=20, max_length=8)
    sizes = {f"{side}_{name}": 8 for side in ("encoder", "decoder") for name in ("ffn_dim", "attention_heads")}
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 16}
    config = MarianConfig(vocab_size=20, decoder_vocab_size=20, d_model=16, **sizes, **layers, **special)
    model = MarianMTModel(config)
    model.generation_config.max_length = 8

    def split(size):
        return Dataset.from_dict({**tokenizer(["a b", "c d e"] * size, text_target=["v w", "x y"] * size)})

    return {"model": model, "tokenizer": tokenizer, "train": split(8), "validation": split(4), "test": split(2)}
