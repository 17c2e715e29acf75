"""The README's Python examples run as they stand."""

import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, MarianConfig, MarianMTModel

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.data import train_bpe_tokenizer, train_word_tokenizer
from hf_focal.models import GPCNNConfig, GPCNNForSequenceClassification

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def names():
    """What the examples take for granted: a small model, its tokenizer and three tokenised splits."""
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer(["good fine nice", "bad poor awful"], vocab_size=10)
    config = GPCNNConfig(vocab_size=10, embedding_size=4, num_filters=4, num_layers=1, hidden_size=4, num_labels=2)

    def split(size):
        labels = torch.randint(2, (size,)).tolist()
        texts = [("good fine", "bad awful")[label if torch.rand(()) < 0.8 else 1 - label] for label in labels]
        return Dataset.from_dict({**tokenizer(texts), "label": labels})

    return {
        "model": GPCNNForSequenceClassification(config),
        "tokenizer": tokenizer,
        "train": split(24),
        "validation": split(20),
        "test": split(20),
    }


@pytest.fixture
def seq2seq_names():
    """The same for the example of an encoder-decoder model."""
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

    splits = {"train": split(8), "validation": split(4), "test": split(2)}
    return {"model": model, "tokenizer": tokenizer, **splits}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_example_runs(example, names, seq2seq_names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "Seq2Seq" in example:
        names = seq2seq_names
    names |= {"FocalTrainer": FocalTrainer, "FocalTrainingArguments": FocalTrainingArguments}  # of the first example
    exec(compile(example, str(README), "exec"), names)
    if "gamma_heatmap" in example:
        assert (tmp_path / "gamma.png").stat().st_size > 0
    if "save_calibrated" in example:
        auto = AutoModelForSeq2SeqLM if "Seq2Seq" in example else AutoModelForSequenceClassification
        saved = auto.from_pretrained("out")
        assert saved.config.calibration["temperature"] == names["temperature"].value
    if "reliability_diagram" in example:
        assert (tmp_path / "reliability.png").stat().st_size > 0


def test_readme_has_its_examples():
    assert len(EXAMPLES) == 6
