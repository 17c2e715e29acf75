"""Draw the analyses of focal loss in Mukhoti et al. (2020) that need no network, in seconds on a CPU.

    python -m papers.analyses --output_dir out/analysis [--only figure_4a entropy_bound]

Each analysis writes a figure (.png) and its numbers (.csv):

- figure_4a: g(p, γ), the gradient of focal loss divided by the gradient of cross-entropy, as a function of the true
  class's probability p.
- thresholds: the γ for which g(p, γ) is 1 at a given p (proposition 2). FLSD's schedules consist of such γ.
- figure_6: the p that minimizes focal loss if the true probability is q (equation 5).
- entropy_bound: focal loss compared with its lower bound KL(q‖p) + H(q) - γ H(p) (equation 4, appendix A).
- linear_model: logistic regression on flipped labels with cross-entropy and FL-1 (figures 7 and 8, appendix B), and
  a table of five draws of the data.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from hf_focal import CalibrationMetrics, build_loss, gamma_for_threshold
from hf_focal.losses import focal_from_cross_entropy, soft_target_focal
from hf_focal.reports.figures.figure_style import LINES, clean_axes

COLORS = ("#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9")
STEPS, LEARNING_RATE, NUM_DRAWS = 400, 0.05, 5
LINEAR_LOSSES = {"cross-entropy": "cross_entropy", "focal, γ = 1": "focal:gamma=1"}
LOOKS = ({"color": COLORS[1], "linestyle": "-"}, {"color": COLORS[4], "linestyle": "--"})


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def dress(axes: Axes, x: str, y: str, x_limits: Sequence[float] = (), y_limits: Sequence[float] = ()) -> Axes:
    """Label the axes, set the limits that are given, and draw the legend of what was drawn, if it has labels."""
    axes.set(xlabel=x, ylabel=y)
    if x_limits:
        axes.set_xlim(*x_limits)
    if y_limits:
        axes.set_ylim(*y_limits)
    clean_axes(axes)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)
    return axes


def save(folder: Path, name: str, figure: Figure, header: Sequence[str], columns: Iterable[Any]) -> None:
    """Save a figure as `name`.png, and `columns` (sequences or tensors of the same length) as `name`.csv."""
    figure.savefig(folder / f"{name}.png", dpi=110)
    write_table(folder / f"{name}.csv", header, columns)
    print(f"  {folder / name}.png, .csv")


def write_table(path: Path, header: Sequence[str], columns: Iterable[Any]) -> None:
    table = pd.DataFrame({name: np.asarray(column) for name, column in zip(header, columns, strict=True)})
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\r\n")


def gradient_scale(p: Tensor, gamma: float) -> Tensor:
    """Compute g(p, γ), the derivative of focal loss with respect to cross-entropy, for a tensor of probabilities p."""
    ce = (-p.log()).requires_grad_()
    (slope,) = torch.autograd.grad(focal_from_cross_entropy(ce, gamma).sum(), ce)
    return slope


def figure_4a(folder: Path) -> None:
    gammas = (0, 0.5, 1, 2, 3, 5, 7, 10)
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    curves = [gradient_scale(p, gamma) for gamma in gammas]
    figure = new_figure(5.2, 3.6)
    axes = figure.subplots()
    for number, (gamma, curve) in enumerate(zip(gammas, curves, strict=True)):
        axes.plot(p, curve, color=COLORS[number % 7], linestyle=LINES[number % 4], label=f"γ = {gamma}")
    dress(axes, "Probability of the true class, p", "g(p, γ)", (0, 1), (0, 2.5))
    save(folder, "figure_4a", figure, ["p", *(f"gamma_{gamma}" for gamma in gammas)], [p, *curves])


def thresholds(folder: Path) -> None:
    p0 = torch.arange(0.02, 0.496, 0.005, dtype=torch.float64)
    gammas = torch.tensor([gamma_for_threshold(float(value)) for value in p0], dtype=torch.float64)
    scale = torch.stack([gradient_scale(p, float(gamma)) for p, gamma in zip(p0, gammas, strict=True)])
    figure = new_figure(7.6, 3.4)
    left, right = figure.subplots(1, 2)
    dress(left, "Threshold p₀", "γ with g(p₀, γ) = 1")
    left.plot(p0, gammas, color=COLORS[1])
    for value, offset in ((0.2, 1.6), (0.25, 1.1)):
        gamma = gamma_for_threshold(value)
        left.plot(value, gamma, "o", color=COLORS[4])
        left.annotate(f"γ({value:g}) = {gamma:.2f}", (value, gamma), (value + 0.02, gamma * offset), fontsize=9)
    left.set_yscale("log")
    grid = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for number, value in enumerate((0.1, 0.2, 0.25, 0.4)):
        gamma, color = gamma_for_threshold(value), COLORS[1 + number]
        label = f"p₀ = {value:g}, γ = {gamma:.2f}"
        right.plot(grid, gradient_scale(grid, gamma), color=color, linestyle=LINES[number], label=label)
        right.plot(value, 1, "o", color=color, markersize=4)
    right.axhline(1, color="#595959", linewidth=0.8)
    dress(right, "Probability of the true class, p", "g(p, γ)", (0, 1), (0, 2.5))
    save(folder, "thresholds", figure, ["p0", "gamma", "g_at_p0"], [p0, gammas, scale])


def minimizing_probability(q: Tensor, gamma: float) -> Tensor:
    """Find the p that minimizes focal loss for true probabilities q (N,) in (0, 1).

    The loss is -(1-p)^γ q log p - p^γ (1-q) log(1-p), equation 5. It falls before its minimum and rises after it, so
    bisection of the logit finds the minimum.
    """
    low, high = torch.full_like(q, -40.0), torch.full_like(q, 40.0)
    targets = torch.stack([1 - q, q], dim=-1)
    for _ in range(60):
        middle = ((low + high) / 2).requires_grad_()
        logits = torch.stack([torch.zeros_like(q), middle], dim=-1)
        (slope,) = torch.autograd.grad(soft_target_focal(logits, targets, gamma).sum(), middle)
        low, high = torch.where(slope < 0, middle, low).detach(), torch.where(slope < 0, high, middle).detach()
    return torch.sigmoid((low + high) / 2)


def figure_6(folder: Path) -> None:
    gammas = (0, 1, 2, 3, 5)
    q = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    curves = [minimizing_probability(q, gamma) for gamma in gammas]
    figure = new_figure(4.4, 3.8)
    axes = figure.subplots()
    for number, (gamma, curve) in enumerate(zip(gammas, curves, strict=True)):
        label = "cross-entropy" if gamma == 0 else f"focal, γ = {gamma}"
        axes.plot(q, curve, color=COLORS[number], linestyle=LINES[number % 4], label=label)
    dress(axes, "True probability, q", "p that minimizes the loss", (0, 1), (0, 1))
    save(folder, "figure_6", figure, ["q", *(f"gamma_{gamma}" for gamma in gammas)], [q, *curves])


def loss_and_bound(logits: Tensor, targets: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Compute the focal loss (N,) of p = softmax(logits) (N, K) for true distributions q (N, K), and its bound (N,).

    `targets` are the distributions q. The bound is KL(q‖p) + H(q) - γ H(p), whose first two terms sum to the
    cross-entropy.
    """
    entropy = torch.special.entr(torch.softmax(logits, dim=-1)).sum(-1)
    return soft_target_focal(logits, targets, gamma), soft_target_focal(logits, targets) - gamma * entropy


def entropy_bound(folder: Path) -> None:
    gammas = (1, 2, 3, 5)
    figure = new_figure(7.6, 3.4)
    left, right = figure.subplots(1, 2)
    logits = torch.linspace(-6, 6, 400, dtype=torch.float64)
    p = torch.sigmoid(logits)
    logits = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    hard = torch.tensor([0.0, 1.0], dtype=torch.float64).expand_as(logits)
    for number, gamma in enumerate((1, 3)):
        loss, bound = loss_and_bound(logits, hard, gamma)
        left.plot(p, loss, color=COLORS[1 + 3 * number], label=f"focal loss, γ = {gamma}")
        left.plot(p, bound, color=COLORS[1 + 3 * number], linestyle="--", label=f"bound, γ = {gamma}")
    dress(left, "Probability of the true class, p", "Nats, two classes", (0, 1))

    generator = torch.Generator().manual_seed(0)
    columns: list[list[float]] = []
    for number, gamma in enumerate(gammas):
        slacks = []
        for num_classes in (2, 10, 100):
            logits = 3 * torch.randn(20_000, num_classes, dtype=torch.float64, generator=generator)
            # Normalized draws from the exponential distribution are uniform over all distributions q.
            weights = torch.empty_like(logits).exponential_(generator=generator)
            loss, bound = loss_and_bound(logits, weights / weights.sum(-1, keepdim=True), gamma)
            slacks.append(loss - bound)
            columns.append([gamma, num_classes, float(slacks[-1].min()), float(slacks[-1].mean())])
        share, edges = np.histogram(slacks[1], bins=60, range=(0, 12))
        right.stairs(share / 200, edges, color=COLORS[1 + number], label=f"γ = {gamma}, 10 classes")
    right.axvline(0, color="#595959", linewidth=0.8)
    dress(right, "Focal loss - bound, nats", "Share of 20,000 random (p, q), %")
    names = ["gamma", "num_classes", "smallest_loss_minus_bound", "mean_loss_minus_bound"]
    save(folder, "entropy_bound", figure, names, zip(*columns, strict=True))


def two_clusters_a_class(size: int, generator: np.random.Generator, mixing: np.ndarray) -> tuple[Tensor, Tensor]:
    """Draw points (size, 2) and labels (size,) as in appendix B, with two clusters per class and 10% flipped labels.

    The means of the clusters are the vertices of a square of side 4 around 0. The two clusters on one side of the
    square form a class. The points of a cluster are its mean plus standard normal vectors, multiplied by the cluster's
    matrix in `mixing` (4, 2, 2).
    """
    vertices = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2]])
    cluster = np.arange(size) % 4
    noise = np.einsum("nd,nde->ne", generator.standard_normal((size, 2)), mixing[cluster])
    labels = cluster // 2
    flipped = generator.permutation(size)[: size // 10]
    labels[flipped] = 1 - labels[flipped]
    return torch.from_numpy(vertices[cluster] + noise), torch.from_numpy(labels)


def train_linear_model(loss_name: str, points: Tensor, labels: Tensor) -> tuple[Tensor, list[float], list[float]]:
    """Run `STEPS` steps of gradient descent on all points, from weights of 0.

    Returns:
        The final weights w (2,) of σ(w·x), the norm of w after each step, and the root mean square of the logits w·x
        over the points after each step.
    """
    layer, loss = nn.Linear(2, 1, bias=False, dtype=torch.float64), build_loss(loss_name)
    nn.init.zeros_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=LEARNING_RATE)
    weight_norms, logit_norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(two_logits(layer(points)), labels).backward()
        optimizer.step()
        with torch.no_grad():
            weight_norms.append(float(layer.weight.norm()))
            logit_norms.append(float(layer(points).square().mean().sqrt()))
    return layer.weight.detach()[0], weight_norms, logit_norms


def two_logits(logit: Tensor) -> Tensor:
    """Return logits of two classes (N, 2) whose softmax equals the sigmoid of one logit (N, 1)."""
    return torch.cat([torch.zeros_like(logit), logit], dim=1)


def linear_model(folder: Path) -> None:
    table, first = [], None
    for draw in range(NUM_DRAWS):
        generator = np.random.default_rng(draw)
        mixing = generator.uniform(-1, 1, (4, 2, 2))
        train, test = (two_clusters_a_class(size, generator, mixing) for size in (4000, 1000))
        trained = [train_linear_model(loss, *train) for loss in LINEAR_LOSSES.values()]
        measured = [measure_mistakes(weights, *test) for weights, *_ in trained]
        norms = [weight_norms[-1] for _, weight_norms, _ in trained]
        table.append([draw, norms[0], *measured[0], norms[1], *measured[1]])
        first = first or (trained, test, measured)
    assert first is not None
    trained, test, measured = first  # which is plotted
    figure_7(folder, trained)
    figure_8(folder, [weights for weights, *_ in trained], *test)
    names = ("weight_norm", "error", "nll", "ece", "mistakes_confidence", "mistakes_above_0.9")
    header = ["draw", *(f"{loss}_{name}" for loss in ("ce", "fl1") for name in names)]
    write_table(folder / "linear_model.csv", header, zip(*table, strict=True))
    for name, found in zip(LINEAR_LOSSES, measured, strict=True):
        print(
            "  {}: test error {:.1%}, NLL {:.3f}, ECE {:.1%}; confidence of the mistakes {:.3f}, of {:.0%} of them "
            "above 0.9".format(name, *found)
        )


def measure_mistakes(weights: Tensor, points: Tensor, labels: Tensor) -> list[float]:
    """Measure the error, NLL, ECE, mean confidence of mistakes, and share of mistakes with a confidence above 0.9."""
    metrics = CalibrationMetrics(classwise=False)
    metrics.update(two_logits(points @ weights[:, None]), labels)
    found, (confidence, correct) = metrics.compute(), metrics.samples()
    sure = float((confidence[~correct] > 0.9).double().mean())
    return [*(found[name] for name in ("error", "nll", "ece", "confidence_incorrect")), sure]


def figure_7(folder: Path, trained: Sequence[tuple[Tensor, list[float], list[float]]]) -> None:
    steps = np.arange(1, STEPS + 1)
    figure = new_figure(7.6, 3)
    for axes, index, label in zip(figure.subplots(1, 2), (2, 1), ("RMS of the logits", "Norm of w"), strict=True):
        for name, run, look in zip(LINEAR_LOSSES, trained, LOOKS, strict=True):
            axes.plot(steps, run[index], label=name, **look)
        dress(axes, "Step", label, y_limits=(0,))
    names = [f"{loss}_{norm}" for loss in ("ce", "fl1") for norm in ("weight_norm", "logit_rms")]
    save(folder, "figure_7", figure, ["step", *names], [steps, *(norms for _, *both in trained for norms in both)])


def figure_8(folder: Path, trained: Sequence[Tensor], points: Tensor, labels: Tensor) -> None:
    figure = new_figure(10.2, 3.4)
    first, *others = figure.subplots(1, 3)
    columns = []
    for name, weights, look, axes in zip(LINEAR_LOSSES, trained, LOOKS, others, strict=True):
        columns.append(torch.sigmoid(points @ weights))
        wrong = (columns[-1] > 0.5) != labels
        share, edges = np.histogram(torch.maximum(columns[-1], 1 - columns[-1])[wrong], bins=20, range=(0.5, 1))
        first.stairs(100 * share / share.sum(), edges, label=name, **look)
        draw_regions(axes, weights, points, labels)
        axes.set_title(name, fontsize=10)
    dress(first, "Confidence of misclassified test points", "Share of them, %")
    save(folder, "figure_8", figure, ["x1", "x2", "label", "ce_p1", "fl1_p1"], [*points.T, labels, *columns])


def draw_regions(axes: Axes, weights: Tensor, points: Tensor, labels: Tensor) -> None:
    """Draw the probability of class 1 in the plane, the line on which this probability is 0.5, and the points."""
    bound = float(points.abs().max()) * 1.05
    line = torch.linspace(-bound, bound, 120, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)
    probability = torch.sigmoid(grid @ weights)
    dress(axes, "x₁", "x₂")
    axes.grid(False)
    axes.contourf(line, line, probability, levels=np.linspace(0, 1, 11), cmap="RdBu", alpha=0.6)
    axes.contour(line, line, probability, levels=[0.5], colors="black", linewidths=1.2)
    for label, marker, color in ((0, "o", COLORS[4]), (1, "^", COLORS[1])):
        axes.scatter(*points[labels == label].T, s=5, marker=marker, color=color, linewidths=0)


ANALYSES = {analysis.__name__: analysis for analysis in (figure_4a, thresholds, figure_6, entropy_bound, linear_model)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=ANALYSES, default=list(ANALYSES), metavar="ANALYSIS")
    options = parser.parse_args(argv)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(name)
        ANALYSES[name](options.output_dir)


if __name__ == "__main__":
    main()
