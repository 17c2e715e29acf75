"""Multiple-choice questions answered by causal language models."""

from .option_scores import answer_indices, score_choices

__all__ = ["answer_indices", "score_choices"]
