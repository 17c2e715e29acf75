"""The steps of `calibrate`, in their order, for every source of scores."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..calibration import CalibrationFit, Temperature
from ..calibration.prior_shift import label_shares, shift_fit
from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import Thresholds
from ..metrics import CalibrationMetrics
from ..reports import RunResult
from ..reports.output_folder import check_room, new_folder, write_results, writing
from ..reports.results.result_sections import CrossFit, FitSection, PriorSection, ThresholdSection
from ..scores.sets.score_set import ScoreSet, names_of
from ..sources.source import BaseSource, FoldOutcome, Samples
from .publishing import folder_to_save, new_repository, publish_folder
from .recorded_call import run_commands
from .results import (
    Sections,
    can_show_examples,
    choose_thresholds,
    group_section,
    metrics_with_samples,
    page_examples,
    run_result,
)
from .samples import check_new_scores, labeled_shares, samples_of_fit, write_rows_or_shards
from .settings import CalibrationSettings
from .source_arguments import SourceArguments


def run_calibration(arguments: SourceArguments, settings: CalibrationSettings) -> RunResult:
    """Do what `calibrate` does."""
    output, saves, new_prior = settings.output, settings.saves, settings.new_prior
    with new_folder(output):
        source = arguments.open(settings.num_bins)
        check_new_scores(settings.save_scores, source)
        source.check_fit(settings.method, settings.per_label, settings.goal, new_prior)
        fitted_on, measured_on, notes = samples_of_fit(source, arguments.data, settings)
        train_prior = None if new_prior is None else labeled_shares(source, fitted_on, new_prior)
        if saves:
            source.check_saving(new_prior, fitted_on)
        if output is not None and source.is_main:
            check_room(output, source.saved_bytes())
        repository = None
        if settings.push_to_hub is not None:
            repository = new_repository(source, settings.push_to_hub, settings.private)
        if settings.save_scores is not None:
            write_rows_or_shards(settings.save_scores, fitted_on.scores, source)

        fit, temperature, prior = _fit(source, fitted_on.scores, settings, train_prior)
        if prior is not None and measured_on is not fitted_on:
            prior = replace(prior, test_prior=label_shares(measured_on.scores.label_counts).tolist())
        shows_examples = settings.shows_examples and can_show_examples(source, measured_on.scores)
        if shows_examples:
            measured_on.scores.collected()  # so that one pass gives the metrics and the examples
        run = FitRun(source, fitted_on, measured_on, fit, temperature, prior, settings.goal, settings.num_bins)
        result, config_entries = _measure_fit(run, notes)
        outcome = None
        try:
            if saves and source.is_main:
                outcome = source.fold(fit, config_entries, result)
                result = _with_outcome(result, outcome)
        finally:
            if settings.on_result is not None:
                settings.on_result(result)
        if outcome is not None:
            with folder_to_save(output) as folder:
                with writing(folder, result):
                    source.save(folder, fit, fitted_on, config_entries, outcome)
                    examples = page_examples(source, measured_on, fit.correction) if shows_examples else None
                    commands, publishes = run_commands(arguments, settings), settings.publish_examples
                    write_results(folder, result, None, commands, examples, publish_examples=publishes)
                    source.write_card(folder, repository or folder.resolve().name, result, fitted_on, measured_on)
                if repository is not None:
                    result = publish_folder(folder, repository, settings.private, result)
    return result


def _fit(
    source: BaseSource, scores: ScoreSet, settings: CalibrationSettings, train_prior: np.ndarray | None
) -> tuple[CalibrationFit, Temperature | None, PriorSection | None]:
    """Fit the correction and, if a new prior is given, shift it from `train_prior`, that of the scores' labels.

    Return the fit, its T before a shift, if it has one, and what a result says of the shift.
    """
    objective, per_label = settings.objective, settings.per_label
    fit = scores.fit(
        settings.method or source.default_method(scores, objective, per_label),
        objective=objective,
        per_label=per_label,
        num_bins=settings.num_bins,
        cross_fit=settings.goal is not None or train_prior is not None or source.cross_fits_temperatures,
    )
    if train_prior is None:
        return fit, fit.temperature, None
    shifted, shift = shift_fit(fit, train_prior, settings.new_prior, scores.link, scores.score_names)
    return shifted, fit.temperature, PriorSection(**shift)


@dataclass(frozen=True)
class FitRun:
    """A correction that was fitted to the scores of a source, and what is measured of it.

    Attributes:
        source: what gives the scores.
        fitted_on, measured_on: the samples that the correction is fitted to, and those that it is measured on.
        fit: the correction and its fit.
        temperature: the T of the fit, before a shift; None without one.
        prior: the shift to a new prior; None without one.
        goal: what thresholds of the corrected scores must reach; None without thresholds.
        num_bins: bins of the calibration errors.
    """

    source: BaseSource
    fitted_on: Samples
    measured_on: Samples
    fit: CalibrationFit
    temperature: Temperature | None
    prior: PriorSection | None
    goal: ThresholdGoal | None
    num_bins: int


def _measure_fit(run: FitRun, notes: list[str]) -> tuple[RunResult, dict[str, Any]]:
    """Measure samples before and after the correction, and choose thresholds on those that it was fitted to.

    Return the result, and the entries of the config that hold for the corrected probabilities.
    """
    fit, fitted, measured = run.fit, run.fitted_on.scores, run.measured_on.scores
    metrics = measured.measure(run.num_bins, fit.correction)
    sections = Sections(
        subsets=group_section(measured, run.num_bins, fit.correction),
        prior=run.prior,
        fit=FitSection(
            fitted.data_name,
            CrossFit(**fit.to_dict()) if fit.is_cross_fitted else None,
            is_in_sample=measured is fitted,
        ),
    )
    notes = notes + (fit.notes(fitted.score_names) if fit.is_cross_fitted else [])
    thresholds = None
    if run.goal is not None:
        thresholds, section, threshold_notes = _thresholds_of_fit(run, run.goal, metrics)
        sections = replace(sections, thresholds=section)
        notes += threshold_notes
    # Software finds the thresholds by the names in the config, also where reports have better ones.
    names = [*fitted.classes] if len(fitted.classes) == fitted.num_classes else names_of(fitted)
    config_entries = _config_entries(run.prior, thresholds, names)
    notes = [*fitted.notes, *measured.notes, *notes, *run.source.notes(fit, config_entries)]
    return run_result(run.source, measured, run.temperature, metrics, sections, notes), config_entries


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
