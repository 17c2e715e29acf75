"""`tokenized_texts`: pairs of texts, and the texts of token ids."""

import pytest
import torch
from pair_tokenizers import tokenizer_of

from hf_focal.trainer.shown_inputs import is_pair, texts_of


@pytest.mark.parametrize("form", [("[CLS]", "[SEP]", "[SEP]"), ("<s>", "</s> </s>", "</s>")])
def test_texts_and_pairs_are_read_from_their_ids(form):
    tokenizer = tokenizer_of(form)
    one, two = tokenizer("a b"), tokenizer("a b", "c")
    assert (is_pair(tokenizer, one), is_pair(tokenizer, two)) == (False, True)
    assert (texts_of(tokenizer, one["input_ids"]), texts_of(tokenizer, two["input_ids"])) == ("a b", "a b | c")
    padded = tokenizer("c", padding="max_length", max_length=9)["input_ids"]
    assert texts_of(tokenizer, torch.tensor(padded)) == "c"
    assert texts_of(tokenizer, [one["input_ids"], two["input_ids"]]) == "a b / a b | c"
    assert texts_of(tokenizer, []) == ""


def test_samples_without_ids_are_no_pairs():
    tokenizer = tokenizer_of(("[CLS]", "[SEP]", "[SEP]"))
    assert (
        not is_pair(None, {"input_ids": [1, 3, 2, 4, 2]}) and not is_pair(tokenizer, {}) and not is_pair(tokenizer, 3)
    )
