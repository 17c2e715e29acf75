"""MMCE of two processes under DistributedDataParallel; the first writes the losses and gradients as JSON."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from processes import leave
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from hf_focal.losses import build_loss

OPTIONS = ("lam=3", "lam=3,weighted=true")
# name: for each process the shape of its rows, and how many of them are ignored
CASES = {
    "all rows count": (((8,), 0), ((8,), 0)),
    "ignored rows": (((8,), 2), ((8,), 5)),
    "one process without a row that counts": (((8,), 1), ((8,), 8)),
    "nothing counts": (((4,), 4), ((4,), 4)),
    "as many tokens": (((2, 5), 3), ((2, 5), 1)),
    "tokens of other lengths": (((2, 3), 1), ((3, 7), 4)),
    "no tokens": (((2, 3), 1), ((0, 7), 0)),
}


def model() -> nn.Module:
    linear = nn.Linear(6, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return linear


def batch(case: str, rank: int) -> tuple[Tensor, Tensor]:
    shape, num_ignored = CASES[case][rank]
    generator = torch.Generator().manual_seed(1 + rank)
    features = torch.randn(*shape, 6, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        labels = model()(features).argmax(-1)  # right, but for every third row
    labels.view(-1)[::3] = torch.randint(4, labels.view(-1)[::3].shape, generator=generator)
    labels.view(-1)[:num_ignored] = -100
    return features, labels


def num_items(case: str) -> int:
    return sum(int((batch(case, rank)[1] != -100).sum()) for rank in range(2))


def gradient(network: nn.Module) -> list[float]:
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).tolist()


class Collectives(TorchDispatchMode):
    """How many operations of `torch.distributed` there were."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.namespace == "c10d"
        return func(*args, **(kwargs or {}))


def step(case: str, config: str, rank: int) -> dict:
    """A training step as FocalTrainer takes it, where gradients are averaged over the processes."""
    network = DistributedDataParallel(model())
    features, labels = batch(case, rank)
    logits = network(features)
    with Collectives() as collectives:
        loss = build_loss(config)(logits, labels, num_items=num_items(case))
    (dist.get_world_size() * loss).backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    return {"loss": total.item(), "gradient": gradient(network), "collectives": collectives.count}


def evaluate(rank: int) -> list[float]:
    """Losses without gradients, of which one process computes more than the other."""
    loss, (features, labels) = build_loss("mmce:lam=3,gather=true"), batch("ignored rows", rank)
    with torch.no_grad():
        return [loss(model()(features), labels).item() for _ in range(3 - rank)]


def main(path: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    result = {
        f"{case} {options} {gather}": step(case, f"mmce:{options},gather={gather}", rank)
        for case in CASES
        for options in OPTIONS
        for gather in ("true", "false")
    }
    evaluated = [None, None]
    dist.all_gather_object(evaluated, evaluate(rank))
    if rank == 0:
        result |= {"world size": dist.get_world_size(), "evaluated": evaluated}
        path.write_text(json.dumps(result), encoding="utf-8")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
