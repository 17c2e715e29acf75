"""Small random models of every class that an Auto class of Transformers maps to, and of every family of timm."""

import inspect

import torch
import transformers

from hf_focal import fold_correction
from hf_focal.calibration.trial_runs import TrialModel, close

T = 1.7
SMALL = {
    **dict.fromkeys(
        ["hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embed_dim", "embedding_size", "n_embed"], 16
    ),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"], 2),
    **dict.fromkeys(["decoder_attention_heads", "num_key_value_heads", "num_decoder_layers", "attention_heads"], 2),
    **dict.fromkeys(["intermediate_size", "d_ff", "d_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"], 24),
    **dict.fromkeys(["moe_intermediate_size", "hidden_dim", "ffn_hidden_size", "feed_forward_size"], 24),
    **dict.fromkeys(["head_dim", "d_kv", "d_head", "kv_channels", "attention_head_size"], 8),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"], 2),
    **dict.fromkeys(["num_experts_per_tok", "moe_top_k", "moe_k"], 1),
    **dict.fromkeys(["vocab_size", "entity_vocab_size"], 60),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "max_source_positions"], 64),
    **{
        "decoder_ffn_dim": 24,
        "image_size": 32,
        "num_labels": 3,
        "d_embed": 16,
        "n_embed": 16,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
    },
    **{"num_codevectors_per_group": 8, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
    **{"num_latents": 8, "d_latents": 16, "max_length": 32, "num_mel_bins": 16},
}
SPECIAL = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 0, "sep_token_id": 1}
SUB_CONFIGS = ("text_config", "vision_config", "backbone_config", "encoder", "decoder", "qformer_config")


def small_options(config, special=True):
    """The options that make a config of this class small, for all names in `SMALL` that it has."""
    names = {
        *vars(config),
        *getattr(config, "attribute_map", {}),
        *inspect.signature(type(config).__init__).parameters,
    }
    options = {name: value for name, value in SMALL.items() if name in names}
    mapped = getattr(config, "attribute_map", {})
    options = {name: value for name, value in options.items() if mapped.get(name, name) == name}
    options |= {name: value for name, value in SPECIAL.items() if special and name in names}
    for name, value in vars(config).items():
        if name in options or name.startswith("_") or isinstance(value, bool):
            continue
        if name == "hidden_sizes" or name == "embed_dims":
            options[name] = [8 * 2**index for index in range(len(value))]
        elif name == "depths":
            options[name] = [1] * len(value)
        elif isinstance(value, transformers.PreTrainedConfig) and name in SUB_CONFIGS:
            options[name] = {"model_type": value.model_type} | small_options(value)
    return options


def build(auto, config_class):
    """A small model of the class that an Auto class maps a config class to, with random weights."""
    torch.manual_seed(0)
    return auto.from_config(config_class(**small_options(config_class())))


def randomized(model):
    with torch.no_grad():
        for parameter in model.parameters():  # no zero bias, no unit norm: a fold that forgets one shows
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def census_of(model):
    """Fold T into a model, and return "folded", or why it was refused; raise AssertionError for other logits."""
    trial = TrialModel(randomized(model))
    others = {}  # not the batch of the trial
    for name, value in trial.inputs.items():
        others[name] = torch.randn_like(value) if value.is_floating_point() else value.flip(0)
        if value.ndim == 2 and name.endswith("ids"):
            others[name] = torch.cat([value[:, :-1].roll(1, 1), value[:, -1:]], 1)
    mine = TrialModel(model, others)
    before = mine.logits()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        fold_correction(model, T)
    except TypeError as error:
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        return f"refused: {error}"
    assert close(mine.logits(), before / T, 1e-4), "wrong logits"
    assert TrialModel(model, others).logits().dtype == before.dtype
    return "folded"
