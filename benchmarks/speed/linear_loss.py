"""Time and memory of the loss of a linear head, forward and backward, against unfused and fused cross-entropy.

    python -m benchmarks.speed.linear_loss [--tokens 2048 4096] [--vocabularies 32000 128256] [--hidden 512]
        [--threads 1] [--dtypes float32] [--chunk_sizes 256 1024] [--sharded] [--json FILE]

Gradients are those of the hidden states and the head. Times are medians over interleaved rounds. Ratios to `F.linear`
+ `F.cross_entropy` are medians of the ratios within each round: read these. CPU time is reported beside wall time; on
busy cores, and with one thread, it varies less. Peak memory excludes the inputs and the two gradients, which every
implementation returns. Errors of the gradients are relative, by norms, to float64, on as many tokens as fit in memory;
in the confident setting the head is aligned with the hidden states of the labels. Apple's cut-cross-entropy is
included if it and triton are installed. Its actual kernels, and Liger's, need a GPU.

With `--sharded`, two processes (gloo) measure instead, each with as many tokens: heads whose weight FSDP2 shards,
gathered for each step and its gradient reduced to the shards, beside whole heads whose gradient is averaged as by DDP.
The peak is then that of the first process. A sharded head's includes the gathered weight and half of its gradient.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import HeadError, HeadLine
from benchmarks.common.memory import peak_bytes
from benchmarks.common.processes import free_port
from benchmarks.common.timing import median_ratio, times_in_turn
from hf_focal.losses import build_loss, focal_from_cross_entropy, linear_loss

HeadLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of hidden states, weight, and labels
REFERENCE = "F.linear + F.cross_entropy"
ERROR_TOKENS = 512
NUM_PROCESSES = 2  # with --sharded


def unfused(loss: Callable[[Tensor, Tensor], Tensor], hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return loss(F.linear(hidden, weight), labels)


def torch_fused(hidden: Tensor, weight: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)  # type: ignore[attr-defined]
    return F.linear_cross_entropy(hidden, weight, labels, reduction=reduction, options=options)  # type: ignore[attr-defined]


def torch_fused_focal(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return focal_from_cross_entropy(torch_fused(hidden, weight, labels, reduction="none"), 3.0).mean()


def implementations(chunk_sizes: list[int]) -> dict[str, HeadLoss]:
    peers: dict[str, HeadLoss] = {
        REFERENCE: partial(unfused, F.cross_entropy),
        "F.linear + ours, focal:gamma=3": partial(unfused, build_loss("focal:gamma=3")),
    }
    if hasattr(nn, "LinearCrossEntropyOptions"):  # torch ≥ 2.13, whose own choice of chunks is slower
        peers |= {
            "F.linear_cross_entropy, chunks of 512": torch_fused,
            "focal of F.linear_cross_entropy, chunks of 512": torch_fused_focal,
        }
    if find_spec("cut_cross_entropy") and find_spec("triton"):  # Apple's, on its CPU path
        from cut_cross_entropy import linear_cross_entropy

        peers["cut-cross-entropy, torch_compile"] = partial(linear_cross_entropy, impl="torch_compile")
    names = ("cross_entropy", "focal:gamma=3", "label_smoothing:alpha=0.1")
    ours = {f"ours: {name}": partial(linear_loss, build_loss(name)) for name in names}
    sized = {
        f"ours: focal:gamma=3, chunks of {size}": partial(linear_loss, build_loss("focal:gamma=3"), chunk_size=size)
        for size in chunk_sizes
    }
    return peers | ours | sized


def inputs(num_tokens: int, num_classes: int, num_features: int, confident: bool = False) -> tuple[Tensor, ...]:
    """Hidden states and head, float64, with logits of standard deviation 2 or probabilities near 1, and labels."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, num_features, generator=generator, dtype=torch.float64)
    weight = torch.randn(num_classes, num_features, generator=generator, dtype=torch.float64)
    weight *= 2 / num_features**0.5
    labels = torch.randperm(num_classes, generator=generator)[:num_tokens]
    if confident:
        weight[labels] += hidden * 20 / num_features
    return hidden, weight, labels


def gradients(implementation: HeadLoss, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(implementation(hidden, weight, labels), (hidden, weight))


def differentiate(implementation: HeadLoss, hidden: Tensor, weight: Tensor, labels: Tensor) -> None:
    gradients(implementation, hidden, weight, labels)  # which are not kept


class Head(nn.Module):
    """A linear head that computes its loss, so that FSDP2 gathers its weight for that."""

    def __init__(self, implementation: HeadLoss, weight: Tensor):
        super().__init__()
        self.weight, self.implementation = nn.Parameter(weight.clone()), implementation

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return self.implementation(hidden, self.weight, labels)


def sharded_step(head: Any, sharded: bool, hidden: Tensor, labels: Tensor) -> None:
    """Compute the gradients for one process's tokens, and reduce that of the weight over all processes."""
    head(hidden, labels).backward()
    if not sharded:
        distributed.all_reduce(head.weight.grad.div_(distributed.get_world_size()))
    head.weight.grad = hidden.grad = None


def sharded_runs(hidden: Tensor, weight: Tensor, labels: Tensor) -> dict[str, Callable[[], None]]:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    runs: dict[str, Callable[[], None]] = {}
    for name, step in implementations([]).items():
        if name == REFERENCE or name in ("ours: cross_entropy", "ours: focal:gamma=3"):
            whole, shards = Head(step, weight), fully_shard(Head(step, weight), mesh=mesh)
            runs[name] = partial(sharded_step, whole, False, hidden, labels)
            runs[f"{name}, sharded"] = partial(sharded_step, shards, True, hidden, labels)
    return runs


def measure(
    losses: Mapping[str, HeadLoss], num_tokens: int, num_classes: int, dtype: str, options: argparse.Namespace
) -> list[HeadLine]:
    """Measure each loss. With --sharded, each process measures, and the first one has the lines."""
    hidden, weight, labels = inputs(num_tokens, num_classes, options.hidden)
    hidden, weight = (tensor.to(getattr(torch, dtype)).requires_grad_() for tensor in (hidden, weight))
    runs: dict[str, Callable[[], None]]
    if options.sharded:
        runs = sharded_runs(hidden, weight.detach(), labels)
    else:
        runs = {name: partial(differentiate, loss, hidden, weight, labels) for name, loss in losses.items()}
    peaks = {}
    for name, run in runs.items():
        returned = hidden.nbytes + weight.nbytes // (NUM_PROCESSES if "sharded" in name else 1)
        peaks[name] = (peak_bytes(run) - returned) / 2**20  # also warms up
    times = times_in_turn(runs, options.rounds, warm_up=False)
    if options.sharded and distributed.get_rank() > 0:
        return []
    return [
        {
            "tokens": num_tokens,
            "vocabulary": num_classes,
            "hidden": options.hidden,
            "dtype": dtype,
            "name": name,
            "processes": NUM_PROCESSES if options.sharded else 1,
            "milliseconds": times[name].milliseconds,
            "time_ratio": median_ratio(times[name].wall, times[REFERENCE].wall),
            "cpu_milliseconds": times[name].cpu_milliseconds,
            "cpu_time_ratio": median_ratio(times[name].cpu, times[REFERENCE].cpu),
            "peak_MiB": peaks[name],
            "peak_ratio": peaks[name] / peaks[REFERENCE],
        }
        for name in runs
    ]


def gradient_errors(
    losses: Mapping[str, HeadLoss], num_classes: int, confident: bool, num_features: int
) -> Iterator[HeadError]:
    """Measure the errors of cross-entropy and focal loss in float32."""
    hidden, weight, labels = inputs(ERROR_TOKENS, num_classes, num_features, confident)
    exact = {
        kind: gradients(partial(unfused, build_loss(kind)), hidden.requires_grad_(), weight.requires_grad_(), labels)
        for kind in ("cross_entropy", "focal:gamma=3")
    }
    hidden, weight = (tensor.detach().float().requires_grad_() for tensor in (hidden, weight))
    for name, loss in losses.items():
        if "label_smoothing" in name:
            continue
        computed = gradients(loss, hidden, weight, labels)
        reference = exact["focal:gamma=3" if "focal" in name else "cross_entropy"]
        hidden_error, weight_error = (
            ((a.double() - b).norm() / b.norm()).item() for a, b in zip(computed, reference, strict=True)
        )
        setting = "confident" if confident else "ordinary"
        yield {
            "vocabulary": num_classes,
            "setting": setting,
            "name": name,
            "hidden": hidden_error,
            "weight": weight_error,
        }


def head_lines(losses: Mapping[str, HeadLoss], options: argparse.Namespace) -> Iterator[HeadLine]:
    for num_classes in options.vocabularies:
        for num_tokens in options.tokens:
            for dtype in options.dtypes:
                yield from measure(losses, num_tokens, num_classes, dtype, options)


def sharded_process(rank: int, port: int, options: argparse.Namespace, results: Any) -> None:
    torch.set_num_threads(options.threads or torch.get_num_threads())
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=NUM_PROCESSES)
    lines = list(head_lines({}, options))
    if rank == 0:
        results.put(lines)
    distributed.destroy_process_group()


def sharded_lines(options: argparse.Namespace) -> list[HeadLine]:
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(sharded_process, (free_port(), options, results), nprocs=NUM_PROCESSES)
    return results.get()


def main() -> None:
    parser = script_options(__doc__, rounds=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[32_000, 128_256])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--chunk_sizes", type=int, nargs="*", default=[])
    parser.add_argument("--sharded", action="store_true", help="two processes, heads sharded by FSDP2 and whole ones")
    options = parse_options(parser)
    measured: dict[str, Any] = {"machine": machine()}
    if options.sharded:
        measured["losses"] = shown(sharded_lines(options))
    else:
        losses, smallest = implementations(options.chunk_sizes), min(options.vocabularies)
        measured["errors"] = []
        for confident in (False, True):
            measured["errors"] += shown(gradient_errors(losses, smallest, confident, options.hidden))
        measured["losses"] = shown(head_lines(losses, options))
    write_figures(options.json, measured)


if __name__ == "__main__":
    main()
