"""`evaluate` and `calibrate`: what they do, in its order, for every source of scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration import CalibrationFit, Correction
from ..calibration.correction_methods import METHODS
from ..calibration.prior_shift import check_new_prior, shift_fit
from ..calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import Thresholds
from ..errors import GoalNotReachedError, InputError
from ..metrics import CalibrationMetrics
from ..reports import RunResult
from ..reports.examples import Examples
from ..reports.output_folder import check_room, new_folder, write_results, writing
from ..reports.results.result_sections import CrossFit, FitSection, PriorSection, ThresholdSection
from ..scores.analysis.examples import are_few, find_examples
from ..scores.sets.score_set import ScoreSet, names_of
from ..sources.opening import open_source
from ..sources.source import Data, FoldOutcome, Samples, Source
from .publishing import folder_to_save, new_repository, publish_folder
from .results import choose_thresholds, compared_with, group_section, metrics_with_samples, run_result
from .samples import check_new_scores, labeled_shares, samples_of_evaluation, samples_of_fit, write_rows_or_shards


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
        GoalNotReachedError: no threshold reaches `precision` or `coverage`; the error's `result` holds the
            measurements, as that of the next error does.
        NotPublishedError: the report could not be written.
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
    return run_evaluation(
        source,
        data,
        goal,
        scores=scores,
        reference=Data.named("reference", reference),
        threshold_data=Data.named("threshold_data", threshold_data, "validation"),
        num_bins=num_bins,
        output=output,
        save_scores=save_scores,
        no_examples=no_examples,
        on_result=on_result,
        arguments=arguments,
        **options,
    )


def run_evaluation(
    source: Any = None,
    data: Any = None,
    goal: ThresholdGoal | None = None,
    *,
    scores: Any = None,
    reference: Data,
    threshold_data: Data,
    num_bins: int,
    output: str | Path | None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    on_result: Callable[[RunResult], None] | None,
    arguments: Mapping[str, Any] | None,
    **options: Any,
) -> RunResult:
    """Do what `evaluate` does, for a goal that is already checked; the other arguments are those of `evaluate`."""
    _check_threshold_data(goal, threshold_data)
    with new_folder(output):
        opened, data = open_source(source, data, scores, num_bins, options)
        check_new_scores(save_scores, opened)
        if opened.is_main:
            check_room(output)
        measured_on, chosen_on, notes = samples_of_evaluation(opened, data, threshold_data, goal)
        if save_scores is not None:
            write_rows_or_shards(save_scores, measured_on.scores, opened)
        shows_examples = output is not None and not no_examples and _can_show_examples(opened, measured_on)
        result, earlier = _measure(opened, measured_on, chosen_on, reference, goal, num_bins, notes)
        if on_result is not None:
            on_result(result)
        if output is not None and opened.is_main:
            examples = _examples(opened, measured_on) if shows_examples else None
            write_results(output, result, earlier, arguments, examples, pictures=False)
        _check_reached(goal, result)
    return result


def _check_threshold_data(goal: ThresholdGoal | None, data: Data) -> None:
    """Raise `InputError` for a goal without data to choose thresholds on, and for such data without a goal."""
    if goal is not None and not data.is_given:
        raise InputError(data.argument, f"must be given with {goal.target}, got None")
    if goal is None and data.is_given:
        raise InputError(data.argument, "needs precision, recall, coverage, f1, or cost, got none of them")


def _measure(
    source: Source,
    measured_on: Samples,
    chosen_on: Samples,
    reference: Data,
    goal: ThresholdGoal | None,
    num_bins: int,
    notes: list[str],
) -> tuple[RunResult, RunResult | None]:
    """Measure samples, and choose thresholds on `chosen_on`. Return the result, and that of earlier data, if given."""
    measured = measured_on.scores
    sections: dict[str, Any] = {"subsets": group_section(measured, num_bins)}
    earlier = None
    if reference.is_given:
        earlier, sections["drift"] = compared_with(reference, source, measured, num_bins)
    before, _ = measured.measure(num_bins)
    if goal is not None:
        samples, names = chosen_on.scores.threshold_samples(), names_of(measured)
        metrics, _ = metrics_with_samples(measured, (before, None), num_bins)
        _, sections["thresholds"], threshold_notes = choose_thresholds(goal, samples, chosen_on, names, metrics)
        notes = [*notes, *chosen_on.scores.notes, *threshold_notes]
    notes = [*measured.notes, *(earlier.notes if earlier else []), *source.notes(None, {}), *notes]
    return run_result(source, measured, None, before, None, notes, **sections), earlier


def _check_reached(goal: ThresholdGoal | None, result: RunResult) -> None:
    """Raise `GoalNotReachedError` if no threshold of the confidence reaches the goal."""
    thresholds = result.thresholds
    if goal is None or thresholds is None or result.link == "sigmoid" or not thresholds.is_empty:
        return
    shows = f"must be one that {thresholds.chosen_on} shows with {100 * goal.confidence:g}% confidence"
    reason = thresholds.labels[0].reason
    raise GoalNotReachedError(f"{goal.target} {shows}, got {goal.value:g}: {reason}", result)


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
    return run_calibration(
        source,
        data,
        ThresholdGoal.checked(confidence, simultaneous, precision=precision, recall=recall, f1=f1, cost=cost),
        test=Data.named("test", test),
        scores=scores,
        objective=objective,
        method=method,
        per_label=per_label,
        new_prior=new_prior,
        num_bins=num_bins,
        output=output,
        push_to_hub=push_to_hub,
        private=private,
        save_scores=save_scores,
        no_examples=no_examples,
        publish_examples=publish_examples,
        on_result=on_result,
        arguments=arguments,
        **options,
    )


def run_calibration(
    source: Any = None,
    data: Any = None,
    goal: ThresholdGoal | None = None,
    *,
    test: Data,
    scores: Any = None,
    objective: str = "nll",
    method: str | None,
    per_label: bool,
    new_prior: float | Sequence[float] | None,
    num_bins: int,
    output: str | Path | None,
    push_to_hub: str | None = None,
    private: bool | None = None,
    save_scores: str | Path | None = None,
    no_examples: bool = False,
    publish_examples: bool = False,
    on_result: Callable[[RunResult], None] | None,
    arguments: Mapping[str, Any] | None,
    **options: Any,
) -> RunResult:
    """Do what `calibrate` does, for a goal that is already checked; the other arguments are those of `calibrate`."""
    _check_fit_arguments(objective, method, per_label, goal, new_prior)
    if private is not None and push_to_hub is None:
        raise InputError("push_to_hub", "must be given if private is, got None")
    if no_examples and publish_examples:
        raise InputError("publish_examples", "must not be given with no_examples, got both")
    saves = (output or push_to_hub) is not None
    with new_folder(output):
        opened, data = open_source(source, data, scores, num_bins, options)
        check_new_scores(save_scores, opened)
        opened.check_fit(method, per_label, goal, new_prior)
        fitted_on, measured_on, notes = samples_of_fit(opened, data, test, goal)
        method = method or opened.default_method(fitted_on.scores, objective, per_label)
        train_prior = None if new_prior is None else labeled_shares(opened, fitted_on, new_prior)
        if saves:
            opened.check_saving(new_prior, fitted_on)
        if output is not None and opened.is_main:
            check_room(output, opened.saved_bytes())
        repository = None if push_to_hub is None else new_repository(opened, push_to_hub, private)
        if save_scores is not None:
            write_rows_or_shards(save_scores, fitted_on.scores, opened)

        fit_options: Any = {"objective": objective, "per_label": per_label, "num_bins": num_bins}
        fit, prior = _fit(opened, fitted_on.scores, method, goal, train_prior, new_prior, fit_options)
        shows_examples = saves and not no_examples and _can_show_examples(opened, measured_on)
        run = FitRun(opened, fitted_on, measured_on, fit, prior, goal, num_bins)
        result, config_entries = _measure_fit(run, notes)
        outcome = None
        try:
            if saves and opened.is_main:
                outcome = opened.fold(fit, config_entries, result)
                result = _with_outcome(result, outcome)
        finally:
            if on_result is not None:
                on_result(result)
        if outcome is not None:
            with folder_to_save(output) as folder:
                with writing(folder, result):
                    opened.save(folder, fit, fitted_on, config_entries, outcome)
                    examples = _examples(opened, measured_on, fit.correction) if shows_examples else None
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


def _fit(
    source: Source,
    scores: ScoreSet,
    method: str,
    goal: ThresholdGoal | None,
    train_prior: np.ndarray | None,
    new_prior: Any,
    options: Mapping[str, Any],
) -> tuple[CalibrationFit, PriorSection | None]:
    """Fit the correction and, if a new prior is given, shift it from the prior of the scores' labels.

    `options` are arguments of `ScoreSet.fit`.
    """
    cross_fit = goal is not None or train_prior is not None or source.cross_fits_temperatures
    fit = scores.fit(method, cross_fit=cross_fit, **options)
    if train_prior is None:
        return fit, None
    fit, shift = shift_fit(fit, train_prior, new_prior, scores.link, scores.score_names)
    return fit, PriorSection(**shift)


@dataclass(frozen=True)
class FitRun:
    """A correction that was fitted to the scores of a source, and what is measured of it.

    Attributes:
        source: what gives the scores.
        fitted_on, measured_on: the samples that the correction is fitted to, and those that it is measured on.
        fit: the correction and its fit.
        prior: the shift to a new prior; None without one.
        goal: what thresholds of the corrected scores must reach; None without thresholds.
        num_bins: bins of the calibration errors.
    """

    source: Source
    fitted_on: Samples
    measured_on: Samples
    fit: CalibrationFit
    prior: PriorSection | None
    goal: ThresholdGoal | None
    num_bins: int


def _measure_fit(run: FitRun, notes: list[str]) -> tuple[RunResult, dict[str, Any]]:
    """Measure samples before and after the correction, and choose thresholds on those that it was fitted to.

    Return the result, and the entries of the config that hold for the corrected probabilities.
    """
    fit, fitted, measured = run.fit, run.fitted_on.scores, run.measured_on.scores
    metrics = measured.measure(run.num_bins, fit.correction)
    sections: dict[str, Any] = {"subsets": group_section(measured, run.num_bins, fit.correction), "prior": run.prior}
    sections["fit"] = FitSection(fitted.data_name, CrossFit(**fit.to_dict()) if fit.is_cross_fitted else None)
    notes = notes + (fit.notes(fitted.score_names) if fit.is_cross_fitted else [])
    thresholds = None
    if run.goal is not None:
        thresholds, sections["thresholds"], threshold_notes = _thresholds_of_fit(run, run.goal, metrics)
        notes += threshold_notes
    config_entries = _config_entries(run.prior, thresholds, names_of(fitted))
    notes = [*fitted.notes, *measured.notes, *notes, *run.source.notes(fit, config_entries)]
    return run_result(run.source, measured, fit.temperature, *metrics, notes, **sections), config_entries


def _config_entries(prior: PriorSection | None, thresholds: Thresholds | None, names: list[str]) -> dict[str, Any]:
    """Return the entries of the config that hold for the corrected probabilities."""
    entries: dict[str, Any] = {}
    if prior is not None:
        entries["prior_shift"] = {"train_prior": prior.train_prior, "new_prior": prior.new_prior}
    if thresholds is not None:
        entries["thresholds"] = thresholds.record(names)
    return entries


def _thresholds_of_fit(
    run: FitRun, goal: ThresholdGoal, metrics: tuple[CalibrationMetrics, CalibrationMetrics | None]
) -> tuple[Thresholds, ThresholdSection, list[str]]:
    """Choose thresholds for the probabilities that the saved source will give, corrected ones if it folds the fit.

    Return them, their description, and notes. `metrics` are those of `run.measured_on` before and after the
    correction; the description has the thresholds' precision and recall there, if these samples are test data.
    """
    fitted, correction = run.fitted_on.scores, run.fit.correction
    before, after = None, None
    if run.measured_on is not run.fitted_on:
        before, after = metrics_with_samples(run.measured_on.scores, metrics, run.num_bins, correction)
    names = names_of(fitted)
    if run.source.can_fold(correction):
        samples = run.fit.threshold_samples(fitted.collected().are_independent)
        return choose_thresholds(goal, samples, run.fitted_on, names, after)
    thresholds, section, notes = choose_thresholds(goal, fitted.threshold_samples(), run.fitted_on, names, before)
    note = "the thresholds are for the model's own probabilities, without the slope and the intercept"
    return thresholds, section, [note, *notes]


def _with_outcome(result: RunResult, outcome: FoldOutcome) -> RunResult:
    """Return a result that says what became of the correction; it says `folded` only of weights that lack it."""
    fit = replace(result.fit, folded=None if outcome.is_in_weights else False)
    return replace(result, fit=fit, notes=[*result.notes, *outcome.notes])


def _can_show_examples(source: Source, samples: Samples) -> bool:
    """Return whether the page can show these samples; if so, collect their scores in the pass that also measures."""
    can_show = source.has_independent_samples and are_few(samples.scores)
    if can_show:
        samples.scores.collected()
    return can_show


def _examples(source: Source, samples: Samples, correction: Correction | None = None) -> Examples:
    """Find samples for the page, ranked after the correction, if there is one."""
    examples = find_examples(samples.scores.collected(), partial(source.inputs, samples), correction)
    return replace(examples, hint=source.inputs_hint(samples))
