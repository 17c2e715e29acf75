"""Data for the recipes: splits of text datasets, tokenizers, and a corpus generated for offline use."""

from .encoding import encode_pairs
from .grammar import Grammar, generate_translations, true_translation_errors
from .newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from .parallel import load_pairs, load_parallel, select_pairs
from .synthetic import generate_topics, true_calibration_error
from .text import label_names, load_splits
from .tokenizer import train_bpe_tokenizer, train_word_tokenizer
from .trees import Tree, TreeCollator, encode_trees, load_trees, parse_tree, read_trees, train_leaf_tokenizer

__all__ = [
    "Grammar",
    "Tree",
    "TreeCollator",
    "encode_pairs",
    "encode_trees",
    "generate_topics",
    "generate_translations",
    "label_names",
    "load_pairs",
    "load_parallel",
    "load_splits",
    "load_trees",
    "parse_tree",
    "read_trees",
    "select_pairs",
    "strip_footers",
    "strip_headers",
    "strip_newsgroup",
    "strip_quotes",
    "train_bpe_tokenizer",
    "train_leaf_tokenizer",
    "train_word_tokenizer",
    "true_calibration_error",
    "true_translation_errors",
]
