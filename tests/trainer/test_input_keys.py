"""Keys of inputs: equal for equal inputs, whatever their padding, and none where there is no such input."""

import pytest
import torch
from pair_tokenizers import tokenizer_of

from hf_focal.trainer.input_keys import InputKeys


def keys_of(name, *batches, processor=None):
    collected = InputKeys(name, processor)
    for batch in batches:
        collected.add(batch, len(batch[name]))
    return collected.gather()


@pytest.mark.parametrize("form", [("[CLS]", "[SEP]", "[SEP]"), ("<s>", "</s> </s>", "</s>")])
def test_padding_and_second_texts_do_not_matter(form):
    tokenizer = tokenizer_of(form)
    pairs = [("a b", "c"), ("a b", "c c c"), ("a", "c"), ("b a", "c")]
    batches = [tokenizer([one for one, _ in pairs], [two for _, two in pairs], padding=True, return_tensors="pt")]
    batches.append(tokenizer(["a b", "b a"], ["c", "c"], padding="max_length", max_length=20, return_tensors="pt"))
    first, second, third, fourth, fifth, sixth = keys_of("input_ids", *batches, processor=tokenizer)
    assert first == second == fifth and fourth == sixth and len({first, third, fourth}) == 3
    single = tokenizer(["a b", "a b", "a b c"], padding=True, return_tensors="pt")
    one, two, three = keys_of("input_ids", single, processor=tokenizer)
    assert one == two != three


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_images_and_options(dtype):
    images = torch.randn(3, 3, 8, 8).to(dtype)
    one, two, three, four = keys_of("pixel_values", {"pixel_values": images[[0, 1, 0, 2]]})
    assert one == three and len({one, two, four}) == 3
    options = torch.arange(24).reshape(2, 3, 4)  # of two questions
    options[1, 0] = options[0, 0]
    same, also = keys_of("input_ids", {"input_ids": options})
    assert same == also


def test_no_keys_without_tensors_of_the_input():
    collected = InputKeys("input_ids", None)
    collected.add({"input_ids": torch.ones(2, 3, dtype=torch.int64)}, 2)
    collected.add({"x": torch.ones(2, 3)}, 2)
    assert collected.gather() is None and collected.usable(torch.arange(4).numpy(), "the data") == (None, ())
