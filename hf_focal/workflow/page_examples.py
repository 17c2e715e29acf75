"""The samples that the page of a result shows."""

from dataclasses import replace
from functools import partial

from ..calibration import Correction
from ..reports.examples import Examples
from ..scores.analysis.examples import are_few, find_examples
from ..scores.sets.score_set import ScoreSet
from ..sources.source import BaseSource, Samples


def can_show_examples(source: BaseSource, scores: ScoreSet) -> bool:
    """Return whether the page can show some samples of scores, which need not be computed yet."""
    return source.has_independent_samples and are_few(scores)


def page_examples(source: BaseSource, samples: Samples, correction: Correction | None = None) -> Examples:
    """Find samples for the page, ranked after the correction, if there is one."""
    examples = find_examples(samples.scores.collected(), partial(source.inputs, samples), correction)
    return replace(examples, hint=source.inputs_hint(samples))
