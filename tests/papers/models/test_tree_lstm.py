"""The Tree-LSTM, against recursion."""

import random

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from papers.data.sentiment_trees import TreeCollator, encode_trees, parse_tree, train_leaf_tokenizer
from papers.models import TreeLSTMConfig, TreeLSTMForSequenceClassification
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForSequenceClassification

from hf_focal import FocalTrainer, FocalTrainingArguments, fold_temperature

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
            u, i, f_left, f_right, *o = (
                of_left @ h_left + of_right @ h_right + bias for (of_left, of_right), bias in gates
            )
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
def test_trees_do_not_influence_each_other():
    model, rows = make_model(), encode(some_trees())
    together = logits_of(model, rows)
    order = torch.randperm(len(rows))
    torch.testing.assert_close(logits_of(model, [rows[i] for i in order]), together[order], rtol=0, atol=1e-14)
    for row, logits in zip(rows, together, strict=True):
        alone = logits_of(model, [row])[0]
        torch.testing.assert_close(alone, logits[: len(alone)], rtol=0, atol=1e-14)


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


def test_dropout_is_for_training_only_and_before_the_head():
    model, rows = make_model(dropout=0.5), encode(some_trees())
    plain = logits_of(model, rows)
    model.train()
    assert not torch.equal(logits_of(model, rows), plain)
    model.dropout.p = 1.0
    dropped = logits_of(model, rows)
    torch.testing.assert_close(dropped, model.classifier.bias.expand_as(dropped))


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    model, rows = make_model(), encode(some_trees())
    batch = TreeCollator()(rows)
    expected = gradients(model, model(**batch).loss)
    model.cuda()
    loss = model(**{name: tensor.cuda() for name, tensor in batch.items()}).loss
    for name, gradient in gradients(model, loss).items():
        torch.testing.assert_close(gradient.cpu(), expected[name], rtol=1e-9, atol=1e-12)
    model.float()
    with torch.autocast("cuda", torch.float16):
        half = model(**{name: tensor.cuda() for name, tensor in batch.items()}).loss
    gradients(model, half)
    torch.testing.assert_close(half.double(), loss, rtol=0.01, atol=0.01)


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


def test_bad_values():
    with pytest.raises(StrictDataclassClassValidationError, match="memory_size must be at least 1, got 0"):
        TreeLSTMConfig(memory_size=0)


def test_trained_on_nodes_and_evaluated_on_roots(tmp_path):
    trees = [*some_trees(0), *some_trees(1), *some_trees(2)]
    tokenizer = train_leaf_tokenizer(trees)
    train, validation = encode_trees(trees, tokenizer), encode_trees(trees[::-1], tokenizer, roots_only=True)
    torch.manual_seed(0)
    config = TreeLSTMConfig(vocab_size=len(tokenizer), embedding_size=8, memory_size=6)
    model = TreeLSTMForSequenceClassification(config)
    args = FocalTrainingArguments(
        output_dir=str(tmp_path / "out"),
        loss="flsd53",
        optim="adagrad",
        learning_rate=0.05,
        max_steps=3,
        per_device_train_batch_size=7,
        per_device_eval_batch_size=4,
        use_cpu=True,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    before = model.composer.weight.detach().clone()
    data = {"train_dataset": train, "eval_dataset": validation}
    trainer = FocalTrainer(model=model, args=args, **data, data_collator=TreeCollator(), processing_class=tokenizer)
    trainer.train()
    assert not torch.equal(model.composer.weight, before)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3 and all(0 < loss < 1 for loss in losses)

    metrics = trainer.evaluate()
    assert metrics["eval_num_samples"] == len(validation) < len(trees)
    predictions = trainer.predict(validation)
    assert predictions.predictions.shape == (len(validation), 2)
    assert metrics["eval_accuracy"] == pytest.approx(
        (predictions.predictions.argmax(1) == predictions.label_ids).mean()
    )
    temperature = trainer.fit_temperature(objective="nll")
    fold_temperature(model, temperature)
    trainer.save_model()
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    expected = torch.from_numpy(predictions.predictions) / temperature.value
    torch.testing.assert_close(logits_of(loaded, list(validation)), expected, rtol=1e-4, atol=1e-5)


def test_logged_loss_is_that_of_all_labelled_nodes(tmp_path):
    trees = some_trees(0)
    tokenizer = train_leaf_tokenizer(trees)
    train = encode_trees(trees, tokenizer)
    torch.manual_seed(0)
    model = TreeLSTMForSequenceClassification(TreeLSTMConfig(vocab_size=len(tokenizer), dropout=0.0))
    with torch.no_grad():
        expected = model(**TreeCollator()(list(train))).loss.item()
    for micro_batches in (1, 2):
        args = FocalTrainingArguments(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=(len(train) + 1) // micro_batches,
            gradient_accumulation_steps=micro_batches,
            learning_rate=0.0,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = FocalTrainer(model=model, args=args, train_dataset=train, data_collator=TreeCollator())
        assert trainer.train().training_loss == pytest.approx(expected, rel=1e-5)
