"""The steps of `evaluate`, in their order, for every source of scores."""

from ..calibration.threshold_goal import ThresholdGoal
from ..errors import GoalNotReachedError
from ..reports import RunResult
from ..reports.output_folder import check_room, new_folder, write_results
from ..scores.sets.score_set import names_of
from ..sources.source import BaseSource, Samples
from .recorded_call import run_commands
from .results import (
    Sections,
    can_show_examples,
    choose_thresholds,
    compared_with,
    group_section,
    metrics_with_samples,
    page_examples,
    run_result,
)
from .samples import check_new_scores, samples_of_evaluation, write_rows_or_shards
from .settings import EvaluationSettings
from .source_arguments import SourceArguments


def run_evaluation(arguments: SourceArguments, settings: EvaluationSettings) -> RunResult:
    """Do what `evaluate` does."""
    output = settings.output
    with new_folder(output):
        source = arguments.open(settings.num_bins)
        check_new_scores(settings.save_scores, source)
        if source.is_main:
            check_room(output)
        measured_on, chosen_on, notes = samples_of_evaluation(source, arguments.data, settings)
        if settings.save_scores is not None:
            write_rows_or_shards(settings.save_scores, measured_on.scores, source)
        shows_examples = settings.shows_examples and can_show_examples(source, measured_on.scores)
        if shows_examples:
            measured_on.scores.collected()  # so that one pass gives the metrics and the examples
        result, earlier = _measure(source, measured_on, chosen_on, settings, notes)
        if settings.on_result is not None:
            settings.on_result(result)
        if output is not None and source.is_main:
            examples = page_examples(source, measured_on) if shows_examples else None
            write_results(output, result, earlier, run_commands(arguments, settings), examples, pictures=False)
        _check_reached(settings.goal, result)
    return result


def _measure(
    source: BaseSource, measured_on: Samples, chosen_on: Samples, settings: EvaluationSettings, notes: list[str]
) -> tuple[RunResult, RunResult | None]:
    """Measure samples, and choose thresholds on `chosen_on`. Return the result, and that of earlier data, if given."""
    measured, num_bins = measured_on.scores, settings.num_bins
    groups, earlier, drift, thresholds = group_section(measured, num_bins), None, None, None
    if settings.reference.is_given:
        earlier, drift = compared_with(settings.reference, source, measured, num_bins)
    before, _ = measured.measure(num_bins)
    if settings.goal is not None:
        samples, names = chosen_on.scores.threshold_samples(), names_of(measured)
        metrics, _ = metrics_with_samples(measured, (before, None), num_bins)
        _, thresholds, threshold_notes = choose_thresholds(settings.goal, samples, chosen_on, names, metrics)
        notes = [*notes, *chosen_on.scores.notes, *threshold_notes]
    notes = [*measured.notes, *(earlier.notes if earlier else []), *source.notes(None, {}), *notes]
    sections = Sections(subsets=groups, drift=drift, thresholds=thresholds)
    return run_result(source, measured, None, (before, None), sections, notes), earlier


def _check_reached(goal: ThresholdGoal | None, result: RunResult) -> None:
    """Raise `GoalNotReachedError` if no threshold of the confidence reaches the goal."""
    thresholds = result.thresholds
    if goal is None or thresholds is None or result.link == "sigmoid" or not thresholds.is_empty:
        return
    shows = f"must be one that {thresholds.chosen_on} shows with {100 * goal.confidence:g}% confidence"
    reason = thresholds.labels[0].reason
    raise GoalNotReachedError(f"{goal.target} {shows}, got {goal.value:g}: {reason}", result)
