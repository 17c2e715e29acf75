"""Data for the recipes: splits of text datasets, tokenizers, and a corpus generated for offline use."""

from .grammar import Grammar, generate_translations
from .newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from .parallel import load_pairs, load_parallel, select_pairs
from .synthetic import generate_topics, true_calibration_error
from .text import label_names, load_splits
from .tokenizer import train_bpe_tokenizer, train_word_tokenizer

__all__ = [
    "Grammar",
    "generate_topics",
    "generate_translations",
    "label_names",
    "load_pairs",
    "load_parallel",
    "load_splits",
    "select_pairs",
    "strip_footers",
    "strip_headers",
    "strip_newsgroup",
    "strip_quotes",
    "train_bpe_tokenizer",
    "train_word_tokenizer",
    "true_calibration_error",
]
