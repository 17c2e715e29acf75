"""The samples that `evaluate` and `calibrate` read, what these must have, and what two data sets have in common."""

from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.prior_shift import class_shares
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError
from ..scores.new_files import check_new_file
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.scores_in_memory import check_has_classes
from ..sources.source import BaseSource, Data, Samples
from .settings import CalibrationSettings, EvaluationSettings


def read_samples(
    source: BaseSource, data: Data, goal: ThresholdGoal | None = None, like: ScoreSet | None = None
) -> Samples:
    """Return the scores of data, those of `like` being read before; raise `InputError` for a goal they cannot have."""
    samples = Samples(data, source.read(data, like))
    _check_goal(source, samples, goal)
    return samples


def samples_of_evaluation(
    source: BaseSource, data: Data, settings: EvaluationSettings
) -> tuple[Samples, Samples, list[str]]:
    """Return the samples to measure, those to choose thresholds on, and notes on what both have in common.

    They are the same ones without a goal.
    """
    measured_on = read_samples(source, data, settings.goal)
    if settings.goal is None:
        return measured_on, measured_on, []
    threshold_data = settings.threshold_data._replace(groups=False)
    chosen_on = read_samples(source, threshold_data, like=measured_on.scores)
    return measured_on, chosen_on, overlap_notes(measured_on, chosen_on, "threshold", "test")


def samples_of_fit(
    source: BaseSource, data: Data, settings: CalibrationSettings
) -> tuple[Samples, Samples, list[str]]:
    """Return the samples to fit a correction to, those to measure it on, and notes on what both have in common.

    They are the same ones without data for a test. Groups are measured, not fitted.
    """
    test = settings.test
    fitted_on = read_samples(source, data._replace(groups=not test.is_given))
    check_has_classes(data.argument, fitted_on.scores)
    measured_on, notes = fitted_on, []
    if test.is_given:
        measured_on = read_samples(source, test._replace(clusters=False), like=fitted_on.scores)
        notes = overlap_notes(fitted_on, measured_on, "test", "calibration")
    _check_goal(source, fitted_on, settings.goal)
    return fitted_on, measured_on, notes


def _check_goal(source: BaseSource, samples: Samples, goal: ThresholdGoal | None) -> None:
    if goal is None:
        return
    check_has_classes(samples.data.argument, samples.scores)
    if goal.target in ("recall", "f1", "cost") and samples.scores.link != "sigmoid":
        expected = "must not be given for scores with a softmax"
        raise InputError(goal.target, f"{expected}, got {goal.value}: it is for yes or no, and for several labels")
    if goal.target == "coverage" and samples.scores.link == "sigmoid":
        raise InputError("coverage", f"must not be given for {source.name!r}: it has no single confidence")


def overlap_notes(samples: Samples, others: Samples, kind: str, use: str) -> list[str]:
    """Return a list with a note if some inputs of `others` are also in `samples`, or else an empty list.

    The note calls `others` the `kind` samples and `samples` the `use` data. If all inputs of `others` are in
    `samples`, raise an `InputError` that names their arguments. Tables do not say what their rows were made from, so
    only the same table is refused.
    """
    expected = f"must hold samples that are not in {samples.data.argument}"
    if samples.scores.keys is None or others.scores.keys is None:
        if _is_same(samples.data.value, others.data.value):
            raise InputError(others.data.argument, f"{expected}, got the same table")
        return []
    known, size = set(samples.scores.keys), len(others.scores)
    shared = sum(key in known for key in others.scores.keys)
    if shared == size:
        raise InputError(others.data.argument, f"{expected}, got only samples that are")
    verb = "is" if shared == 1 else "are"
    return [f"{shared:,} of the {size:,} {kind} samples {verb} also in the {use} data"] if shared else []


def _is_same(table: Any, other: Any) -> bool:
    """Return whether two tables are one object, or one file."""
    if isinstance(table, str | Path) and isinstance(other, str | Path):
        return Path(table).resolve() == Path(other).resolve()
    return table is other


def labeled_shares(source: BaseSource, samples: Samples, new_prior: Any) -> np.ndarray:
    """Return the share of each class or label in the samples; raise `InputError` if `new_prior` cannot be one."""
    scores = samples.scores
    source.check_prior(scores, new_prior)
    return class_shares(scores.label_counts, scores.link, samples.data.argument, scores.score_names)


def check_new_scores(path: str | Path | None, source: BaseSource) -> None:
    """Raise `InputError`, before anything is measured, for an empty name or a parquet file that cannot be new."""
    if path is not None and not str(path):
        raise InputError("save_scores", "must be the name of a file or a folder, got ''")
    if path is not None and Path(path).suffix == ".parquet" and source.is_main:
        check_new_file("save_scores", path)


def write_rows_or_shards(path: str | Path, scores: ScoreSet, source: BaseSource) -> None:
    """Write the scores to a new parquet file, or to a folder of shards."""
    if Path(path).suffix == ".parquet":
        scores.save_rows(path, is_main=source.is_main)
    else:
        scores.save_shards(path)
