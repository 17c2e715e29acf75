"""Maximum input length of pretrained models."""

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerBase


def model_positions(config: PreTrainedConfig, max_length: int | None = None) -> int | None:
    """The number of tokens that a pretrained model has positions for; None if its configuration sets no limit.

    Raises `ValueError` if `max_length` is larger, or if no model can be built from the configuration.
    """
    positions = getattr(config, "max_position_embeddings", None)
    try:
        if positions is None or positions < 1:
            return None
        with torch.device("meta"):
            model = AutoModel.from_config(config)
    except Exception as error:  # malformed values raise exceptions of any type
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"config.json of {config.name_or_path!r} must describe a model, got one that raises {reason}"
        ) from error
    for name, module in model.named_modules():
        # RoBERTa and its relatives count positions from the one after the padding's.
        is_positions = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if is_positions and module.padding_idx is not None:
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    if max_length is not None and max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the positions of {config.name_or_path!r}, got {max_length}"
        )
    return positions


def input_length(
    name: str, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None, revision: str = "main"
) -> int:
    """The number of tokens after which inputs are truncated: `max_length`, or the limit of tokenizer and model.

    Raises `ValueError` if `max_length` is larger than the model has positions for.
    """
    positions = model_positions(AutoConfig.from_pretrained(name, revision=revision), max_length)
    if max_length is not None:
        return max_length
    # The limit of a tokenizer without one is 10^30.
    limits = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None and limit < 10**6]
    return min(limits, default=1000)
