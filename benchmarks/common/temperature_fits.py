"""Fits of a temperature: those of papers and repositories, an exact one, and their times beside ours."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.lines import FitTimes, GridLine
from benchmarks.common.metric_functions import loop_ece
from benchmarks.common.timing import times_in_turn
from hf_focal.calibration import fit_temperature

GRID_SHAPES = ((50_000, 100), (7_500, 20), (10_000, 1_000))


def scaled_logits(num_rows: int, num_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Logits that are calibrated at a temperature of about `temperature`, and labels."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(num_rows, num_classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * temperature, labels


def our_fit(objective: str, logits: Tensor, labels: Tensor) -> float:
    return fit_temperature(logits, labels, objective).value


def grid_loop(logits: Tensor, labels: Tensor) -> float:
    """Find the T of the smallest ECE as the papers' code does: a softmax for each T, a mask for each bin."""
    best, smallest = 1.0, float("inf")
    for step in range(1, 101):
        confidence, predicted = torch.softmax(logits / (step / 10), 1).max(1)
        ece = loop_ece(confidence, predicted == labels)
        if ece < smallest:
            best, smallest = step / 10, ece
    return best


def lbfgs(logits: Tensor, labels: Tensor) -> float:
    """Find the T of the smallest NLL with LBFGS, as in many repositories."""
    temperature = torch.tensor(1.5, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss.item()

    optimizer.step(closure)
    return temperature.item()


def newton(logits: Tensor, labels: Tensor) -> float:
    """Find the T of the smallest NLL in float64 by Newton steps on log(1/T): the reference for all."""
    gaps = logits.double().amax(1, keepdim=True) - logits.double()
    label_gap = gaps.gather(1, labels[:, None]).mean()
    log_beta = -label_gap.log()
    for _ in range(100):
        beta = log_beta.exp()
        weights = torch.softmax(-beta * gaps, 1)
        mean = (weights * gaps).sum(1)
        variance = (weights * gaps.square()).sum(1) - mean.square()
        slope, curvature = label_gap - mean.mean(), variance.mean()
        log_beta = log_beta - (slope / (beta * curvature)).clamp(-1, 1)
    return (-log_beta).exp().item()


def compare_fits(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> FitTimes:
    ours_T, peer_T = ours(), peer()  # also warms up
    times = times_in_turn({"ours": ours, "peer": peer}, rounds, warm_up=False)
    ours_s, peer_s = (statistics.median(times[name].wall) for name in ("ours", "peer"))
    return {"ours_s": ours_s, "peer_s": peer_s, "ratio": peer_s / ours_s, "ours_T": ours_T, "peer_T": peer_T}


def grid_lines(rounds: int) -> Iterator[GridLine]:
    """Compare the grid of 100 temperatures and the ECE with the papers' loop."""
    for rows, classes in GRID_SHAPES:
        samples = scaled_logits(rows, classes, 1.7)
        times = compare_fits(partial(our_fit, "ece", *samples), partial(grid_loop, *samples), rounds)
        yield {"rows": rows, "classes": classes, **times}
