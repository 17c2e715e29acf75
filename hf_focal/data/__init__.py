"""Data for the recipes: splits of text datasets, tokenizers, and a corpus generated for offline use."""

from hf_focal.data.newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from hf_focal.data.synthetic import generate_topics, posterior_gap, true_calibration_error
from hf_focal.data.text import label_names, load_splits
from hf_focal.data.tokenizer import train_word_tokenizer

__all__ = [
    "generate_topics",
    "label_names",
    "load_splits",
    "posterior_gap",
    "strip_footers",
    "strip_headers",
    "strip_newsgroup",
    "strip_quotes",
    "train_word_tokenizer",
    "true_calibration_error",
]
