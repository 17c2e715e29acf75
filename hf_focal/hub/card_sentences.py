"""The paragraphs of a model card, in Markdown: a function for each. What comes from the user is escaped here."""

from collections.abc import Sequence
from math import isnan, nan

import numpy as np

from ..reports.figures.reliability_marks import FEW
from ..reports.results.result_sections import CrossFit, ThresholdSection
from ..reports.results.run_results import RunResult
from ..reports.wording.correction_effects import is_better_calibrated
from ..reports.wording.markdown_tables import escaped
from ..reports.wording.number_format import format_metric, format_number, sentence
from ..reports.wording.text_summary import prior_shift_sentence
from ..reports.wording.verdicts import (
    correction_verdict,
    costs_of_correction,
    reason_against_verdict,
    remaining_miscalibration,
    uncorrected_verdict,
)
from ..utils.constants import WEBSITE
from .card_contents import CardContents
from .hub_ids import display_name

_MOST_NAMES = 12
_MOST_LABELS = 20  # of a table
_SERVING = f"{WEBSITE}serving.html"
# Software that applies a softmax to the logits even where several labels, or the only logit, need a sigmoid, by task;
# docs/serving.md has the sources.
_TAKES_SOFTMAX = {
    ("text-classification", "several"): "Text Embeddings Inference",
    ("text-classification", "one"): "Hugging Face's exporter to Core ML",
    ("image-classification", "several"): "Transformers.js",
    ("image-classification", "one"): "Transformers.js",
}


# Introduction


def introduction(card: CardContents) -> str:
    """Say what the model gives, where it comes from, and what the results show; each in a line."""
    return "\n".join(filter(None, (_what_it_gives(card), _where_it_comes_from(card), _verdict(card))))


def _what_it_gives(card: CardContents) -> str:
    purpose = escaped("classification" if card.result.data.task == "scores" else card.model.task.replace("-", " "))
    if card.has_options:
        return "This model answers questions with options, and gives the probability of each option."
    if card.generates:
        return f"This model generates text ({purpose}), and the probabilities of its tokens were measured."
    if not card.is_table:
        subject = f"This {purpose} model gives the probability"
    elif card.correction:
        subject = "This correction turns a classifier's scores into the calibrated probability"
    else:
        subject = "No correction clearly improves these scores of a classifier, which give the probability"
    names = _class_names(card.result)
    if card.result.is_of_answers:
        return f"{subject} that an answer is right."
    if not card.has_sigmoid:
        return f"{subject} of each class{f': {escaped(_in_words(names))}' if names else ''}."
    if len(names) == 1:
        return f'{subject} that "{escaped(names[0])}" applies.'
    listed = f" ({escaped(', '.join(names))})" if names else ""
    return f"{subject} of each label{listed}, several of which may apply."


def _where_it_comes_from(card: CardContents) -> str:
    """Name the base model and the data; "" if neither is known."""
    base, data = display_name(card.model.base), display_name(card.data.dataset)
    corrected = f"corrected with {'a temperature' if card.result.method == 'temperature' else card.scaling}"
    if card.training:
        made = "trained"
    elif not card.correction:
        made = "measured"
    else:
        made = corrected if base or not card.model.is_correction else "fitted"
    on_data = f"{made} on {escaped(data)}" if data else ""
    if base:
        model = f"It is {'a fine-tuned ' if card.training else ''}{escaped(base)}"
        if data:
            return f"{model}, {on_data}."
        return f"{model}, {corrected}." if card.correction and not card.training else f"{model}."
    if data and card.is_table and not card.correction:
        return f"They were measured on {escaped(str(card.data.test_name))}."
    return f"It was {on_data}." if data else ""


def _verdict(card: CardContents) -> str:
    """Say what the results show."""
    result = card.result
    if result.method is None:
        return uncorrected_verdict(result) or "The results below show how well calibrated it is."
    if result.lacks_new_prior:
        return f"{reason_against_verdict(card.unit)}."
    if card.data.same_samples:
        return (
            f"{sentence(card.scaling)} was fitted on the same samples as the results below, so they do "
            "not show whether it helps on other data."
        )
    confident = _at_confidence(result) if is_better_calibrated(result) else ""
    costs = escaped(" ".join(costs_of_correction(result)))
    parts = [correction_verdict(result, card.samples, card.unit), costs, remaining_miscalibration(result), confident]
    return " ".join(filter(None, parts))


def _at_confidence(result: RunResult) -> str:
    """Say how often the corrected model is right at a frequent confidence; "" if it has no bins.

    Labels are mostly absent, so of a sigmoid a probability above a half is taken, if enough labels have one.
    """
    bins = result.post_bins
    if not len(bins.count) or not bins.count.max() > 0:
        return ""
    count = bins.count
    if result.link == "sigmoid" and (likely := np.where(bins.edges[:-1] >= 0.5, count, 0)).max() >= FEW:
        count = likely
    most = int(count.argmax())
    mean, right = 100 * bins.confidence[most], 100 * bins.accuracy[most]
    kind = "labels with a probability" if result.link == "sigmoid" else "answers with a confidence"
    about, outcome = f"{mean:.{0 if mean >= 1 else 1}f}%", "apply" if result.link == "sigmoid" else "are right"
    return f"For example, of the {int(bins.count[most]):,} {kind} of about {about}, {right:.1f}% {outcome}."


def _class_names(result: RunResult) -> list[str]:
    """Return the names of the classes or labels that a result holds, or [] if it holds none or too many to list."""
    confusion = result.subsets.confusion
    names = result.subsets.label_names or (confusion and confusion.names) or []
    return [*names] if len(names) <= _MOST_NAMES else []


def _in_words(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: "a, b, and c"."""
    *others, last = names
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} and {last}" if others else last


# Use


def what_includes_the_correction(card: CardContents) -> str:
    """Say whether the probabilities that the code gives include the correction; "" without one."""
    if not card.correction:
        return ""
    if card.has_options:
        return "The probabilities include the temperature."
    if card.generates:
        return f"Beam search {'uses' if card.is_folded else 'does *not* use'} the {card.correction}."
    return f"The scores {'include' if card.is_folded else 'do *not* include'} the {card.correction}."


def serving_note(card: CardContents) -> str:
    """Say why servers would return other probabilities than the measured ones; "" if none do."""
    result, sentences = card.result, []
    if card.has_options:
        sentences.append(
            "A server does not apply T: divide the log-probabilities that it returns for the options by T, and take "
            "their softmax. Do not send T as the temperature of requests, which is for text."
        )
    elif result.method is not None and result.fit.folded is False:
        sentences.append(
            "A server may not apply T by itself: to sample with T, send it as the temperature of each request."
            if card.generates
            else "No server applies this correction: apply it to the raw logits that the server returns."
        )
    if card.has_sigmoid:
        has_one = len(result.subsets.label_names) == 1
        software = _TAKES_SOFTMAX.get((card.model.task, "one" if has_one else "several"), "some software")
        sentences.append(
            f"The probability is the sigmoid of the only logit, but {software} takes a softmax, which is always 1: use"
            " its raw logits, and apply the sigmoid yourself."
            if has_one
            else f"The probability of each label is the sigmoid of its logit, but {software} takes a softmax over all "
            "labels: use its raw logits, and apply the sigmoid yourself."
        )
    return " ".join([*sentences, f"[More on servers]({_SERVING})."]) if sentences else ""


def where_to_use(card: CardContents) -> str:
    """Say for which decisions the probabilities are."""
    text = "Use the probabilities where a decision depends on how sure the model is"
    if card.generates and not card.has_options:
        return f"{text}."
    handing_over = "" if card.has_sigmoid else ", for handing unsure cases to people,"
    return f"{text}: for thresholds{handing_over} and for rankings."


# Results


def what_was_measured(card: CardContents) -> str:
    """Say what the table of results is of, and how the samples are distributed over the classes; each in a line."""
    tokens = " (each predicted from the reference tokens before it)" if _has_tokens(card) else ""
    sides = f", before and after {card.scaling}" if card.result.method else ""
    gap = "confidence and accuracy"
    if card.has_sigmoid:
        gap = "the probability of a label and its frequency, over all labels"
    interval = f"95% bootstrap interval{card.result.over_clusters}"
    brackets = f", followed by its {interval} in brackets" if "ece" in card.result.pre_intervals else ""
    measured = f"On {card.samples}{tokens}{sides}. ECE is the average gap between {gap}{brackets}."
    return "\n".join(filter(None, (measured, _class_balance(card))))


def _has_tokens(card: CardContents) -> bool:
    return card.generates and card.unit == "tokens"


def _class_balance(card: CardContents) -> str:
    balance, count = card.result.subsets.class_balance, card.result.pre.get("num_samples", nan)
    if balance is None or isnan(count) or int(count) <= 0:
        return ""
    size = f"{balance.smallest} to {balance.largest}" if balance.smallest != balance.largest else f"{balance.largest}"
    return (
        f"The {balance.classes} classes have {size} {card.unit} each; "
        f"{format_number(balance.largest / count, 100, 1)}% are of the most frequent class."
    )


def label_table_title(card: CardContents) -> str:
    few = len(card.result.subsets.label_names) <= _MOST_LABELS
    which = "The labels" if few else f"The {_MOST_LABELS} labels with the largest ECE"
    return f"{which}, with F1 at a probability of ½:"


def bars_explained(card: CardContents) -> str:
    """Explain the reliability diagrams below the title."""
    if card.has_sigmoid:
        bar = "the frequency of the labels whose probability is in its range"
    else:
        bar = "the accuracy of the predictions whose confidence is in its range"
    return (
        f"Each bar is {bar}. The bars of a calibrated model end at the diagonal, and the hatched parts are the errors."
    )


# Calibration


def what_the_correction_changes(card: CardContents, fit: CrossFit) -> str:
    """Say where another correction than a temperature is, and how many predictions it changes."""
    is_platt = fit.correction is not None
    slope = " (a slope and an intercept for the logits)" if is_platt else ""
    if card.model.is_correction:
        place = "which is in `correction.json`"
    elif card.is_folded:
        place = f"which is folded into the weights, so you do not need to apply it{_correction_file(card)}"
    elif card.model.usage:
        place = "whose slopes are folded into the weights, and whose offsets are **not**: the code below adds them"
    else:
        place = "which is **not** in the weights"
    text = f"The probabilities are corrected by {card.scaling}{slope}, {place}"
    if card.result.prior:
        return f"{text}."
    size = f"{fit.num_samples:,}"
    if is_platt:
        changed = (
            f"{fit.changed_predictions} decisions at a probability of ½ on the {size} {card.unit} of "
            f"{card.data.fit_data}"
        )
        if fit.changed_top_labels is not None:
            changed += f", and the most probable label of {fit.changed_top_labels}"
    else:
        changed = f"{fit.changed_predictions} of {size} predictions on {card.data.fit_data}"
    return f"{text}. It changes {changed}, and may change others."


def _correction_file(card: CardContents) -> str:
    """Say what ``correction.json`` beside folded weights is for; "" for a trained model, which comes without it."""
    return "" if card.training else " (`correction.json` is for logits of the original model)"


def prior_shift(card: CardContents) -> str:
    """Say from which shares to which the prior is shifted; "" if it is not."""
    return escaped(prior_shift_sentence(card.result.prior)) if card.result.prior else ""


def how_it_was_cross_fitted(card: CardContents, fit: CrossFit) -> str:
    return (
        f"On the {fit.num_samples:,} {card.unit} of {card.data.fit_data}, by cross-fitting ({fit.num_folds} folds, "
        "each corrected by a fit on the others):"
    )


# Thresholds


def what_thresholds_are_for(card: CardContents, thresholds: ThresholdSection) -> str:
    fit = card.result.fit.cross_fit
    own = fit is not None and fit.correction is not None and not card.is_folded and not card.model.is_correction
    of_own = ", of the model's own probabilities, without the slope and the intercept" if own else ""
    return f"Thresholds for {escaped(thresholds.goal)}, chosen on {card.data.fit_data}{of_own}:"


def where_thresholds_are(card: CardContents, thresholds: ThresholdSection) -> str:
    """Say what the precision of thresholds was measured on, and where they are; code follows if this is the config."""
    conditions = f" {escaped(thresholds.conditions)}" if thresholds.conditions else ""
    text = f"Precision and {thresholds.share} are those on {card.samples}.{conditions} The thresholds are in "
    if not (card.model.is_correction or card.model.usage):
        return f"{text}the model's config:"
    decisions = ": `hf-focal apply` writes the decisions, too" if card.model.is_correction else ""
    return (
        f"{text}`correction.json`{decisions}. `hf_focal.apply_thresholds` decides in Python, or compare the "
        "calibrated probabilities with them."
    )


def what_applies_thresholds(thresholds: ThresholdSection) -> str:
    answers = ", with None for no answer" if thresholds.link == "softmax" else ""
    return f"`hf_focal.apply_thresholds(scores, classifier.model.config)` does the same{answers}."


# Temperature


def how_t_was_fitted(card: CardContents) -> str:
    """Say what T is, what it was fitted to, and what it changed there."""
    fitted, data, units = card.result.temperature, card.data, card.unit_of_fit
    if card.model.folded_temperature is not None:
        t = f"{card.model.folded_temperature:.6g}"
        return f"T = {t} is folded into the weights; the results above include it."
    if not fitted.is_fitted:
        return "No temperature was fitted: the probabilities are the model's own."
    each = ", one for each label," if fitted.values else ""
    if data.same_samples:
        others = "the same as in the results above, which are therefore optimistic"
    else:
        others = f"not on the {escaped(data.measured_on)} set"
    score = "negative log-likelihood (NLL)"
    if fitted.objective != "nll":
        score = f"expected calibration error (ECE{' with bins of equal mass' if fitted.objective == 'adaece' else ''})"
    ece = [format_number(value, 100, 2) for value in (fitted.ece_before, fitted.ece_after)]
    nll = [format_number(value, 1, 3) for value in (fitted.nll_before, fitted.nll_after)]
    sentences = [
        f"{card.result.correction_title(6)}{each} was fitted on {fitted.num_samples:,} {units} of {data.fit_data}, "
        f"{others}.",
        f"It {'has the' if fitted.shrunk_from is None else 'is'} {fitted.criterion(score)}{_why_shrunk(card.result)}.",
        f"On these {units}, with {fitted.num_bins} bins, it changed the ECE from {ece[0]}% to {ece[1]}% and the NLL "
        f"from {nll[0]} to {nll[1]}.",
    ]
    if fitted.at_grid_end:
        sentences.append("T is at the end of the grid, so the best temperature may lie outside it.")
    return " ".join(sentences)


def _why_shrunk(result: RunResult) -> str:
    """Return what follows the T that "auto" shrank it from; "" for another T."""
    fit = result.fit.cross_fit
    if result.temperature.shrunk_from is None or fit is None or fit.strength is None:
        return ""
    return f": at {100 * fit.strength:.0f}% strength, the cross-fitted NLL plus a safety margin is the lowest"


def where_t_is(card: CardContents) -> str:
    """Say where a fitted T is kept; code follows if it must be applied."""
    if card.model.is_correction:
        return "It is in `correction.json`."
    if card.has_options:
        return (
            "It is kept in the config, as `option_calibration`, and `hf_focal.choices.score_choices` divides the "
            "scores of options by it. It is **not** in the weights, and it is not for text: text that the model "
            "generates is that of the base model."
        )
    if card.is_folded:
        head = " of the adapter's own head" if card.model.is_adapter else ""
        return f"It is folded into the weights{head}, so you do not need to apply it{_correction_file(card)}."
    return "It is **not** in the weights. To apply it:"


# Data and limitations


def what_the_data_were(card: CardContents) -> str:
    """Name the data of the training, the fit, and the measurement."""
    fit, fitted, data = card.result.fit.cross_fit, card.result.temperature, display_name(card.data.dataset)
    sentences = [f"Trained on {escaped(data)}."] if data and card.training else []
    if card.correction and fit is not None:
        sentences.append(f"The correction was fitted on {fit.num_samples:,} {card.unit} of {card.data.fit_data}.")
    elif fitted.is_fitted:
        sentences.append(
            f"The temperature was fitted on {fitted.num_samples:,} {card.unit_of_fit} of {card.data.fit_data}."
        )
    return " ".join([*sentences, f"Measured on {card.samples}."])


def limitations(card: CardContents) -> list[str]:
    """Return sentences on what the results do not show."""
    result, unit = card.result, card.unit
    sentences = [
        f"The results are those of {card.samples}. On other data, the probabilities may be worse calibrated: measure "
        f"them on labeled {unit} of your own."
    ]
    if interval := (result.post_intervals or result.pre_intervals).get("ece"):
        low, high = (format_metric("ece", {"ece": bound}) for bound in interval)
        sentences.append(f"With this number of {unit}, the 95% interval of the ECE is from {low}% to {high}%.")
    if result.link == "softmax" and "error" in result.post:
        sentences.append(f"{format_number(result.post['error'], 100, 1)}% of the predictions are wrong.")
    if groups := result.subsets.groups:
        name, ece = escaped(groups.name[0]), format_metric("ece", {"ece": groups.ece[0]})
        sentences.append(f"The ECE is largest for the group {name}: {ece}%.")
    return sentences
