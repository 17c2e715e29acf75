"""The Transformer [Vaswani et al. 2017] for translation, as a configuration of Transformers' Marian."""

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
    """The configuration of a Transformer to train from scratch, `MarianMTModel(transformer_config(...))`.

    Sinusoidal positions, layer normalisation after each residual branch, ReLU, and one matrix for the embeddings of
    both sides and the head. Its weights begin as N(0, 1/d_model), so that embeddings, multiplied by √d_model, are of
    size 1, and square matrices have the deviation of Glorot and Bengio (2010).

    Args:
        tokenizer: of both languages, with a token for padding, which the decoder also starts from, and one for
            the end.
        max_length: tokens that there are positions for.
        d_model: width, a multiple of `num_heads`.
        num_layers: of the encoder, and of the decoder.
        num_heads: of each attention.
        ffn_dim: width of the feed-forward layers.
        dropout: of each residual branch and of the embeddings.
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
