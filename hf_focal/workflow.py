"""The way from scores to a result and a calibrated model: `evaluate` and `calibrate`, whatever gives the scores."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np

from .calibration import CalibrationFit, Correction, Temperature
from .calibration.cross_fitting import METHODS
from .calibration.prior_shift import check_new_prior, shares_of, shift_fit
from .calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from .calibration.thresholds import Thresholds, ThresholdSamples, check_goals, choose_thresholds, threshold_details
from .metrics import CalibrationMetrics
from .reports import RunResult
from .reports.output_folder import (
    NotPublishedError,
    arguments_of,
    check_new_file,
    disk_errors,
    new_folder,
    write_results,
)
from .reports.result_sections import (
    CrossFit,
    DriftSection,
    FitSection,
    Groups,
    PartsSection,
    PriorSection,
    ThresholdSection,
)
from .scores.comparisons import drift, group_metrics
from .scores.saved_scores import write_scores
from .scores.score_statistics import ScoreStatistics
from .scores.score_table import check_has_classes
from .scores.streamed_scores import StreamedScores
from .sources.examples import find_examples, has_examples
from .sources.source import Data, Source, as_source, names_of
from .sources.table import TableSource
from .utils.json_values import read
from .validation import InputError


def evaluate(
    source: Any = None,
    data: Any = None,
    *,
    scores: Any = None,
    reference: Any = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
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
        precision, coverage, recall, confidence, simultaneous: as for `evaluate_model`.
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
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall, coverage=coverage)
    if goal and threshold_data is None:
        raise InputError("threshold_data", f"must be given with {next(iter(goal))}, got None")
    if threshold_data is not None and not goal:
        argument = _data("threshold_data", threshold_data).argument
        raise InputError(argument, "must come with precision, recall, or coverage, got it alone")
    with new_folder(output):
        opened, data = _opened(source, data, scores, num_bins, options)
        measured_on = _Samples(data, opened.read(data))
        measured = measured_on.scores
        _check_scores(opened, measured_on, goal)
        notes: list[str] = []
        if goal:
            data = _data("threshold_data", threshold_data, "validation")._replace(groups=False)
            chosen_on = _Samples(data, opened.read(data))
            notes += _overlap_notes(measured_on, chosen_on, "threshold", "test")
        _save_scores(save_scores, measured, opened)
        with_examples = output is not None and not no_examples and has_examples(opened, measured)
        if with_examples:
            measured.collected()  # in the pass that also measures
        sections: dict[str, Any] = {"parts": _parts(measured, num_bins)}
        earlier = None
        if reference is not None:
            earlier, sections["drift"] = _drift(opened, measured, reference, num_bins)
        before, _ = measured.measure(num_bins)
        if goal:
            held_out = chosen_on.scores
            thresholds = choose_thresholds(held_out.threshold_samples(), goal, confidence, simultaneous, measured.link)
            checked_on = before if before.has_samples else measured.collected().measure(num_bins)[0]
            sections["thresholds"] = _threshold_section(thresholds, held_out, names_of(measured), checked_on)
            notes += held_out.notes

        notes = [*measured.notes, *opened.notes(None, {}), *notes]
        result = _result(opened, measured, None, before, None, notes, **sections)
        if on_result is not None:
            on_result(result)
        if output is not None and opened.is_main:
            examples = find_examples(opened, *measured_on) if with_examples else None
            write_results(output, result, earlier, arguments, examples, pictures=False)
        if goal and measured.link == "softmax" and thresholds.values[0] is None:
            ((name, least),) = goal.items()
            shows = f"must be one that {held_out.source} shows with {100 * confidence:g}% confidence, got {least:g}"
            raise NotPublishedError(f"{name} {shows}: {thresholds.reasons[0]}", result)
    return result


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
        objective, method, per_label, precision, recall, confidence, simultaneous, new_prior: as for
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
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall)
    _check_fit_arguments(objective, method, per_label, goal, new_prior)
    if private is not None and push_to_hub is None:
        raise InputError("push_to_hub", "must be given if private is, got None")
    if no_examples and publish_examples:
        raise InputError("publish_examples", "must not be given with no_examples, got both")
    with new_folder(output):
        opened, data = _opened(source, data, scores, num_bins, options)
        opened.check_fit(method, per_label, goal, new_prior)
        fitted_on, measured_on, notes = _samples_of_fit(opened, data, test)
        _check_scores(opened, fitted_on, goal)
        fitted, measured = fitted_on.scores, measured_on.scores
        method = method or opened.default_method(fitted, objective, per_label)
        prior = None if new_prior is None else _prior_of_labels(opened, fitted_on, new_prior)
        saves = (output or push_to_hub) is not None
        if saves:
            opened.check_saving(new_prior)
        repository = _new_repository(opened, push_to_hub, private)
        _save_scores(save_scores, fitted, opened)

        cross_fit = bool(goal) or new_prior is not None or opened.cross_fits_temperatures
        fit = fitted.fit(method, objective=objective, per_label=per_label, num_bins=num_bins, cross_fit=cross_fit)
        sections: dict[str, Any] = {}
        promises: dict[str, Any] = {}  # what holds for the corrected probabilities
        if prior is not None:
            fit, shift = shift_fit(fit, prior, new_prior, fitted.link, fitted.score_names)
            sections["prior"] = PriorSection(**shift)
            promises["prior_shift"] = {name: shift[name] for name in ("train_prior", "new_prior")}
        sections["fit"] = FitSection(fitted.source, CrossFit(**fit.to_dict()) if fit.is_cross_fitted else None)
        notes += fit.notes(fitted.score_names) if fit.is_cross_fitted else []
        with_examples = saves and not no_examples and has_examples(opened, measured)
        if with_examples:
            measured.collected()  # in the pass that also measures

        before, after = measured.measure(num_bins, fit.correction)
        sections["parts"] = _parts(measured, num_bins, fit.correction)
        if goal:
            samples, threshold_notes = _samples_for_thresholds(opened, fit, fitted)
            thresholds = choose_thresholds(samples, goal, confidence, simultaneous, fitted.link)
            names, on_test = names_of(fitted), None
            if test is not None:
                sides = before, after
                if not before.has_samples:
                    sides = measured.collected().measure(num_bins, fit.correction)
                on_test = sides[0] if threshold_notes else sides[1]
            sections["thresholds"] = _threshold_section(thresholds, fitted, names, on_test)
            promises["thresholds"] = thresholds.record(names)
            notes += threshold_notes

        notes = [*fitted.notes, *measured.notes, *notes, *opened.notes(fit, promises)]
        result = _result(opened, measured, fit.temperature, before, after, notes, **sections)
        saves_here = saves and opened.is_main
        try:
            if saves_here:
                result = replace(result, fit=replace(result.fit, folded=opened.fold(fit, promises, result)))
        finally:
            if on_result is not None:
                on_result(result)
        if saves_here:
            with _folder_to_save(output) as folder:
                with disk_errors(folder, result):
                    opened.save(folder, fit, fitted, promises, result)
                    examples = find_examples(opened, *measured_on, fit.correction) if with_examples else None
                    write_results(folder, result, None, arguments, examples, publish_examples=publish_examples)
                    opened.write_card(folder, repository or folder.resolve().name, result, fitted_on, measured_on)
                if repository is not None:
                    result = _publish(folder, repository, private, result)
    return result


def _check_fit_arguments(
    objective: str, method: str | None, per_label: bool, goal: dict[str, float], new_prior: Any
) -> None:
    """Raise `InputError` for arguments of `calibrate` that exclude each other, whatever the source is."""
    check_objective(objective, STREAM_OBJECTIVES)
    if method not in (None, *METHODS, "auto"):
        raise InputError("method", f"must be one of {', '.join((*METHODS, 'auto'))}, got {method!r}")
    if per_label and (objective != "nll" or method not in (None, "temperature", "platt")):
        chosen = f"objective {objective!r} and method {method or 'temperature'!r}"
        expected = "must come with objective 'nll' and method 'temperature' or 'platt'"
        raise InputError("per_label", f"{expected}, got {chosen}")
    if goal and objective != "nll":
        raise InputError("objective", f"must be 'nll' with {next(iter(goal))}, got {objective!r}")
    check_new_prior(new_prior, objective, goal.get("precision"))


def _save_scores(path: str | Path | None, scores: Any, source: Source) -> None:
    if path is None:
        return
    if Path(path).suffix != ".parquet":
        if not hasattr(scores, "save_shards"):
            raise InputError("save_scores", f"must end in .parquet, got {str(path)!r}: a folder is for models")
        scores.save_shards(path)
        return
    check_new_file("save_scores", path)
    if isinstance(scores, StreamedScores | ScoreStatistics):
        raise InputError("save_scores", f"must not be given for a large table, got {str(path)!r}: it has the scores")
    collected = scores.collected()
    if source.is_main:
        write_scores(path, collected)


def _opened(source: Any, data: Any, scores: Any, num_bins: int, options: dict[str, Any]) -> tuple[Source, Data]:
    """Return the source, and the data that it is measured on or fitted to."""
    if scores is not None:
        if source is not None or data is not None:
            raise InputError("scores", "must not be given with a source and its data")
        return TableSource(**options), _data("scores", scores)
    for argument, value in (("source", source), ("data", data)):
        if value is None:
            raise InputError(argument, "must be given, or scores, got None")
    if isinstance(source, str | Path):
        from .sources.model_source import model_source  # imports Transformers

        task, batch_size, onnx = (options.pop(*of) for of in (("task", None), ("batch_size", 16), ("onnx", None)))
        return model_source(source, task, batch_size, num_bins, options, onnx), _data("data", data)
    if options:
        raise InputError(next(iter(options)), "must not be given for a source that is an object")
    return as_source(source), _data("data", data)


def _data(argument: str, value: Any, default_split: str = "test") -> Data:
    return value if isinstance(value, Data) else Data(argument, value, None, default_split)


class _Samples(NamedTuple):
    """Data of a user, and the scores that the source gives for them."""

    data: Data
    scores: Any


def _samples_of_fit(source: Source, data: Data, test: Any) -> tuple[_Samples, _Samples, list[str]]:
    """Return the samples to fit a correction to, those to measure it on, and notes on what both have in common.

    They are the same ones without `test`. Groups are measured, not fitted.
    """
    data = data._replace(groups=test is None)
    fitted_on = _Samples(data, source.read(data))
    check_has_classes(fitted_on.data.argument, fitted_on.scores)
    if test is None:
        return fitted_on, fitted_on, []
    test_data = _data("test", test)._replace(clusters=False)
    measured_on = _Samples(test_data, source.read(test_data))
    return fitted_on, measured_on, _overlap_notes(fitted_on, measured_on, "test", "calibration")


def _check_scores(source: Source, samples: _Samples, goal: dict[str, float]) -> None:
    """Raise `InputError` for a goal that the scores cannot have."""
    scores = samples.scores
    if goal:
        check_has_classes(samples.data.argument, scores)
    if "recall" in goal and scores.link != "sigmoid":
        raise InputError("recall", f"must not be given for scores with a softmax, got {goal['recall']}")
    if "coverage" in goal and scores.link == "sigmoid":
        raise InputError("coverage", f"must not be given for {source.name!r}: it has no single confidence")


def _overlap_notes(samples: _Samples, others: _Samples, kind: str, use: str) -> list[str]:
    """Return a list with a note if some inputs of `others` are also in `samples`, or else an empty list.

    The note calls `others` the `kind` samples and `samples` the `use` data. If all inputs of `others` are in
    `samples`, raise an `InputError` that names their arguments. Tables do not say what their rows were made from.
    """
    if not hasattr(samples.scores, "keys"):
        return []
    known, size = set(samples.scores.keys), len(others.scores)
    shared = sum(key in known for key in others.scores.keys)
    if shared == size:
        expected = f"must hold samples that are not in {samples.data.argument}, got only samples that are"
        raise InputError(others.data.argument, expected)
    return [f"{shared:,} of the {size:,} {kind} samples are also in the {use} data"] if shared else []


def _prior_of_labels(source: Source, samples: _Samples, new_prior: Any) -> np.ndarray:
    """Return the share of each class or label in the samples; raise `InputError` if `new_prior` cannot be one."""
    scores = samples.scores
    source.check_prior(scores, new_prior)
    return shares_of(scores.known_labels, scores.num_classes, scores.link, samples.data.argument, scores.score_names)


def _parts(scores: Any, num_bins: int, correction: Correction | None = None) -> PartsSection:
    """Return the calibration of each group, if the scores have groups, after a correction."""
    if scores.groups is None:
        return PartsSection()
    return PartsSection(groups=Groups(**group_metrics(scores.collected(), num_bins, correction)))


def _drift(source: Source, scores: Any, reference: Any, num_bins: int) -> tuple[RunResult, DriftSection]:
    """Return the result of earlier data, and how the calibration has changed since."""
    earlier = source.read(_data("reference", reference)._replace(groups=False, clusters=False))
    changes = drift(scores.collected(), earlier.collected())
    result = _result(source, earlier, None, earlier.measure(num_bins)[0], None, earlier.notes)
    return result, DriftSection(**changes, bins=result.pre_bins)


def _samples_for_thresholds(source: Source, fit: CalibrationFit, scores: Any) -> tuple[ThresholdSamples, list[str]]:
    """Return samples of what the saved source will give, and a note if these are not the corrected probabilities."""
    if source.folds(fit.correction):
        return fit.threshold_samples(scores.collected().are_independent), []
    note = "the thresholds are for the model's own probabilities, without the slope and the intercept"
    return scores.threshold_samples(), [note]


def _threshold_section(
    thresholds: Thresholds, chosen_on: Any, names: list[str], measured: CalibrationMetrics | None
) -> ThresholdSection:
    """Describe thresholds, with precision and recall on the measured data or, without these, on `chosen_on`."""
    return read(ThresholdSection, threshold_details(thresholds, names, chosen_on.source, measured), "thresholds")


@contextmanager
def _folder_to_save(output: str | Path | None) -> Iterator[Path]:
    """Give `output`, or a new folder until it is published; an error keeps it, so that it can be published later."""
    folder = Path(mkdtemp(prefix="hf-focal-")) if output is None else Path(output)
    yield folder
    if output is None:
        shutil.rmtree(folder)


def _result(
    source: Source,
    scores: Any,
    temperature: Temperature | None,
    before: CalibrationMetrics,
    after: CalibrationMetrics | None,
    notes: Sequence[str],
    **sections: Any,
) -> RunResult:
    if scores.confidences is not None:
        notes = [*notes, "confidences alone give no NLL, Brier score, or classwise error"]
    result = RunResult.of(
        source.title(scores),
        temperature,
        before,
        after,
        data=replace(source.data_section(scores), measured_on=scores.source),
        notes=[*dict.fromkeys(notes)],
        intervals=source.has_independent_samples and (before.has_samples or before.has_independent_sums),
        label_names=scores.score_names,
        **sections,
    )
    if scores.confidences is None:
        return result
    pre, post = (
        {name: value for name, value in side.items() if not np.isnan(value)} for side in (result.pre, result.post)
    )
    return replace(result, pre=pre, post=post)


def _new_repository(source: Source, push_to_hub: str | None, private: bool | None) -> str | None:
    """Create the repository, before anything is measured, and return its whole name on the main process."""
    if push_to_hub is None:
        return None
    if not source.is_published:
        raise InputError(
            "push_to_hub", f"must not be given for {source.name!r}, got {push_to_hub!r}: upload the folder"
        )
    if not source.is_main:
        return None
    from .hub.hub_publishing import create_repository
    from .tasks.input_errors import explained

    with explained():
        return create_repository(push_to_hub, private=private)


def _publish(folder: Path, repository: str, private: bool | None, result: RunResult) -> RunResult:
    from .hub.hub_publishing import HubError, publish

    try:
        url = str(publish(folder, repository, private=private).repo_url)
        return replace(result, data=replace(result.data, url=url))
    except HubError as error:
        raise NotPublishedError(str(error), result) from error


def evaluate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    onnx: str | Path | None = None,
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_dataset: str | None = None,
    threshold_split: str | None = None,
    reference: str | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Measure the calibration of a trained model, and return the result. With several processes, each must call this.

    Args:
        model: a Hub id or a folder.
        dataset: a file, a folder, or a Hub dataset, named as for `load_one_split`.
        split: the split of a dataset; "test" by default.
        onnx: an ONNX file that `model` was exported to. Its logits are measured, as ONNX Runtime computes them on the
            CPU, with the config and the tokenizer or other processor of `model`; needs ``pip install hf_focal[onnx]``.
        task: one of `TASKS`; needed only if the model's config does not determine the task.
        batch_size: samples per batch on each device.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        precision, coverage: give one of them to find the confidence threshold at which the model's answers have at
            least this precision or cover at least this share of the samples. For a model with a sigmoid for each
            label, or for the only logit, `precision` or `recall` chooses a threshold of each label. See
            `fit_thresholds`, whose clusters are those of `cluster_column` or, without one, of samples with the same
            (first) text or other input.
        confidence: the probability, over draws of the data for the threshold, with which the goal holds. Tokens of
            texts depend on each other and get no such guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        threshold_dataset, threshold_split: the data to choose the threshold on, by default `dataset` and "validation".
        reference: earlier data, named as `dataset`; the result then says whether the calibration has changed since,
            and the page shows both in one diagram.
        on_result: a function that every process calls with the result before anything is written.
        **options: the fields of `InputOptions`, and `save_scores` of `evaluate`.

    Raises:
        NotPublishedError: no threshold reaches `precision` or `coverage`, or the report could not be written; the
            error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import evaluate_model
        >>> evaluate_model("model", "test.csv").pre["num_samples"]
        60.0
    """
    arguments = arguments_of(evaluate_model, locals())
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall, coverage=coverage)
    measured = Data("dataset", dataset, split, "test")
    chosen_on = None
    if goal:
        chosen_on = Data("threshold_dataset", threshold_dataset or dataset, threshold_split, "validation")
        if _is_same(chosen_on, measured):
            raise InputError("threshold_dataset", "must hold different samples from dataset, got the same ones")
    elif alone := threshold_dataset or threshold_split:
        argument = "threshold_dataset" if threshold_dataset else "threshold_split"
        raise InputError(argument, f"must come with precision, recall, or coverage, got {alone!r} alone")
    return evaluate(
        model,
        measured,
        reference=None if reference is None else Data("reference", reference, None, "test"),
        precision=precision,
        coverage=coverage,
        recall=recall,
        confidence=confidence,
        simultaneous=simultaneous,
        threshold_data=chosen_on,
        num_bins=num_bins,
        output=output,
        on_result=on_result,
        arguments=arguments,
        **{"task": task, "batch_size": batch_size, "onnx": onnx, **options},
    )


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    objective: str = "nll",
    method: str | None = None,
    per_label: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    new_prior: float | Sequence[float] | None = None,
    onnx: str | Path | None = None,
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    push_to_hub: str | None = None,
    private: bool | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Fit a correction to data that a model was not trained on, save the corrected model, and return the result.

    With several processes, each must call this; only the main process writes files.

    Args:
        model, task, batch_size, num_bins, on_result, **options: as in `evaluate_model`.
        dataset, split: the data to fit the correction to; `split` is "validation" by default.
        test_dataset, test_split: the data to measure on. By default, `test_dataset` is `dataset`, and `test_split` is
            "test". But if neither is given, the correction is measured on the data that it is fitted to, so the
            results are optimistic.
        objective: what a temperature minimizes, "nll" or "ece".
        method: the correction: "none"; "temperature"; or, for classifiers, "auto", "bias", "vector", or "matrix"
            or, with a sigmoid for each label or for the only logit, "platt", which are fitted by NLL (see
            `fit_correction`). By default "auto" for a classifier of samples or words with one softmax and at least
            50 samples in `dataset`, if `objective` is "nll"; otherwise "temperature".
        per_label: for a multi-label model, fit the temperature, or the slope and the intercept, of each label, by NLL.
        precision, recall, confidence: give a precision or, with a sigmoid for each label, a recall to choose
            thresholds, which hold with this confidence (see `fit_thresholds`), on the data that the correction is
            fitted to, with the cross-fitted scores: each fold is corrected by a fit on the others. They are saved in
            the model's config, for `apply_thresholds`. Words of texts depend on each other and get no guarantee.
        simultaneous: let the guarantees of all labels hold together, rather than each by itself.
        new_prior: the share of positives, or of each label or class, in the data in which the model will be used, if
            it differs from that in `dataset`. The fitted correction is shifted to it (see `shift_prior`). A recall
            holds there, too; a precision does not, and must not be given.
        onnx: an ONNX file, as in `evaluate_model`, for example a quantized one. The correction is fitted to its
            logits, and `output` gets a ``model.onnx`` that computes corrected logits, in place of the model's weights
            and the model card.
        output: a new or empty folder for the model with the correction folded in, its tokenizer or other processor,
            the model card, ``temperature.json`` (if T was fitted), ``report``, and its page ``report.html``. If T
            cannot be folded into a language model, T is stored in the model's config, where
            `apply_calibrated_generation` finds it. A T that is fitted to the options of questions is stored in
            `config.option_calibration`, where `score_choices` and `evaluate_model` find it; the weights do not change.
        push_to_hub: the id of a Hub repository for these files, except for ``report.html``; it is created before
            anything is measured.
        private: whether a new repository is private; by default, the account's settings decide.

    Raises:
        NotPublishedError: the model could not be corrected, saved, or published. Files that were already written are
            kept, and the error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.

    Examples:
        >>> from hf_focal import calibrate_model
        >>> result = calibrate_model("model", "held_out.csv", test_dataset="test.csv", method="temperature")
        >>> result.temperature.num_samples
        60
    """
    arguments = arguments_of(calibrate_model, locals())
    if onnx is not None and push_to_hub is not None:
        raise InputError("push_to_hub", f"must not be given if onnx is given, got {push_to_hub!r}: upload the folder")
    fitted_on, test = Data("dataset", dataset, split, "validation"), None
    if test_dataset is not None or test_split is not None:
        test = Data("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
        if _is_same(fitted_on, test):
            raise InputError(
                "test_dataset", f"must hold different samples from dataset, got the same ones of {dataset!r}"
            )
    return calibrate(
        model,
        fitted_on,
        test=test,
        objective=objective,
        method=method,
        per_label=per_label,
        precision=precision,
        recall=recall,
        confidence=confidence,
        simultaneous=simultaneous,
        new_prior=new_prior,
        num_bins=num_bins,
        output=output,
        push_to_hub=push_to_hub,
        private=private,
        on_result=on_result,
        arguments=arguments,
        **{"task": task, "batch_size": batch_size, "onnx": onnx, **options},
    )


def _is_same(first: Data, second: Data) -> bool:
    """Return whether two names of datasets stand for the same samples."""
    from .tasks.dataset_loading import dataset_location
    from .tasks.input_errors import explained

    with explained():
        places = [dataset_location(of.argument, str(of.value), of.split, of.default_split) for of in (first, second)]
    return places[0] == places[1]


def evaluate_scores(
    scores: Any,
    *,
    reference: Any = None,
    precision: float | None = None,
    coverage: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    threshold_scores: Any = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Measure the calibration of scores with labels, whatever model they come from.

    Args:
        scores: a file or a table, as for `read_scores`; a folder, a pattern such as ``part-*.parquet``, or a list of
            files; a `datasets` IterableDataset; a DataFrame or LazyFrame of Polars; an Arrow dataset or reader; or the
            statistics that `measure` gave. A table with more than a million rows is read in batches.
        reference: an earlier table of the same model; the result then says whether the calibration has changed since,
            and the page shows both in one diagram. The subfolder ``reference`` has the earlier one's report.
        precision, coverage, recall, confidence, simultaneous: as for `evaluate_model`.
        threshold_scores: the table to choose the threshold on, which must not have the same samples as `scores`.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        on_result: a function that is called with the result before anything is written.
        **columns: arguments of `read_scores`: names of columns, and what they hold. With `group`, the result has the
            calibration of each group in `parts.groups`.

    Raises:
        InputError: the table or an argument is wrong; the message is one line.

    Examples:
        >>> from hf_focal import evaluate_scores
        >>> evaluate_scores({"probabilities": [[0.9, 0.1], [0.4, 0.6]], "label": [0, 1]}).pre["accuracy"]
        1.0
    """
    arguments = arguments_of(evaluate_scores, locals())
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall, coverage=coverage)
    if goal and threshold_scores is None:
        raise InputError("threshold_scores", f"must be given with {next(iter(goal))}, got None")
    return evaluate(
        scores=scores,
        reference=reference,
        precision=precision,
        coverage=coverage,
        recall=recall,
        confidence=confidence,
        simultaneous=simultaneous,
        threshold_data=None if threshold_scores is None else Data("threshold_scores", threshold_scores),
        num_bins=num_bins,
        output=output,
        on_result=on_result,
        arguments=arguments,
        **columns,
    )


def calibrate_scores(
    scores: Any,
    *,
    test_scores: Any = None,
    method: str = "auto",
    per_label: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    new_prior: float | Sequence[float] | None = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Fit a correction to scores with labels, measure it, and save it as ``correction.json``.

    Args:
        scores, num_bins, on_result, **columns: as in `evaluate_scores`.
        test_scores: the table to measure on; by default `scores`, so the results are optimistic. Only this table needs
            the column of `group`.
        method, per_label: as for `fit_correction`.
        precision, recall, confidence, simultaneous: as for `calibrate_model`. The thresholds are in
            ``correction.json``, for `apply_thresholds`.
        new_prior: as for `calibrate_model`.
        output: a new or empty folder for ``correction.json``, which `Correction.load` and `correct_file` read, the
            report, and the card, ``README.md``.

    Raises:
        InputError: as in `evaluate_scores`; or the scores are confidences, without the other classes'
            probabilities.

    Examples:
        >>> from hf_focal import calibrate_scores
        >>> result = calibrate_scores("scores.csv", test_scores="test_scores.csv", method="temperature")
        >>> result.temperature.value > 1  # the scores are overconfident
        True
    """
    arguments = arguments_of(calibrate_scores, locals())
    return calibrate(
        scores=scores,
        test=None if test_scores is None else Data("test_scores", test_scores),
        method=method,
        per_label=per_label,
        precision=precision,
        recall=recall,
        confidence=confidence,
        simultaneous=simultaneous,
        new_prior=new_prior,
        num_bins=num_bins,
        output=output,
        on_result=on_result,
        arguments=arguments,
        **columns,
    )
