"""Training throughput of the Tree-LSTM, computed height by height for all trees of a batch, against recursion.

    python -m benchmarks.speed.tree_lstm [--file TRAIN.parquet] [--threads 1] [--json FILE]

A step is a forward pass over 25 trees, the cross-entropy of all their nodes, a backward pass and an AdaGrad update,
with the sizes of Tai et al. (2015): word vectors of 300, memories of 150. All models have the same weights, and their
losses are checked to be equal. "layer a gate" is the recursion of published code, with a linear layer for each gate
and child; "fused gates" has one matrix product for all gates of a node, where ours has one for all nodes of a height.
Both look up the words of a batch at once. AdaGrad updates a dense gradient of all word vectors, which takes all
implementations the same time: "fused AdaGrad" uses PyTorch's faster kernel, and "words frozen" leaves it out to
compare the trees alone.

Times are of interleaved rounds, so that the load of the machine affects all alike. Ratios are medians of the ratios
within each round: read these. CPU seconds are those of this process.

Without a file, trees are generated: with random shapes, and sizes and words like those of the Stanford Sentiment
Treebank. A file is parquet with a column `tree`.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from papers.data.sentiment_trees import Tree, TreeCollator, encode_trees, parse_tree, train_leaf_tokenizer
from papers.models import TreeLSTMConfig, TreeLSTMForSequenceClassification
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import TreeLine
from benchmarks.common.timing import Times, median_ratio, times_in_turn, wait_for

BATCH_SIZE = 25
Row = Mapping[str, Sequence[int]]


def generated_tree(rng: random.Random) -> Tree:
    """Join 5 to 35 words, 20 on average, in random order, from about 18,000 of which a few are frequent."""
    num_words = rng.randint(5, 35)
    parts = [f"({rng.randrange(5)} w{int(18_000 * rng.random() ** 4)})" for _ in range(num_words)]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [f"({rng.randrange(5)} {parts[at]} {parts[at + 1]})"]
    return parse_tree(parts[0])


def training_trees(file: Path | None) -> list[Tree]:
    if file is None:
        rng = random.Random(0)
        return [generated_tree(rng) for _ in range(8544)]
    return [parse_tree(text) for text in load_dataset("parquet", data_files=str(file), split="train")["tree"]]


class LayerPerGate(nn.Module):
    """The Tree-LSTM with a linear layer for each gate and child."""

    def __init__(self, model: TreeLSTMForSequenceClassification):
        super().__init__()
        size = model.config.memory_size
        self.embeddings, self.classifier = model.embeddings, model.classifier
        self.leaf = nn.ModuleList(nn.Linear(model.config.embedding_size, size) for _ in range(2))
        self.left = nn.ModuleList(nn.Linear(size, size) for _ in range(5))
        self.right = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(5))
        for layer, weight, bias in zip(self.leaf, *chunks(model.leaf, 2), strict=True):
            layer.load_state_dict({"weight": weight, "bias": bias})
        for left, right, weight, bias in zip(self.left, self.right, *chunks(model.composer, 5), strict=True):
            left.load_state_dict({"weight": weight[:, :size], "bias": bias})
            right.load_state_dict({"weight": weight[:, size:]})

    def leaf_gates(self, word: Tensor) -> list[Tensor]:
        return [layer(word) for layer in self.leaf]

    def node_gates(self, left: Tensor, right: Tensor) -> list[Tensor]:
        return [layer(left) + other(right) for layer, other in zip(self.left, self.right, strict=True)]


class FusedGates(nn.Module):
    """The Tree-LSTM with one matrix product for all gates of a node."""

    def __init__(self, model: TreeLSTMForSequenceClassification):
        super().__init__()
        self.embeddings, self.classifier = model.embeddings, model.classifier
        self.leaf, self.composer = model.leaf, model.composer

    def leaf_gates(self, word: Tensor) -> Sequence[Tensor]:
        return self.leaf(word).chunk(2)

    def node_gates(self, left: Tensor, right: Tensor) -> Sequence[Tensor]:
        return self.composer(torch.cat([left, right])).chunk(5)


def chunks(layer: nn.Linear, count: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    return layer.weight.chunk(count), layer.bias.chunk(count)


def recursive_logits(model: LayerPerGate | FusedGates, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return the logits of all nodes, (nodes of all trees, K), and their labels."""
    device = model.classifier.weight.device
    words = torch.tensor([word for row in rows for word in row["input_ids"]], device=device)
    word_vectors = iter(model.embeddings(words).unbind())
    logits = []

    def state(row: Row, node: int) -> tuple[Tensor, Tensor]:
        if row["left"][node] == -1:
            memory, output = model.leaf_gates(next(word_vectors))
        else:
            left_hidden, left_memory = state(row, row["left"][node])
            right_hidden, right_memory = state(row, row["right"][node])
            update, input_, left, right, output = model.node_gates(left_hidden, right_hidden)
            memory = input_.sigmoid() * update.tanh() + left.sigmoid() * left_memory + right.sigmoid() * right_memory
        hidden = output.sigmoid() * memory.tanh()
        logits.append(model.classifier(hidden))
        return hidden, memory

    for row in rows:
        state(row, len(row["left"]) - 1)
    # Post-order, as the labels: children before parents, left before right.
    labels = torch.tensor([label for row in rows for label in row["labels"]], device=device)
    return torch.stack(logits), labels


def batched_logits(model: TreeLSTMForSequenceClassification, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Make a batch, and return the logits and labels of all nodes and padding."""
    batch = {name: tensor.to(model.device) for name, tensor in TreeCollator()(rows).items()}
    labels = batch.pop("labels")
    return model(**batch).logits.flatten(0, 1), labels.flatten()


REFERENCE = "layer a gate"
LogitsOf = Callable[[Any, Sequence[Row]], tuple[Tensor, Tensor]]
IMPLEMENTATIONS: dict[str, tuple[Callable[..., nn.Module], LogitsOf]] = {
    REFERENCE: (LayerPerGate, recursive_logits),
    "fused gates": (FusedGates, recursive_logits),
    "ours": (nn.Identity(), batched_logits),
}
# Name -> whether word vectors are trained, and the options of AdaGrad.
TASKS: dict[str, tuple[bool, dict[str, Any]]] = {
    "AdaGrad": (True, {}),
    "fused AdaGrad": (True, {"fused": True}),
    "words frozen": (False, {}),
}


def train_step(logits_of: LogitsOf, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Sequence[Row]) -> Tensor:
    loss = F.cross_entropy(*logits_of(model, rows))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_steps(task: str, name: str, batches: list[list[Row]], vocab_size: int, device: str) -> Iterator[Tensor]:
    """Train an implementation on one batch after the other, and yield the losses."""
    words_learn, options = TASKS[task]
    form, logits_of = IMPLEMENTATIONS[name]
    torch.manual_seed(0)
    config = TreeLSTMConfig(vocab_size=vocab_size, num_labels=5, dropout=0.0)
    model = form(TreeLSTMForSequenceClassification(config)).to(device)
    model.embeddings.requires_grad_(words_learn)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(learned, lr=0.05, **options)
    for rows in batches:
        loss = train_step(logits_of, model, optimizer, rows)
        wait_for(device)
        yield loss


def measure(task: str, batches: list[list[Row]], vocab_size: int, device: str) -> Iterator[TreeLine]:
    """Measure each implementation. Each batch is a round, except the first, which warms up."""
    steps = {name: train_steps(task, name, batches, vocab_size, device) for name in IMPLEMENTATIONS}
    losses: dict[str, list[Tensor]] = {name: [] for name in steps}
    runs = {name: partial(take_step, steps[name], losses[name]) for name in steps}
    times = times_in_turn(runs, len(batches) - 1)
    for name in steps:
        torch.testing.assert_close(torch.stack(losses[name]), torch.stack(losses[REFERENCE]), rtol=2e-2, atol=1e-3)
        yield tree_line(task, name, times)


def take_step(steps: Iterator[Tensor], losses: list[Tensor]) -> None:
    losses.append(next(steps))


def tree_line(task: str, name: str, times: Mapping[str, Times]) -> TreeLine:
    peers = [peer for peer in times if peer != "ours"]
    return {
        "task": task,
        "name": name,
        "rounds": len(times[name].wall),
        "milliseconds": times[name].milliseconds,
        "cpu_milliseconds": times[name].cpu_milliseconds,
        "trees_per_second": 1e3 * BATCH_SIZE / times[name].milliseconds,
        "faster": {peer: median_ratio(times[peer].wall, times[name].wall) for peer in peers},
        "faster_in_cpu": {peer: median_ratio(times[peer].cpu, times[name].cpu) for peer in peers},
    }


def main() -> None:
    parser = script_options(__doc__, rounds=20)
    parser.add_argument("--file", type=Path, help="training trees; generated if not given")
    parser.add_argument("--device", default="cpu")
    options = parse_options(parser)
    trees = training_trees(options.file)
    tokenizer = train_leaf_tokenizer(trees)
    random.Random(0).shuffle(trees)
    rows = list(encode_trees(trees[: BATCH_SIZE * (options.rounds + 1)], tokenizer, num_labels=5))
    batches = [rows[start : start + BATCH_SIZE] for start in range(0, len(rows), BATCH_SIZE)]
    data = {
        "trees": "generated" if options.file is None else options.file.name,
        "batch_size": BATCH_SIZE,
        "nodes_a_batch": statistics.mean(sum(len(row["left"]) for row in batch) for batch in batches),
        "heights_a_batch": statistics.mean(1 + max(max(row["height"]) for row in batch) for batch in batches),
        "vocab_size": len(tokenizer),
    }
    shown([data])
    steps = shown(line for task in TASKS for line in measure(task, batches, len(tokenizer), options.device))
    write_figures(options.json, {"machine": machine(options.device), **data, "steps": steps})


if __name__ == "__main__":
    main()
