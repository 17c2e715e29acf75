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
import os
import socket
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from benchmarks.measuring import machine, median_ratio, peak_bytes, seconds_in_turn, write_measurements
from hf_focal.losses import build_loss, focal_from_cross_entropy, linear_loss

REFERENCE = "F.linear + F.cross_entropy"
CHUNKS_OF_512 = {"batch_chunk_size": 512, "chunking_method": None}
ERROR_TOKENS = 512
NUM_PROCESSES = 2  # with --sharded


def unfused(loss: Callable, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return loss(F.linear(hidden, weight), labels)


def torch_fused(options: dict, hidden: Tensor, weight: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    options = nn.LinearCrossEntropyOptions(**options)
    return F.linear_cross_entropy(hidden, weight, labels, reduction=reduction, options=options)


def torch_fused_focal(options: dict, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return focal_from_cross_entropy(torch_fused(options, hidden, weight, labels, reduction="none"), 3.0).mean()


def implementations(chunk_sizes: list[int]) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    peers = {
        REFERENCE: partial(unfused, F.cross_entropy),
        "F.linear + ours, focal:gamma=3": partial(unfused, build_loss("focal:gamma=3")),
    }
    if hasattr(nn, "LinearCrossEntropyOptions"):  # torch ≥ 2.13, whose own choice of chunks is slower
        peers |= {
            "F.linear_cross_entropy, chunks of 512": partial(torch_fused, CHUNKS_OF_512),
            "focal of F.linear_cross_entropy, chunks of 512": partial(torch_fused_focal, CHUNKS_OF_512),
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


def gradients(implementation: Callable, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(implementation(hidden, weight, labels), (hidden, weight))


class Head(nn.Linear):
    """A linear head that computes its loss, so that FSDP2 gathers its weight for that."""

    def __init__(self, implementation: Callable, weight: Tensor):
        super().__init__(*weight.shape[::-1], bias=False, device="meta")
        self.weight, self.implementation = nn.Parameter(weight.clone()), implementation

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return self.implementation(hidden, self.weight, labels)


def sharded_step(head: Head, sharded: bool, hidden: Tensor, labels: Tensor) -> None:
    """Compute the gradients for one process's tokens, and reduce that of the weight over all processes."""
    head(hidden, labels).backward()
    if not sharded:
        distributed.all_reduce(head.weight.grad.div_(distributed.get_world_size()))
    head.weight.grad = hidden.grad = None


def sharded_runs(hidden: Tensor, weight: Tensor, labels: Tensor) -> dict[str, Callable]:
    mesh, runs = init_device_mesh("cpu", (distributed.get_world_size(),)), {}
    for name, step in implementations([]).items():
        if name == REFERENCE or name in ("ours: cross_entropy", "ours: focal:gamma=3"):
            whole, shards = Head(step, weight), fully_shard(Head(step, weight), mesh=mesh)
            runs[name] = partial(sharded_step, whole, False, hidden, labels)
            runs[f"{name}, sharded"] = partial(sharded_step, shards, True, hidden, labels)
    return runs


def measure(steps: dict[str, Callable], num_tokens: int, num_classes: int, dtype: str, args) -> list[dict]:
    """Return and print a line for each implementation."""
    hidden, weight, labels = inputs(num_tokens, num_classes, args.hidden)
    hidden, weight = (tensor.to(getattr(torch, dtype)).requires_grad_() for tensor in (hidden, weight))
    if args.sharded:
        runs = sharded_runs(hidden, weight.detach(), labels)
    else:
        runs = {name: partial(gradients, step, hidden, weight, labels) for name, step in steps.items()}
    peaks = {}
    for name, run in runs.items():
        returned = hidden.nbytes + weight.nbytes // (NUM_PROCESSES if "sharded" in name else 1)
        peaks[name] = (peak_bytes(run) - returned) / 2**20  # also warms up
    wall, cpu = seconds_in_turn(runs, args.repeats)
    if args.sharded and distributed.get_rank() > 0:
        return []
    lines = []
    for name in runs:
        line = {
            "tokens": num_tokens,
            "vocabulary": num_classes,
            "hidden": args.hidden,
            "dtype": dtype,
            "name": name,
            "processes": distributed.get_world_size() if args.sharded else 1,
            "milliseconds": 1e3 * statistics.median(wall[name]),
            "time_ratio": median_ratio(wall[name], wall[REFERENCE]),
            "cpu_milliseconds": 1e3 * statistics.median(cpu[name]),
            "cpu_time_ratio": median_ratio(cpu[name], cpu[REFERENCE]),
            "peak_MiB": peaks[name],
            "peak_ratio": peaks[name] / peaks[REFERENCE],
        }
        lines.append(line)
        print(
            f"{num_tokens:>6} x {num_classes:<7} {dtype:9} {name:48}{line['milliseconds']:>9.0f} ms "
            f"{line['time_ratio']:>6.2f} x, CPU {line['cpu_time_ratio']:.2f} x "
            f"{line['peak_MiB']:>8.1f} MiB {line['peak_ratio']:>7.4f} x",
            flush=True,
        )
    return lines


def gradient_errors(steps: dict[str, Callable], num_classes: int, confident: bool, args) -> list[dict]:
    """Return and print the errors of cross-entropy and focal loss in float32."""
    hidden, weight, labels = inputs(ERROR_TOKENS, num_classes, args.hidden, confident)
    exact = {
        kind: gradients(partial(unfused, build_loss(kind)), hidden.requires_grad_(), weight.requires_grad_(), labels)
        for kind in ("cross_entropy", "focal:gamma=3")
    }
    single = [tensor.detach().float().requires_grad_() for tensor in (hidden, weight)]
    lines = []
    for name, step in steps.items():
        if "label_smoothing" in name:
            continue
        computed = gradients(step, *single, labels)
        reference = exact["focal:gamma=3" if "focal" in name else "cross_entropy"]
        hidden_error, weight_error = (
            ((a.double() - b).norm() / b.norm()).item() for a, b in zip(computed, reference, strict=True)
        )
        setting = "confident" if confident else "ordinary"
        lines.append(
            {
                "vocabulary": num_classes,
                "setting": setting,
                "name": name,
                "hidden": hidden_error,
                "weight": weight_error,
            }
        )
        print(f"errors {setting:9} {num_classes:<7} {name:48} {hidden_error:.1e} {weight_error:.1e}", flush=True)
    return lines


def sharded_process(rank: int, port: int, args: argparse.Namespace, results) -> None:
    torch.set_num_threads(args.threads)
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=NUM_PROCESSES)
    lines = [
        line
        for num_classes in args.vocabularies
        for num_tokens in args.tokens
        for dtype in args.dtypes
        for line in measure({}, num_tokens, num_classes, dtype, args)
    ]
    if rank == 0:
        results.put(lines)
    distributed.destroy_process_group()


def sharded_lines(args: argparse.Namespace) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(sharded_process, (port, args, results), nprocs=NUM_PROCESSES)
    return results.get()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[32_000, 128_256])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--chunk_sizes", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sharded", action="store_true", help="two processes, heads sharded by FSDP2 and whole ones")
    parser.add_argument("--json", type=Path, help="write machine and figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs each start

    figures = {"machine": machine(), "errors": [], "losses": []}
    print(figures["machine"])
    if args.sharded:
        figures = {"machine": figures["machine"], "losses": sharded_lines(args)}
    else:
        measure_all(args, figures)
    write_measurements(args.json, figures)


def measure_all(args: argparse.Namespace, figures: dict) -> None:
    steps = implementations(args.chunk_sizes)
    for confident in (False, True):
        figures["errors"] += gradient_errors(steps, min(args.vocabularies), confident, args)
    for num_classes in args.vocabularies:
        for num_tokens in args.tokens:
            for dtype in args.dtypes:
                figures["losses"] += measure(steps, num_tokens, num_classes, dtype, args)


if __name__ == "__main__":
    main()
