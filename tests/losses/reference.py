"""The losses as their definitions say, one row or pair at a time, in extended precision; gradients by hand."""

import math

import numpy as np
import torch

Real = np.longdouble


def softmax(z):
    z = np.asarray(z, dtype=Real)
    e = np.exp(z - z.max())
    return e / e.sum()


def true_class(z, y):
    """p, 1 - p and -log p: by the odds against the label, which lose no digits at p = 1 or p = 0."""
    z = np.asarray(z, dtype=Real)
    odds = sum((np.exp(z[k] - z[y]) for k in range(len(z)) if k != y), Real(0))
    return 1 / (1 + odds), odds / (1 + odds), np.log1p(odds)


def focal(z, y, gamma):
    """Value and gradient of (1-p)^γ·ce: that of cross-entropy times g(p, γ) = (1-p)^γ - γ p (1-p)^(γ-1) log p."""
    p, u, ce = true_class(z, y)
    g = u**gamma + gamma * p * u ** (gamma - 1) * ce if u > 0 else Real(gamma == 0)
    return u**gamma * ce, g * minus_one_hot(z, y)


def inverse_focal(z, y, gamma):
    p, _, ce = true_class(z, y)
    g = (1 + p) ** gamma - gamma * p * (1 + p) ** (gamma - 1) * ce
    return (1 + p) ** gamma * ce, g * minus_one_hot(z, y)


def dual_focal(z, y, gamma):
    """(1 - p + q)^γ · ce with q = p_j, the largest probability below p, and dp_k = p_k (δ - softmax)."""
    p, u, ce = true_class(z, y)
    s = softmax(z)
    below = [k for k in range(len(z)) if z[k] < z[y]]
    j = max(below, key=lambda k: z[k]) if below else None
    q = s[j] if below else Real(0)
    by_q = gamma * (u + q) ** (gamma - 1) * ce
    gradient = (u + q) ** gamma * minus_one_hot(z, y)
    for k in range(len(z)):
        gradient[k] += by_q * (q * (Real(k == j) - s[k]) - p * (u if k == y else -s[k]))
    return (u + q) ** gamma * ce, gradient


def minus_one_hot(z, y):
    """softmax - onehot, the gradient of cross-entropy."""
    s = softmax(z)
    s[y] = -true_class(z, y)[1]
    return s


def label_smoothing(z, y, alpha, convention):
    num_classes = len(z)
    if convention == "torch":
        target = [alpha / num_classes + (1 - alpha) * (k == y) for k in range(num_classes)]
    else:
        target = [1 - alpha if k == y else alpha / (num_classes - 1) for k in range(num_classes)]
    z = np.asarray(z, dtype=Real)
    log_z = z.max() + np.log(sum(np.exp(z - z.max())))
    value = sum(q * (log_z - logit) for q, logit in zip(target, z, strict=True))
    return value, softmax(z) - np.asarray(target, dtype=Real)


def brier(z, y):
    s = softmax(z)
    error = minus_one_hot(z, y)
    gradient = [
        sum(2 * error[k] * s[k] * ((1 - s[k] if k != y else -error[y]) if j == k else -s[j]) for k in range(len(z)))
        for j in range(len(z))
    ]
    return sum(error**2), np.asarray(gradient)


def mmce(logits, labels, weighted=False):
    """The definition, by the whole matrix of pairs, in float64 torch so that its gradient is autograd's."""
    kept = [i for i, y in enumerate(labels.tolist()) if y != -100]
    confidence, prediction = logits[kept].double().softmax(-1).max(-1)
    correct = (prediction == labels[kept]).double()
    if weighted:
        right, wrong = correct.sum().item(), (1 - correct).sum().item()
        weight = sum(
            mask * factor / count
            for mask, factor, count in ((correct, 1 - confidence, right), (1 - correct, -confidence, wrong))
            if count
        )
    else:
        weight = (correct - confidence) / len(kept)
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    return (weight[:, None] * weight[None, :] * kernel).sum().sqrt()


def soft_target_focal(logits, targets, gamma):
    s = logits.softmax(-1)
    return -(targets * (1 - s) ** gamma * s.log()).sum(-1)


def adafocal_update(gammas, confidence, correct, lam, switch, gamma_max, gamma_min):
    """New γ, new edges, and how far the nearest moved |γ| is from the switch."""
    hits = {value: [] for value in confidence}
    for value, hit in zip(confidence, correct, strict=True):
        hits[value].append(hit)
    samples = [(value, sum(hits[value]) / len(hits[value])) for value in sorted(confidence)]  # ties share their hits
    num_bins = len(gammas)
    new_gammas, edges, margin, start = [], [0.0], math.inf, 0
    for b, gamma in enumerate(gammas):
        size = len(samples) // num_bins + (b < len(samples) % num_bins)
        members, start = samples[start : start + size], start + size
        if b > 0:
            edges.append(members[0][0])
        gap = math.fsum(c for c, _ in members) / size - math.fsum(a for _, a in members) / size
        was_positive = gamma > 0
        gamma = gamma * math.exp(lam * gap) if was_positive else gamma * math.exp(-lam * gap)
        margin = min(margin, abs(abs(gamma) - switch))
        if abs(gamma) < switch:
            gamma = -switch if was_positive else switch
        new_gammas.append(max(gamma_min, min(gamma_max, gamma)))
    return new_gammas, [*edges, 1.0], margin
