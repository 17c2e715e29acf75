"""Transformer for translation [Vaswani et al. 2017] as a configuration of Transformers' Marian models."""

from transformers import MarianConfig, PreTrainedTokenizerBase


def transformer_config(
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int = 128,
    d_model: int = 512,
    num_layers: int = 6,
    num_heads: int = 8,
    ffn_dim: int = 2048,
    dropout: float = 0.1,
) -> MarianConfig:
    """Return the configuration of a Transformer to train from scratch, as `MarianMTModel(transformer_config(...))`.

    The model has sinusoidal positions (`max_length` of them), layer normalization after each residual branch, ReLU,
    and one matrix for the embeddings of both languages and the head. `num_layers` is that of the encoder, and of the
    decoder. Weights are initialized from N(0, 1/d_model). So embeddings, which are multiplied by √d_model, have
    standard deviation 1, and square matrices have the standard deviation of Glorot and Bengio (2010). The tokenizer's
    padding token also starts the decoder.
    """
    return MarianConfig(
        vocab_size=len(tokenizer),
        decoder_vocab_size=len(tokenizer),
        d_model=d_model,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        encoder_ffn_dim=ffn_dim,
        decoder_ffn_dim=ffn_dim,
        activation_function="relu",
        dropout=dropout,
        init_std=d_model**-0.5,
        scale_embedding=True,
        max_position_embeddings=max_length,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        forced_eos_token_id=None,
    )
