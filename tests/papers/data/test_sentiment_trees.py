"""Parsing, encoding and batching of sentiment trees."""

import re
import sys

import pytest
import torch
from datasets import load_dataset
from hypothesis import given
from hypothesis import strategies as st
from papers.data.sentiment_trees import TreeCollator, encode_trees, parse_tree, train_leaf_tokenizer
from papers.data.tokenizer_training import train_bpe_tokenizer
from transformers import AutoTokenizer

ROCK = "(3 (2 (2 The) (2 Rock)) (4 (3 is) (2 .)))"


def bracketed(tree, node: int = -1) -> str:
    """The tree in brackets, by recursion."""
    node %= len(tree.labels)
    if tree.left[node] == -1:
        leaf = sum(height == 0 for height in tree.height[:node])
        return f"({tree.labels[node]} {tree.words[leaf]})"
    children = " ".join(bracketed(tree, side[node]) for side in (tree.left, tree.right))
    return f"({tree.labels[node]} {children})"


labels = st.integers(0, 4)
leaves = st.builds("({} {})".format, labels, st.text("abc.,'`-", min_size=1))
trees = st.recursive(leaves, lambda below: st.builds("({} {} {})".format, labels, below, below), max_leaves=20)


def test_nodes_are_in_post_order():
    tree = parse_tree(ROCK)
    assert tree.words == ["The", "Rock", "is", "."]
    assert tree.left == [-1, -1, 0, -1, -1, 3, 2]
    assert tree.right == [-1, -1, 1, -1, -1, 4, 5]
    assert tree.height == [0, 0, 1, 0, 0, 1, 2]
    assert tree.labels == [2, 2, 2, 3, 2, 4, 3]


def test_white_space_is_free_escapes_are_undone_and_no_break_spaces_kept():
    assert parse_tree(" ( 3\t(2(2 The)\n(2  Rock) )(4(3 is)(2 .) )) \n") == parse_tree(ROCK)
    tree = parse_tree("(2 (2 (2 -LRB-) (2 8\u00a01\\/2)) (2 (2 \\*\\*) (2 -RRB-)))")
    assert tree.words == ["(", "8\u00a01/2", "**", ")"]


@given(trees)
def test_trees_are_what_their_brackets_say(text):
    tree = parse_tree(text)
    assert bracketed(tree) == text
    assert all(max(left, right) < node for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)))
    for left, right, height in zip(tree.left, tree.right, tree.height, strict=True):
        assert height == (0 if left == -1 else 1 + max(tree.height[left], tree.height[right]))


def test_depth_is_not_bounded_by_the_stack():
    depth = 3 * sys.getrecursionlimit()
    left = parse_tree("(2 " * depth + "(2 a)" + " (2 b))" * depth)
    right = parse_tree("(2 (2 a) " * depth + "(2 b)" + ")" * depth)
    assert left.height[-1] == right.height[-1] == depth
    assert len(left.words) == len(right.words) == depth + 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "(",
            "(2",
            "(2 (2 a) (2 b)",
            "(2 (2 a)",
            "(2 a))",
            "(2 a) (2 b)",
            "(2 (a) (2 b))",
            "(2 (5 a) (2 b))",
        ),
        *("(2 (3) (2 b))", "(2 (2 a) (2 b) (2 c))", "(2 a (2 b))", "(2 (2 a) b)", "(2 a b)", "(2 (2 (2 a)) (2 b))"),
        *("((2 a) (2 b))", "(3a b)", ")", "(2 a) b"),
    ],
)
def test_malformed_trees(text):
    with pytest.raises(ValueError, match=f"^tree must be one binary tree, .* got {re.escape(repr(text))}$"):
        parse_tree(text)


class TestTokenizer:
    def test_words_are_kept_as_they_are(self):
        tokenizer = train_leaf_tokenizer([ROCK, "(2 (2 ,) (2 .))", parse_tree("(2 the)")])
        assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [
            "[PAD]", "[UNK]", ".", ",", "Rock", "The", "is", "the"
        ]  # fmt: skip
        words = ["The", "the", "THE", ",", "co-writer/director", "[PAD]x", "8\u00a01/2"]
        ids = tokenizer(words, is_split_into_words=True)["input_ids"]
        assert ids == [5, 7, 1, 3, 1, 1, 1]
        assert tokenizer(" The the\n")["input_ids"] == [5, 7]

    def test_saved_and_loaded(self, tmp_path):
        tokenizer = train_leaf_tokenizer([ROCK])
        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        assert loaded.get_vocab() == tokenizer.get_vocab()
        words = ["The", "[PAD]x", "nobody", "."]
        encode = {"is_split_into_words": True}
        assert loaded(words, **encode)["input_ids"] == tokenizer(words, **encode)["input_ids"]
        assert set(loaded(words, **encode)) == {"input_ids"} and (loaded.pad_token_id, loaded.unk_token_id) == (0, 1)


class TestEncoding:
    TREES = (ROCK, "(2 (1 no) (2 .))", "(0 (3 is) (1 no))", "(4 Rock)")

    @pytest.fixture
    def tokenizer(self):
        return train_leaf_tokenizer(self.TREES)

    def test_five_labels(self, tokenizer):
        dataset = encode_trees(self.TREES, tokenizer, num_labels=5)
        assert dataset.column_names == ["input_ids", "left", "right", "height", "labels"]
        for row, text in zip(dataset, self.TREES, strict=True):
            tree = parse_tree(text)
            assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == tree.words
            assert [row[name] for name in ("left", "right", "height", "labels")] == list(tree[1:])
        roots = encode_trees(map(parse_tree, self.TREES), tokenizer, num_labels=5, roots_only=True)
        assert roots["labels"][:] == [3, 2, 0, 4]
        assert roots.remove_columns("labels")[:] == dataset.remove_columns("labels")[:]

    def test_two_labels_leave_out_what_is_neutral(self, tokenizer):
        dataset = encode_trees(self.TREES, tokenizer)
        assert dataset["labels"][:] == [[-100, -100, -100, 1, -100, 1, 1], [1, 0, 0], [1]]
        assert encode_trees(self.TREES, tokenizer, roots_only=True)["labels"][:] == [1, 0, 1]

    def test_batches_of_nodes(self, tokenizer):
        dataset = encode_trees(self.TREES, tokenizer)
        batch = TreeCollator()(list(dataset))
        assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in batch.items()} == {
            "input_ids": ((3, 4), torch.int64),
            **dict.fromkeys(("left", "right", "height", "labels", "nodes"), ((3, 7), torch.int64)),
        }
        assert batch["left"].tolist() == [[-1, -1, 0, -1, -1, 3, 2], [-1, -1, 0, *[-1] * 4], [-1] * 7]
        assert batch["height"][1:].tolist() == [[0, 0, 1, *[-1] * 4], [0, *[-1] * 6]]
        assert batch["labels"][1:].tolist() == [[1, 0, 0, *[-100] * 4], [1, *[-100] * 6]]
        assert batch["nodes"].tolist() == [list(range(7))] * 3
        assert TreeCollator(pad_token_id=9)([dataset[0], dataset[2]])["input_ids"][1, 1:].tolist() == [9] * 3

    def test_errors(self, tokenizer):
        with pytest.raises(ValueError, match=r"trees\[1\] must be one binary tree"):
            encode_trees(["(3 a)", "(3 a"], tokenizer)
        with pytest.raises(ValueError, match=r"trees\[0\] must be one binary tree"):
            train_leaf_tokenizer(["(3a b)"])
        pieces = train_bpe_tokenizer(["a b c"])
        with pytest.raises(
            ValueError, match=r"tokenizer must give every word one id, got 2 ids of the words \['ab'\]"
        ):
            encode_trees(["(3 ab)"], pieces)
        with pytest.raises(ValueError, match="num_labels must be 2 or 5, got 3"):
            encode_trees(self.TREES, tokenizer, num_labels=3)


@pytest.mark.real_data
@pytest.mark.slow
def test_the_treebank(real_data):
    sizes = {"train": (8544, 6920), "dev": (1101, 872), "test": (2210, 1821)}
    splits = load_dataset("parquet", data_files={name: str(real_data / "sst" / f"{name}.parquet") for name in sizes})
    parsed = {name: [parse_tree(text) for text in split["tree"]] for name, split in splits.items()}
    tokenizer = train_leaf_tokenizer(parsed["train"])
    for name, split in splits.items():
        binary, five = (encode_trees(parsed[name], tokenizer, num_labels, roots_only=True) for num_labels in (2, 5))
        assert (len(five), len(binary)) == sizes[name]
        assert five["labels"][:] == split["label5"][:]
        assert binary["labels"][:] == [label for label in split["label"] if label >= 0]
        for tree, text in zip(parsed[name], split["text"], strict=True):
            assert " ".join(tree.words) == text.replace("\\/", "/").replace("\\*", "*")
