"""Options of questions, and label words after a prompt, scored by causal language models."""

from .label_words_model import label_scores
from .option_scores import answer_indices, score_choices
from .ranking import rank

__all__ = ["answer_indices", "label_scores", "rank", "score_choices"]
