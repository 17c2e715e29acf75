"""The mean of checkpoints."""

import pytest
import torch
from papers.runs.checkpoint_averaging import average_checkpoints
from transformers import BertConfig, BertForSequenceClassification


def test_the_mean_of_checkpoints(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    models = [BertForSequenceClassification(BertConfig(vocab_size=20, **sizes)) for _ in range(4)]
    for number, model in enumerate(models[:3]):
        model.save_pretrained(tmp_path / str(number))
    average_checkpoints(models[3], [tmp_path / str(number) for number in range(3)])
    states = [model.state_dict() for model in models]
    for name, value in states[3].items():
        expected = torch.stack([state[name].double() for state in states[:3]]).mean(0)
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=1e-7)
    with pytest.raises(ValueError, match="folders must hold at least one checkpoint, got none"):
        average_checkpoints(models[3], [])
