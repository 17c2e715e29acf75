"""Sentiment trees of the Stanford Sentiment Treebank [Socher et al. 2013]: parsing, encoding, and batching for
`TreeLSTMForSequenceClassification`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from tokenizers import Regex, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from papers.data.tokenizer_training import train_words, word_level_tokenizer

# Only ASCII white space separates tokens: a no-break space is part of a word ("8 1\/2").
_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_LABELS = {label: int(label) for label in "01234"}
# Binary label for each label from 0, "very negative", to 4, "very positive". Losses ignore -100, the label for
# neutral.
_BINARY = (0, 0, -100, 1, 1)


class Tree(NamedTuple):
    """A binary tree with S nodes and W words. Nodes are in post-order: children before parents, the root last.

    `words` are those of the leaves from left to right, without the treebank's escapes. The other fields have a value
    for each node: the indices of its children, -1 for a leaf; its height above its deepest leaf, 0 for a leaf; and its
    sentiment, from 0 (very negative) to 4 (very positive).
    """

    words: list[str]
    left: list[int]
    right: list[int]
    height: list[int]
    labels: list[int]


def parse_tree(text: str, source: str = "tree") -> Tree:
    r"""Parse a tree of the form ``(label word)`` or ``(label (...) (...))``, of any depth and with any white space.

    Escapes of the Penn Treebank are removed: -LRB- and similar tokens become brackets, and ``\/`` and ``\*`` lose the
    backslash. If the text is not one complete binary tree with labels from 0 to 4, a `ValueError` names `source`.
    """
    tree = Tree([], [], [], [], [])
    open_brackets: list[list[str | int]] = [[]]  # what each holds so far: tokens, and the indices of parsed nodes
    try:
        for token in _TOKEN.findall(text):
            if token == "(":
                open_brackets.append([])
            elif token == ")":
                _append(tree, *open_brackets.pop())
                open_brackets[-1].append(len(tree.labels) - 1)
            else:
                open_brackets[-1].append(token)
        ((root,),) = open_brackets
        if not isinstance(root, int):
            raise TypeError
    except (IndexError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"{source} must be one binary tree, such as '(3 (2 a) (3 treat))', with labels from 0 to 4, got {text!r}"
        ) from None
    return tree


def _append(tree: Tree, label: str | int, *content: str | int) -> None:
    """Append a node with a word, or with the indices of two children; raise an error for anything else."""
    match content:
        case [str(word)]:
            left = right = -1
            height = 0
            tree.words.append(_unescaped(word))
        case [int(left), int(right)]:
            height = 1 + max(tree.height[left], tree.height[right])
        case _:
            raise TypeError
    tree.left.append(left)
    tree.right.append(right)
    tree.height.append(height)
    tree.labels.append(_LABELS[label])


def _unescaped(word: str) -> str:
    return _ESCAPED.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def train_leaf_tokenizer(
    trees: Iterable[str | Tree], vocab_size: int = 30_000, lowercase: bool = False
) -> PreTrainedTokenizerFast:
    """Train a word-level tokenizer, as `train_word_tokenizer` does, that keeps the words of leaves as they are.

    `lowercase` is for word vectors of lowercase words. For lists of words (`is_split_into_words=True`), the tokenizer
    returns one id per word. (The treebank's training trees have about 18,000 distinct words.)
    """
    separators = Regex(r"[ \t\n\r\x0b\x0c]+")
    tokenizer = word_level_tokenizer(pre_tokenizers.Split(separators, behavior="removed"), lowercase)
    texts = (" ".join(tree.words) for tree in _parsed(trees))
    # Without `split_special_tokens`, a word that contains "[PAD]" would become several tokens.
    return train_words(tokenizer, texts, vocab_size, split_special_tokens=True, model_input_names=["input_ids"])


def _parsed(trees: Iterable[str | Tree]) -> Iterable[Tree]:
    for index, tree in enumerate(trees):
        yield tree if isinstance(tree, Tree) else parse_tree(tree, f"trees[{index}]")


def encode_trees(
    trees: Iterable[str | Tree],
    tokenizer: PreTrainedTokenizerBase,
    num_labels: int = 2,
    roots_only: bool = False,
    neutral_class: bool = False,
) -> Dataset:
    """Encode trees, bracketed or parsed, as samples for `TreeCollator`.

    Args:
        trees: the trees; errors name them by their index.
        tokenizer: a tokenizer that gives every word one id, such as one from `train_leaf_tokenizer`.
        num_labels: 5 keeps the labels. 2 is the binary task: labels 0 and 1 become 0 (negative), 3 and 4 become 1
            (positive), and 2 (neutral) becomes -100. Trees with a neutral root are left out.
        roots_only: whether to label only the root of each tree, for evaluation, instead of every node.
        neutral_class: whether, in the binary task, neutral nodes get the label 2 instead of -100.

    Returns:
        A dataset with a sample for each tree of S nodes and W words: `input_ids` (W ids); `left`, `right`, and
        `height` (S integers each, as in `Tree`); and `labels` (S integers, or a single integer with `roots_only`).
    """
    if num_labels not in (2, 5):
        raise ValueError(f"num_labels must be 2 or 5, got {num_labels}")
    selected = [tree for tree in _parsed(trees) if num_labels == 5 or tree.labels[-1] != 2]
    words, labels = [tree.words for tree in selected], [tree.labels for tree in selected]
    ids = tokenizer(words, is_split_into_words=True, add_special_tokens=False)["input_ids"] if words else []
    for sentence, got in zip(words, ids, strict=True):
        if len(got) != len(sentence):
            raise ValueError(f"tokenizer must give every word one id, got {len(got)} ids of the words {sentence}")
    if num_labels == 2:
        binary = (0, 0, 2, 1, 1) if neutral_class else _BINARY
        labels = [[binary[label] for label in nodes] for nodes in labels]
    columns = {"input_ids": ids}
    columns |= {name: [getattr(tree, name) for tree in selected] for name in ("left", "right", "height")}
    features = Features({name: List(Value("int32")) for name in columns})
    features["labels"] = Value("int64") if roots_only else List(Value("int64"))
    columns["labels"] = [nodes[-1] for nodes in labels] if roots_only else labels
    return Dataset.from_dict(columns, features)


def encode_tree_splits(
    splits: DatasetDict, tokenizer: PreTrainedTokenizerBase, neutral_class: bool = False
) -> DatasetDict:
    """Encode splits of trees with binary labels for all nodes in "train", and only for the roots in other splits.

    The splits have trees in the column "text" and the binary labels of their roots in "labels"; `ValueError` if a
    label differs from the tree's own, or the root is neutral.
    """
    for name, split in splits.items():
        for tree, label in zip(split["text"], split["labels"], strict=True):
            if _BINARY[parse_tree(tree).labels[-1]] != label:
                raise ValueError(
                    "label_column must hold 0 for trees with a negative root and 1 for a positive one, got "
                    f"{label} in {name} for {tree!r}"
                )
    options = {"train": {"neutral_class": neutral_class}}
    return DatasetDict(
        {
            name: encode_trees(split["text"], tokenizer, **options.get(name, {"roots_only": True}))
            for name, split in splits.items()
        }
    )


@dataclass
class TreeCollator:
    """Batches samples of `encode_trees`, for training and evaluation.

    B trees of up to S nodes and W words become int64 tensors: `input_ids` (B, W), padded with `pad_token_id`; `left`,
    `right`, and `height` (B, S), padded with -1; and `labels`, (B,) for the roots, or (B, S), padded with -100, with
    `nodes` (B, S), which asks the model for the logits of all nodes.
    """

    pad_token_id: int = 0

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        batch = {"input_ids": _padded([sample["input_ids"] for sample in samples], self.pad_token_id)}
        for name in ("left", "right", "height"):
            batch[name] = _padded([sample[name] for sample in samples], -1)
        if "labels" in samples[0]:
            labels = [sample["labels"] for sample in samples]
            if np.ndim(labels[0]) == 0:
                batch["labels"] = torch.tensor(labels, dtype=torch.int64)
            else:
                batch["labels"] = _padded(labels, -100)
                batch["nodes"] = torch.arange(batch["labels"].shape[1]).repeat(len(samples), 1)
        return batch


def _padded(sequences: list[Sequence[int]], value: int) -> torch.Tensor:
    lengths = np.array([len(sequence) for sequence in sequences])
    padded = np.full((len(sequences), lengths.max()), value, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(sequences)
    return torch.from_numpy(padded)
