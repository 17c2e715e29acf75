"""Data for the recipes: splits of text datasets, tokenizers, and corpora generated for offline use."""

from hf_focal.data.newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from hf_focal.data.tokenizer import train_word_tokenizer

__all__ = ["strip_footers", "strip_headers", "strip_newsgroup", "strip_quotes", "train_word_tokenizer"]
