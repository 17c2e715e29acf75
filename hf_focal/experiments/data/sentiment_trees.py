"""Sentiment trees: the bracketed, binary, labelled parse trees of the Stanford Sentiment Treebank [Socher et al.,
2013], read, encoded and put into batches for `TreeLSTMForSequenceClassification`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...cli.dataset_loading import load_file

# White space is ASCII's alone: a no-break space is part of a word ("8 1\/2").
_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_LABELS = frozenset("01234")
# By label from 0, "very negative", to 4, "very positive"; -100, which losses leave out, is the neutral one.
_BINARY = (0, 0, -100, 1, 1)


class Tree(NamedTuple):
    """A binary tree of S nodes and W words. Nodes are numbered in post-order: children before parents, the root last.

    Attributes:
        words: the words of the leaves from left to right, W strings without the treebank's escapes.
        left, right: of each node the number of its child; -1 for a leaf.
        height: of each node how many edges the longest way down to a leaf has; 0 for a leaf.
        labels: of each node its sentiment, 0 (very negative) to 4 (very positive).
    """

    words: list[str]
    left: list[int]
    right: list[int]
    height: list[int]
    labels: list[int]


class _State(NamedTuple):
    kinds: tuple[str, ...]  # of tokens that may follow
    expected: str  # how an error calls them


_START = _State(("(",), "'(' of a sentiment tree")
_LABEL = _State(("word",), "a label from 0 to 4")
_CONTENT = _State(("(", "word"), "a word or '('")
_SECOND = _State(("(",), "'(' of a second child (a node has one word or two children)")
_COMPLETE = _State((")",), "')'")
_END = _State((), "the end of the tree")


class _Bracket:
    """An opened bracket: its label, its word (of a leaf) and the numbers of its children that were closed so far."""

    __slots__ = ("children", "label", "word")

    def __init__(self) -> None:
        self.label: Any = None  # an int, once it is read
        self.word: str | None = None
        self.children: list[int] = []


def parse_tree(text: str, source: str = "tree") -> Tree:
    """Parse ``(label word)`` and ``(label (...) (...))``, of any depth; white space is free.

    The Penn Treebank's escapes in words are undone: -LRB- and its kin are brackets, ``\\/`` and ``\\*`` lose the
    backslash.

    Args:
        text: one tree.
        source: what an error calls the place that the tree is from.

    Raises:
        ValueError: anything but one whole binary tree with labels from 0 to 4; tells the column (from 1) and what was
            expected there.
    """
    tree = Tree([], [], [], [], [])
    brackets: list[_Bracket] = []  # those that are open, the innermost last
    for match in _TOKEN.finditer(text):
        token = match[0]
        kind = token if token in "()" else "word"
        state = _state(tree, brackets)
        if kind not in state.kinds or (state is _LABEL and token not in _LABELS):
            raise ValueError(f"{source}, column {match.start() + 1} must be {state.expected}, got {token!r}")
        if kind == "(":
            brackets.append(_Bracket())
        elif kind == ")":
            number = _append(tree, brackets.pop())
            if brackets:
                brackets[-1].children.append(number)
        elif state is _LABEL:
            brackets[-1].label = int(token)
        else:
            brackets[-1].word = _unescaped(token)
    state = _state(tree, brackets)
    if state is not _END:
        raise ValueError(f"{source}, column {len(text.rstrip()) + 1} must be {state.expected}, got the end")
    return tree


def _state(tree: Tree, brackets: list[_Bracket]) -> _State:
    """Where the parser is when `brackets` are open and the nodes of `tree` are closed."""
    if not brackets:
        return _END if tree.labels else _START
    innermost = brackets[-1]
    if innermost.label is None:
        return _LABEL
    if innermost.word is not None or len(innermost.children) == 2:
        return _COMPLETE
    return _SECOND if innermost.children else _CONTENT


def _append(tree: Tree, node: _Bracket) -> int:
    """Add a node whose children are there, and return its number."""
    left, right = node.children or (-1, -1)
    if node.word is not None:
        tree.words.append(node.word)
    tree.height.append(1 + max(tree.height[left], tree.height[right]) if node.children else 0)
    tree.left.append(left)
    tree.right.append(right)
    tree.labels.append(node.label)
    return len(tree.labels) - 1


def _unescaped(word: str) -> str:
    return _ESCAPED.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def read_trees(path: str | Path) -> list[Tree]:
    """Read a file of bracketed trees, one a line, as in ``trainDevTestTrees_PTB`` (train.txt, dev.txt, test.txt).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: what `parse_tree` raises, with the file and the line (from 1); a blank line is no tree.
    """
    return [tree for _, tree in _lines(path)]


def load_trees(path: str | Path) -> Dataset:
    """Read the file that `read_trees` reads as a dataset of sentences for the binary task.

    Returns:
        A dataset with the columns `tree` (the line, which `encode_trees` takes), `text` (the words, a space between
        them) and `label`, the root's: a `ClassLabel` "negative" or "positive", or -1, none, where it is neutral.

    Raises:
        FileNotFoundError, ValueError: as `read_trees`.
    """
    columns: dict[str, list] = {"tree": [], "text": [], "label": []}
    for line, tree in _lines(path):
        columns["tree"].append(line)
        columns["text"].append(" ".join(tree.words))
        columns["label"].append(max(_BINARY[tree.labels[-1]], -1))
    label = ClassLabel(names=["negative", "positive"])
    return Dataset.from_dict(columns, Features(tree=Value("string"), text=Value("string"), label=label))


def load_trees_or_table(argument: str, file: Path) -> Dataset:
    """Read a .txt file with `load_trees`, and any other file as `load_splits` does; its argument `read_file`."""
    return load_trees(file) if file.suffix.lower() == ".txt" and file.is_file() else load_file(argument, file)


def _lines(path: str | Path) -> Iterator[tuple[str, Tree]]:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            yield line.rstrip("\n"), parse_tree(line, f"{path}, line {number}")


def train_leaf_tokenizer(
    trees: Iterable[str | Tree], vocab_size: int = 30_000, lowercase: bool = False
) -> PreTrainedTokenizerFast:
    """Train a tokenizer whose tokens are the words of leaves as they are, punctuation included.

    Args:
        trees: the training trees, bracketed or parsed.
        vocab_size: words kept, the most frequent first and ties in alphabetical order, "[PAD]" (id 0) and "[UNK]"
            (id 1) included. The treebank's training trees have some 18,000.
        lowercase: for word vectors that know no capitals.

    Returns:
        A tokenizer giving `input_ids`, of words given as a list (`is_split_into_words=True`) one id each;
        `AutoTokenizer` loads what its `save_pretrained` wrote.

    Raises:
        ValueError: what `parse_tree` raises.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[ \t\n\r\x0b\x0c]+"), behavior="removed")
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator((" ".join(tree.words) for tree in _parsed(trees)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        split_special_tokens=True,  # or a word that holds "[PAD]" would be several tokens
        model_input_names=["input_ids"],
    )


def _parsed(trees: Iterable[str | Tree]) -> Iterable[Tree]:
    for row, tree in enumerate(trees):
        yield tree if isinstance(tree, Tree) else parse_tree(tree, f"trees[{row}]")


def encode_trees(
    trees: Iterable[str | Tree],
    tokenizer: PreTrainedTokenizerBase,
    num_labels: int = 2,
    roots_only: bool = False,
) -> Dataset:
    """Encode trees as rows that `TreeCollator` makes batches of.

    Args:
        trees: bracketed or parsed.
        tokenizer: gives every word one id, as `train_leaf_tokenizer`'s does.
        num_labels: 5 keeps the labels. 2 is the binary task: 0 and 1 become 0 (negative), 3 and 4 become 1 (positive),
            neutral nodes -100; and trees with a neutral root are left out, which of the treebank's 8,544 / 1,101 /
            2,210 trees leaves 6,920 / 872 / 1,821.
        roots_only: what is scored is the root of each tree (to evaluate), not every node (to train [Tai et al. 2015]).

    Returns:
        A dataset with a row for each tree of S nodes (in post-order, the root last) and W words, and the columns
        `input_ids` (W ids), `left`, `right` and `height` (S integers each, those of `Tree`), and `labels`: S
        integers, or with `roots_only` the root's alone.

    Raises:
        ValueError: `num_labels` is not 2 or 5; the tokenizer gives a word no token or several; what `parse_tree`
            raises, with the row.
    """
    if num_labels not in (2, 5):
        raise ValueError(f"num_labels must be 2 or 5, got {num_labels}")
    kept = [tree for tree in _parsed(trees) if num_labels == 5 or tree.labels[-1] != 2]
    words, labels = [tree.words for tree in kept], [tree.labels for tree in kept]
    ids = tokenizer(words, is_split_into_words=True, add_special_tokens=False)["input_ids"] if words else []
    for given, got in zip(words, ids, strict=True):
        if len(got) != len(given):
            raise ValueError(f"tokenizer must give every word one id, got {len(got)} ids of the words {given}")
    if num_labels == 2:
        labels = [[_BINARY[label] for label in of_nodes] for of_nodes in labels]
    columns = {"input_ids": ids}
    columns |= {name: [getattr(tree, name) for tree in kept] for name in ("left", "right", "height")}
    features = Features({name: List(Value("int32")) for name in columns})
    features["labels"] = Value("int64") if roots_only else List(Value("int64"))
    columns["labels"] = [of_nodes[-1] for of_nodes in labels] if roots_only else labels
    return Dataset.from_dict(columns, features)


@dataclass
class TreeCollator:
    """Makes a batch of rows of `encode_trees`, for training and for evaluation alike.

    B trees of up to S nodes and W words become int64 tensors: `input_ids` (B, W), padded with `pad_token_id`; `left`,
    `right` and `height` (B, S), padded with -1; and `labels`. Rows with a label for each node give `labels` (B, S),
    padded with -100, and `nodes` (B, S), which asks the model for the logits of all nodes; rows with a single label
    give `labels` (B,), and the model answers for the roots. Rows without labels do so, too.

    Args:
        pad_token_id: the tokenizer's.
    """

    pad_token_id: int = 0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        batch = {"input_ids": _padded([row["input_ids"] for row in rows], self.pad_token_id)}
        for name in ("left", "right", "height"):
            batch[name] = _padded([row[name] for row in rows], -1)
        if "labels" in rows[0]:
            labels = [row["labels"] for row in rows]
            if np.ndim(labels[0]) == 0:
                batch["labels"] = torch.tensor(labels, dtype=torch.int64)
            else:
                batch["labels"] = _padded(labels, -100)
                batch["nodes"] = torch.arange(batch["labels"].shape[1]).repeat(len(rows), 1)
        return batch


def _padded(rows: list[Sequence[int]], value: int) -> torch.Tensor:
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), value, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(padded)
