"""What a result says, in sentences: first what is wrong with the model, then whether its correction helps.

Verdicts follow from intervals, from the base rate (the answer that is right most often, and the frequencies as
probabilities), from recall and AUROC, and from what was done already. All consoles, tables, cards, and pages take them
from here.
"""

import math
from collections.abc import Mapping, Sequence
from math import isnan, nan

import numpy as np

from ..calibration import Correction
from ..calibration.calibration_fit import is_too_few, reason_for_none
from ..metrics.metric_table import METRICS
from ..tasks.task import LABEL_WORDS, TASKS, unit_of
from .measured_sections import entropy_terms
from .number_format import format_metric, metric_interval
from .run_results import RunResult

_LOWERED = ("ece", "nll")  # the metrics that a correction should lower
# A gap between the mean probability and the frequency is reported if it exceeds this share of the rarer answer, and
# `_ERRORS` standard errors of the frequency.
_SHARE, _ERRORS = 0.25, 3.0
_ONE_SIDED = 1.645  # standard errors of a one-sided test at 5%
# A factor of the logits above this one says that they barely vary; published models need 0.2 to 3.
_LARGEST_FACTOR = 20.0
_SMALL_ECE = 0.02  # probabilities with a larger ECE are not called right, even if they are right on average
# An NLL is above that of the frequencies if it exceeds it by this share over the square root of the number of samples:
# about three standard errors of a mean NLL, which is roughly as large as its deviation over samples.
_NLL_ERRORS = 3.0
# Verdicts mention what a correction costs if it raises the error, or lowers F1, by this much.
_COST = 0.005
# Without an interval, as for tokens and pixels, an ECE must fall by this share to be called lower.
_CLEAR_FALL = 0.1


# What is wrong with a model


def warnings_of(result: RunResult) -> list[str]:
    """Return what a reader must know before any calibration error, each a sentence without its period.

    They concern the probabilities after the correction, if there is one: the error is not lower than that of always
    giving the most frequent answer; a class is never predicted; the NLL is above that of always giving the
    frequencies; the mean probability is far from the frequency; or a slope is so large that the logits
    barely vary.
    """
    return [
        *_error_warnings(result),
        *_never_predicted(result),
        *_probability_warnings(result),
        *_factor_warnings(result),
    ]


def is_no_better_than_majority(result: RunResult) -> bool:
    """Return whether the error is not shown to be lower than that of always giving the most frequent answer.

    Where predictions are counted by label, this is a sign test [McNemar 1947]: of the samples on which the model and
    the most frequent answer differ, significantly more than half must be the model's, at a level of 5%.
    """
    if (counts := _found_and_lost(result)) is not None:
        gained, lost = counts
        return gained - lost <= _ONE_SIDED * math.sqrt(gained + lost)
    return result.post.get("error", nan) >= _majority_error(result)  # False with NaN


def _found_and_lost(result: RunResult) -> tuple[int, int] | None:
    """Return how many samples of other classes than the majority class are right, and how many of that are wrong."""
    balance = result.subsets.class_balance
    if balance is None or balance.found is None or balance.lost is None:
        return None
    return balance.found, balance.lost


def _majority_error(result: RunResult) -> float:
    """Return the error of always giving the most frequent answer (of each label), or NaN if it is unknown."""
    if balance := result.subsets.class_balance:
        size = result.pre.get("num_samples", 0)
        return 1 - balance.largest / size if size else nan
    frequencies = _frequencies(result)
    return float(np.nanmean(np.minimum(frequencies, 1 - frequencies))) if len(frequencies) else nan


def _error_warnings(result: RunResult) -> list[str]:
    if not is_no_better_than_majority(result):
        return []
    error, base, balance = result.post.get("error", nan), _majority_error(result), result.subsets.class_balance
    answer = "always giving each label's more frequent answer"
    if balance:
        answer = f"always answering {balance.majority!r}" if balance.majority else "the more frequent answer"
    noise = math.sqrt((error + base) / max(result.pre.get("num_samples", 1), 1))
    is_worse = error - base > _ONE_SIDED * noise
    if (counts := _found_and_lost(result)) is not None:
        is_worse = counts[1] - counts[0] > _ONE_SIDED * math.sqrt(sum(counts))
    compared = "is wrong more often than" if is_worse else "is not shown to be right more often than"
    text = f"{result.loss} {compared} {answer}: an error of {100 * error:.1f}% against {100 * base:.1f}%"
    return [f"{text}; {'; '.join(_ranking(result))}" if _ranking(result) else text]


def _ranking(result: RunResult) -> list[str]:
    """Say how well the scores tell the classes apart, whatever the most probable class is."""
    parts, balance = [], result.subsets.class_balance
    recall, area = result.post.get("macro_recall", nan), result.post.get("auroc", nan)
    if not isnan(recall) and result.link == "sigmoid":
        parts.append(f"its recall is {100 * recall:.1f}%")
    elif not isnan(recall) and balance and balance.classes:
        guessing = f"{100 / balance.classes:.1f}%"
        parts.append(f"its mean recall of the classes is {100 * recall:.1f}%, where guessing has {guessing}")
    if not isnan(area):
        text = f"its AUROC is {100 * area:.1f}%, where guessing has 50%"
        parts.append(f"{text}, so it ranks: choose a threshold" if ranks_classes(result) else text)
    return parts


def ranks_classes(result: RunResult) -> bool:
    """Return whether the AUROC exceeds that of guessing by two standard errors.

    It is that of two classes, or the mean over labels, whose standard errors are averaged, as if the labels depended
    on each other.
    """
    balance, labels = result.subsets.class_balance, result.subsets.labels
    size = result.pre.get("num_samples", 0)
    ones = np.zeros(0)
    if balance is not None and balance.classes == 2:
        ones = np.array([balance.smallest])
    elif balance is None and labels is not None:
        ones = np.array(labels.frequency, float) * size
    pairs = ones * (size - ones)
    pairs = pairs[pairs > 0]
    errors = np.sqrt((size + 1) / (12 * pairs))
    return bool(len(pairs) and result.post.get("auroc", nan) > 0.5 + 2 * errors.mean())


def _never_predicted(result: RunResult) -> list[str]:
    balance, labels = result.subsets.class_balance, result.subsets.labels
    if balance and balance.num_never and balance.never:
        share = 100 * (balance.samples_of_never or 0) / max(result.pre.get("num_samples", 1), 1)
        names = _some(balance.never, balance.num_never, balance.classes, "classes")
        return [f"{result.loss} never predicts {names}: {share:.1f}% of the samples"]
    if labels and not balance and result.thresholds is None:
        columns = labels.name, labels.f1, labels.frequency
        never = [name for name, f1, share in zip(*columns, strict=True) if f1 == 0 and share > 0]
        if never:
            names = _some(never, len(never), len(labels.name), "labels")
            return [
                f"{result.loss} never correctly predicts {names} at a probability of ½: choose a threshold for each "
                "label (precision or recall)"
            ]
    return []


def _some(names: Sequence[str], count: int, total: int, kind: str) -> str:
    return repr(names[0]) if count == 1 else f"{count} of {total} {kind}, such as {names[0]!r}"


def _frequencies(result: RunResult) -> np.ndarray:
    """Return the frequency of ones of each label, (L,), or of all if the labels are unknown; empty with a softmax."""
    if result.link != "sigmoid" or not result.post_bins.count.sum():
        return np.zeros(0)
    labels = result.subsets.labels
    return np.array(labels.frequency if labels else [result.post_bins.means()[1]])


def _probability_warnings(result: RunResult) -> list[str]:
    warnings, frequencies = [], _frequencies(result)
    if len(frequencies):
        mean, frequency = result.post_bins.means()
        if _has_wrong_mean(result):
            warnings.append(
                f"{result.loss} gives a mean probability of {100 * mean:.1f}%{_after(result)}, but "
                f"{100 * frequency:.1f}% {result.outcome}: {_advice(result)}"
            )
        base, unit = float(np.nanmean(entropy_terms(frequencies) + entropy_terms(1 - frequencies))), "label"
    else:
        balance, unit = result.subsets.class_balance, "class"
        base = nan if balance is None or balance.base_nll is None else balance.base_nll
    margin = 1 + _NLL_ERRORS / math.sqrt(max(result.pre.get("num_samples", 1), 1))
    if result.post.get("nll", nan) > margin * base:
        warnings.append(
            f"{result.loss} has an NLL of {result.post['nll']:.3f}{_after(result)}, more than the {base:.3f} of "
            f"always giving the frequency of each {unit}: {_advice(result)}"
        )
    return warnings


def _has_wrong_mean(result: RunResult) -> bool:
    """Return whether the mean probability of a sigmoid is far from the frequency, by more than noise."""
    if result.link != "sigmoid" or not (size := result.post_bins.count.sum()):
        return False
    mean, frequency = result.post_bins.means()
    noise = _ERRORS * (frequency * (1 - frequency) / size) ** 0.5
    return bool(abs(mean - frequency) > max(noise, _SHARE * min(frequency, 1 - frequency), 0.01))


def _after(result: RunResult) -> str:
    return f" after {result.correction}" if result.method else ""


def _advice(result: RunResult) -> str:
    """Say what could correct the probabilities on average; never what was done already."""
    method, fit = result.method, result.fit.cross_fit
    if result.prior:
        return "the prior is shifted to a share other than that of these data"
    if method in ("platt", "bias", "vector", "matrix"):
        if not result.has_own_test_data:
            return "more samples to fit to would help"
        return f"{result.correction} was fitted on data unlike these: fit it on data like these, or shift the prior"
    if fit and fit.method == "none":
        return "no correction clearly lowered the cross-fitted NLL, so fit it on more data like these"
    if method is None and result.data.was_calibrated:
        return "the correction in its weights was fitted on data unlike these, so fit one on data like these"
    if result.link == "softmax":
        advice = "fit vector scaling (method 'vector' or 'auto')"
        return f"a temperature alone does not correct that, so {advice}" if method else "fit a correction"
    advice = "fit a slope and an intercept (method 'platt' or 'auto')"
    return f"no temperature corrects that, so {advice}" if method == "temperature" else advice


def _factor_warnings(result: RunResult) -> list[str]:
    fit = result.fit.cross_fit
    if result.method == "platt" and fit and fit.correction:
        factor, name = float(Correction.from_dict(fit.correction).dense()[0].max()), "slope"
    elif result.method == "temperature":
        factor, name = 1 / min(getattr(result.temperature, "values", None) or [result.temperature.value]), "factor 1/T"
    else:
        return []
    if factor < _LARGEST_FACTOR:
        return []
    area = result.post.get("auroc", nan)
    shown = "" if isnan(area) else f" (an AUROC of {100 * area:.1f}%)"
    return [
        f"the {name} of {factor:.3g} is unusually large, which suggests that the logits barely vary: check that "
        f"{result.loss} is trained and that these are its scores, and judge them by their ranking{shown}"
    ]


def has_comparable_error(results: Sequence[RunResult], side: str = "post") -> list[bool]:
    """Return for each run whether its error is not significantly larger than the lowest error of all runs.

    `side` is "pre" or "post". Runs without an error count as comparable.
    """
    metrics = [getattr(run, side) for run in results]
    errors = [values.get("error", nan) for values in metrics]
    known = [error for error in errors if not isnan(error)]
    if not known:
        return [True] * len(errors)
    lowest = min(known)

    def variance(index: int) -> float:
        return errors[index] * (1 - errors[index]) / max(metrics[index].get("num_samples", 1), 1)

    lowest_variance = max(variance(index) for index, error in enumerate(errors) if error == lowest)
    return [
        not error - lowest > 1.96 * math.sqrt(lowest_variance + variance(index))  # True with NaN
        for index, error in enumerate(errors)
    ]


# Whether the correction helps


def verdict(result: RunResult) -> list[str]:
    """Return sentences on whether the probabilities are too high or too low, and whether the correction helps."""
    headline = headline_of(result)
    if result.method is None:
        ece, interval = format_metric("ece", result.pre), metric_interval("ece", result.pre_intervals)
        lines = [headline, f"The ECE on {samples_of(result)} is {ece}%{interval}."]
        return lines + list(filter(None, [uncorrected_verdict(result)]))
    fitted, unit = result.correction, unit_of(result.data.task)
    if not result.has_own_test_data and result.prior:
        return [
            headline,
            f"The prior is shifted away from its share in these {unit}, so they do not show what the shift gains: "
            f"pass labeled {unit} with the new share as the test set.",
        ]
    if not result.has_own_test_data:
        options = "--test_scores" if result.data.task == "scores" else "--test_split or --test_dataset"
        return [
            headline,
            f"{fitted.capitalize()} was fitted on these same {unit}, so the results after {fitted} are optimistic. "
            f"For unbiased results, split them, and pass one part as the test set ({options}).",
            *_remaining(result),
        ]
    lines = [headline, correction_verdict(result, samples_of(result), unit)]
    if increases_both(result):
        lines.append(
            f"{fitted.capitalize()} increases both ECE and NLL here. It may have been fitted on too few {unit}, on "
            f"{unit} unlike these, or on {unit} that the model was trained on."
        )
    return [*lines, *_remaining(result), *_cost_in_answers(result)]


def _remaining(result: RunResult) -> list[str]:
    text = remaining_miscalibration(result)
    return [f"{text} {_what_may_help(result)}"] if text else []


def remaining_miscalibration(result: RunResult) -> str:
    """Say how far a corrected model still is from calibrated; "" unless the interval of the ECE shows that it is."""
    if result.method is None or not is_miscalibrated(result.post_intervals):
        return ""
    ece = f"{format_metric('ece', result.post)}%{metric_interval('ece', result.post_intervals)}"
    if result.link == "sigmoid":
        if _has_wrong_mean(result):  # which a warning says
            return ""
        (mean, share), size = result.post_bins.means(), result.post_bins.count.sum()
        subject, kinds, numbers = "its probabilities are", ("too low", "too high"), ""
    else:
        mean, share, size = (result.post.get(name, nan) for name in ("confidence", "accuracy", "num_samples"))
        subject, kinds = "the model is", ("underconfident", "overconfident")
        numbers = f", since it says {100 * mean:.0f}% and is right {100 * share:.0f}% of the time"
    gap = gap_beyond_noise(mean, share, size)
    if isnan(gap):
        return f"After {result.correction}, the ECE is still {ece}."
    if not gap:
        return (
            f"After {result.correction}, {subject} right on average, but not for each score: the ECE is still {ece}."
        )
    return f"After {result.correction}, {subject} still {kinds[gap > 0]} on average{numbers}, with an ECE of {ece}."


def _what_may_help(result: RunResult) -> str:
    """Say what could lower the ECE that a correction leaves: other samples, or a method that was not tried."""
    if result.prior:
        return "Check that these data have the shares that the prior was shifted to."
    fit, temperature = result.fit.cross_fit, result.temperature
    size = temperature.num_samples if temperature.is_fitted else fit.num_samples if fit else 0
    unit = "labels" if temperature.is_fitted and result.link == "sigmoid" else unit_of(result.data.task)
    samples = f"More calibration {unit} than these {size:,}, and like those in use" if size else "More data like these"
    task = TASKS.get(result.data.task or "")
    has_choice = result.data.task in ("scores", LABEL_WORDS.name) or (task is not None and task.takes_affine)
    was_chosen = fit is not None and bool(fit.reason)  # by "auto"
    return f"{samples}, {'' if was_chosen or not has_choice else 'or the method auto, '}may help."


def _cost_in_answers(result: RunResult) -> list[str]:
    """Say what a correction that changes predictions costs in error or F1, which neither ECE nor NLL shows."""
    before, after = ([side.get(name, nan) for name in ("error", "micro_f1")] for side in (result.pre, result.post))
    if result.link == "softmax" and after[0] - before[0] >= _COST:
        points = f"{100 * (after[0] - before[0]):.1f}"
        return [f"It costs {points} points of error. The method 'temperature' changes no prediction."]
    if result.link == "sigmoid" and before[1] - after[1] >= _COST:
        f1 = f"{100 * before[1]:.1f} to {100 * after[1]:.1f}%"
        return [
            f"At a probability of 1/2, the micro F1 falls from {f1}: choose a threshold, by --precision or --recall."
        ]
    return []


def uncorrected_verdict(result: RunResult) -> str:
    """Say that "auto" left the model as it is; "" if there is a correction, or if none was tried."""
    fit = result.fit.cross_fit
    if fit is None or fit.method != "none" or not fit.reason:
        return ""
    size = "" if is_too_few(fit.num_samples) else f", as far as {fit.num_samples:,} samples show"
    return f"No correction: {reason_for_none(fit.num_samples)}{size}."


def headline_of(result: RunResult) -> str:
    """Return `RunResult.describe` as a sentence, without the name of the model or loss; "" without measured values."""
    if not result.post or isnan(result.pre.get("ece", nan)):
        return ""
    text = result.describe().removeprefix(f"{result.loss}: ")
    return f"{text[0].upper()}{text[1:]}."


def correction_verdict(result: RunResult, samples: str, unit: str) -> str:
    """Say what the correction changed on `samples`, which it was not fitted to, and whether that shows that it helps.

    The model is called better calibrated only if `is_better_calibrated`.
    """
    name = "temperature" if result.temperature.is_fitted else result.correction
    sides = [
        f"{format_metric('ece', metrics)}%{metric_interval('ece', intervals)}"
        for metrics, intervals in ((result.pre, result.pre_intervals), (result.post, result.post_intervals))
    ]
    nll = [format_metric("nll", metrics) for metrics in (result.pre, result.post)]
    if is_unchanged(result):
        return f"Its {name} makes no measurable change: on {samples}, the ECE stays {sides[0]} and the NLL {nll[0]}."
    change = f"the ECE from {sides[0]} to {sides[1]} and the NLL from {nll[0]} to {nll[1]}"
    if is_better_calibrated(result):
        return f"Its {name} makes its probabilities better calibrated: on {samples}, it changed {change}."
    noise, missing = "", not_lowered(result)
    if _intervals_overlap(result):
        count = _count(result) or "these"
        noise = f" The intervals of the ECE overlap, so {count} test {unit} may be too few to show that it differs."
    if not missing:
        text = f"Its {name} changed {change} on {samples}.{noise}"
        if is_no_better_than_majority(result):
            text += " But the model is not shown to be right more often than the most frequent answer"
            text += "." if ranks_classes(result) else ", so its probabilities may say no more than the frequencies."
        return text
    if missing == ["ECE"]:
        error = [format_metric("error", metrics) for metrics in (result.pre, result.post)]
        decisions = f", and the error from {error[0]}% to {error[1]}%" if error[0] != error[1] else ""
        return f"Its {name} lowers the NLL, but not the ECE: on {samples}, it changed {change}{decisions}.{noise}"
    text = f"Its {name} is not shown to help: on {samples}, it does not lower {' or '.join(missing)}."
    return f"{text} It changed {change}.{noise}" if result.post else text


def is_unchanged(result: RunResult) -> bool:
    """Return whether ECE and NLL are the same before and after the correction, as they are printed."""
    return bool(result.post) and all(
        format_metric(key, result.pre) == format_metric(key, result.post) for key in _LOWERED
    )


def increases_both(result: RunResult) -> bool:
    """Return whether the correction increases both ECE and NLL, as they are printed."""
    increased = all(result.post.get(name, nan) > result.pre.get(name, nan) for name in _LOWERED)
    return increased and not is_unchanged(result)


def is_better_calibrated(result: RunResult) -> bool:
    """Return whether the correction lowers both ECE and NLL, beyond noise, of a model that is worth its error.

    The intervals of the ECE must be apart; without intervals, the ECE must fall by a tenth.
    """
    if not_lowered(result) or is_unchanged(result) or is_no_better_than_majority(result):
        return False
    if result.pre_intervals.get("ece") and result.post_intervals.get("ece"):
        return not _intervals_overlap(result)
    return result.post["ece"] < (1 - _CLEAR_FALL) * result.pre["ece"]  # both are known if the ECE is lowered


def not_lowered(result: RunResult) -> list[str]:
    """Return the names of the metrics that the correction should lower and does not."""
    # A comparison with NaN is False.
    return [METRICS[key].name for key in _LOWERED if not result.post.get(key, nan) < result.pre.get(key, nan)]


def _intervals_overlap(result: RunResult) -> bool:
    known = [side["ece"] for side in (result.pre_intervals, result.post_intervals) if side.get("ece")]
    return len(known) == 2 and max(low for low, _ in known) <= min(high for _, high in known)


def samples_of(result: RunResult) -> str:
    """Name the samples of a result, such as "the 500 samples of dataset 'test.csv'"."""
    source = "" if result.data.measured_on is None else f" of {result.data.measured_on}"
    return " ".join(filter(None, ("the", _count(result), unit_of(result.data.task) + source)))


def _count(result: RunResult) -> str:
    count = result.pre.get("num_samples", nan)
    return "" if isnan(count) else f"{int(count):,}"


def gap_beyond_noise(mean: float, share: float, size: float) -> float:
    """Return the mean probability minus the share of ones among `size` samples, or 0 if chance may explain it."""
    error = 1.96 * math.sqrt(max(share * (1 - share), 0) / max(size, 1))
    return 0.0 if abs(mean - share) <= error else mean - share


def is_miscalibrated(intervals: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether the interval of the ECE shows that the ECE is larger than one that hardly matters."""
    return intervals.get("ece", (0.0, 1.0))[0] > _SMALL_ECE
