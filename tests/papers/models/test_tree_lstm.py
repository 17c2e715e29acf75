"""The Tree-LSTM, against recursion."""

import random

import pytest
import torch
from papers.data.sentiment_trees import TreeCollator, encode_trees, parse_tree, train_leaf_tokenizer
from papers.models import TreeLSTMConfig, TreeLSTMForSequenceClassification
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForSequenceClassification

SMALL = {"vocab_size": 40, "embedding_size": 5, "memory_size": 4, "num_labels": 3, "dropout": 0.0}
WORDS = ["good", "bad", "not", "film", "a", ",", "."]
WORDS_AS_TREES = [f"(2 {word})" for word in WORDS]


def make_model(dtype=torch.float64, **options) -> TreeLSTMForSequenceClassification:
    torch.manual_seed(0)
    model = TreeLSTMForSequenceClassification(TreeLSTMConfig(**SMALL | options))
    torch.nn.init.normal_(model.embeddings.weight)
    return model.to(dtype).eval()


def random_tree(rng: random.Random, num_words: int) -> str:
    """A tree of a random shape, in brackets."""
    parts = [f"({rng.randrange(5)} {rng.choice(WORDS)})" for _ in range(num_words)]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [f"({rng.randrange(5)} {parts[at]} {parts[at + 1]})"]
    return parts[0]


def left_chain(num_words: int) -> str:
    return "(1 " * (num_words - 1) + "(2 a)" + " (3 good))" * (num_words - 1)


def right_chain(num_words: int) -> str:
    return "(1 (2 bad) " * (num_words - 1) + "(4 film)" + ")" * (num_words - 1)


def some_trees(seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [random_tree(rng, num_words) for num_words in (1, 9, 2, 1, 30, 3, 14)] + [left_chain(8), right_chain(12)]


def encode(trees: list[str], num_labels: int = 5, roots_only: bool = False) -> list[dict]:
    return list(encode_trees(trees, train_leaf_tokenizer(WORDS_AS_TREES), num_labels, roots_only))


def recursive(model, row: dict) -> torch.Tensor:
    """The logits of a tree's nodes (S, K) in post-order: the paper's equations, node by node from the root down."""
    words = iter(model.embeddings(torch.tensor(row["input_ids"])))
    size, gated = model.config.memory_size, model.config.output_gate
    gates = [
        [(weight[:, : model.config.memory_size], weight[:, model.config.memory_size :]), bias]
        for weight, bias in zip(model.composer.weight.split(size), model.composer.bias.split(size), strict=True)
    ]
    leaf_gates = list(zip(model.leaf.weight.chunk(2), model.leaf.bias.chunk(2), strict=True))
    hidden = {}

    def state(node: int):
        if row["left"][node] == -1:
            word = next(words)
            (cell_weight, cell_bias), (output_weight, output_bias) = leaf_gates
            c = cell_weight @ word + cell_bias
            h = torch.sigmoid(output_weight @ word + output_bias) * torch.tanh(c)
        else:
            h_left, c_left = state(row["left"][node])
            h_right, c_right = state(row["right"][node])
            u, i, f_left, f_right, *o = (left @ h_left + right @ h_right + bias for (left, right), bias in gates)
            c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_left) * c_left + torch.sigmoid(f_right) * c_right
            h = torch.sigmoid(o[0]) * torch.tanh(c) if gated else torch.tanh(c)
        hidden[node] = h
        return h, c

    state(len(row["left"]) - 1)
    return model.classifier(torch.stack([hidden[node] for node in range(len(hidden))]))


def logits_of(model, rows: list[dict], **options) -> torch.Tensor:
    batch = TreeCollator()(rows)
    labels = batch.pop("labels", None)
    return model(**batch, **options, labels=labels if options else None).logits


def check_against_recursion(model, rows: list[dict], tolerance: float):
    logits = logits_of(model, rows)
    for row, got in zip(rows, logits, strict=True):
        num_nodes = len(row["left"])
        torch.testing.assert_close(got[:num_nodes], recursive(model, row), rtol=tolerance, atol=tolerance)
        padding = got[num_nodes:]
        torch.testing.assert_close(padding, model.classifier.bias.expand_as(padding), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("output_gate", [True, False])
@torch.no_grad()
def test_logits_are_those_of_recursion(output_gate, dtype, tolerance):
    model = make_model(dtype, output_gate=output_gate)
    deep = [left_chain(501), "(3 good)", right_chain(501)]
    assert [parse_tree(tree).height[-1] for tree in deep] == [500, 0, 500]
    for trees in (some_trees(), deep, ["(3 good)", "(1 bad)"]):
        check_against_recursion(model, encode(trees), tolerance)


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("trees", "output_gate"), [(some_trees(1), False), ([left_chain(501), right_chain(501)], True)]
)
def test_gradients_are_those_of_recursion(trees, output_gate, dtype):
    model, rows = make_model(dtype, output_gate=output_gate), encode(trees)
    targets = [torch.randn(len(row["left"]), 3, dtype=dtype) for row in rows]
    logits = logits_of(model, rows)
    loss = sum((target * got[: len(target)]).sum() for target, got in zip(targets, logits, strict=True))
    reference = sum((target * recursive(model, row)).sum() for target, row in zip(targets, rows, strict=True))
    expected = gradients(model, reference)
    relative = 1e-10 if dtype is torch.float64 else 2e-5
    for name, got in gradients(model, loss).items():
        error = (got - expected[name]).abs().max() / expected[name].abs().max()
        assert error < relative, (name, error)


@torch.no_grad()
def test_roots_and_chosen_nodes():
    model, trees = make_model(), some_trees()
    nodes, roots = logits_of(model, encode(trees)), logits_of(model, encode(trees, roots_only=True))
    assert roots.shape == (len(trees), 3)
    last = torch.tensor([len(row["left"]) - 1 for row in encode(trees)])
    assert torch.equal(roots, nodes[range(len(trees)), last])
    batch = TreeCollator()(encode(trees, roots_only=True))
    del batch["labels"]
    assert torch.equal(model(**batch).logits, roots)
    assert torch.equal(model(**batch, nodes=last).logits, roots)
    firsts = torch.tensor([[0, 0]] * len(trees))
    assert torch.equal(model(**batch, nodes=firsts).logits, nodes[:, [0, 0]])
    assert isinstance(model(**batch, return_dict=False), tuple)


def test_the_neutral_class_is_for_training_only():
    model, trees = make_model(num_labels=2, neutral_class=True), some_trees()
    rows = list(encode_trees(trees, train_leaf_tokenizer(WORDS_AS_TREES), neutral_class=True))
    assert {label for row in rows for label in row["labels"]} == {0, 1, 2}
    batch = TreeCollator()(rows)
    output = model(**batch)
    logits, labels = torch.cat([recursive(model, row) for row in rows]), batch["labels"]
    assert logits.shape[1] == 3
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, labels[labels >= 0]))
    del batch["nodes"], batch["labels"]
    roots = torch.stack([recursive(model, row)[-1] for row in rows])
    torch.testing.assert_close(model(**batch).logits, roots[:, :2])


def test_loss_leaves_out_neutral_nodes_and_padding():
    model, rows = make_model(num_labels=2), encode(some_trees(), num_labels=2)
    batch = TreeCollator()(rows)
    labels = torch.cat([torch.tensor(row["labels"]) for row in rows])
    assert (labels == -100).any() and {-100, 0, 1} == set(labels.tolist())
    output = model(**batch)
    logits = torch.cat([recursive(model, row) for row in rows])
    torch.testing.assert_close(output.loss, F.cross_entropy(logits[labels >= 0], labels[labels >= 0]))
    torch.testing.assert_close(model(**batch, num_items_in_batch=8).loss * 8, output.loss * (labels >= 0).sum())


def test_saved_and_loaded_by_the_auto_classes(tmp_path):
    model = make_model(torch.float32)
    model.config.id2label = {0: "bad", 1: "so so", 2: "good"}
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), TreeLSTMConfig)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is TreeLSTMForSequenceClassification and not loaded.training
    assert loaded.config.id2label == {0: "bad", 1: "so so", 2: "good"}
    assert all(getattr(loaded.config, name) == value for name, value in SMALL.items())
    rows = encode(some_trees())
    torch.testing.assert_close(logits_of(loaded, rows), logits_of(model, rows), rtol=1e-6, atol=1e-6)
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
    assert other.classifier.weight.shape == (5, 4)
    assert torch.equal(other.composer.weight, model.composer.weight)


def test_initial_weights():
    torch.manual_seed(0)
    model = TreeLSTMForSequenceClassification(TreeLSTMConfig(vocab_size=100, num_labels=5))
    # Tai et al. count 316,800 below the head, 750 more: their gates have a bias for each child.
    sizes = {name: sum(p.numel() for p in layer.parameters()) for name, layer in model.named_children()}
    assert sizes == {"embeddings": 30_000, "leaf": 90_300, "composer": 225_750, "dropout": 0, "classifier": 755}
    assert model.embeddings.weight[0].abs().sum() == 0
    bounds = {model.embeddings: 0.05, model.leaf: 300**-0.5, model.composer: 150**-0.5, model.classifier: 150**-0.5}
    for layer, bound in bounds.items():
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision(autocast):
    """bfloat16 has 8 bits: gates and states of its rounding, gradients in the same direction."""
    model, rows = make_model(torch.float32), encode(some_trees())
    exact = logits_of(model, rows)
    expected = gradients(model, exact.square().sum())
    if not autocast:
        model = model.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = logits_of(model, rows)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.05)
    for name, gradient in gradients(model, logits.float().square().sum()).items():
        assert gradient.dtype == next(model.parameters()).dtype
        similarity = F.cosine_similarity(gradient.float().flatten(), expected[name].flatten(), dim=0)
        assert similarity > 0.99, name


@torch.no_grad()
def test_trees_do_not_influence_each_other():
    model, rows = make_model(), encode(some_trees())
    together = logits_of(model, rows)
    order = torch.randperm(len(rows))
    torch.testing.assert_close(logits_of(model, [rows[i] for i in order]), together[order], rtol=0, atol=1e-14)
    for row, logits in zip(rows, together, strict=True):
        alone = logits_of(model, [row])[0]
        torch.testing.assert_close(alone, logits[: len(alone)], rtol=0, atol=1e-14)
