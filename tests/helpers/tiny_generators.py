"""Tiny models that generate, with random weights and biases, and inputs for them."""

import torch
import transformers
from torch import nn

VOCABULARY = 20
IDS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32}
BART |= {"decoder_start_token_id": 0, "forced_eos_token_id": None}
MARIAN = BART | {"decoder_vocab_size": VOCABULARY}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
GPT2 = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA |= {"num_key_value_heads": 1, "max_position_embeddings": 32}
GEMMA = LLAMA | {"head_dim": 8}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
# Name of the test: the class, its config and the name of a weight that is divided.
MODELS = {
    "marian": ("MarianMTModel", MARIAN, "model.decoder.layers.0.final_layer_norm.weight"),
    "marian-two-vocabularies": (
        "MarianMTModel",
        MARIAN | {"share_encoder_decoder_embeddings": False},
        "model.decoder.layers.0.final_layer_norm.weight",
    ),
    "bart": ("BartForConditionalGeneration", BART, "model.decoder.layers.0.final_layer_norm.weight"),
    "mbart": ("MBartForConditionalGeneration", BART, "model.decoder.layer_norm.weight"),
    "t5": ("T5ForConditionalGeneration", T5, "decoder.final_layer_norm.weight"),
    "t5-untied": ("T5ForConditionalGeneration", T5 | UNTIED | {"feed_forward_proj": "gated-gelu"}, "lm_head.weight"),
    "gpt2": ("GPT2LMHeadModel", GPT2, "transformer.ln_f.weight"),
    "phi": ("PhiForCausalLM", LLAMA | {"num_key_value_heads": 2} | UNTIED, "lm_head.bias"),
    "llama-tied": ("LlamaForCausalLM", LLAMA | TIED, "model.norm.weight"),
    "llama": ("LlamaForCausalLM", LLAMA | UNTIED, "lm_head.weight"),
    "qwen2": ("Qwen2ForCausalLM", LLAMA | TIED, "model.norm.weight"),
    "mistral": ("MistralForCausalLM", GEMMA | TIED, "model.norm.weight"),
    "granite": ("GraniteForCausalLM", LLAMA | TIED | {"logits_scaling": 8.0}, "model.norm.weight"),
    "gemma": ("GemmaForCausalLM", GEMMA, "model.norm.weight"),
    "gemma3": ("Gemma3ForCausalLM", GEMMA, "model.norm.weight"),
}


def build(name, dtype=torch.float32, **more):
    class_name, options, _ = MODELS.get(name) or (name, more, None)
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**IDS | options | more)).eval()
    with torch.no_grad():  # no zero bias, no unit norm: a fold that forgets one shows
        if name == "t5-untied":  # Transformers 5 ties every new T5; a checkpoint of T5 1.1 has a head of its own
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
        tensors = [tensor for tensor in model.parameters() if tensor.requires_grad]  # not what is computed: sinusoids
        for tensor in (*tensors, getattr(model, "final_logits_bias", torch.zeros(1))):
            tensor.add_(0.3 * torch.randn_like(tensor))
    return model.to(dtype)


def inputs(model):
    ids = torch.randint(3, VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def logits_of(model):
    ids = {"decoder_input_ids": inputs(model)["input_ids"].flip(0)} if model.config.is_encoder_decoder else {}
    return model(**inputs(model), **ids).logits
