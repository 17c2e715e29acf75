"""What a calibration set says about the errors of more samples: a logistic curve of the scores, with its uncertainty.

The highest scores alone have too few errors to tell how many more samples would show a precision. So a logistic
regression predicts the errors from the scores. It is fitted to the highest scores, half as many again as there are
hits, because those far below every threshold say little about it. One more hit and one more error, spread over these
samples, keep the estimate finite where there are no errors, as in Clogg, Rubin, Schenker, Schultz, and Weidman,
*Multiple Imputation of Industry and Occupation Codes in Census Public-use Samples Using Bayesian Logistic Regression*,
1991.
"""

import math

import numpy as np
import scipy  # which imports its parts on first use

_SIZE = 1.5  # for each hit, the curve is fitted to this number of samples
_LEAST_SIZE = 30
_MOST_STEPS, _TOLERANCE = 50, 1e-6  # of Newton's method
_MOST_STEP = 2.0  # in units of the scores' deviation
_RIDGE = 1e-6  # for scores that are all equal
_LARGEST = 700.0  # log-odds beyond which the probability is 0 or 1 in float64
_HALF_DRAWS = 32


def error_draws(scores: np.ndarray, hits: np.ndarray, counts: np.ndarray, design_effect: float) -> np.ndarray:
    """Return 64 draws of the share of errors among the `counts` (J,) highest scores, from its posterior, (64, J).

    Args:
        scores: log-odds (N,), in descending order.
        hits: whether each sample is a hit, (N,).
        counts: ascending numbers of samples.
        design_effect: by how much clusters raise the variance.
    """
    scores = np.clip(scores, -_LARGEST, _LARGEST)
    size = min(len(scores), max(math.ceil(_SIZE * hits.sum()), _LEAST_SIZE))
    mean, scale = scores[:size].mean(), scores[:size].std() or 1.0
    design = np.stack([np.ones(size), (scores[:size] - mean) / scale], 1)
    target, weight = (hits[:size] + 1 / size) / (1 + 2 / size), 1 + 2 / size
    estimate = np.zeros(2)
    for _ in range(_MOST_STEPS):
        probability = scipy.special.expit(design @ estimate)
        information = (design * (weight * probability * (1 - probability))[:, None]).T @ design + _RIDGE * np.eye(2)
        step = np.linalg.solve(information, weight * design.T @ (target - probability))
        estimate = estimate + step * min(1.0, _MOST_STEP / max(float(np.abs(step).max()), _TOLERANCE))
        if np.abs(step).max() < _TOLERANCE:
            break
    normal = np.random.default_rng(0).normal(size=(_HALF_DRAWS, 2))
    root = np.linalg.cholesky(np.linalg.inv(information) * design_effect)
    draws = estimate + np.concatenate([normal, -normal]) @ root.T
    # The mean between two numbers of samples is about that of the score in the middle.
    starts = np.append(0, counts[:-1])
    middle = (scores[(starts + counts - 1) // 2] - mean) / scale
    errors = scipy.special.expit(-(draws[:, :1] + np.maximum(draws[:, 1:], 0) * middle)) * (counts - starts)
    return errors.cumsum(1) / counts
