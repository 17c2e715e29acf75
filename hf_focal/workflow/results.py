"""The sections of a result, and the result, from what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..calibration import Correction, Temperature
from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import Thresholds, ThresholdSamples, notes_on_yes, threshold_details
from ..metrics import CalibrationMetrics
from ..reports import RunResult
from ..reports.examples import Examples
from ..reports.results.result_sections import (
    DriftSection,
    FitSection,
    Groups,
    PriorSection,
    SubsetSection,
    ThresholdSection,
)
from ..scores.analysis.comparisons import drift, group_metrics
from ..scores.analysis.example_selection import are_few, find_examples
from ..scores.sets.score_set import ScoreSet
from ..sources.source import BaseSource, Data, Samples
from ..utils.json_values import from_json


@dataclass(frozen=True, kw_only=True)
class Sections:
    """The sections of a result beside its metrics, as `RunResult` has them."""

    subsets: SubsetSection
    fit: FitSection = field(default_factory=FitSection)
    thresholds: ThresholdSection | None = None
    prior: PriorSection | None = None
    drift: DriftSection | None = None


def group_section(scores: ScoreSet, num_bins: int, correction: Correction | None = None) -> SubsetSection:
    """Return the calibration of each group, if the scores have groups, after a correction."""
    groups = {} if scores.groups is None else group_metrics(scores.collected(), num_bins, correction)
    return SubsetSection(groups=Groups(**groups)) if groups else SubsetSection()


def compared_with(
    reference: Data, source: BaseSource, scores: ScoreSet, num_bins: int
) -> tuple[RunResult, DriftSection]:
    """Return the result of earlier data, and how the calibration has changed since."""
    earlier = source.read(reference._replace(groups=False, clusters=False), scores)
    changes = drift(scores.collected(), earlier.collected())
    metrics = earlier.measure(num_bins)[0], None
    result = run_result(source, earlier, None, metrics, Sections(subsets=SubsetSection()), earlier.notes)
    return result, DriftSection(**changes, bins=result.pre_bins)


def metrics_with_samples(
    scores: ScoreSet,
    metrics: tuple[CalibrationMetrics, CalibrationMetrics | None],
    num_bins: int,
    correction: Correction | None = None,
) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
    """Return the metrics before and after a correction or, if these kept no samples, those of a uniform sample."""
    return metrics if metrics[0].has_samples else scores.collected().measure(num_bins, correction)


def choose_thresholds(
    goal: ThresholdGoal,
    log_odds_and_hits: ThresholdSamples,
    chosen_on: Samples,
    names: list[str],
    metrics: CalibrationMetrics | None,
) -> tuple[Thresholds, ThresholdSection, list[str]]:
    """Choose thresholds on the log-odds and hits of `chosen_on`, and return them, their description, and notes.

    The description has their precision and recall on the samples of `metrics` or, without these, on `chosen_on`.
    """
    thresholds = goal.choose(log_odds_and_hits, chosen_on.scores.link)
    measured = log_odds_and_hits
    if metrics is not None:
        measured = ThresholdSamples(*zip(*metrics.log_odds_and_hits(), strict=True))
    details = threshold_details(thresholds, names, chosen_on.scores.data_name, measured)
    section = from_json(ThresholdSection, details, "thresholds")
    notes = notes_on_yes(thresholds, log_odds_and_hits, names, "the samples that it was chosen on")
    if not notes and metrics is not None:
        notes = notes_on_yes(thresholds, measured, names, "the test samples")
    return thresholds, section, notes


def run_result(
    source: BaseSource,
    scores: ScoreSet,
    temperature: Temperature | None,
    metrics: tuple[CalibrationMetrics, CalibrationMetrics | None],
    sections: Sections,
    notes: Sequence[str],
) -> RunResult:
    """Return the result of scores; their `metrics` are those before and, with a fit, after a correction."""
    before, after = metrics
    has_only_confidences = scores.kind == "confidence"
    if has_only_confidences:
        notes = [*notes, "confidences alone give no NLL, Brier score, or classwise error"]
    result = RunResult.from_metrics(
        source.title(scores),
        temperature,
        before,
        after,
        intervals=source.has_independent_samples,
        label_names=scores.score_names,
        data=replace(source.data_section(scores), measured_on=scores.data_name),
        fit=sections.fit,
        subsets=sections.subsets,
        thresholds=sections.thresholds,
        prior=sections.prior,
        drift=sections.drift,
        notes=[*dict.fromkeys(notes)],
    )
    if result.is_of_answers and result.link == "sigmoid":
        # Else the error looks like the share of the answers that are wrong.
        note = "the error is how often it is wrong to accept the answers with a confidence above ½ and no others"
        result = replace(result, notes=[*result.notes, note])
    if not has_only_confidences:
        return result
    pre, post = (
        {name: value for name, value in side.items() if not np.isnan(value)} for side in (result.pre, result.post)
    )
    return replace(result, pre=pre, post=post)


def can_show_examples(source: BaseSource, scores: ScoreSet) -> bool:
    """Return whether the page can show some samples of scores, which need not be computed yet."""
    return source.has_independent_samples and are_few(scores)


def page_examples(source: BaseSource, samples: Samples, correction: Correction | None = None) -> Examples:
    """Find samples for the page, ranked after the correction, if there is one."""
    examples = find_examples(samples.scores.collected(), partial(source.inputs, samples), correction)
    return replace(examples, hint=source.inputs_hint(samples))
