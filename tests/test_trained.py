"""What a trained model is for, where its rows are, and how its words are cut."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    GPT2Config,
    MarianConfig,
    RobertaConfig,
    RobertaForTokenClassification,
    RobertaTokenizerFast,
    T5Config,
    TimmWrapperConfig,
    ViTConfig,
)

from hf_focal.data import DataOptions, InputError
from hf_focal.trained import Place, loss_of, place_of, task_of, trained_model


@pytest.mark.parametrize(
    ("config", "architecture", "task"),
    [
        (BertConfig, "BertForSequenceClassification", "text-classification"),
        (BertConfig, "BertForTokenClassification", "token-classification"),
        (ViTConfig, "ViTForImageClassification", "image-classification"),
        (TimmWrapperConfig, None, "image-classification"),
        (GPT2Config, "GPT2LMHeadModel", "causal-lm"),
        (GPT2Config, "GPT2ForSequenceClassification", "text-classification"),
        (T5Config, "T5ForConditionalGeneration", "seq2seq-lm"),
        (MarianConfig, "MarianMTModel", "seq2seq-lm"),
    ],
)
def test_a_class_says_what_its_model_is_for(config, architecture, task):
    assert task_of(config(architectures=architecture and [architecture])) == task


def test_classes_that_say_nothing():
    with pytest.raises(ValueError, match="whose config names BertForMaskedLM"):
        task_of(BertConfig(architectures=["BertForMaskedLM"]))
    with pytest.raises(ValueError, match="no architecture: say which with task"):
        task_of(BertConfig())
    assert task_of(BertConfig(), "causal-lm") == "causal-lm"


def test_places():
    assert place_of("dataset", "glue:sst2:validation", None, "test") == Place("glue", "sst2", "validation")
    assert place_of("dataset", "glue:sst2", "train", "test") == Place("glue", "sst2", "train")
    assert place_of("dataset", "imdb", None, "test") == Place("imdb", "", "test")
    file = place_of("dataset", "rows.csv", None, "test")
    assert file.path.endswith("/rows.csv") and file.split == ""
    with pytest.raises(InputError, match=r"got the file 'rows.csv'"):
        place_of("dataset", "rows.csv", "test", "test")


def test_a_model_without_a_loss_has_its_name():
    assert loss_of("org/name") == "name"


def test_words_of_a_byte_level_model_begin_with_spaces(tmp_path):
    cut = Tokenizer(models.BPE())
    cut.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    cut.train_from_iterator(["a cat sat on a mat"] * 9, trainer)
    learnt = json.loads(cut.to_str())["model"]
    tokenizer = RobertaTokenizerFast(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for part in (tokenizer, RobertaForTokenClassification(RobertaConfig(vocab_size=len(cut.get_vocab()), **sizes))):
        part.save_pretrained(tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps({"tokens": ["cat", "xyz", "mat"], "tags": [0, 1, 0]}))
    with trained_model(tmp_path, None, 1, 15, vars(DataOptions(max_length=50))) as trained:
        _, rows = trained.load("dataset", str(tmp_path / "rows.json"), None, "test")
        (encoded,) = trained.encode(rows)
    # As in "cat xyz mat" within a text; only the first token of a word has its label.
    assert encoded["input_ids"] == tokenizer(" cat xyz mat")["input_ids"]
    assert [label for label in encoded["labels"] if label != -100] == [0, 1, 0]
    assert len(encoded["labels"]) == len(encoded["input_ids"]) > 5
