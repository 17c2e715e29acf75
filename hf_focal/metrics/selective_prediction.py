"""Selective prediction: how good the answers are if only the confident ones are given.

Coverage is the share of samples that get an answer; risk is the share of errors among these answers. Samples with
equal confidence count as if they were in random order, so the order of the input does not matter.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Coverage and risk, (G,), at each of the G distinct confidences, highest confidence first.

    Attributes:
        answered: float64 (G,), the number of samples with at least each confidence.
        errors: float64 (G,), the number of these samples that are predicted wrongly.
        confidence: (G,), the confidences themselves, or None if they are unknown.
    """

    answered: np.ndarray
    errors: np.ndarray
    confidence: np.ndarray | None = None

    @classmethod
    def from_ties(cls, ties: np.ndarray) -> "RiskCoverageCurve":
        """Return the curve of the sums (3, G) of `sum_ties`."""
        count, confidence, hits = ties[:, ::-1]
        return cls(count.cumsum(), (count - hits).cumsum(), confidence / count)

    @property
    def coverage(self) -> np.ndarray:
        return self.answered / self.answered[-1:]

    @property
    def risk(self) -> np.ndarray:
        return self.errors / self.answered

    def areas(self) -> dict[str, float]:
        """Compute AURC, E-AURC, and AUGRC, areas from coverage 1/N to coverage 1 divided by the width 1 - 1/N.

        aurc: the area under risk as a function of coverage (Geifman and El-Yaniv, *Selective Classification for Deep
        Neural Networks*, NeurIPS 2017). e_aurc: the aurc minus the aurc of the best order, in which all hits come
        before all errors (Geifman, Uziel, and El-Yaniv, *Bias-Reduced Uncertainty Estimation for Deep Neural
        Classifiers*, ICLR 2019). augrc: the area under coverage · risk, which is the share of all samples that get a
        wrong answer (Traub et al., *Overcoming Common Flaws in the Evaluation of Selective Classification Systems*,
        NeurIPS 2024). The areas follow from the trapezoidal rule and are NaN for fewer than two samples.
        """
        if not len(self.answered) or self.answered[-1] < 2:
            return dict.fromkeys(("aurc", "e_aurc", "augrc"), math.nan)
        aurc, augrc = _areas(self.answered, self.errors)
        size, errors = self.answered[-1], self.errors[-1]
        best = np.array([[size - errors, size], [0.0, errors]])
        best_aurc, _ = _areas(*(best[:, 1:] if errors == size else best if errors else best[:, :1]))
        return {"aurc": aurc, "e_aurc": aurc - best_aurc, "augrc": augrc}


def _areas(answered: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Compute AURC and AUGRC; E(k), the number of errors in the first k samples, is linear within each group."""
    before, errors_before = np.append(0, answered[:-1]), np.append(0, errors[:-1])
    count = answered - before
    rate = (errors - errors_before) / count
    size, total = answered[-1], errors[-1]
    # Σ 1/k over the group; Σ E(k)/k follows from it, because E(k) = rate · k + constant.
    reciprocals = np.where(count == 1, 1 / answered, _digamma(answered + 1) - _digamma(before + 1))
    risks = (rate * count + (errors_before - rate * before) * reciprocals).sum()
    shares = (errors_before * count + rate * count * (count + 1) / 2).sum() / size
    ends = (rate[0] + total / size) / 2, (rate[0] / size + total / size) / 2
    return float((risks - ends[0]) / (size - 1)), float((shares - ends[1]) / (size - 1))


def log_odds(uncertainty: np.ndarray) -> np.ndarray:
    """Return the log-odds of predictions from their `uncertainty`, 1 - confidence."""
    with np.errstate(divide="ignore"):
        return np.log1p(-uncertainty) - np.log(uncertainty)


def _digamma(values: np.ndarray) -> np.ndarray:
    return torch.special.digamma(torch.from_numpy(values.astype(np.float64))).numpy()
