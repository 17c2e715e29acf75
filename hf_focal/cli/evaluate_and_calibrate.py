"""Evaluation and calibration of trained models, and saving and publishing of the results."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from datasets import Dataset

from ..calibration import apply_calibrated_generation, fold_calibration, fold_temperature
from ..calibration.cross_fitting import METHODS
from ..calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from ..hub.hub_publishing import HubError, create_repository, publish
from ..hub.model_card import model_card, registering_package
from ..hub.pipeline_tasks import PIPELINES
from ..metrics import CalibrationMetrics
from ..reports import RunResult, write_report
from ..reports.report_folder import diagrams_of
from ..trainer.head_kinds import MULTI_LABEL
from ..utils.atomic_write import full_disk
from ..utils.folder_lock import LOCK, lock_folder, unlock_folder
from .dataset_loading import DatasetLocation, dataset_location
from .input_errors import InputError, explained, one_line
from .labeled_inputs import input_keys
from .model_loading import TrainedModel
from .multiple_choice import ChoiceModel


class NotPublishedError(InputError):
    """A measured model could not be corrected, saved, or published. `result` holds the measurements."""

    def __init__(self, message: str, result: RunResult):
        super().__init__(message)
        self.result = result


def evaluate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    precision: float | None = None,
    coverage: float | None = None,
    threshold_dataset: str | None = None,
    threshold_split: str | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Measure the calibration of a trained model, and return the result. With several processes, each must call this.

    Args:
        model: a Hub id or a folder.
        dataset: a file, a folder, or a Hub dataset, named as for `load_one_split`.
        split: the split of a dataset; "test" by default.
        task: one of `TASKS`; needed only if the model's config does not determine the task.
        batch_size: samples per batch on each device.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``.
        precision, coverage: give one of them to find the confidence threshold at which the model's answers have at
            least this precision or cover at least this share of the samples; see `CalibrationMetrics.threshold_for`.
        threshold_dataset, threshold_split: the data to choose the threshold on, by default `dataset` and "validation".
        on_result: a function that every process calls with the result before anything is written.
        **options: the fields of `InputOptions`.

    Raises:
        NotPublishedError: no threshold reaches `precision` or `coverage`, or the report could not be written; the
            error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.
    """
    wants_threshold = (precision, coverage) != (None, None)
    threshold_data = ("threshold_dataset", threshold_dataset or dataset, threshold_split, "validation")
    if wants_threshold:
        with explained():
            if dataset_location(*threshold_data) == dataset_location("dataset", dataset, split, "test"):
                raise InputError("threshold_dataset must hold different samples from dataset, got the same ones")
    elif given := threshold_dataset or threshold_split:
        argument = "threshold_dataset" if threshold_dataset else "threshold_split"
        raise InputError(f"{argument} must come with precision or coverage, got {given!r} alone")
    with _new_folder(output):
        trained = _trained(model, task, batch_size, num_bins, options)
        if wants_threshold and trained.config.problem_type == MULTI_LABEL:
            raise InputError(
                f"precision and coverage must be absent for {trained.name!r}: its labels have no single confidence"
            )
        source, samples = trained.load("dataset", dataset, split, "test")
        details: dict[str, Any] = {}
        unreached = ""
        notes = trained.calibration_notes("; it is evaluated as it is", "; it is evaluated without T")
        if wants_threshold:
            chosen_on, held_out = trained.load(*threshold_data)
            notes += _overlap_notes(trained.task, samples, held_out, "threshold", "test")
        before, _ = trained.measure(trained.encode(source, samples))
        if wants_threshold:
            chosen, _ = trained.measure(trained.encode(chosen_on, held_out))
            try:
                threshold = chosen.threshold_for(precision=precision, coverage=coverage)
            except ValueError as error:
                unreached = f"{one_line(error)}{_reachable(chosen, precision)}"
            else:
                reached = threshold.measure(before)
                details["threshold"] = asdict(threshold) | {
                    "chosen_on": chosen_on,
                    "test_coverage": reached.coverage,
                    "test_precision": reached.precision,
                }
        notes = [*trained.data_notes, *notes]
        result = trained.result(None, before, None, measured_on=source, notes=notes, **details)
        if on_result is not None:
            on_result(result)
        if output is not None and trained.args.process_index == 0:
            with _disk_errors(output, result):
                write_report(Path(output) / "report", result)
        if unreached:
            raise NotPublishedError(unreached, result)
    return result


def _reachable(metrics: CalibrationMetrics, precision: float | None) -> str:
    """Say which precision below `precision` a threshold can reach, and at what coverage; "" if it can reach none."""
    best, low, high = None, 0.0, precision or 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        try:
            best, low = metrics.threshold_for(precision=middle), middle
        except ValueError:
            high = middle
    if best is None:
        return ""
    return (
        f"; a precision of {100 * best.bound:.1f}% can be shown, at a coverage of {100 * best.coverage:.1f}% "
        f"(confidence {best.value:.3g} and above)"
    )


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    objective: str = "nll",
    calibration: str = "temperature",
    per_label: bool = False,
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
        calibration: the correction: "temperature"; or, for classifiers, "vector", "matrix", or "auto", which are
            fitted by NLL (see `fit_calibration`).
        per_label: for a multi-label model, fit one temperature per label, by NLL.
        output: a new or empty folder for the model with the correction folded in, its tokenizer or other processor,
            the model card, ``temperature.json`` (if T was fitted), and ``report``. If T cannot be folded into a
            language model, T is stored in the model's config, where `apply_calibrated_generation` finds it.
        push_to_hub: the id of a Hub repository to publish these files in; it is created before anything is measured.
        private: whether a new repository is private; by default, the account's settings decide.

    Raises:
        NotPublishedError: the model could not be corrected, saved, or published. Files that were already written are
            kept, and the error's `result` holds the measurements.
        InputError: any other error that the user can correct; its message is one line.
    """
    with explained():
        check_objective(objective, STREAM_OBJECTIVES)
        if calibration not in (*METHODS, "auto"):
            raise InputError(f"calibration must be one of {', '.join((*METHODS, 'auto'))}, got {calibration!r}")
        if per_label and (objective, calibration) != ("nll", "temperature"):
            given = f"objective {objective!r} and calibration {calibration!r}"
            raise InputError(f"per_label must come with objective 'nll' and calibration 'temperature', got {given}")
    if private is not None and push_to_hub is None:
        raise InputError("push_to_hub must be given if private is, got None")
    fit_data = test_data = ("dataset", dataset, split, "validation")
    if test_dataset is not None or test_split is not None:
        test_data = ("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
    has_test = test_data is not fit_data
    with explained():
        locations = dataset_location(*fit_data), dataset_location(*test_data)
    if has_test and locations[0] == locations[1]:
        raise InputError(f"test_dataset must hold different samples from dataset, got the same ones of {dataset!r}")
    with _new_folder(output):
        trained = _trained(model, task, batch_size, num_bins, options)
        trained.check_fit(calibration, per_label)
        is_main, saves = trained.args.process_index == 0, (output or push_to_hub) is not None
        source, samples = trained.load(*fit_data)
        test_source, test_samples = trained.load(*test_data) if has_test else (source, samples)
        notes = _overlap_notes(trained.task, samples, test_samples, "test", "calibration") if has_test else []
        if saves and trained.task == "multiple-choice" and trained.options.score == "text":
            raise InputError(
                "output and push_to_hub must be absent if score is 'text': no weights can hold the T of texts"
            )
        if saves and not trained.generates:
            _check_foldable(trained)
        encoded = trained.encode(source, samples)
        encoded_test = trained.encode(test_source, test_samples) if has_test else encoded
        repository = None
        if push_to_hub is not None and is_main:
            with explained():
                repository = create_repository(push_to_hub, private=private)

        temperature = trained.fit(encoded, objective, calibration, per_label)
        before, after = trained.measure(encoded_test)
        fit = trained.trainer.calibration_fit
        details = {} if fit is None else {"calibration": fit.to_dict()}
        product = trained.calibration.get("temperature", 1.0) * (temperature.value if temperature else 1.0)
        on_top = f"; the one fitted here comes on top, {product:.4g} together"
        notes += [*trained.data_notes, *trained.calibration_notes(on_top, "; the one here replaces it")]
        result = trained.result(
            temperature, before, after, fitted_on=source, measured_on=test_source, notes=notes, **details
        )
        try:
            folded = saves and is_main and _correct(trained, result)
        finally:
            if on_result is not None:
                on_result(result)
        if saves and is_main:
            folder = Path(mkdtemp(prefix="hf-focal-")) if output is None else Path(output)
            with _disk_errors(folder, result):
                _save(folder, trained, result, repository or folder.resolve().name, locations, folded)
            if repository is not None:
                try:
                    result.details["url"] = str(publish(folder, repository, private=private).repo_url)
                except HubError as error:
                    raise NotPublishedError(str(error), result) from error
                if output is None:
                    shutil.rmtree(folder)
    return result


def _trained(*arguments: Any) -> TrainedModel:
    trained = TrainedModel(*arguments)
    scores_options = trained.options.question_column is not None and trained.task != "multiple-choice-head"
    return ChoiceModel(*arguments) if scores_options else trained


@contextmanager
def _new_folder(output: str | Path | None) -> Iterator[None]:
    """Create `output`, and lock it during the block; raise `InputError` if the folder is not empty or not writable."""
    if output is None:
        yield
        return
    folder, is_main = Path(output), int(os.environ.get("RANK", 0)) == 0
    is_new = not os.path.exists(output)  # `Path.exists` raises for a name that is too long
    with explained():
        if folder.exists() and not folder.is_dir():
            raise InputError(f"output must be a new folder, got the file {str(output)!r}")
        if is_main:
            lock_folder(folder, "output")
    try:
        if any(path.name != LOCK for path in folder.glob("*")):
            raise InputError(f"output must be a new folder, got {str(output)!r}, which is not empty")
        yield
    finally:
        if is_main:
            unlock_folder(folder)
            if is_new and not any(folder.iterdir()):  # the command failed before it wrote anything
                folder.rmdir()


@contextmanager
def _disk_errors(folder: str | Path, result: RunResult) -> Iterator[None]:
    """Turn disk errors, such as a full disk, into a `NotPublishedError`."""
    try:
        yield
    except Exception as error:  # safetensors and tokenizers raise types of their own
        cause = error if isinstance(error, OSError) else full_disk(error)
        if cause is None:
            raise
        message = f"output must be a folder with room for the model and the report, got {str(folder)!r}"
        raise NotPublishedError(f"{message}: {one_line(cause)}", result) from error


def _overlap_notes(task: str, samples: Dataset, others: Dataset, kind: str, use: str) -> list[str]:
    """Return a list with a note if some inputs of `others` are also in `samples`, or else an empty list.

    The note calls `others` the `kind` samples and `samples` the `use` data. If all inputs of `others` are in
    `samples`, raise an `InputError` that names the argument "<kind>_dataset".
    """
    known = set(input_keys(task, samples))
    shared = sum(key in known for key in input_keys(task, others))
    if shared == len(others):
        raise InputError(f"{kind}_dataset must hold samples that dataset does not have, got only shared ones")
    return [f"{shared:,} of the {len(others):,} {kind} samples are also in the {use} data"] if shared else []


def _check_foldable(trained: TrainedModel) -> None:
    """Raise `InputError` if temperatures cannot be folded into this classifier's head; the weights do not change."""
    try:
        fold_temperature(trained.model, 1.0)  # changes no weight
    except (TypeError, ValueError) as error:
        raise InputError(f"the temperature cannot be folded into this model: {one_line(error)}") from error
    if trained.calibration:
        trained.model.config.calibration = trained.calibration
    else:
        del trained.model.config.calibration


def _correct(trained: TrainedModel, result: RunResult) -> bool:
    """Fold the fitted correction into the weights, and return True; or store T in the config, and return False.

    T is stored in the config of a language model into which it cannot be folded. Raises `NotPublishedError` if the
    dtype of the weights cannot represent the corrected weights.
    """
    notes = result.details["notes"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fold_calibration(trained.model, trained.trainer.correction or 1.0)
        except ValueError as error:
            raise NotPublishedError(f"the temperature cannot be folded into this model: {error}", result) from error
        except TypeError as error:
            if not trained.generates:
                raise
            apply_calibrated_generation(trained.model, result.temperature)
            notes.append(
                f"T is in the config, not in the weights ({one_line(error)}): call "
                "hf_focal.apply_calibrated_generation(model) after loading the model"
            )
            return False
    notes += [str(warning.message) for warning in caught if "rounding" in str(warning.message)]
    return True


def _save(
    folder: Path,
    trained: TrainedModel,
    result: RunResult,
    name: str,
    locations: tuple[DatasetLocation, DatasetLocation],
    folded: bool,
) -> None:
    """Save the corrected model, its temperature, its report, and its model card, which calls the model `name`.

    `locations` are the locations of the data for fitting the correction and of the data for measuring it.
    `folded` says whether the correction is in the model's weights.
    """
    trained.model.save_pretrained(folder)
    trained.processor.save_pretrained(folder)
    if result.temperature.is_fitted:
        result.temperature.save(folder / "temperature.json")
    fitted_on, measured_on = locations
    # A model card can name only one dataset.
    dataset = fitted_on.path if fitted_on.path == measured_on.path else None
    card = model_card(
        result,
        model_name=name,
        task=PIPELINES.get(trained.task, trained.task),
        base_model=trained.name,
        dataset=dataset,
        figures=[f"report/{name}" for name in diagrams_of(result)],
        folded=folded,
        fine_tuned=False,
        own_code=registering_package(trained.model),
        fitted_on=fitted_on.split or fitted_on.path,
        measured_on=measured_on.split or ("validation" if dataset else "test"),
        test_dataset=measured_on.path,
        same_rows=measured_on == fitted_on,
    )
    card.save(folder / "README.md")
    write_report(folder / "report", result)
