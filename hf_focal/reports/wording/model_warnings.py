"""What is wrong with a model, whatever its calibration error: what a reader must know before any verdict.

Warnings follow from the base rate (the answer that is right most often, and the frequencies as probabilities), from
recall and AUROC, and from what was done already. All consoles, tables, cards, and pages take them from here.
"""

import math
from collections.abc import Sequence
from math import isnan, nan

import numpy as np

from ...calibration import Correction
from ...tasks.task import Unit, unit_of
from ..results.measured_sections import entropy_terms
from ..results.result_sections import ClassChanges
from ..results.run_results import RunResult
from .number_format import differing_decimals, sentence

# A gap between the mean probability and the frequency is reported if it exceeds this share of the rarer answer, and
# `_ERRORS` standard errors of the frequency.
_SHARE, _ERRORS = 0.25, 3.0
_ONE_SIDED = 1.645  # standard errors of a one-sided test at 5%
# A factor of the logits above this one says that they barely vary; published models need 0.2 to 3.
_LARGEST_FACTOR = 20.0
# An NLL is above that of the frequencies if it exceeds it by this share over the square root of the number of samples:
# about three standard errors of a mean NLL, which is roughly as large as its deviation over samples.
_NLL_ERRORS = 3.0
_UNTRAINED = 0.99  # an error of tokens above which a language model has learned nothing of these texts


def warnings_of(result: RunResult, name: str | None = None) -> list[str]:
    """Return what a reader must know before any calibration error, each a sentence without its period.

    They concern the probabilities after the correction, if there is one, and say so if only the correction made them
    true: the error is not lower than that of guessing, or always
    giving the most frequent answer; a class is never predicted; the NLL is above that of always giving the
    frequencies; the mean probability is far from the frequency; or a slope is so large that the logits
    barely vary. `name` is what the sentences call the model; by default, the name of the result, but "the model" for a
    table of scores, whose name is that of a file.
    """
    name = name or ("the model" if result.is_of_table else result.name)
    warnings = [
        *_error_warnings(result, name),
        *_never_predicted(result, name),
        *_probability_warnings(result, name),
        *_factor_warnings(result, name),
    ]
    return [sentence(text) if text.startswith("the ") else text for text in warnings]


def is_no_better_than_guessing(result: RunResult) -> bool:
    """Return whether the error is not shown to be lower than that of an answer without a look at the input.

    That is always the most frequent answer or, for questions with options, any of these. Tokens have too many classes
    for either: an error of 99% is called no better. Where predictions are counted by label, this is a sign test
    [McNemar 1947]: of the samples on which the model and the most frequent answer differ, significantly more than half
    must be the model's, at a level of 5%.
    """
    if (counts := _found_and_lost(result)) is not None:
        return _fails_sign_test(*counts)
    error, chance = result.post.get("error", nan), result.data.chance_error
    if chance is not None:
        noise = math.sqrt(error * (1 - error) / max(result.pre.get("num_samples", 1), 1))
        return chance - error <= _ONE_SIDED * noise
    if _is_of_tokens(result):
        return error >= _UNTRAINED
    return error >= _majority_error(result)  # False with NaN


def _is_of_tokens(result: RunResult) -> bool:
    """Return whether the predictions are tokens of a vocabulary."""
    return unit_of(result.data.task) == Unit.TOKENS and result.subsets.class_balance is None


def is_no_better_by_correction(result: RunResult) -> bool:
    """Return whether `is_no_better_than_guessing` holds only because of the correction's changes to predictions."""
    if not is_no_better_than_guessing(result):
        return False
    if changes := result.subsets.class_changes:
        largest = int(np.argmax(changes.num_samples))
        right = changes.right_before[largest]
        return not _fails_sign_test(sum(changes.right_before) - right, changes.num_samples[largest] - right)
    # Without counts by label, as for several labels per sample; NaN is False.
    return _found_and_lost(result) is None and result.pre.get("error", nan) < _majority_error(result)


def is_error_changed(result: RunResult) -> bool:
    """Return whether the correction changes the error, so that what is said of the error holds only after it."""
    before, after = (side.get("error", nan) for side in (result.pre, result.post))
    return not isnan(before) and not isnan(after) and before != after


def never_predicted_by_correction(result: RunResult) -> list[str]:
    """Return the classes, or labels, that were predicted before the correction, and are not after it.

    Labels count as predicted where their F1 is not 0.
    """
    if changes := result.subsets.class_changes:
        columns = changes.name, changes.num_samples, changes.predicted_before, changes.predicted_after
        return [name for name, size, old, new in zip(*columns, strict=True) if size and old and not new]
    labels = result.subsets.labels
    if labels is None or labels.f1_before is None or result.subsets.class_balance:
        return []
    shares_and_f1 = labels.name, labels.frequency, labels.f1_before, labels.f1
    return [name for name, share, old, new in zip(*shares_and_f1, strict=True) if share > 0 and old > 0 and new == 0]


def _fails_sign_test(gained: int, lost: int) -> bool:
    return gained - lost <= _ONE_SIDED * math.sqrt(gained + lost)


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


def _error_warnings(result: RunResult, name: str) -> list[str]:
    if not is_no_better_than_guessing(result):
        return []
    error, base, balance = result.post.get("error", nan), _majority_error(result), result.subsets.class_balance
    if result.data.chance_error is not None:
        against = f"an error of {100 * error:.1f}% against {100 * result.data.chance_error:.1f}%"
        return [f"{name} is not shown to be right more often than guessing among the options: {against}"]
    if _is_of_tokens(result):
        return [
            f"{name} is wrong about {100 * error:.1f}% of the tokens, so its probabilities say next to nothing, "
            "however well calibrated"
        ]
    answer = "always giving each label's more frequent answer"
    if balance:
        answer = f"always answering {balance.majority!r}" if balance.majority else "the more frequent answer"
    noise = math.sqrt((error + base) / max(result.pre.get("num_samples", 1), 1))
    is_worse = error - base > _ONE_SIDED * noise
    if (counts := _found_and_lost(result)) is not None:
        is_worse = counts[1] - counts[0] > _ONE_SIDED * math.sqrt(sum(counts))
    compared = "is wrong more often than" if is_worse else "is not shown to be right more often than"
    digits = differing_decimals(error, base, 1) if is_worse else 1
    text = f"{name} {compared} {answer}: an error of {100 * error:.{digits}f}% against {100 * base:.{digits}f}%"
    if is_error_changed(result):
        too = "" if is_no_better_by_correction(result) else " too,"
        text = f"After the correction, {text}; before it,{too} the error was {100 * result.pre['error']:.1f}%"
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
        parts.append(f"{text}, so its ranking is useful: choose a threshold" if ranks_classes(result) else text)
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


def _never_predicted(result: RunResult, name: str) -> list[str]:
    balance, labels = result.subsets.class_balance, result.subsets.labels
    if result.subsets.class_changes:
        return _never_predicted_by_changes(result.subsets.class_changes, name)
    if balance and balance.num_never and balance.never:
        share = 100 * (balance.samples_of_never or 0) / max(result.pre.get("num_samples", 1), 1)
        names = _some(balance.never, balance.num_never, balance.classes, "classes")
        return [_never_predicts(name, names, balance.num_never, share)]
    if labels and not balance and result.thresholds is None:
        columns = labels.name, labels.f1, labels.frequency
        by_correction = never_predicted_by_correction(result)
        never = [name for name, f1, share in zip(*columns, strict=True) if f1 == 0 and share > 0]
        texts, advice = [], "choose a threshold for each label (precision or recall)"
        if others := [label for label in never if label not in by_correction]:
            names = _some(others, len(others), len(labels.name), "labels")
            texts.append(f"{name} never correctly predicts {names} at a probability of ½: {advice}")
        if by_correction:
            names = _some(by_correction, len(by_correction), len(labels.name), "labels")
            texts.append(
                f"After the correction, {name} never correctly predicts {names} at a probability of ½, and did so "
                f"before: {advice}"
            )
        return texts
    return []


def _never_predicted_by_changes(changes: ClassChanges, name: str) -> list[str]:
    """Name the classes that are not predicted after a correction, apart from those that were predicted before it."""
    size, texts = max(sum(changes.num_samples), 1), []
    columns = changes.name, changes.num_samples, changes.predicted_before, changes.predicted_after
    never = [(label, count, old) for label, count, old, new in zip(*columns, strict=True) if count and not new]
    if always := [(label, count) for label, count, old in never if not old]:
        names = _some([label for label, _ in always], len(always), len(changes.name), "classes")
        share = 100 * sum(count for _, count in always) / size
        texts.append(_never_predicts(name, names, len(always), share))
    if by_correction := [(label, old) for label, _, old in never if old]:
        names = _some([label for label, _ in by_correction], len(by_correction), len(changes.name), "classes")
        share = 100 * sum(old for _, old in by_correction) / size
        texts.append(
            f"After the correction, {name} never predicts {names}, which it predicted for {share:.1f}% of the samples "
            "before"
        )
    return texts


def _never_predicts(name: str, names: str, number: int, share: float) -> str:
    """Say that `number` classes, whose samples are a `share` of all in percent, are never predicted."""
    together = " together" if number > 1 else ""
    return f"{name} never predicts {names} ({share:.1f}% of the samples{together})"


def _some(names: Sequence[str], count: int, total: int, kind: str) -> str:
    return repr(names[0]) if count == 1 else f"{count} of {total} {kind}, such as {names[0]!r}"


def _frequencies(result: RunResult) -> np.ndarray:
    """Return the frequency of ones of each label, (L,), or of all if the labels are unknown; empty with a softmax."""
    if result.link != "sigmoid" or not result.post_bins.count.sum():
        return np.zeros(0)
    labels = result.subsets.labels
    return np.array(labels.frequency if labels else [result.post_bins.means()[1]])


def _probability_warnings(result: RunResult, name: str) -> list[str]:
    warnings, frequencies = [], _frequencies(result)
    if len(frequencies):
        mean, frequency = result.post_bins.means()
        if has_wrong_mean(result):
            warnings.append(
                f"{name} gives a mean probability of {100 * mean:.1f}%{_after(result)}, but "
                f"{100 * frequency:.1f}% {result.outcome}: {_advice(result)}"
            )
        base, unit = float(np.nanmean(entropy_terms(frequencies) + entropy_terms(1 - frequencies))), "label"
    else:
        balance, unit = result.subsets.class_balance, "class"
        base = nan if balance is None or balance.base_nll is None else balance.base_nll
    margin = 1 + _NLL_ERRORS / math.sqrt(max(result.pre.get("num_samples", 1), 1))
    if math.isinf(result.post.get("nll", nan)):
        warnings.append(f"{name} has an infinite NLL{_after(result)}: it gives a label the probability 0")
    elif result.post.get("nll", nan) > margin * base:
        warnings.append(
            f"{name} has an NLL of {result.post['nll']:.3f}{_after(result)}, more than the {base:.3f} of "
            f"always giving the frequency of each {unit}: {_advice(result)}"
        )
    return warnings


def has_wrong_mean(result: RunResult) -> bool:
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
    if method not in (None, "temperature"):
        if not result.has_own_test_data:
            return "more samples to fit to would help"
        return f"{result.correction} was fitted on data unlike these: fit it on data like these, or shift the prior"
    if fit and fit.method == "none":
        return "no correction clearly lowered the cross-fitted NLL, so fit it on more data like these"
    if method is None and result.data.was_calibrated:
        return "the correction in its weights was fitted on data unlike these, so fit one on data like these"
    if method and fit and fit.reason:  # by auto, which has tried what is advised below
        return f"auto chose {result.correction} alone, which does not correct that: fit it on more data like these"
    if result.link == "softmax":
        advice = "fit vector scaling (method 'vector' or 'auto')"
        return f"a temperature alone does not correct that, so {advice}" if method else "fit a correction"
    advice = "fit a slope and an intercept (method 'platt' or 'auto')"
    return f"no temperature corrects that, so {advice}" if method == "temperature" else advice


def _factor_warnings(result: RunResult, name: str) -> list[str]:
    fit = result.fit.cross_fit
    if result.method == "platt" and fit and fit.correction:
        factor, kind = float(Correction.from_dict(fit.correction).dense()[0].max()), "slope"
    elif result.method == "temperature":
        factor, kind = 1 / min(getattr(result.temperature, "values", None) or [result.temperature.value]), "factor 1/T"
    else:
        return []
    if factor < _LARGEST_FACTOR:
        return []
    area = result.post.get("auroc", nan)
    shown = "" if isnan(area) else f" (an AUROC of {100 * area:.1f}%)"
    return [
        f"the {kind} of {factor:.3g} is unusually large, which suggests that the logits barely vary: check that "
        f"{name} is trained and that these are its scores, and judge them by their ranking{shown}"
    ]
