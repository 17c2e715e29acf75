"""Requests for OpenAI-compatible servers, whose log-probabilities become calibrated probabilities of label words."""

import inspect
import json
import shlex
from typing import Any, TypedDict

from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

from ..calibration import Correction
from ..utils.model_wrappers import unwrap
from . import openai_client
from .label_words import LabelWords

_RAISED = 50.0  # is added to the logits of all labels alike, so that servers find them among the most probable tokens
_LARGEST_BIAS = 100.0  # of the protocol
_MOST_TOKENS = 20  # that servers return by default
# The distribution itself: servers have other defaults, and vLLM takes those of generation_config.json.
_PLAIN = {"max_tokens": 1, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
_EXAMPLE = '{"text": "A text to classify."}'  # the values of a prompt in the client


class OpenAIFile(TypedDict):
    """What ``openai.json`` holds: requests, and how the log-probabilities in a reply become probabilities."""

    model: str  # the name under which a server has the language model
    labels: list[str]
    token_ids: list[int]  # of the labels' first tokens
    tokens: dict[str, str]  # the label of each name that a token may have in a reply
    prompt: str  # for `str.format`
    A: list[list[float]]  # of the correction, (K, K)
    b: list[float]  # of the correction, (K,)
    temperature: float | None  # if the correction is a T with or without offsets
    logit_bias: dict[str, float] | None  # under the same condition
    request: dict[str, Any]  # for the client, which corrects the reply
    answer_request: dict[str, Any] | None  # for a server that corrects; None without T, or beyond the protocol's bias
    curl: str  # sends `request`
    python: str  # sends `request`, and corrects the reply: `openai_client.py`
    vllm_classifier: dict[str, Any] | None  # see `vllm_classifier`


def openai_requests(
    words: LabelWords, correction: Correction, model: str, vllm_classifier: dict[str, Any] | None = None
) -> OpenAIFile:
    """Return what ``openai.json`` holds.

    Servers return log-probabilities from before or after `logit_bias` and `temperature`. "request" therefore has a
    temperature of 1 and the same bias for all labels, with which both differ by a number that all labels share. No
    such number changes the corrected probabilities, softmax(A log p + b), which the client computes. "answer_request"
    leaves the correction to the server, which then draws a label with its calibrated probability.

    Args:
        words: labels with different first tokens.
        correction: of the labels' scores.
        model: the name under which a server has the language model.
        vllm_classifier: the settings of the function of this name.

    Raises:
        ValueError: labels share their first tokens, or the tokenizer ends each text with a token.
    """
    if words.first_tokens is None:
        raise ValueError("some labels have the same first token, and a request returns the probability of one token")
    if words.ends:
        raise ValueError("its tokenizer ends each text with a token, which a server would add to the prompt")
    ids, size = words.first_tokens, len(words.labels)
    correction = _of_labels(words, correction)
    A, b = correction.dense()
    rows = (
        A.tolist() if A.ndim == 2 else [[float(A) * (row == column) for column in range(size)] for row in range(size)]
    )
    offsets = b.tolist() if b.ndim else [float(b)] * size
    request = {"model": model, **_PLAIN, "temperature": 1.0, "logit_bias": _biases(ids, [_RAISED] * size)}
    # vLLM returns these tokens, and names them by their numbers; other servers ignore both fields.
    most = max(_MOST_TOKENS, size)
    request |= {"logprobs": most, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}
    request["n_probs"] = most  # llama.cpp's name of logprobs
    T, biases, answer = correction.T, None, None
    if T is not None:
        biases = [T * offset for offset in offsets]
        raised = [bias + _LARGEST_BIAS - max(biases) for bias in biases]
        if min(raised) >= -_LARGEST_BIAS:
            answer = {"model": model, **_PLAIN, "temperature": T, "logit_bias": _biases(ids, raised)}
            answer["allowed_token_ids"] = ids  # of vLLM
    example = dict.fromkeys(words.prompt.fields, "A text to classify.")
    filled = json.dumps(request | {"prompt": words.plain_prompt().format(**example)}, ensure_ascii=False)
    return {
        "model": model,
        "labels": [*words.labels],
        "token_ids": ids,
        "tokens": {key: label for label, keys in zip(words.labels, _token_keys(words), strict=True) for key in keys},
        "prompt": words.plain_prompt(),
        "A": rows,
        "b": offsets,
        "temperature": T,
        "logit_bias": None if biases is None else _biases(ids, biases),
        "request": request,
        "answer_request": answer,
        "curl": f"curl {openai_client.URL} --json {shlex.quote(filled)}",
        "python": inspect.getsource(openai_client).replace(_EXAMPLE, repr(example)),
        "vllm_classifier": vllm_classifier,
    }


def _of_labels(words: LabelWords, correction: Correction) -> Correction:
    """Return the correction of the labels' scores that changes their difference as the one of one logit does."""
    return Correction(correction.A, [0.0, correction.b]) if words.one_logit else correction


def _biases(ids: list[int], values: list[float]) -> dict[str, float]:
    return {str(number): value for number, value in zip(ids, values, strict=True)}


def _token_keys(words: LabelWords) -> list[list[str]]:
    """Return the names that each label's first token may have in a reply: its number as in vLLM, and its text.

    A text that is not whole characters, or that another label's token also has, is left out.
    """
    assert words.first_tokens is not None
    decode = words.tokenizer.decode
    (before,) = words.encode([["a"] * len(words.prompt.fields)])[0]
    start = decode(before[-1:])  # tokenizers that mark words leave out the space of a first token
    texts = [decode([before[-1], number]).removeprefix(start) for number in words.first_tokens]
    usable = [bool(text) and "\ufffd" not in text and texts.count(text) == 1 for text in texts]
    tokens = zip(words.first_tokens, texts, usable, strict=True)
    return [
        [f"token_id:{number}", text] if is_usable else [f"token_id:{number}"] for number, text, is_usable in tokens
    ]


def vllm_classifier(words: LabelWords, correction: Correction, language_model: Any) -> dict[str, Any] | None:
    """Return vLLM's settings for the language model as a classifier with calibrated probabilities, or None.

    With two labels, the classifier has one logit, the second label's minus the first one's, and the probability is
    that of the second label: σ((logit - logit_mean) / logit_sigma). With more labels, it has a softmax and only a
    temperature, so there are no settings for other corrections. The caller knows that a classifier with the labels'
    rows of the head gives the same scores (see `sequence_classifier`).

    Returns:
        {"hf_overrides": ..., "pooler_config": ...}, the arguments of ``vllm serve`` as JSON values.
    """
    model = unwrap(language_model)
    kind = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(model.config), None)
    if kind is None or words.first_tokens is None or getattr(model.get_output_embeddings(), "bias", None) is not None:
        return None
    has_two_labels = len(words.labels) == 2
    if has_two_labels:
        A, b = _of_labels(words, correction).dense()
        slope = float(A) if A.ndim == 0 else float((A[1, 1] - A[1, 0] - A[0, 1] + A[0, 0]) / 2)
        intercept = float(b[1] - b[0]) if b.ndim else 0.0
        if slope == 0:
            return None
        pooler = {"logit_mean": -intercept / slope, "logit_sigma": 1 / slope}
    elif correction.method == "temperature" and correction.T is not None:
        pooler = {"logit_sigma": correction.T}
    else:
        return None
    overrides = {
        "architectures": [kind.__name__],
        "classifier_from_token": words.tokenizer.convert_ids_to_tokens(words.first_tokens),
        "method": "from_2_way_softmax" if has_two_labels else "no_post_processing",
    }
    return {"hf_overrides": overrides, "pooler_config": pooler}
