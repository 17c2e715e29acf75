"""How the tokenizer of a model encodes texts, and which one is refused."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    NllbTokenizer,
    RobertaConfig,
    RobertaForTokenClassification,
    RobertaTokenizer,
)

from hf_focal import InputError
from hf_focal.sources.model_opening import open_model
from hf_focal.sources.source import Data


@pytest.fixture
def several_languages(tmp_path):
    """The folder of a model of English and German, and a file of one pair."""
    tokenizer = NllbTokenizer(
        vocab={"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "▁": 4, "a": 5, "▁a": 6, "b": 7, "▁b": 8},
        merges=[("▁", "a"), ("▁", "b")],
        extra_special_tokens=["eng_Latn", "deu_Latn"],
    )
    sizes = {
        f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), d_model=8, **sizes))
    for part in (tokenizer, model):
        part.save_pretrained(tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps({"source": "a", "target": "b"}))
    return tmp_path


def encoded_by(folder, **options):
    trained = open_model(folder, 15, batch_size=1, **options)
    loaded = trained.load(Data("data", str(folder / "rows.json")))
    return trained.processor, trained.encode(loaded).inputs[0]


def test_texts_are_marked_with_their_languages(several_languages):
    tokenizer, row = encoded_by(several_languages, source_lang="eng_Latn", target_lang="deu_Latn")
    assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == ["eng_Latn", "▁a", "</s>"]
    assert tokenizer.convert_ids_to_tokens(row["labels"]) == ["deu_Latn", "▁b", "</s>"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "source_lang must be given for .*, a multilingual model, got None"),
        ({"source_lang": "eng_Latn"}, "target_lang must be given"),
        ({"source_lang": "eng_Latn", "target_lang": "de"}, "target_lang must be a language of .*, got 'de'"),
        ({"source_lang": "▁a", "target_lang": "eng_Latn"}, "source_lang must be a language of .*, got '▁a'"),
    ],
)
def test_languages_that_a_model_must_be_told(several_languages, options, message):
    with pytest.raises(InputError, match=message):
        encoded_by(several_languages, **options)


def test_words_of_a_byte_level_model_begin_with_spaces(tmp_path):
    cut = Tokenizer(models.BPE())
    cut.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    cut.train_from_iterator(["a cat sat on a mat"] * 9, trainer)
    learned = json.loads(cut.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=learned["vocab"], merges=[tuple(pair) for pair in learned["merges"]])
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for part in (tokenizer, RobertaForTokenClassification(RobertaConfig(vocab_size=len(cut.get_vocab()), **sizes))):
        part.save_pretrained(tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps({"tokens": ["cat", "xyz", "mat"], "tags": [0, 1, 0]}))
    trained = open_model(tmp_path, 15, batch_size=1, max_length=50)
    (encoded,) = trained.encode(trained.load(Data("data", str(tmp_path / "rows.json")))).inputs
    # As in "cat xyz mat" within a text; only the first token of a word has its label.
    assert encoded["input_ids"] == tokenizer(" cat xyz mat")["input_ids"]
    assert [label for label in encoded["labels"] if label != -100] == [0, 1, 0]
    assert len(encoded["labels"]) == len(encoded["input_ids"]) > 5
