"""Data for the recipes: splits of datasets, tokenizers, batches of images, and a corpus generated for offline use."""

from ._splits import label_names
from .corruptions import CORRUPTIONS, corrupt
from .encoding import encode_pairs
from .grammar import Grammar, generate_translations, true_translation_errors
from .images import (
    AUGMENTATIONS,
    ImageDataset,
    collate,
    decode_images,
    load_digits,
    load_image_splits,
    prepare_batch,
)
from .imbalance import check_imbalance, long_tailed
from .input_errors import InputError, explained, one_line
from .masks import ImageFormat, MaskDataset, check_crop, count_classes, load_mask_splits
from .model_inputs import TASKS, DataOptions, collator_of, encode_rows, row_keys, select_rows
from .newsgroups import strip_footers, strip_headers, strip_newsgroup, strip_quotes
from .one_split import labels_of, load_images, load_one_split, load_texts, tags_of
from .parallel import load_pairs, load_parallel, select_pairs
from .pixels import PixelFormat
from .shapes import SHAPE_NAMES, generate_shapes
from .synthetic import generate_topics, true_calibration_error
from .tagged import encode_tags, load_tag_splits, tag_names
from .tags import TAG_NAMES, generate_tags
from .text import load_splits
from .tokenizer import train_bpe_tokenizer, train_tag_tokenizer, train_word_tokenizer
from .trees import Tree, TreeCollator, encode_trees, load_trees, parse_tree, read_trees, train_leaf_tokenizer

__all__ = [
    "AUGMENTATIONS",
    "CORRUPTIONS",
    "SHAPE_NAMES",
    "TAG_NAMES",
    "TASKS",
    "DataOptions",
    "Grammar",
    "ImageDataset",
    "ImageFormat",
    "InputError",
    "MaskDataset",
    "PixelFormat",
    "Tree",
    "TreeCollator",
    "check_crop",
    "check_imbalance",
    "collate",
    "collator_of",
    "corrupt",
    "count_classes",
    "decode_images",
    "encode_pairs",
    "encode_rows",
    "encode_tags",
    "encode_trees",
    "explained",
    "generate_shapes",
    "generate_tags",
    "generate_topics",
    "generate_translations",
    "label_names",
    "labels_of",
    "load_digits",
    "load_image_splits",
    "load_images",
    "load_mask_splits",
    "load_one_split",
    "load_pairs",
    "load_parallel",
    "load_splits",
    "load_tag_splits",
    "load_texts",
    "load_trees",
    "long_tailed",
    "one_line",
    "parse_tree",
    "prepare_batch",
    "read_trees",
    "row_keys",
    "select_pairs",
    "select_rows",
    "strip_footers",
    "strip_headers",
    "strip_newsgroup",
    "strip_quotes",
    "tag_names",
    "tags_of",
    "train_bpe_tokenizer",
    "train_leaf_tokenizer",
    "train_tag_tokenizer",
    "train_word_tokenizer",
    "true_calibration_error",
    "true_translation_errors",
]
