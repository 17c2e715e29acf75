"""Words after a prompt as tokens: with or without a space, and without the tokens that end a text."""

import copy
from types import SimpleNamespace

import pytest
from label_word_models import label_tokenizer
from tokenizers import processors
from transformers import GPT2Config

from hf_focal.choices.continuation_tokens import ContinuationTokenizer
from hf_focal.choices.option_encoding import encode_choices
from hf_focal.choices.option_scoring import OptionScoring


@pytest.fixture(scope="module")
def tokenizer():
    return label_tokenizer()


def ending(tokenizer, kind):
    """The tokenizer with a special token after each text, as an encoder's SEP or a decoder's EOS."""
    ended = copy.deepcopy(tokenizer)
    ended.add_special_tokens({kind: "<end>"})
    tokens = [("<end>", ended.convert_tokens_to_ids("<end>"))]
    ended.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=tokens)
    return ended


@pytest.mark.parametrize("kind", ["eos_token", "sep_token"])
def test_the_end_of_a_text_is_left_out_whatever_it_is_called(tokenizer, kind):
    ended = ContinuationTokenizer(ending(tokenizer, kind))
    assert ended.ends == ended.tokenizer.convert_tokens_to_ids(["<end>"])
    texts = ["It is", "", "a positive text"]
    assert ended.encode(texts) == ContinuationTokenizer(tokenizer).encode(texts)
    assert ended.in_place("It is", ["positive"]) == ContinuationTokenizer(tokenizer).in_place("It is", ["positive"])
    assert len(ended.encode(["It is<end>"])[0]) == 1 + len(ended.encode(["It is"])[0])  # one that the text itself has


@pytest.mark.parametrize(
    ("text", "gap"),
    [("It is", " "), ("It is\n", ""), ("It is (", ""), ('It is "', ""), ('It is "x"', " "), ("It's", " "), ("«", "")],
)
def test_what_is_before_a_word(tokenizer, text, gap):
    continuations, words = ContinuationTokenizer(tokenizer), ("positive", "negative")
    assert continuations.gaps(text)[0] == gap
    found = continuations.in_place(text, words)
    assert found.gap == gap
    (before,) = continuations.encode([text])
    assert [before + ids for ids in found.ids] == continuations.encode([text + gap + word for word in words])


def test_the_way_with_fewer_tokens_is_taken(tokenizer):
    """The tokenizer has no token for a space and a letter."""
    found = ContinuationTokenizer(tokenizer).in_place("Answer:", ["A", "B"])
    assert found.gap == "" and [len(ids) for ids in found.ids] == [1, 1]
    assert ContinuationTokenizer(tokenizer).in_place("Answer: ", ["positive"]) is None  # " positive" is one token
    assert ContinuationTokenizer(tokenizer).in_place("", ["positive"]) is None


@pytest.mark.parametrize("score", ["letters", "text"])
def test_options_are_encoded_as_without_the_end_of_texts(tokenizer, score):
    model, questions = SimpleNamespace(config=GPT2Config()), (["sea?", "sky?"], [["fish", "fox"], ["a", "b"]])
    expected = encode_choices(model, tokenizer, *questions, OptionScoring(score))
    assert encode_choices(model, ending(tokenizer, "sep_token"), *questions, OptionScoring(score)) == expected
