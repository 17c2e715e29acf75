"""Documents in the order of their probabilities, as a causal language model judges them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..calibration import Correction
from ..errors import InputError
from .label_words_model import label_scores
from .prompts import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def rank(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    query: str,
    documents: Sequence[str],
    prompt: str,
    labels: Sequence[str] = ("no", "yes"),
    *,
    correction: Correction | None = None,
    top_k: int | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Rank documents by the probability of the second label, as `CrossEncoder.rank` of sentence-transformers does.

    Args:
        model, tokenizer: as for `label_scores`.
        query: the text for {query} in the prompt.
        documents: the texts for {document}.
        prompt: has {query} and {document}, and no other fields.
        labels: the word for a wrong document, and that for a right one.
        correction: that of the logits, such as ``Correction.load("correction.json")``; None for the model's own.
        top_k: the most documents to return.
        **options: `chat`, `system`, `batch_size`, and `max_length` of `label_scores`.

    Returns:
        For each document, {"corpus_id": its index, "score": its probability}, the most probable first.

    Raises:
        InputError: as `label_scores`; or the prompt has other fields.
    """
    if {*Prompt(prompt).fields} != {"query", "document"}:
        raise InputError("prompt", f"must have {{query}} and {{document}}, got fields {Prompt(prompt).fields}")
    if not documents:
        return []
    rows = [{"query": query, "document": document} for document in documents]
    logits = label_scores(model, tokenizer, rows, labels, prompt, one_logit=True, **options)
    scores = (correction or Correction()).apply(logits.double())[:, 0].sigmoid()
    order = scores.argsort(descending=True, stable=True)[:top_k]
    return [{"corpus_id": int(number), "score": float(scores[number])} for number in order]
