"""The losses as their definitions say, one row or pair at a time, in extended precision; gradients by hand."""

import math

import torch


def mmce(logits, labels, weighted=False):
    """The definition, by the whole matrix of pairs, in float64 torch so that its gradient is autograd's."""
    labeled = [i for i, y in enumerate(labels.tolist()) if y != -100]
    confidence, prediction = logits[labeled].double().softmax(-1).max(-1)
    correct = (prediction == labels[labeled]).double()
    if weighted:
        right, wrong = correct.sum().item(), (1 - correct).sum().item()
        weight = sum(
            mask * factor / count
            for mask, factor, count in ((correct, 1 - confidence, right), (1 - correct, -confidence, wrong))
            if count
        )
    else:
        weight = (correct - confidence) / len(labeled)
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    return (weight[:, None] * weight[None, :] * kernel).sum().sqrt()


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
