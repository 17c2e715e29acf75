"""Options of questions, and label words after a prompt, scored by causal language models."""

from .label_words import label_scores, rank
from .option_scores import answer_indices, score_choices

__all__ = ["answer_indices", "label_scores", "rank", "score_choices"]
