"""Hashes of a model's weights: what they tell apart, and what they do not."""

import copy

import pytest
import torch
from tiny_models import tiny_bert
from torch import nn

from hf_focal.utils.weights_hash import hash_sampled_weights


def test_it_is_of_the_weights_and_not_of_where_they_are():
    model = tiny_bert()
    before = hash_sampled_weights(model)
    other = copy.deepcopy(model)
    assert hash_sampled_weights(other) == before
    with torch.no_grad():
        other.classifier.bias[0] += 1
    assert hash_sampled_weights(other) != before
    other.load_state_dict(model.state_dict())
    assert hash_sampled_weights(other) == before
    assert hash_sampled_weights(copy.deepcopy(model).half()) != before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.float64])
def test_any_dtype_size_and_layout(dtype):
    model = nn.Module()
    for name, weights in (("a", torch.ones(300, 70)), ("t", torch.ones(3, 70).T), ("none", torch.ones(0))):
        setattr(model, name, nn.Parameter(weights.to(dtype), requires_grad=False))
    before = hash_sampled_weights(model)
    model.a.data.mul_(2)  # which no version counter tells
    assert hash_sampled_weights(model) != before


def test_offloaded_weights_do_not_count():
    model = nn.Linear(2, 2, device="meta")
    assert hash_sampled_weights(model) == hash_sampled_weights(nn.Module())
