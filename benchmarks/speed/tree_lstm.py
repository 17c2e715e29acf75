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

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from datasets import load_dataset
from papers.data.sentiment_trees import Tree, TreeCollator, encode_trees, parse_tree, train_leaf_tokenizer
from papers.models import TreeLSTMConfig, TreeLSTMForSequenceClassification
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measuring import machine, median_ratio, seconds_in_turn, synchronize, write_measurements

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
        with torch.no_grad():
            for layer, weight, bias in zip(self.leaf, *chunks(model.leaf, 2), strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
            for left, right, weight, bias in zip(self.left, self.right, *chunks(model.composer, 5), strict=True):
                left.weight.copy_(weight[:, :size])
                right.weight.copy_(weight[:, size:])
                left.bias.copy_(bias)

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
IMPLEMENTATIONS = {
    REFERENCE: (LayerPerGate, recursive_logits),
    "fused gates": (FusedGates, recursive_logits),
    "ours": (nn.Identity(), batched_logits),
}
# Name -> whether word vectors are trained, and the options of AdaGrad.
TASKS = {"AdaGrad": (True, {}), "fused AdaGrad": (True, {"fused": True}), "words frozen": (False, {})}


def train_step(logits_of: Callable, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Sequence[Row]) -> Tensor:
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
        synchronize(torch.device(device))
        yield loss


def measure(task: str, batches: list[list[Row]], vocab_size: int, device: str) -> list[dict]:
    """Return and print a line for each implementation. Each batch is a round, except the first, which warms up."""
    steps = {name: train_steps(task, name, batches, vocab_size, device) for name in IMPLEMENTATIONS}
    losses = {name: [next(step)] for name, step in steps.items()}
    runs = {name: partial(take_step, steps[name], losses[name]) for name in steps}
    seconds, cpu_seconds = seconds_in_turn(runs, len(batches) - 1)
    for name in steps:
        torch.testing.assert_close(torch.stack(losses[name]), torch.stack(losses[REFERENCE]), rtol=2e-2, atol=1e-3)
    return [task_line(task, name, seconds, cpu_seconds) for name in steps]


def take_step(steps: Iterator[Tensor], losses: list[Tensor]) -> None:
    losses.append(next(steps))


def task_line(task: str, name: str, seconds: dict[str, list[float]], cpu_seconds: dict[str, list[float]]) -> dict:
    """Return and print the medians of an implementation, and how much faster it is than each peer."""
    peers = [peer for peer in seconds if peer != "ours"]
    line = {
        "task": task,
        "name": name,
        "rounds": len(seconds[name]),
        "milliseconds": 1e3 * statistics.median(seconds[name]),
        "cpu_milliseconds": 1e3 * statistics.median(cpu_seconds[name]),
        "trees_per_second": BATCH_SIZE / statistics.median(seconds[name]),
        "faster": {peer: median_ratio(seconds[peer], seconds[name]) for peer in peers},
        "faster_in_cpu": {peer: median_ratio(cpu_seconds[peer], cpu_seconds[name]) for peer in peers},
    }
    ratios = (f"{line['faster'][peer]:6.1f} x ({line['faster_in_cpu'][peer]:.1f} x CPU)" for peer in peers)
    print(
        f"{task:14} {name:13}{line['milliseconds']:>8.1f} ms ({line['cpu_milliseconds']:.1f} CPU) a step "
        f"{line['trees_per_second']:>7.0f} trees/s   {'  '.join(ratios)}",
        flush=True,
    )
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="training trees; generated if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=20, help="batches measured")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write machine and figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    trees = training_trees(args.file)
    tokenizer = train_leaf_tokenizer(trees)
    random.Random(0).shuffle(trees)
    rows = list(encode_trees(trees[: BATCH_SIZE * (args.rounds + 1)], tokenizer, num_labels=5))
    batches = [rows[start : start + BATCH_SIZE] for start in range(0, len(rows), BATCH_SIZE)]
    figures = {
        "machine": machine(args.device),
        "trees": "generated" if args.file is None else args.file.name,
        "batch_size": BATCH_SIZE,
        "nodes_a_batch": statistics.mean(sum(len(row["left"]) for row in batch) for batch in batches),
        "heights_a_batch": statistics.mean(1 + max(max(row["height"]) for row in batch) for batch in batches),
        "vocab_size": len(tokenizer),
        "steps": [],
    }
    print({name: value for name, value in figures.items() if name != "steps"})
    print(f"faster than {' and '.join(list(IMPLEMENTATIONS)[:-1])}:")
    for task in TASKS:
        figures["steps"] += measure(task, batches, len(tokenizer), args.device)
    write_measurements(args.json, figures)


if __name__ == "__main__":
    main()
