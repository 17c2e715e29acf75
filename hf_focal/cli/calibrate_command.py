"""Calibration of models that are trained already: their figures, their temperature, and what is saved of both."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel

from ..calibration.calibrated_generation import apply_calibrated_generation
from ..calibration.folding import fold_temperature
from ..calibration.temperature import check_objective
from ..hub.hub_publishing import HubError, create_repository, publish
from ..hub.model_card import model_card
from ..hub.pipeline_tasks import PIPELINES
from ..reports import RunResult, write_report
from ..reports.text_summary import summary
from ..utils.atomic_write import full_disk
from ..utils.folder_lock import LOCK, lock_folder, unlock_folder
from .input_errors import InputError, explained, one_line
from .labelled_split import Place, place_of
from .model_inputs import row_keys
from .trained_model import TrainedModel, trained_model

__all__ = ["InputError", "NotPublishedError", "calibrate_model", "evaluate_model", "summary"]


class NotPublishedError(InputError):
    """The model was measured, and then could not be corrected, saved or pushed; `result` is what was measured."""

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
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Measure how calibrated a trained model is, as it is.

    On several processes all must call.

    Args:
        model: an id on the Hub or a folder.
        dataset: what `load_one_split` takes.
        split: of a dataset that is no file; "test" if absent.
        task: one of `TASKS`, where the model's config does not say which.
        batch_size: rows of a batch on a device.
        num_bins: bins of the calibration errors.
        output: a new folder for the report, as ``report``.
        on_result: called with the result before anything is written, by every process.
        **options: the fields of `DataOptions`.

    Returns:
        The result, of no temperature (`Temperature.unfitted`); ``details`` say what was measured.

    Raises:
        NotPublishedError: the report could not be written; the error has the result.
        InputError: what else the user can put right; its message is one line.
    """
    with _claimed(output), trained_model(model, task, batch_size, num_bins, options) as trained:
        source, rows = trained.load("dataset", dataset, split, "test")
        before, _ = trained.measure(trained.encode(source, rows))
        notes = [*trained.cut, *trained.notes(": measured as it is", ": measured without it")]
        result = trained.result(None, before, None, {"measured_on": source, "notes": notes})
        if on_result is not None:
            on_result(result)
        if output is not None and trained.args.process_index == 0:
            with _writing(output, result):
                write_report(Path(output) / "report", result)
    return result


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    objective: str = "ece",
    task: str | None = None,
    batch_size: int = 16,
    num_bins: int = 15,
    output: str | Path | None = None,
    push_to_hub: str | None = None,
    private: bool | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **options: Any,
) -> RunResult:
    """Fit the temperature of a trained model to rows that it was not trained on, and save the corrected model.

    On several processes all must call; the main one writes.

    Args:
        model, task, batch_size, num_bins, on_result, **options: as `evaluate_model` takes them.
        dataset, split: what the temperature is fitted to; the split "validation" if absent.
        test_dataset: what it is measured on, `dataset` if absent; test_split: of that, "test" if absent. Without both
            it is measured on what it was fitted to, which flatters it.
        objective: "ece" or "nll".
        output: a new folder for the model with its temperature folded in, its tokenizer or image processor, the
            model card, ``temperature.json`` and ``report``. A language model that T cannot be folded into has it in
            its config, for `apply_calibrated_generation`.
        push_to_hub: the id of a repository to publish that folder in; it is created before anything is measured.
        private: whether nobody else sees that repository, where it is new; what the account has by default if absent.

    Returns:
        The result before and after the temperature; ``details`` say what was measured.

    Raises:
        NotPublishedError: the model could not be corrected, saved or pushed. The folder is kept, and the error has the
            result.
        InputError: what else the user can put right; its message is one line.
    """
    with explained():
        check_objective(objective)
    if private is not None and push_to_hub is None:
        raise InputError(f"private must be absent where push_to_hub is, got {private}")
    calibration = ("dataset", dataset, split, "validation")
    test = calibration
    if test_dataset is not None or test_split is not None:
        test = ("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
    with explained():
        places = place_of(*calibration), place_of(*test)
    if test is not calibration and places[0] == places[1]:
        raise InputError(f"test_dataset must hold other rows than dataset, got the same ones of {dataset!r}")
    saves = output is not None or push_to_hub is not None
    with _claimed(output), trained_model(model, task, batch_size, num_bins, options) as trained:
        source, rows = trained.load(*calibration)
        measured_on, test_rows = (source, rows) if test is calibration else trained.load(*test)
        notes = [] if test is calibration else _check_apart(trained.task, rows, test_rows)
        if saves and not trained.generates:
            _check_foldable(trained.model)
        encoded = trained.encode(source, rows)
        encoded_test = encoded if test is calibration else trained.encode(measured_on, test_rows)
        repository = None
        if push_to_hub is not None and trained.args.process_index == 0:
            repository = _repository(push_to_hub, private)

        temperature = trained.fit(encoded, objective)
        before, after = trained.measure(encoded_test)
        product = trained.calibration.get("temperature", 1.0) * temperature.value
        notes += trained.cut
        notes += trained.notes(
            f"; the one fitted here comes on top, {product:.4g} together", "; the one here replaces it"
        )
        details = {"fitted_on": source, "measured_on": measured_on, "notes": notes}
        result = trained.result(temperature, before, after, details)
        saves = saves and trained.args.process_index == 0
        try:
            folded = saves and _correct(trained, result)
        finally:
            if on_result is not None:
                on_result(result)
        if saves:
            folder = Path(mkdtemp(prefix="hf-focal-")) if output is None else Path(output)
            with _writing(folder, result):
                _save(folder, trained, result, repository or folder.resolve().name, places, folded)
            if repository is not None:
                try:
                    result.details["url"] = str(publish(folder, repository, private=private).repo_url)
                except HubError as error:
                    raise NotPublishedError(str(error), result) from error
                if output is None:
                    shutil.rmtree(folder)
    return result


@contextmanager
def _claimed(output: str | Path | None) -> Iterator[None]:
    """Have a folder, which is new or empty and writable, to this process, or raise `InputError`."""
    if output is None:
        yield
        return
    folder = Path(output)
    with explained():
        if folder.exists() and not folder.is_dir():
            raise InputError(f"output must be a new folder, got the file {str(output)!r}")
        is_main = int(os.environ.get("RANK", 0)) == 0
        if is_main:
            lock_folder(folder, "output")
    try:
        if any(path.name != LOCK for path in folder.glob("*")):
            raise InputError(f"output must be a new folder, got {str(output)!r}, which is not empty")
        yield
    finally:
        if is_main:
            unlock_folder(folder)


@contextmanager
def _writing(folder: str | Path, result: RunResult) -> Iterator[None]:
    """Turn a full disk into a `NotPublishedError`."""
    try:
        yield
    except Exception as error:  # safetensors and tokenizers have types of their own
        cause = error if isinstance(error, OSError) else full_disk(error)
        if cause is None:
            raise
        message = f"output must be a folder with room for what is written, got {str(folder)!r}: {one_line(cause)}"
        raise NotPublishedError(message, result) from error


def _check_apart(task: str, rows: Dataset, test_rows: Dataset) -> list[str]:
    """A note where some of the test set's inputs are among those that T is fitted to; an error where all are."""
    known = set(row_keys(task, rows))
    shared = sum(key in known for key in row_keys(task, test_rows))
    if shared == len(test_rows):
        raise InputError("test_dataset must hold rows of its own, got only rows that dataset has too")
    return [f"{shared:,} of the {len(test_rows):,} test rows are among those that T is fitted to"] if shared else []


def _check_foldable(model: PreTrainedModel) -> None:
    """Raise, before anything is measured, where a classifier's head takes no temperature."""
    earlier = getattr(model.config, "calibration", None)
    try:
        fold_temperature(model, 1.0)  # changes no weight
    except (TypeError, ValueError) as error:
        raise InputError(f"the temperature cannot be folded into this model: {one_line(error)}") from error
    if earlier is None:
        del model.config.calibration
    else:
        model.config.calibration = earlier


def _correct(trained: TrainedModel, result: RunResult) -> bool:
    """Change the model by its temperature; notes may come in. Returns whether the weights have it, or else the config.

    Raises:
        NotPublishedError: a temperature that the weights' dtype cannot take.
    """
    notes = result.details["notes"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fold_temperature(trained.model, result.temperature)
        except ValueError as error:
            raise NotPublishedError(f"the temperature cannot be folded into this model: {error}", result) from error
        except TypeError as error:
            if not trained.generates:
                raise
            apply_calibrated_generation(trained.model, result.temperature)
            notes.append(
                f"T is in the config, not in the weights ({one_line(error)}): call "
                "hf_focal.apply_calibrated_generation(model) on what is loaded"
            )
            return False
    notes += [str(warning.message) for warning in caught if "rounding" in str(warning.message)]
    return True


def _save(
    folder: Path, trained: TrainedModel, result: RunResult, name: str, places: tuple[Place, Place], folded: bool
) -> None:
    """Write the corrected model and what belongs to it; the report's JSON last.

    Args:
        folder: where. trained: the model. result: of its temperature.
        name: what the card calls the model. places: of the rows that T was fitted to, and that it is measured on.
        folded: whether the weights have the temperature.
    """
    model, temperature = trained.model, result.temperature
    model.save_pretrained(folder)
    trained.processor.save_pretrained(folder)
    temperature.save(folder / "temperature.json")
    fitted_on, measured_on = places
    # The card names one dataset; of two files their kind says more.
    dataset = fitted_on.path if fitted_on.path == measured_on.path else None
    card = model_card(
        result,
        model_name=name,
        task=PIPELINES.get(trained.task, trained.task),
        base_model=trained.name,
        dataset=dataset,
        figures=[f"report/reliability_{when}.png" for when in ("before", "after")],
        folded=folded,
        fine_tuned=False,
        own_code=type(model).__module__.startswith("hf_focal."),
        fitted_on=fitted_on.split or "validation",
        measured_on=measured_on.split or ("validation" if dataset else "test"),
        test_dataset=measured_on.path,
        same_rows=measured_on == fitted_on,
    )
    card.save(folder / "README.md")
    write_report(folder / "report", result)


def _repository(repo_id: str, private: bool | None) -> str:
    """The whole id of the repository, which is there afterwards."""
    try:
        return create_repository(repo_id, private=private)
    except HubError as error:
        raise InputError(str(error)) from error
