"""Padding never changes what is measured: on which side a model's texts are padded, and which models are refused."""

import pytest
import torch
from checkpoints import WORDS, save_tokenizer
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMultipleChoice,
    BertForSequenceClassification,
    BertForTokenClassification,
    FNetConfig,
    FNetForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from hf_focal import InputError, calibrate_model, evaluate_model

BERT = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
BERT.initializer_range = 0.9
GPT2 = GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, initializer_range=0.9, pad_token_id=0)
LLAMA = LlamaConfig(
    **{"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8},
    **{"num_key_value_heads": 2, "initializer_range": 0.5, "pad_token_id": 0},
)
FNET = FNetConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, intermediate_size=8, pad_token_id=0)
FNET.initializer_range = 0.9


def saved(folder, kind, config, side):
    """The folder of a random model whose tokenizer pads on one side."""
    torch.manual_seed(0)
    names = [] if kind is FNetForSequenceClassification else ["attention_mask"]
    save_tokenizer(folder, padding_side=side, model_input_names=["input_ids", *names])
    kind(config).save_pretrained(folder)
    return str(folder)


def texts_of_several_lengths(count=24):
    generator = torch.Generator().manual_seed(0)
    draw = lambda high: int(torch.randint(high, (1,), generator=generator))  # noqa: E731
    return [" ".join(WORDS[draw(len(WORDS))] for _ in range(1 + draw(12))) for _ in range(count)]


@pytest.fixture
def texts(tmp_path):
    texts = texts_of_several_lengths()
    pairs = {"text": texts, "other": texts[::-1], "label": [row % 2 for row in range(len(texts))]}
    Dataset.from_dict(pairs).to_parquet(tmp_path / "texts.parquet")
    return str(tmp_path / "texts.parquet")


def noted(result):
    return [note for note in result.notes if "the tokenizer pads on the" in note]


@pytest.mark.parametrize("pairs", [{}, {"text_pair_column": "other"}], ids=["single", "pairs"])
@pytest.mark.parametrize(
    ("kind", "config"),
    [(GPT2ForSequenceClassification, GPT2), (BertForSequenceClassification, BERT)],
    ids=["gpt2", "bert"],
)
def test_positions_from_the_left_are_padded_on_the_right(kind, config, pairs, texts, tmp_path):
    folder = saved(tmp_path / "model", kind, config, "left")
    one, many = (evaluate_model(folder, texts, batch_size=size, **pairs) for size in (1, 8))
    assert many.pre["nll"] == pytest.approx(one.pre["nll"], rel=1e-5) and not noted(one)
    assert noted(many) == [
        "the tokenizer pads on the left, which changes the model's logits, so texts are padded on the right: set the "
        "tokenizer's padding_side to 'right' wherever the model is used; a saved tokenizer has it"
    ]


@pytest.mark.parametrize("side", ["left", "right"])
def test_rotary_positions_take_padding_on_either_side(side, texts, tmp_path):
    folder = saved(tmp_path / "model", LlamaForSequenceClassification, LLAMA, side)
    one, many = (evaluate_model(folder, texts, batch_size=size) for size in (1, 8))
    assert many.pre["nll"] == pytest.approx(one.pre["nll"], rel=1e-5) and not noted(many)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_model_that_cannot_ignore_padding_takes_texts_one_by_one(side, texts, tmp_path):
    folder = saved(tmp_path / "model", FNetForSequenceClassification, FNET, side)
    with pytest.raises(InputError, match=r"batch_size must be 1 for .*, whose logits change with the padding"):
        evaluate_model(folder, texts, batch_size=8)
    assert evaluate_model(folder, texts, batch_size=1).pre["nll"] > 0


def test_the_tokenizer_of_a_corrected_model_pads_as_the_texts_were_padded(texts, tmp_path):
    folder = saved(tmp_path / "model", GPT2ForSequenceClassification, GPT2, "left")
    result = calibrate_model(folder, texts, output=str(tmp_path / "out"), batch_size=8)
    assert len(noted(result)) == 1 and AutoTokenizer.from_pretrained(tmp_path / "out").padding_side == "right"


def test_words_and_options_are_padded_on_the_right_too(tmp_path):
    texts = texts_of_several_lengths()
    tokens = [text.split() for text in texts]
    words = {"tokens": tokens, "tags": [[len(word) % 2 for word in row] for row in tokens]}
    questions = {"question": texts, "choices": [["it", "we was"], ["the", "bad food"]] * 12, "answer": [0, 1] * 12}
    for name, kind, rows in (("tags", BertForTokenClassification, words), ("heads", BertForMultipleChoice, questions)):
        folder, data = saved(tmp_path / name, kind, BERT, "left"), str(tmp_path / f"{name}.parquet")
        Dataset.from_dict(rows).to_parquet(data)
        columns = {"question_column": "question"} if name == "heads" else {}
        one, many = (evaluate_model(folder, data, batch_size=size, **columns) for size in (1, 8))
        assert many.pre["nll"] == pytest.approx(one.pre["nll"], rel=1e-5) and noted(many)
