"""Data for the recipes: splits of text datasets, tokenizers, and corpora generated for offline use."""

from hf_focal.data.newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from hf_focal.data.text import label_names, load_splits
from hf_focal.data.tokenizer import train_word_tokenizer

__all__ = [
    "label_names",
    "load_splits",
    "strip_footers",
    "strip_headers",
    "strip_newsgroup",
    "strip_quotes",
    "train_word_tokenizer",
]
