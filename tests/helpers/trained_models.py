"""Tiny models of every kind that `hf-focal` takes, with files of rows on which each is overconfident, by T = 3."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import transformer_config
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MarianMTModel,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForSequenceClassification,
)

from hf_focal import fold_correction
from hf_focal.cli.main import main

KINDS = ("texts", "images", "sounds", "sentence pairs", "choices", "words", "causal", "seq2seq")
OVERCONFIDENCE = 3.0
_NUM_ROWS = 300
COLORS = {0: "red", 1: "green", 2: "blue"}
_LABELS = {"id2label": COLORS, "label2id": {name: number for number, name in COLORS.items()}}
_WORDS = [a + b for a in "bdfgklmn" for b in "aeiou"]
_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
_SPECIAL = [0, 1]  # [PAD] and [UNK], which no row has


@dataclass
class Trained:
    """A model's folder, the files of its data, and what the commands must be told of them."""

    folder: Path
    train: Path
    validation: Path
    test: Path
    options: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        return [argument for name, value in self.options.items() for argument in (f"--{name}", value)]


def build(kind: str, folder: Path) -> Trained:
    """Save a model with random weights of one of `KINDS`, and rows with labels drawn from its own probabilities.

    These probabilities are right. Afterwards the model's logits are multiplied by `OVERCONFIDENCE`.
    """
    torch.manual_seed(0)
    model, processor, rows, options = _BUILD[kind](np.random.default_rng(0))
    fold_correction(model, 1 / OVERCONFIDENCE)
    del model.config.calibration
    for part in (model, processor):
        part.save_pretrained(folder / "model")
    third = len(rows) // 3
    files = [folder / f"{name}.parquet" for name in ("train", "validation", "test")]
    for number, file in enumerate(files):
        rows.select(range(number * third, (number + 1) * third)).to_parquet(file)
    return Trained(folder / "model", *files, options)


def copy_with_config(folder: Path, copy: Path, **fields: Any) -> Path:
    """Copy a model's folder, with other fields in its config.json."""
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps(config | fields), encoding="utf-8")
    return copy


def _texts(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **_SIZES, **_LABELS)).eval()
    first, second = _sentences(random), _sentences(random)
    labels = _draw(model, tokenizer(first, second, padding=True, return_tensors="pt"))
    features = Features(premise=Value("string"), hypothesis=Value("string"), label=ClassLabel(names=_names()))
    rows = Dataset.from_dict({"premise": first, "hypothesis": second, "label": labels.tolist()}, features)
    return model, tokenizer, rows, {"text_column": "premise", "text_pair_column": "hypothesis"}


def _images(random: np.random.Generator):
    processor = ViTImageProcessor(size={"height": 8, "width": 8})
    model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **_SIZES, **_LABELS)).eval()
    images = list(random.integers(0, 256, (_NUM_ROWS, 8, 8, 3), dtype=np.uint8))
    labels = _draw(model, processor(images, return_tensors="pt"))
    features = Features(image=Image(), label=ClassLabel(names=_names()))
    return model, processor, Dataset.from_dict({"image": images, "label": labels.tolist()}, features), {}


def _sounds(random: np.random.Generator):
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=8000, return_attention_mask=True)
    convolutions = {"conv_dim": (8, 8), "conv_kernel": (4, 4), "conv_stride": (4, 4), "feat_extract_norm": "layer"}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16}
    positions["initializer_range"] = 0.3  # the sounds differ in their probabilities
    config = Wav2Vec2Config(**_SIZES, **_LABELS, **convolutions, **positions)
    model = Wav2Vec2ForSequenceClassification(config).eval()
    sounds = [random.normal(size=size).astype(np.float32) for size in random.integers(100, 200, _NUM_ROWS)]
    labels = _draw(model, extractor(sounds, sampling_rate=8000, padding=True, return_tensors="pt"))
    features = Features(audio=List(Value("float32")), label=ClassLabel(names=_names()))
    return model, extractor, Dataset.from_dict({"audio": sounds, "label": labels.tolist()}, features), {}


def _sentence_pairs(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    model = BertForNextSentencePrediction(
        BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **_SIZES)
    ).eval()
    first, second = _sentences(random), _sentences(random)
    labels = _draw_numbers(model, tokenizer(first, second, padding=True, return_tensors="pt"))
    rows = Dataset.from_dict({"text": first, "next": second, "label": labels.tolist()})
    return model, tokenizer, rows, {"text_pair_column": "next"}


def _choices(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    model = BertForMultipleChoice(BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **_SIZES)).eval()
    questions, options = (
        _sentences(random),
        [random.choice(_WORDS, 4, replace=False).tolist() for _ in range(_NUM_ROWS)],
    )
    pairs = [text for question in questions for text in [question] * 4], [text for row in options for text in row]
    tokens = tokenizer(*pairs, padding=True, return_tensors="pt")
    inputs = {name: values.view(_NUM_ROWS, 4, -1) for name, values in tokens.items()}
    labels = _draw_numbers(model, inputs)
    rows = Dataset.from_dict({"q": questions, "choices": options, "answer": ["ABCD"[label] for label in labels]})
    return model, tokenizer, rows, {"question_column": "q"}


def _words(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    model = BertForTokenClassification(BertConfig(vocab_size=len(tokenizer), **_SIZES, **_LABELS)).eval()
    tokens = [sentence.split() for sentence in _sentences(random)]
    drawn = _draw(model, tokenizer(tokens, is_split_into_words=True, padding=True, return_tensors="pt")).tolist()
    tags = [labels[: len(words)] for labels, words in zip(drawn, tokens, strict=True)]
    features = Features(words=List(Value("string")), tags=List(ClassLabel(names=_names())))
    rows = Dataset.from_dict({"words": tokens, "tags": tags}, features)
    return model, tokenizer, rows, {"token_column": "words"}


def _causal(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **special)).eval()
    prompts = torch.from_numpy(random.integers(2, len(tokenizer), (_NUM_ROWS, 1)))
    _spread(model, input_ids=prompts)
    texts = tokenizer.batch_decode(_generate(model, input_ids=prompts, max_new_tokens=10))
    return model, tokenizer, Dataset.from_dict({"text": texts}), {}


def _seq2seq(random: np.random.Generator):
    tokenizer = train_word_tokenizer(_WORDS)
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "ffn_dim": 16}
    model = MarianMTModel(transformer_config(tokenizer, max_length=32, **sizes)).eval()
    sources = _sentences(random)
    inputs = tokenizer(sources, padding=True, return_tensors="pt")
    _spread(model, **inputs, decoder_input_ids=inputs["input_ids"])
    targets = tokenizer.batch_decode(_generate(model, **inputs, max_new_tokens=8)[:, 1:])
    rows = Dataset.from_list([{"translation": {"aa": s, "bb": t}} for s, t in zip(sources, targets, strict=True)])
    return model, tokenizer, rows, {"source_column": "aa", "target_column": "bb"}


_BUILD = {"texts": _texts, "images": _images, "sounds": _sounds, "sentence pairs": _sentence_pairs}
_BUILD |= {"choices": _choices, "words": _words, "causal": _causal, "seq2seq": _seq2seq}


def _names() -> list[str]:
    return ["blue", "red", "green"]  # not in the order of the model


def _sentences(random: np.random.Generator) -> list[str]:
    return [" ".join(random.choice(_WORDS, size)) for size in random.integers(3, 9, _NUM_ROWS)]


@torch.no_grad()
def _spread(model: PreTrainedModel, **inputs: torch.Tensor) -> torch.Tensor:
    """Scale the logits to a standard deviation of 1: then the model is right often, and wrong often enough."""
    fold_correction(model, model(**inputs).logits.std().item())
    return model(**inputs).logits


def _draw(model: PreTrainedModel, inputs) -> torch.Tensor:
    """Labels drawn from the model's probabilities, as the data's `ClassLabel` numbers them."""
    drawn = torch.distributions.Categorical(logits=_spread(model, **inputs)).sample()
    return torch.tensor([_names().index(COLORS[number]) for number in range(3)])[drawn]


@torch.no_grad()
def _draw_numbers(model: PreTrainedModel, inputs) -> torch.Tensor:
    """As `_draw`, as the model numbers them, for logits that vary more between the rows than within one."""
    fold_correction(model, model(**inputs).logits.std(-1).mean().item())
    return torch.distributions.Categorical(logits=model(**inputs).logits).sample()


def _generate(model: PreTrainedModel, **inputs) -> torch.Tensor:
    return model.generate(**inputs, do_sample=True, top_k=0, suppress_tokens=_SPECIAL)


def error_of(capsys, arguments: list[str]) -> str:
    """The one line that a command ends in, with exit code 2."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("hf-focal ")]
    assert len(lines) == 1 and err.endswith(f"{lines[0]}\n") and "Traceback" not in err
    return lines[0]
