"""The metrics in float64, written the obvious way: one loop over bins, one over classes."""

import numpy as np


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


def adaece(confidence, correct, num_bins=15):
    """Every sample brings the mean hit of all samples of its confidence, so that ties have no order."""
    confidence, correct = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    shared = np.array([correct[confidence == c].mean() for c in confidence])
    order = np.argsort(confidence)
    parts = np.array_split(order, min(num_bins, len(order)))
    return sum(abs((confidence[part] - shared[part]).sum()) for part in parts) / len(confidence)


def classwise_ece(probabilities, labels, num_bins=15):
    classes = range(probabilities.shape[1])
    return np.mean([ece(probabilities[:, k], labels == k, num_bins) for k in classes])


def all_metrics(probabilities, labels, num_bins=15):
    probabilities = np.asarray(probabilities, dtype=np.float64)
    confidence, correct = top_label(probabilities, labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        nll = -np.log(probabilities[np.arange(len(labels)), labels])
        entropy = -np.where(probabilities > 0, probabilities * np.log(probabilities), 0).sum(axis=1)
    onehot = np.eye(probabilities.shape[1])[labels]
    top5 = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]

    def mean(values):
        return values.mean() if len(values) else float("nan")

    metrics = {
        "ece": ece(confidence, correct, num_bins),
        "adaece": adaece(confidence, correct, num_bins),
        "classwise_ece": classwise_ece(probabilities, labels, num_bins),
        "mce": mce(confidence, correct, num_bins),
        "ace": ace(confidence, correct, num_bins),
        "rmsce": rmsce(confidence, correct, num_bins),
        "nll": mean(nll),
        "brier": mean(((probabilities - onehot) ** 2).sum(axis=1)),
        "accuracy": mean(correct),
        "error": 1 - mean(correct),
        "top5_accuracy": mean((top5 == labels[:, None]).any(axis=1)),
        "confidence": mean(confidence),
        "entropy": mean(entropy),
        "nll_correct": mean(nll[correct]),
        "nll_incorrect": mean(nll[~correct]),
        "entropy_correct": mean(entropy[correct]),
        "entropy_incorrect": mean(entropy[~correct]),
        "confidence_correct": mean(confidence[correct]),
        "confidence_incorrect": mean(confidence[~correct]),
        "s99": mean(confidence >= 0.99),
        "s99_accuracy": mean(correct[confidence >= 0.99]),
        "num_samples": len(labels),
    }
    if probabilities.shape[1] <= 5:
        del metrics["top5_accuracy"]
    return metrics
