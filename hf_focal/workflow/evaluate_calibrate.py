"""`evaluate` and `calibrate`: what they do, in its order, for every source of scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..calibration import CalibrationFit
from ..calibration.correction_methods import METHODS
from ..calibration.prior_shift import check_new_prior, shift_fit
from ..calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import Thresholds, notes_on_yes
from ..errors import NotPublishedError
from ..metrics import CalibrationMetrics
from ..reports import RunResult
from ..reports.output_folder import new_folder, write_results, writing
from ..reports.result_sections import CrossFit, FitSection, PriorSection, ThresholdSection
from ..scores.examples import are_few, find_examples
from ..scores.score_set import ScoreSet, names_of
from ..sources.opening import open_source
from ..sources.source import Data, Source
from ..validation import InputError
from .publishing import folder_to_save, new_repository, publish_folder
from .results import compared_with, group_section, metrics_with_samples, run_result, threshold_section
from .samples import check_new_scores, labeled_shares, overlap_notes, read_samples, samples_of_fit, write_scores


def evaluate(
    source: Any = None,
    data: Any = None,
    *,
    scores: Any = None,
    reference: Any = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_data: Any = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunResult:
    """Measure the calibration of a source of scores, and return the result.

    Args:
        source: a model (its Hub id or folder), or an object with `link`, `classes`, and `scores(data)`, which returns
            `Scores`, such as a `Source`.
        data: labeled data that the source takes: for a model, what `evaluate_model` takes as `dataset`.
        scores: a table of scores, in place of `source` and `data`, as for `evaluate_scores`.
        reference: earlier data; the result then says whether the calibration has changed since.
        precision, coverage, recall, f1, cost, confidence, simultaneous: as for `evaluate_model`.
        threshold_data: the data to choose thresholds on.
        num_bins, output, on_result: as for `evaluate_model`.
        save_scores: a new parquet file for the scores, labels, and names of classes, which `scores` takes: all that
            follows the forward pass can then be repeated without it. Of a model, it may be a folder, to which every
            process writes shards while the model runs: if the evaluation is killed, the same call goes on from these.
        no_examples: leave the most confident mistakes, and the least confident right answers, out of ``report.html``.
        arguments: those of `hf-focal evaluate` that do the same, from which the page names the next steps.
        **options: of a model, those of `evaluate_model`; of a table, those of `read_scores`.

    Raises:
        NotPublishedError: no threshold reaches `precision` or `coverage`, or the report could not be written; the
            error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import evaluate
        >>> result = evaluate(scores="test_scores.csv")
        >>> round(result.pre["accuracy"], 2), result.pre["ece"] > 0.05
        (0.81, True)
    """
    goal = ThresholdGoal.checked(
        confidence, simultaneous, precision=precision, recall=recall, coverage=coverage, f1=f1, cost=cost
    )
    _check_threshold_data(goal, threshold_data)
    with new_folder(output):
        opened, data = open_source(source, data, scores, num_bins, options)
        check_new_scores(save_scores, opened)
        measured_on = read_samples(opened, data, goal)
        measured = measured_on.scores
        notes: list[str] = []
        if goal is not None:
            data = Data.named("threshold_data", threshold_data, "validation")._replace(groups=False)
            chosen_on = read_samples(opened, data)
            notes += overlap_notes(measured_on, chosen_on, "threshold", "test")
        if save_scores is not None:
            write_scores(save_scores, measured, opened)
        with_examples = output is not None and not no_examples and opened.has_independent_samples and are_few(measured)
        if with_examples:
            measured.collected()  # in the pass that also measures

        sections: dict[str, Any] = {"parts": group_section(measured, num_bins)}
        earlier = None
        if reference is not None:
            earlier, sections["drift"] = compared_with(reference, opened, measured, num_bins)
        before, _ = measured.measure(num_bins)
        if goal is not None:
            samples = chosen_on.scores.threshold_samples()
            thresholds = goal.choose(samples, measured.link)
            checked_on, _ = metrics_with_samples(measured, (before, None), num_bins)
            names = names_of(measured)
            sections["thresholds"] = threshold_section(thresholds, chosen_on.scores, names, checked_on)
            notes += [*chosen_on.scores.notes, *notes_on_yes(thresholds, samples, names)]

        notes = [*measured.notes, *opened.notes(None, {}), *notes]
        result = run_result(opened, measured, None, before, None, notes, **sections)
        if on_result is not None:
            on_result(result)
        if output is not None and opened.is_main:
            examples = None
            if with_examples:
                examples = find_examples(measured.collected(), partial(opened.inputs, measured_on))
                examples = replace(examples, hint=opened.inputs_hint(measured_on))
            write_results(output, result, earlier, arguments, examples, pictures=False)
        if goal is not None and measured.link == "softmax":
            _check_reached(goal, thresholds, chosen_on.scores, result)
    return result


def _check_threshold_data(goal: ThresholdGoal | None, threshold_data: Any) -> None:
    """Raise `InputError` for a goal without data to choose thresholds on, and for such data without a goal."""
    if goal is not None and threshold_data is None:
        raise InputError("threshold_data", f"must be given with {goal.target}, got None")
    if goal is None and threshold_data is not None:
        argument = Data.named("threshold_data", threshold_data).argument
        raise InputError(argument, "needs precision, recall, coverage, f1, or cost, got none of them")


def _check_reached(goal: ThresholdGoal, thresholds: Thresholds, chosen_on: ScoreSet, result: RunResult) -> None:
    """Raise `NotPublishedError` if no threshold of the confidence reaches the goal."""
    if thresholds.values[0] is None:
        shows = f"must be one that {chosen_on.source} shows with {100 * goal.confidence:g}% confidence"
        raise NotPublishedError(f"{goal.target} {shows}, got {goal.value:g}: {thresholds.reasons[0]}", result)


def calibrate(
    source: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    scores: Any = None,
    objective: str = "nll",
    method: str | None = None,
    per_label: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    cost: tuple[float, float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    new_prior: float | Sequence[float] | None = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    push_to_hub: str | None = None,
    private: bool | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    publish_examples: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunResult:
    """Fit a correction to the scores that a source gives for labeled data, measure it, save it, and return the result.

    Args:
        source, scores, num_bins, on_result, arguments, **options: as for `evaluate`.
        data: the labeled data to fit the correction to, which the source was not trained on.
        test: the data to measure on; by default `data`, so the results are optimistic.
        objective, method, per_label, precision, recall, f1, cost, confidence, simultaneous, new_prior: as for
            `calibrate_model`.
        output: a new or empty folder for ``correction.json``, the report, its page ``report.html``, the card, and the
            model, if it is one, with the correction folded in.
        push_to_hub, private: of a model, as for `calibrate_model`.
        save_scores: a new parquet file, or a folder, for the scores of `data`, as for `evaluate`.
        no_examples: as for `evaluate`.
        publish_examples: write the page with its examples to ``report/examples.html``, too, which is published.

    Raises:
        NotPublishedError: the source could not be corrected, saved, or published. Files that were already written are
            kept, and the error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import calibrate
        >>> result = calibrate(scores="scores.csv", test="test_scores.csv", method="temperature")
        >>> result.post["ece"] < result.pre["ece"]
        True
    """
    goal = ThresholdGoal.checked(confidence, simultaneous, precision=precision, recall=recall, f1=f1, cost=cost)
    _check_fit_arguments(objective, method, per_label, goal, new_prior)
    if private is not None and push_to_hub is None:
        raise InputError("push_to_hub", "must be given if private is, got None")
    if no_examples and publish_examples:
        raise InputError("publish_examples", "must not be given with no_examples, got both")
    with new_folder(output):
        opened, data = open_source(source, data, scores, num_bins, options)
        check_new_scores(save_scores, opened)
        opened.check_fit(method, per_label, goal, new_prior)
        fitted_on, measured_on, notes = samples_of_fit(opened, data, test, goal)
        fitted, measured = fitted_on.scores, measured_on.scores
        method = method or opened.default_method(fitted, objective, per_label)
        prior = None if new_prior is None else labeled_shares(opened, fitted_on, new_prior)
        saves = (output or push_to_hub) is not None
        if saves:
            opened.check_saving(new_prior)
        repository = None if push_to_hub is None else new_repository(opened, push_to_hub, private)
        if save_scores is not None:
            write_scores(save_scores, fitted, opened)

        cross_fit = goal is not None or new_prior is not None or opened.cross_fits_temperatures
        fit = fitted.fit(method, objective=objective, per_label=per_label, num_bins=num_bins, cross_fit=cross_fit)
        sections: dict[str, Any] = {}
        config_entries: dict[str, Any] = {}  # that hold for the corrected probabilities
        if prior is not None:
            fit, shift = shift_fit(fit, prior, new_prior, fitted.link, fitted.score_names)
            sections["prior"] = PriorSection(**shift)
            config_entries["prior_shift"] = {name: shift[name] for name in ("train_prior", "new_prior")}
        sections["fit"] = FitSection(fitted.source, CrossFit(**fit.to_dict()) if fit.is_cross_fitted else None)
        notes += fit.notes(fitted.score_names) if fit.is_cross_fitted else []
        with_examples = saves and not no_examples and opened.has_independent_samples and are_few(measured)
        if with_examples:
            measured.collected()  # in the pass that also measures

        before, after = measured.measure(num_bins, fit.correction)
        sections["parts"] = group_section(measured, num_bins, fit.correction)
        if goal is not None:
            on_test = None
            if test is not None:
                on_test = metrics_with_samples(measured, (before, after), num_bins, fit.correction)
            thresholds, section, threshold_notes = _thresholds_of_fit(goal, opened, fit, fitted, on_test)
            sections["thresholds"] = section
            config_entries["thresholds"] = thresholds.record(names_of(fitted))
            notes += threshold_notes

        notes = [*fitted.notes, *measured.notes, *notes, *opened.notes(fit, config_entries)]
        result = run_result(opened, measured, fit.temperature, before, after, notes, **sections)
        saves_here = saves and opened.is_main
        try:
            if saves_here:
                result = replace(result, fit=replace(result.fit, folded=opened.fold(fit, config_entries, result)))
        finally:
            if on_result is not None:
                on_result(result)
        if saves_here:
            with folder_to_save(output) as folder:
                with writing(folder, result):
                    opened.save(folder, fit, fitted, config_entries, result)
                    examples = None
                    if with_examples:
                        inputs = partial(opened.inputs, measured_on)
                        examples = find_examples(measured.collected(), inputs, fit.correction)
                        examples = replace(examples, hint=opened.inputs_hint(measured_on))
                    write_results(folder, result, None, arguments, examples, publish_examples=publish_examples)
                    opened.write_card(folder, repository or folder.resolve().name, result, fitted_on, measured_on)
                if repository is not None:
                    result = publish_folder(folder, repository, private, result)
    return result


def _check_fit_arguments(
    objective: str, method: str | None, per_label: bool, goal: ThresholdGoal | None, new_prior: Any
) -> None:
    """Raise `InputError` for arguments of `calibrate` that exclude each other, whatever the source is."""
    check_objective(objective, STREAM_OBJECTIVES)
    if method not in (None, *METHODS, "auto"):
        raise InputError("method", f"must be one of {', '.join((*METHODS, 'auto'))}, got {method!r}")
    if per_label and (objective != "nll" or method not in (None, "temperature", "platt")):
        chosen = f"objective {objective!r} and method {method or 'temperature'!r}"
        expected = "must come with objective 'nll' and method 'temperature' or 'platt'"
        raise InputError("per_label", f"{expected}, got {chosen}")
    if goal is not None and objective != "nll":
        raise InputError("objective", f"must be 'nll' with {goal.target}, got {objective!r}")
    check_new_prior(new_prior, objective, goal)


def _thresholds_of_fit(
    goal: ThresholdGoal,
    source: Source,
    fit: CalibrationFit,
    fitted: ScoreSet,
    on_test: tuple[CalibrationMetrics, CalibrationMetrics | None] | None,
) -> tuple[Thresholds, ThresholdSection, list[str]]:
    """Choose thresholds for the probabilities that the saved source will give, corrected ones if it folds the fit.

    Return them, their description, and notes. `on_test` are the metrics of test data before and after the correction.
    """
    before, after = on_test or (None, None)
    if source.can_fold(fit.correction):
        samples, measured, notes = fit.threshold_samples(fitted.collected().are_independent), after, []
    else:
        samples, measured = fitted.threshold_samples(), before
        notes = ["the thresholds are for the model's own probabilities, without the slope and the intercept"]
    thresholds = goal.choose(samples, fitted.link)
    names = names_of(fitted)
    notes += notes_on_yes(thresholds, samples, names)
    return thresholds, threshold_section(thresholds, fitted, names, measured), notes
