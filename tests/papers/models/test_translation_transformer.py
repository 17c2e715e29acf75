"""Configuration of the Transformer for translation."""

import math

import pytest
import torch
from papers.data.tokenizer_training import train_bpe_tokenizer
from papers.models import transformer_config
from transformers import MarianMTModel


def test_the_transformer_has_its_sizes_and_one_matrix_of_tokens():
    tokenizer = train_bpe_tokenizer(["a b c d e f g h"] * 3, 30, 20)
    config = transformer_config(
        tokenizer, max_length=20, d_model=64, num_layers=2, num_heads=4, ffn_dim=96, dropout=0.3
    )
    torch.manual_seed(0)
    model = MarianMTModel(config)
    encoder, decoder = model.model.encoder, model.model.decoder
    assert len(encoder.layers) == len(decoder.layers) == 2
    assert decoder.layers[0].fc1.weight.shape == (96, 64)
    assert encoder.embed_positions.weight.shape == (20, 64)
    assert encoder.layers[0].self_attn.num_heads == 4 and encoder.layers[0].dropout == 0.3
    assert encoder.embed_tokens.weight.data_ptr() == model.lm_head.weight.data_ptr()
    assert model.lm_head.weight.shape == (len(tokenizer), 64)
    assert encoder.layers[0].fc1.weight.std().item() == pytest.approx(1 / math.sqrt(64), rel=0.05)
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (0, 0, 1)
