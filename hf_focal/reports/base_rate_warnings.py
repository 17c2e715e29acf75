"""Warnings about probabilities of yes or no that are worse than always giving each label's frequency."""

import numpy as np
from scipy.special import entr

from .run_results import RunResult, mean_and_share

# A gap between the mean probability and the frequency is reported if it exceeds this share of the rarer answer, and
# `_ERRORS` standard errors of the frequency.
_SHARE, _ERRORS = 0.25, 3.0


def base_rate_warnings(result: RunResult) -> list[str]:
    """Return warnings about a sigmoid head, each a sentence without its period that also says what to do.

    They concern the probabilities after the correction, if there is one. Their mean is far from the frequency of ones;
    their NLL is above that of always giving the frequency of each label; or a label that occurs is never correctly
    predicted at a probability of ½.
    """
    bins = result.post_bins
    total = bins.count.sum()
    if result.link != "sigmoid" or not total:
        return []
    mean, frequency = mean_and_share(bins)
    warnings, advice = [], _advice(result.method, "prior_shift" in result.details)
    allowed = max(_ERRORS * (frequency * (1 - frequency) / total) ** 0.5, _SHARE * min(frequency, 1 - frequency), 0.01)
    if abs(mean - frequency) > allowed:
        warnings.append(
            f"{result.loss} gives a mean probability of {100 * mean:.1f}%, but {100 * frequency:.1f}% of the labels "
            f"apply: {advice}"
        )
    frequencies = np.array(result.details.get("labels", {}).get("frequency", [frequency]), float)
    base = float(np.nanmean(entr(frequencies) + entr(1 - frequencies)))
    if result.post["nll"] > base:
        warnings.append(
            f"{result.loss} has an NLL of {result.post['nll']:.3f}, more than the {base:.3f} of always giving the "
            f"frequency of each label: {advice}"
        )
    if "labels" in result.details and "thresholds" not in result.details:
        labels = result.details["labels"]
        columns = labels["name"], labels["f1"], frequencies
        never = [name for name, f1, share in zip(*columns, strict=True) if f1 == 0 and share > 0]
        if never:
            warnings.append(
                f"{result.loss} never correctly predicts {_of_labels(never, len(labels['name']))} at a probability of "
                "½: choose a threshold for each label (precision or recall)"
            )
    return warnings


def _of_labels(names: list[str], total: int) -> str:
    return repr(names[0]) if total == 1 else f"{len(names)} of {total} labels, such as {names[0]!r},"


def _advice(method: str | None, shifted: bool) -> str:
    if shifted:
        return "the prior is shifted to a share other than that of these data"
    if method == "platt":
        return "fit the slope and the intercept on data like these, or shift the prior to the share of ones here"
    fit = "fit a slope and an intercept (calibration 'platt' or 'auto')"
    return f"no temperature corrects that, so {fit}" if method == "temperature" else fit
