"""What goes on after a prompt: from the model's cache and from whole inputs, which must give the same."""

import pytest
import torch
from label_word_models import FAMILIES, PROMPT, label_tokenizer, random_model
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from hf_focal.choices import label_scores
from hf_focal.choices.continuations import after_prompts, goes_on_from_its_cache

_SIZES, _WINDOW = FAMILIES["llama"][2], {"sliding_window": 6}
_OPT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 16, "word_embed_proj_dim": 16}
OTHERS = {
    "gemma2 with a sliding window": (*FAMILIES["gemma2"][:2], FAMILIES["gemma2"][2] | _WINDOW),
    "mistral with a sliding window": (MistralForCausalLM, MistralConfig, _SIZES | _WINDOW),
    "bloom, without positions": (BloomForCausalLM, BloomConfig, {"hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "opt": (OPTForCausalLM, OPTConfig, _OPT | {"init_std": 0.5}),
}
# The state of these is no cache of tokens, or is wrong after more than one.
STATES = {
    "mamba": (MambaForCausalLM, MambaConfig, {"hidden_size": 16, "num_hidden_layers": 2}),
    "jamba": (JambaForCausalLM, JambaConfig, _SIZES | {"num_hidden_layers": 8, "mamba_d_state": 4, "num_experts": 2}),
}
LABELS = ("very good", "very bad", "good", "very good film", "no", "good film", "yes", "bad")
TEXTS = ("a good film", "", "film " * 40, "bad")


@pytest.fixture(scope="module")
def tokenizer():
    return label_tokenizer()


def ids(count: int, seed: int) -> list[int]:
    return torch.randint(3, 300, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("name", FAMILIES | OTHERS)
@torch.no_grad()
def test_a_cache_gives_what_whole_inputs_give(name, tokenizer):
    # Parts of Gemma 2 and BLOOM compute in float32.
    is_wide = not name.startswith(("gemma2", "bloom"))
    dtype, tolerance = (torch.float64, 1e-12) if is_wide else (torch.float32, 1e-5)
    model = random_model(*(FAMILIES | OTHERS)[name], tokenizer).to(dtype)
    prompts = [ids(count, count) for count in (3, 17, 40, 9, 1)]
    assert goes_on_from_its_cache(model, prompts[2], ids(4, 0))
    whole, shared = (after_prompts(model, prompts, shared=shared) for shared in (False, True))
    for counts in ((5, 2, 0, 3, 1), (0, 0, 0, 0, 0), (5, 5, 5, 5, 5)):  # the cache is as it was after each
        continuations = [ids(count, 10 * row) for row, count in enumerate(counts)]
        expected, found = whole(continuations), shared(continuations)
        assert found.shape == expected.shape == (5, max(counts) + 1, len(tokenizer))
        for row, count in enumerate(counts):
            torch.testing.assert_close(
                found[row, : count + 1], expected[row, : count + 1], rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("name", ["gpt2", "opt"])
@torch.no_grad()
def test_padding_reaches_no_position_that_a_model_lacks(name, tokenizer):
    kind, config, sizes = (FAMILIES | OTHERS)[name]
    positions = {"gpt2": "n_positions", "opt": "max_position_embeddings"}[name]
    model = random_model(kind, config, sizes | {positions: 44}, tokenizer).double()
    prompts, continuations = [ids(40, 1), ids(3, 2)], [ids(2, 3), ids(30, 4)]
    found = [after_prompts(model, prompts, shared=shared)(continuations) for shared in (False, True)]
    torch.testing.assert_close(found[1][0, :3], found[0][0, :3], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=0, atol=1e-12)


def summed(model, tokenizer, text: str) -> list[float]:
    """The sums of the log-probabilities of the labels' tokens, each from a forward pass of its own."""
    start = PROMPT.replace("{text}", text)
    before, sums = len(tokenizer(start)["input_ids"]), []
    for label in LABELS:
        whole = torch.tensor(tokenizer(f"{start} {label}")["input_ids"])
        with torch.no_grad():
            log_p = model(whole[None]).logits[0].log_softmax(-1)
        sums.append(sum(float(log_p[place - 1, whole[place]]) for place in range(before, len(whole))))
    return sums


@pytest.mark.parametrize("name", ["llama", "mistral with a sliding window", *STATES])
def test_labels_of_several_tokens_get_the_sums_whatever_the_cache(name, tokenizer):
    model = random_model(*(FAMILIES | OTHERS | STATES)[name], tokenizer)
    assert goes_on_from_its_cache(model, ids(20, 0), ids(3, 1)) == (name not in STATES)
    found = label_scores(model, tokenizer, [{"text": text} for text in TEXTS], LABELS, PROMPT, batch_size=3)
    expected = torch.tensor([summed(model, tokenizer, text) for text in TEXTS], dtype=torch.float64)
    # In float32, which Jamba's experts need. Its states amplify rounding, by how much depends on the processor.
    torch.testing.assert_close(found.double(), expected, rtol=5e-5, atol=5e-5)


def test_many_labels_need_one_pass_of_the_prompt(tokenizer):
    """After the first batch, on which the cache is tried."""
    model, sizes = random_model(*FAMILIES["llama"], tokenizer), []
    rows = [{"text": "a good film"}] * 4
    once = len(tokenizer(PROMPT.replace("{text}", "a good film"))["input_ids"])
    hook = model.model.embed_tokens.register_forward_hook(lambda _, args, output: sizes.append(args[0].shape))
    found = label_scores(model, tokenizer, rows, LABELS, PROMPT, batch_size=2)
    hook.remove()
    assert found.shape == (4, len(LABELS)) and sizes[-1][0] == 2
    of_batch = sizes[len(sizes) - (len(sizes) - 3) // 2 :]
    assert of_batch[0] == (2, once) and sum(shape[1] for shape in of_batch[1:]) < once
