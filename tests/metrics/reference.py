"""The metrics in float64, written the obvious way, and the table that drives the tests of all metrics."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from hf_focal.metrics import metric_table


def softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def top_label(probabilities, labels):
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


def equal_width_bins(confidence, num_bins):
    """One mask a bin: (l, u], and zero in the first."""
    confidence = np.asarray(confidence, dtype=np.float64)
    for i in range(num_bins):
        inside = (confidence > i / num_bins) & (confidence <= (i + 1) / num_bins)
        yield inside | (confidence == 0) if i == 0 else inside


def bin_gaps(confidence, correct, num_bins):
    """(number of samples, |accuracy - confidence|) of each non-empty bin."""
    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    return [
        (mask.sum(), abs(correct[mask].mean() - confidence[mask].mean()))
        for mask in equal_width_bins(confidence, num_bins)
        if mask.any()
    ]


def ece(confidence, correct, num_bins=15):
    return sum(n * gap for n, gap in bin_gaps(confidence, correct, num_bins)) / len(confidence)


def mce(confidence, correct, num_bins=15):
    return max(gap for _, gap in bin_gaps(confidence, correct, num_bins))


def ace(confidence, correct, num_bins=15):
    return np.mean([gap for _, gap in bin_gaps(confidence, correct, num_bins)])


def rmsce(confidence, correct, num_bins=15):
    return np.sqrt(sum(n * gap**2 for n, gap in bin_gaps(confidence, correct, num_bins)) / len(confidence))


def ranked(confidence, correct):
    """Confidences in order, and the hits, of which every sample has the mean over all samples of its confidence."""
    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    values, group, count = np.unique(confidence, return_inverse=True, return_counts=True)
    return np.repeat(values, count), np.repeat(np.bincount(group, correct) / count, count)


def adaece(confidence, correct, num_bins=15):
    confidence, hits = ranked(confidence, correct)
    parts = np.array_split(np.arange(len(hits)), min(num_bins, len(hits)))
    return sum(abs((confidence[part] - hits[part]).sum()) for part in parts) / len(confidence)


def smooth_ece(confidence, correct, num_bins=None):
    """∫ |mean of (c - y) times the density of a Gaussian at c, reflected at 0 and 1| dt = σ."""
    gaps, grid = confidence - correct, (np.arange(2000) + 0.5) / 2000

    def error(width):
        images = [center + 2 * turn for turn in range(-4, 5) for center in (confidence, -confidence)]
        return np.abs((sum(norm.pdf(grid[:, None], image, width) for image in images) * gaps).mean(1)).mean()

    return brentq(lambda width: width - error(width), 1e-3, 2) if error(1e-3) > 1e-3 else error(1e-3)


def areas(confidence, correct):
    """AURC and AUGRC by the trapezoidal rule."""
    if len(confidence) < 2:
        return np.nan, np.nan
    coverage = np.arange(1, len(confidence) + 1) / len(confidence)
    errors = np.cumsum(1 - ranked(confidence, correct)[1][::-1]) / len(confidence)
    return tuple(np.trapezoid(values, coverage) / (1 - coverage[0]) for values in (errors / coverage, errors))


def aurc(confidence, correct, num_bins=None):
    return areas(confidence, correct)[0]


def e_aurc(confidence, correct, num_bins=None):
    return aurc(confidence, correct) - aurc(correct, correct)


def augrc(confidence, correct, num_bins=None):
    return areas(confidence, correct)[1]


def classwise_ece(probabilities, labels, num_bins=15):
    classes = range(probabilities.shape[1])
    return np.mean([ece(probabilities[:, k], labels == k, num_bins) for k in classes])


def nlls(probabilities, labels):
    with np.errstate(divide="ignore"):
        return -np.log(probabilities[np.arange(len(labels)), labels])


def entropies(probabilities):
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(probabilities > 0, probabilities * np.log(probabilities), 0).sum(axis=1)


def brier(probabilities, labels, num_bins=None):
    return ((probabilities - np.eye(probabilities.shape[1])[labels]) ** 2).sum(axis=1).mean()


FUNCTIONS = {key: metric.function for key, metric in metric_table.METRICS.items() if metric.function}


class Metric(NamedTuple):
    """A metric under its key in `FUNCTIONS`, tested by everything that reads `METRICS`.

    `value` takes confidences, hits, and the number of bins; with `of_classes`, probabilities (N, K), labels, and the
    number of bins. Values are in [0, `highest`], and, if it `sees_bias`, at least |mean confidence - accuracy|.
    Functions are tested to a `tolerance`, with as many `samples` as the reference can take.
    """

    value: Callable
    needs_classes: bool = False
    highest: float = 1.0
    sees_bias: bool = False
    tolerance: float = 1e-12
    samples: int = 5000


METRICS = {
    "ece": Metric(ece, sees_bias=True),
    "adaece": Metric(adaece, sees_bias=True),
    "mce": Metric(mce, sees_bias=True),
    "ace": Metric(ace),
    "rmsce": Metric(rmsce, sees_bias=True),
    "smooth_ece": Metric(smooth_ece, sees_bias=True, tolerance=1e-5, samples=40),
    "aurc": Metric(aurc),
    "e_aurc": Metric(e_aurc),
    "augrc": Metric(augrc, highest=0.75),
    "classwise_ece": Metric(classwise_ece, needs_classes=True),
    "nll": Metric(lambda p, y, _: nlls(p, y).mean(), needs_classes=True, highest=np.inf),
    "brier": Metric(brier, needs_classes=True, highest=2.0),
    "entropy": Metric(lambda p, y, _: entropies(p).mean(), needs_classes=True, highest=np.inf),
}


def means(probabilities, labels):
    """What `CalibrationMetrics.compute` returns besides the metrics of the table."""
    confidence, correct = top_label(probabilities, labels)
    nll, entropy = nlls(probabilities, labels), entropies(probabilities)
    top5 = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]

    def mean(values):
        return values.mean() if len(values) else np.nan

    results = {"accuracy": mean(correct), "error": 1 - mean(correct), "confidence": mean(confidence)}
    predicted = probabilities.argmax(axis=1)
    recalls = [mean(predicted[labels == label] == label) for label in np.unique(labels)]
    if probabilities.shape[1] <= 256:  # with more, no counts by class are kept
        results["macro_recall"] = np.mean(recalls) if recalls else np.nan
    if probabilities.shape[1] == 2:
        log_odds = np.log(probabilities[:, 1]) - np.log(probabilities[:, 0])
        pairs = np.sign(log_odds[labels == 1][:, None] - log_odds[labels == 0])
        results["auroc"] = (1 + pairs.mean()) / 2 if pairs.size else np.nan
    if probabilities.shape[1] > 5:
        results["top5_accuracy"] = mean((top5 == labels[:, None]).any(axis=1))
    for name, values in (("nll", nll), ("entropy", entropy), ("confidence", confidence)):
        results |= {f"{name}_correct": mean(values[correct]), f"{name}_incorrect": mean(values[~correct])}
    results |= {"s99": mean(confidence >= 0.99), "s99_accuracy": mean(correct[confidence >= 0.99])}
    return results | {"num_samples": len(labels)}
