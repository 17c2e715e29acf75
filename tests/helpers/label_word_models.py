"""Small language models with random weights, and a tokenizer with tokens for label words."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

PROMPT = "Review: {text}\nThe sentiment is"
LABELS = ("positive", "negative", "neutral")
_SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_SIZES |= {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 256, "initializer_range": 0.5}
_TOKENS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
_PLAIN = {name: size for name, size in _SIZES.items() if name not in ("num_key_value_heads", "head_dim")}
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, _SIZES),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, _SIZES | {"tie_word_embeddings": True}),
    "gpt2": (GPT2LMHeadModel, GPT2Config, {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 256}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, _SIZES | {"final_logit_softcapping": None}),
    "gemma2 with a soft cap": (Gemma2ForCausalLM, Gemma2Config, _SIZES | {"final_logit_softcapping": 2.0}),
    "phi, whose head has a bias": (PhiForCausalLM, PhiConfig, _PLAIN),
}
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<answer>"


def label_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE, with a token for " positive" but none for "very good"."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    special, letters = ["<pad>", "<eos>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    words = "Review: a film\nThe sentiment is positive negative neutral very good very bad yes no"
    trained.train_from_iterator([words] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=trained, pad_token="<pad>", eos_token="<eos>", chat_template=CHAT)


def random_model(kind, config, sizes, tokenizer):
    torch.manual_seed(0)
    return kind(config(vocab_size=len(tokenizer), **sizes, **_TOKENS)).eval()


def language_model(name: str, tokenizer):
    model = random_model(*FAMILIES[name], tokenizer)
    if getattr(model.lm_head, "bias", None) is not None:
        torch.nn.init.normal_(model.lm_head.bias)
    return model
