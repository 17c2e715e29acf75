"""Temperature fits against common implementations: the papers' loop over the grid, and a short LBFGS run.

    python -m benchmarks.speed.temperature [--repeats 3] [--threads 2] [--json FILE]

Times are medians of interleaved repeats, so that the load of the machine affects both alike: read the ratios.
"""

import argparse
import itertools
import statistics
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.measuring import machine, seconds_in_turn, write_measurements
from hf_focal.calibration import fit_temperature

GRID_SHAPES = ((50_000, 100), (7_500, 20), (10_000, 1_000))
TRUE_TEMPERATURES = (0.05, 0.3, 1.7, 5.0, 20.0)


def sample(num_rows: int, num_classes: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are calibrated at a temperature of about `temperature`."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(num_rows, num_classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * temperature, labels


def grid_loop(logits: torch.Tensor, labels: torch.Tensor, num_bins: int = 15) -> float:
    """Find the T of the smallest ECE as the papers' code does: a softmax for each T, a mask for each bin."""
    edges = torch.linspace(0, 1, num_bins + 1).tolist()
    best, smallest = 1.0, float("inf")
    for step in range(1, 101):
        confidence, predicted = torch.softmax(logits / (step / 10), 1).max(1)
        correct = predicted == labels
        ece = 0.0
        for low, high in itertools.pairwise(edges):
            inside = (confidence > low) & (confidence <= high)
            share = inside.float().mean().item()
            if share:
                ece += share * (confidence[inside].mean() - correct[inside].float().mean()).abs().item()
        if ece < smallest:
            best, smallest = step / 10, ece
    return best


def lbfgs(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Find the T of the smallest NLL with LBFGS, as in many repositories."""
    temperature = torch.tensor(1.5, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return temperature.item()


def compare(ours, peer, repeats: int) -> dict[str, float]:
    """Return the median seconds of interleaved runs, their ratio, and both results."""
    ours_T, peer_T = ours(), peer()  # also warms up
    seconds, _ = seconds_in_turn({"ours": ours, "peer": peer}, repeats)
    ours_s, peer_s = (statistics.median(seconds[name]) for name in ("ours", "peer"))
    return {"ours_s": ours_s, "peer_s": peer_s, "ratio": peer_s / ours_s, "ours_T": ours_T, "peer_T": peer_T}


def grid_results(repeats: int) -> list[dict]:
    """Compare the ECE grid with the loop for each of `GRID_SHAPES`."""
    results = []
    for rows, classes in GRID_SHAPES:
        logits, labels = sample(rows, classes, 1.7)
        timing = compare(
            lambda: fit_temperature(logits, labels, "ece").value,  # noqa: B023
            lambda: grid_loop(logits, labels),  # noqa: B023
            repeats,
        )
        results.append({"rows": rows, "classes": classes, **timing})
    return results


def temperature_grid_lines(results: list[dict]) -> list[str]:
    """Format a line for each shape: seconds of both, ratio and both optima."""
    return [
        f"ECE grid {r['rows']:>6} x {r['classes']:<5} ours {r['ours_s']:.3f} s, loop {r['peer_s']:.2f} s: "
        f"{r['ratio']:.1f}x, T {r['ours_T']:.1f} and {r['peer_T']:.1f}"
        for r in results
    ]


def nll_results(repeats: int) -> list[dict]:
    """Compare the NLL fit with LBFGS; `exact_T` is the fit in float64."""
    results = []
    for temperature in TRUE_TEMPERATURES:
        logits, labels = sample(10_000, 10, temperature)
        timing = compare(
            lambda: fit_temperature(logits, labels, "nll").value,  # noqa: B023
            lambda: lbfgs(logits, labels),  # noqa: B023
            repeats,
        )
        results.append({"true_T": temperature, "exact_T": newton(logits, labels), **timing})
    return results


def newton(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Find the T of the smallest NLL in float64 by Newton steps on log(1/T): the reference for both."""
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


def nll_lines(results: list[dict]) -> list[str]:
    return [
        f"NLL, true T {r['true_T']:<5} exact {r['exact_T']:.4f}, ours {r['ours_T']:.4f} ({r['ours_s']:.3f} s), "
        f"LBFGS {r['peer_T']:.4f} ({r['peer_s']:.3f} s)"
        for r in results
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    grid, nll = grid_results(arguments.repeats), nll_results(arguments.repeats)
    print("\n".join(temperature_grid_lines(grid) + nll_lines(nll)))
    write_measurements(arguments.json, {"machine": machine(), "grid": grid, "nll": nll})


if __name__ == "__main__":
    main()
