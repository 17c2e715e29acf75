"""Tiny pretrained checkpoints with the architectures and files that checkpoints on the Hub have."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    ElectraConfig,
    ElectraForPreTraining,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    ViTConfig,
    ViTForMaskedImageModeling,
    ViTImageProcessorPil,
)

WORDS = [
    *("art", "food", "music", "sports", "the", "new", "old", "good", "bad", "it"),
    *("was", "is", "we", "you", "they"),
]
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 34,
}


def save_tokenizer(folder: Path, **options) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *WORDS])}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names, **options)
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_bert(folder: Path) -> None:
    BertForMaskedLM(BertConfig(vocab_size=30, **SIZES)).save_pretrained(folder)


def save_roberta(folder: Path) -> None:
    RobertaForMaskedLM(RobertaConfig(vocab_size=30, pad_token_id=0, **SIZES)).save_pretrained(folder)


def save_modernbert(folder: Path) -> None:
    # Transformers 5.15 takes no ModernBERT whose layers all have the same kind of attention.
    sizes = SIZES | {"num_hidden_layers": 2}
    config = ModernBertConfig(vocab_size=30, pad_token_id=0, bos_token_id=2, eos_token_id=3, **sizes)
    ModernBertForMaskedLM(config).save_pretrained(folder)


def save_deberta(folder: Path) -> None:
    """Save a model whose config names no architecture, as microsoft/deberta-v3-base's."""
    DebertaV2Model(DebertaV2Config(vocab_size=30, **SIZES)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))


def save_electra(folder: Path) -> None:
    ElectraForPreTraining(ElectraConfig(vocab_size=30, embedding_size=8, **SIZES)).save_pretrained(folder)


def save_sentence_transformer(folder: Path) -> None:
    BertModel(BertConfig(vocab_size=30, **SIZES)).save_pretrained(folder)
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
        ' {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true}'
    )
    (folder / "config_sentence_transformers.json").write_text('{"__version__": {"sentence_transformers": "2.0.0"}}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}')


def save_mnli(folder: Path) -> None:
    """Save a classifier of three classes, in half precision."""
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = BertConfig(vocab_size=30, id2label=labels, label2id={name: i for i, name in labels.items()}, **SIZES)
    BertForSequenceClassification(config).to(torch.float16).save_pretrained(folder)


ENCODERS = {
    "bert": save_bert,
    "roberta": save_roberta,
    "modernbert": save_modernbert,
    "deberta": save_deberta,
    "electra": save_electra,
    "sentence_transformer": save_sentence_transformer,
    "mnli": save_mnli,
}


def save_encoder(folder: Path, name: str) -> Path:
    """Save one of `ENCODERS` with its tokenizer."""
    folder.mkdir(parents=True)
    ENCODERS[name](folder)
    save_tokenizer(folder)
    return folder


def save_vit(folder: Path) -> Path:
    config = ViTConfig(image_size=16, patch_size=8, encoder_stride=8, **SIZES)
    ViTForMaskedImageModeling(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder
