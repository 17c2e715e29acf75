"""Log-probabilities that a causal language model gives to the tokens that go on after a prompt."""

import copy
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..calibration.trial_runs import close
from ..utils.model_wrappers import unwrap

LogProbabilities = Callable[[Sequence[Sequence[int]]], Tensor]


def next_token_logits(model: Any, inputs: Tensor, mask: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """Return the logits (n, V), at least float32, of the token that follows each of n positions.

    The i-th position is `positions[i]` in the sequence `inputs[rows[i]]`; `inputs` (N, L) and their `mask` have their
    padding on the right.
    """
    return _logits(_forward(model, rows, positions, inputs, mask, use_cache=False))


def _forward(model: Any, rows: Tensor, positions: Tensor, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
    """Return the model's output, with logits (1, n, V) only at the n positions that `next_token_logits` describes."""
    head = model.get_output_embeddings()
    if head is None:
        raise TypeError(f"model must have a head, its output embeddings, got {type(model).__name__}")
    inputs, mask = inputs.to(model.device), mask.to(model.device)

    def needed(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        virtual = args[0].shape[1] - inputs.shape[1]  # tokens that prompt tuning prepends
        return (args[0][rows.to(args[0].device), virtual + positions.to(args[0].device)][None],)

    hook = head.register_forward_pre_hook(needed)
    try:
        output = model(input_ids=inputs, attention_mask=mask, **options)
    finally:
        hook.remove()
    if output.logits.shape[:2] != (1, len(rows)):
        raise TypeError(
            f"model must compute its logits with its head, one position at a time, got {type(model).__name__}"
        )
    return output


def _logits(output: Any) -> Tensor:
    return output.logits[0].to(torch.promote_types(output.logits.dtype, torch.float32))


def after_prompts(model: Any, prompts: Sequence[Sequence[int]], shared: bool) -> LogProbabilities:
    """Return a function that gives the log-probabilities of the tokens that go on after N prompts.

    It takes N lists of token ids, of any lengths up to C, and returns (N, C + 1, V): the log-probabilities of the
    token after each prompt, and after each token of its list. Those after the end of a shorter list mean nothing.

    Args:
        model: a causal language model of Transformers.
        prompts: their token ids, one or more each.
        shared: pass the prompts through the model once, here, and keep its cache; see `goes_on_from_its_cache`.
            Otherwise they are passed again with each continuation.
    """
    ids = [torch.tensor(prompt) for prompt in prompts]
    return _after_cached_prompts(model, ids) if shared else _after_repeated_prompts(model, ids)


def _after_repeated_prompts(model: Any, prompts: list[Tensor]) -> LogProbabilities:
    def log_p(continuations: Sequence[Sequence[int]]) -> Tensor:
        # With the padding on the right, models of any family count the positions from the first token.
        whole = [torch.cat([ids, _ids(more)]) for ids, more in zip(prompts, continuations, strict=True)]
        inputs = pad_sequence(whole, batch_first=True)
        mask = pad_sequence([torch.ones_like(ids) for ids in whole], batch_first=True)
        steps = torch.arange(-1, max(map(len, continuations)))
        starts, sizes = (torch.tensor([[len(ids)] for ids in sequences]) for sequences in (prompts, whole))
        places = torch.minimum(starts + steps, sizes - 1)
        rows = torch.arange(len(prompts)).repeat_interleave(len(steps))
        logits = next_token_logits(model, inputs, mask, rows, places.flatten())
        return logits.log_softmax(-1).unflatten(0, places.shape)

    return log_p


def _after_cached_prompts(model: Any, prompts: list[Tensor]) -> LogProbabilities:
    # The padding is on the left, because sliding windows count the tokens between a prompt and what goes on.
    inputs = pad_sequence(prompts, batch_first=True, padding_side="left").to(model.device)
    mask = pad_sequence([torch.ones_like(ids) for ids in prompts], batch_first=True, padding_side="left").to(inputs)
    name, takes_positions = _cache_argument(model)
    rows, sizes = torch.arange(len(prompts)), mask.sum(1, keepdim=True)

    def options(positions: Tensor) -> dict[str, Any]:
        return {"use_cache": True} | ({"position_ids": positions} if takes_positions else {})

    last = torch.full_like(rows, inputs.shape[1] - 1)
    output = _forward(model, rows, last, inputs, mask, **options((mask.cumsum(1) - 1).clamp(min=0)))
    first, cache = _logits(output).log_softmax(-1)[:, None], getattr(output, name)

    def log_p(continuations: Sequence[Sequence[int]]) -> Tensor:
        count = max(map(len, continuations))
        if not count:
            return first
        more = pad_sequence([_ids(ids) for ids in continuations], batch_first=True).to(inputs)
        ends = torch.tensor([[len(ids)] for ids in continuations], device=inputs.device)
        steps = torch.arange(count, device=inputs.device)
        positions = sizes + torch.minimum(steps, (ends - 1).clamp(min=0))  # none that the padding alone would reach
        settings = options(positions) | {name: copy.deepcopy(cache)}  # the model appends to it
        known = torch.cat([mask, torch.ones_like(more)], 1)
        places = steps.repeat(len(rows))
        output = _forward(model, rows.repeat_interleave(count), places, more, known, **settings)
        return torch.cat([first, _logits(output).log_softmax(-1).unflatten(0, more.shape)], 1)

    return log_p


def _ids(tokens: Sequence[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.long)


def _cache_argument(model: Any) -> tuple[str, bool]:
    """Return the name of the cache among a model's arguments, and whether it takes the positions of its inputs.

    Raises:
        TypeError: it takes no cache.
    """
    model = unwrap(model)
    inner = model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model
    parameters = signature(inner.forward).parameters
    name = next((name for name in ("cache", "past_key_values") if name in parameters), None)
    if name is None:
        raise TypeError(f"model must take a cache, got {type(model).__name__}")
    return name, "position_ids" in parameters


@torch.no_grad()
def goes_on_from_its_cache(model: Any, prompt: Sequence[int], continuation: Sequence[int]) -> bool:
    """Return whether a model computes the same from its cache as from whole inputs.

    This is tried on a batch of the prompt and its second half. It is wrong for some models that are no plain
    transformers, and for virtual tokens of adapters; and a model may keep no cache.

    Args:
        prompt: one or more token ids.
        continuation: one or more token ids that go on after it.
    """
    prompts, ids = [prompt, prompt[len(prompt) // 2 :]], [continuation] * 2
    expected = after_prompts(model, prompts, shared=False)(ids)
    try:
        from_cache = after_prompts(model, prompts, shared=True)(ids)
    except Exception:  # code of any model, which need not know of caches
        return False
    return close(from_cache, expected, 5e-2 if model.dtype.itemsize == 2 else 1e-4)
