"""How often thresholds miss what they promise: simulations of `fit_thresholds` with known distributions.

    python -m benchmarks.studies.thresholds [--draws 2000] [--settings NAME ...] [--json FILE]

Each setting draws calibration sets, chooses thresholds on them with a confidence of 95%, and compares these with the
true precision or recall, which is known up to the noise of a large population. One JSON line is appended per row, from
which `python -m benchmarks.tables` makes the tables of docs/research/thresholds.md.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

from benchmarks.common.figures import add_line, parse_options, script_options
from hf_focal import fit_temperature, fit_thresholds
from hf_focal.calibration.affine_scaling import fit_matrix_scaling, fit_vector_scaling
from hf_focal.calibration.clusters import random_folds
from hf_focal.calibration.platt_scaling import fit_platt_scaling

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
POPULATION = 1_000_000  # rows that give the true precision and recall
CLUSTER_SIZE = 5


def independent(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibrated logits of one label, (N,), the labels, and a cluster for each row."""
    z = rng.normal(-1, 2, size)
    return z, rng.random(size) < expit(z), np.arange(size)


def rounded(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with ties: the logits have only about ten values."""
    z, y, clusters = independent(rng, size)
    return np.round(z), y, clusters


def flipped(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Independent samples with 3% of wrong labels, so that the highest scores are overconfident."""
    z, y, clusters = independent(rng, size)
    return z, y ^ (rng.random(size) < 0.03), clusters


def alike(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nearly equal logits and the same label for the rows of a cluster."""
    number = size // CLUSTER_SIZE
    centers = rng.normal(-1, 2, number)
    y = rng.random(number) < expit(centers)
    clusters = np.repeat(np.arange(number), CLUSTER_SIZE)
    return centers[clusters] + 0.3 * rng.normal(size=size), y[clusters], clusters


def shared_noise(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Independent logits, whose labels share what the logits leave open."""
    clusters = np.repeat(np.arange(size // CLUSTER_SIZE), CLUSTER_SIZE)
    z, noise = rng.normal(-1, 2, size), rng.random(size // CLUSTER_SIZE)
    return z, noise[clusters] < expit(z), clusters


def similar_logits(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Similar logits, with independent labels given the logits."""
    clusters = np.repeat(np.arange(size // CLUSTER_SIZE), CLUSTER_SIZE)
    z = rng.normal(-1, 1.8, size // CLUSTER_SIZE)[clusters] + 0.9 * rng.normal(size=size)
    return z, rng.random(size) < expit(z), clusters


def failing(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Similar logits; in 8% of the clusters, all labels are 0."""
    z, _, clusters = similar_logits(rng, size)
    fails = rng.random(size // CLUSTER_SIZE) < 0.08
    return z, (rng.random(size) < expit(z + 1.5)) & ~fails[clusters], clusters


class Truth:
    """The precision and the recall of a distribution as functions of a threshold."""

    def __init__(self, draw: Draw) -> None:
        z, y, _ = draw(np.random.default_rng(99), POPULATION)
        order = np.argsort(-z)
        self._descending = -z[order]
        self._hits = np.cumsum(y[order])

    def precision(self, threshold: float) -> float:
        count = int(np.searchsorted(self._descending, -threshold, "right"))
        return float(self._hits[count - 1] / count) if count else 1.0

    def recall(self, threshold: float) -> float:
        count = int(np.searchsorted(self._descending, -threshold, "right"))
        return float(self._hits[count - 1] / self._hits[-1]) if count else 0.0

    def coverage(self, threshold: float) -> float:
        return float(np.searchsorted(self._descending, -threshold, "right") / len(self._descending))


def simulate_one_label(draw: Draw, size: int, goal: dict[str, Any], clustered: bool, draws: int) -> dict[str, Any]:
    """Draw samples of one label; `clustered` says whether `fit_thresholds` is told the clusters."""
    rng, truth, missed, covered = np.random.default_rng(1), Truth(draw), 0, []
    ((target, least),) = goal.items()
    for _ in range(draws):
        z, y, clusters = draw(rng, size)
        threshold = fit_thresholds(
            z[:, None], y[:, None].astype(int), clusters=clusters if clustered else None, **goal
        ).log_odds[0]
        if threshold is not None:
            covered.append(truth.coverage(threshold))
            missed += getattr(truth, target)(threshold) < least
    return {
        "violations": missed / draws,
        "found": len(covered) / draws,
        "coverage": float(np.mean(covered)) if covered else None,
    }


def simulate_advice(draw: Draw, size: int, goal: float, draws: int) -> dict[str, Any]:
    """How often a threshold is found with the number of positives that the reason for having none names."""
    rng, without, enough = np.random.default_rng(1), 0, 0
    sizes: list[int] = []

    def reason(size: int) -> str:
        z, y, _ = draw(rng, size)
        return fit_thresholds(z[:, None], y[:, None].astype(int), precision=goal).reasons[0]

    while len(sizes) < draws:
        z, y, _ = draw(rng, size)
        (text,) = fit_thresholds(z[:, None], y[:, None].astype(int), precision=goal).reasons
        without += text != ""
        if text.startswith("about"):
            sizes.append(round(size * (1 + int(text.split()[1].replace(",", "")) / y.sum())))
            enough += reason(sizes[-1]) == ""
    least, most = size, 64 * size
    while most > 1.05 * least:
        middle = round(math.sqrt(least * most))
        is_enough = sum(reason(middle) == "" for _ in range(draws)) >= 0.9 * draws
        least, most = (least, middle) if is_enough else (middle, most)
    return {
        "a_number_is_named": draws / without,
        "it_is_enough": enough / draws,
        "median_size_named": round(float(np.median(sizes))),
        "size_enough_in_90%": most,
    }


def simulate_28_labels(size: int, draws: int) -> dict[str, Any]:
    """28 labels with shares of positives from 2% to 50%, dependent on each other through a common part."""
    rng, means = np.random.default_rng(1), np.linspace(-5, 0, 28)
    grid = np.linspace(-25, 25, 50_001)
    truths = []
    for mean in means:
        density = np.exp(-0.5 * ((grid - mean) / 2) ** 2)
        ones, total = (np.cumsum((density * part)[::-1])[::-1] for part in (expit(grid), np.ones_like(grid)))
        truths.append(ones / total)
    missed = {False: np.zeros(28), True: np.zeros(28)}
    any_missed, found = {False: 0, True: 0}, {False: 0, True: 0}
    for _ in range(draws):
        z = means + 2 * (0.6 * rng.normal(size=(size, 1)) + 0.8 * rng.normal(size=(size, 28)))
        y = (rng.random((size, 28)) < expit(z)).astype(int)
        for simultaneous in (False, True):
            log_odds = fit_thresholds(z, y, precision=0.8, simultaneous=simultaneous).log_odds
            wrong = [
                threshold is not None and float(np.interp(threshold, grid, truth)) < 0.8
                for threshold, truth in zip(log_odds, truths, strict=True)
            ]
            missed[simultaneous] += wrong
            any_missed[simultaneous] += any(wrong)
            found[simultaneous] += sum(threshold is not None for threshold in log_odds)
    return {
        "worst_label_by_itself": float(missed[False].max() / draws),
        "any_label_by_itself": any_missed[False] / draws,
        "found_by_itself": found[False] / draws / 28,
        "any_label_simultaneous": any_missed[True] / draws,
        "found_simultaneous": found[True] / draws / 28,
    }


def _biased(rng: np.random.Generator, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are overconfident and biased, (N, K), and labels."""
    z = rng.normal(size=(size, classes)) * 1.5
    y = (softmax(z, 1).cumsum(1) > rng.random((size, 1))).argmax(1)
    return z * 2 + np.linspace(-2, 2, classes), y


def simulate_correction(method: str, classes: int, size: int, goal: float, draws: int) -> dict[str, Any]:
    """A correction and the threshold of its confidence from the same samples: cross-fitted, and in-sample scores."""
    rng, links = np.random.default_rng(1), {"platt": "sigmoid"}
    link = links.get(method, "softmax")
    fits: dict[str, Any] = {
        "temperature": lambda z, y: fit_temperature(z, y).correction,
        "vector": fit_vector_scaling,
        "matrix": fit_matrix_scaling,
        "platt": fit_platt_scaling,
    }

    def drawn(size: int) -> tuple[np.ndarray, np.ndarray]:
        if link == "softmax":
            return _biased(rng, size, classes)
        z, y, _ = independent(rng, size)
        return 3 * z[:, None] + 1, y[:, None].astype(int)

    others, labels = (torch.from_numpy(part) for part in drawn(60_000))
    missed, found = {"cross": 0, "in_sample": 0}, {"cross": 0, "in_sample": 0}
    for _ in range(draws):
        z, y = drawn(size)
        correction = fits[method](z, y)
        folds = random_folds(size, 5)  # as `fit_correction` has them
        cross = np.empty_like(z)
        for fold in range(5):
            cross[folds == fold] = fits[method](z[folds != fold], y[folds != fold]).apply(z[folds == fold])
        corrected = correction.apply(others)
        for name, scores in (("cross", cross), ("in_sample", correction.apply(z))):
            chosen = fit_thresholds(scores, y, precision=goal, link=link)
            if chosen.values[0] is not None:
                found[name] += 1
                missed[name] += float(chosen.measure(corrected, labels)[0][0]) < goal - 0.003
    return {
        "violations": missed["cross"] / draws,
        "found": found["cross"] / draws,
        "violations_in_sample": missed["in_sample"] / draws,
        "found_in_sample": found["in_sample"] / draws,
    }


def rows(draws: int) -> Iterator[tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]]:
    """Yield the name of a setting, its options, and the function that simulates it."""
    goals: tuple[dict[str, float], ...] = ({"precision": 0.8}, {"precision": 0.9}, {"recall": 0.9})
    for draw in (independent, rounded):
        for size in (300, 1000):
            for goal in goals:
                options: dict[str, Any] = {"draw": draw.__name__, "size": size, **goal}
                yield draw.__name__, options, partial(simulate_one_label, draw, size, goal, False, draws)
    for draw in (alike, shared_noise, similar_logits, failing):
        for size in (300, 1000):
            for goal in goals:
                for told in (False, True):
                    options = {"draw": draw.__name__, "size": size, **goal, "clusters": told}
                    name = "clusters" if told else "clusters_untold"
                    yield name, options, partial(simulate_one_label, draw, size, goal, told, draws)
    for draw, size, least in ((independent, 500, 0.9), (independent, 300, 0.8), (flipped, 1000, 0.9)):
        options = {"draw": draw.__name__, "size": size, "precision": least}
        yield "advice", options, partial(simulate_advice, draw, size, least, draws)
    yield "labels", {"size": 1000, "precision": 0.8}, partial(simulate_28_labels, 1000, draws)
    for method, classes, size, least in (
        ("platt", 1, 300, 0.8),
        ("temperature", 10, 200, 0.6),
        ("vector", 10, 200, 0.6),
        ("matrix", 10, 200, 0.6),
        ("vector", 10, 100, 0.6),
        ("matrix", 20, 200, 0.4),
    ):
        options = {"method": method, "classes": classes, "size": size, "precision": least}
        yield method, options, partial(simulate_correction, method, classes, size, least, draws)


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--settings", nargs="+", metavar="NAME", help="only these, such as clusters or matrix")
    options = parse_options(parser)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    settings = [*rows(options.draws)]
    if options.settings:
        known = {name for name, *_ in settings}
        if unknown := {*options.settings} - known:
            parser.error(f"--settings must be of {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
        settings = [row for name in options.settings for row in settings if row[0] == name]
    for _, setting, simulate in settings:
        start = time.perf_counter()
        line = {**setting, "draws": options.draws, **simulate(), "seconds": round(time.perf_counter() - start)}
        add_line(options.json, line)


if __name__ == "__main__":
    main()
