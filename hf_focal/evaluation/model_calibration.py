"""Calibration of trained models, and saving and publishing of the corrected ones."""

import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from ..calibration import Correction, apply_calibrated_generation, fold_correction
from ..calibration.corrections import calibration_record
from ..calibration.cross_fitting import METHODS
from ..calibration.folding import RoundingWarning, fold, has_bias
from ..calibration.promises import drop_promises
from ..calibration.temperature_grid import STREAM_OBJECTIVES, check_objective
from ..hub.cross_encoder_folder import copy_settings
from ..hub.hub_publishing import HubError, create_repository, publish
from ..hub.model_card import model_card, registering_package
from ..recommendation import default_correction
from ..reports import RunResult
from ..reports.report_folder import diagrams_of
from ..tasks.dataset_loading import DatasetLocation, dataset_location
from ..tasks.input_errors import explained, one_line
from ..tasks.task import MULTI_LABEL
from ..trainer.state_and_saving import label_names_of
from ..utils.atomic_write import write_whole
from ..validation import InputError
from .choice_model import ChoiceModel, load_trained
from .chosen_thresholds import check_goals, choose_thresholds, described
from .new_prior import check_new_prior
from .output_folder import NotPublishedError, arguments_of, disk_errors, new_folder, write_results
from .trained_model import TrainedModel, overlap_notes


def calibrate_model(
    model: str | Path,
    dataset: str,
    split: str | None = None,
    *,
    test_dataset: str | None = None,
    test_split: str | None = None,
    objective: str = "nll",
    calibration: str | None = None,
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
        calibration: the correction: "none"; "temperature"; or, for classifiers, "auto", "bias", "vector", or "matrix"
            or, with a sigmoid for each label or for the only logit, "platt", which are fitted by NLL (see
            `fit_correction`). By default "auto" for a classifier of whole samples with one softmax and at least 50
            samples in `dataset`, if `objective` is "nll"; otherwise "temperature".
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
    """
    arguments = arguments_of(calibrate_model, locals())
    with explained():
        check_objective(objective, STREAM_OBJECTIVES)
        if calibration not in (None, *METHODS, "auto"):
            raise InputError("calibration", f"must be one of {', '.join((*METHODS, 'auto'))}, got {calibration!r}")
        if per_label and (objective != "nll" or calibration not in (None, "temperature", "platt")):
            given = f"objective {objective!r} and calibration {calibration or 'temperature'!r}"
            expected = "must come with objective 'nll' and calibration 'temperature' or 'platt'"
            raise InputError("per_label", f"{expected}, got {given}")
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall)
    if goal and objective != "nll":
        raise InputError("objective", f"must be 'nll' with {next(iter(goal))}, got {objective!r}")
    check_new_prior(new_prior, objective, precision)
    if onnx is not None and push_to_hub is not None:
        raise InputError("push_to_hub", f"must not be given if onnx is given, got {push_to_hub!r}: upload the folder")
    if private is not None and push_to_hub is None:
        raise InputError("push_to_hub", "must be given if private is, got None")
    fit_data = test_data = ("dataset", dataset, split, "validation")
    if test_dataset is not None or test_split is not None:
        test_data = ("test_dataset", dataset if test_dataset is None else test_dataset, test_split, "test")
    has_test = test_data is not fit_data
    with explained():
        locations = dataset_location(*fit_data), dataset_location(*test_data)
    if has_test and locations[0] == locations[1]:
        raise InputError("test_dataset", f"must hold different samples from dataset, got the same ones of {dataset!r}")
    with new_folder(output):
        trained = load_trained(model, task, batch_size, num_bins, options, onnx)
        trained.check_fit(calibration or "temperature", per_label)
        if recall is not None and trained.config.problem_type != MULTI_LABEL:
            raise InputError("recall", f"must not be given for {trained.name!r}, which has no sigmoid for each label")
        if precision is not None and not trained.task.takes_affine:
            raise InputError("precision", f"must not be given for {trained.name!r}, of the task {trained.task.name}")
        if new_prior is not None:
            trained.check_shift(new_prior)
        is_main, saves = trained.args.process_index == 0, (output or push_to_hub) is not None
        source, samples = trained.load(*fit_data)
        if calibration is None:
            has_choice = trained.takes_affine and trained.link == "softmax" and objective == "nll" and not per_label
            calibration = default_correction(has_choice, len(samples))
        test_source, test_samples = trained.load(*test_data) if has_test else (source, samples)
        notes = overlap_notes(trained.task, samples, test_samples, "test", "calibration") if has_test else []
        if new_prior is not None:
            train_prior = trained.shares_of(samples)
        if saves and not trained.task.generates and not isinstance(trained, ChoiceModel):
            _check_foldable(trained)
        if saves and new_prior is not None and not has_bias(trained.model) and trained.link == "softmax":
            raise InputError(
                "new_prior", f"must not be given for {trained.name!r}, whose head has no bias for the shift"
            )
        encoded = trained.encode(source, samples)
        encoded_test = trained.encode(test_source, test_samples) if has_test else encoded
        repository = None
        if push_to_hub is not None and is_main:
            with explained():
                repository = create_repository(push_to_hub, private=private)

        clusters, are_independent, of_clusters = trained.clusters_of(source, samples)
        cross_fit = new_prior is not None or bool(goal)
        temperature = trained.fit(encoded, objective, calibration, per_label, cross_fit, clusters)
        details: dict[str, Any] = {}
        promises: dict[str, Any] = {}  # for the config of the corrected model
        if new_prior is not None:
            temperature = None
            details["prior_shift"] = trained.shift(train_prior, new_prior)
        before, after = trained.measure(encoded_test)
        fit = trained.trainer.calibration_fit
        if fit is not None:
            details["calibration"] = fit.to_dict()
            notes += [*of_clusters, *fit.notes([*trained.config.id2label.values()])]
        if goal:
            if trained.folds:
                assert fit is not None
                own, measured = fit.threshold_samples(are_independent), after or before
            else:  # the saved model gives uncorrected probabilities
                own, measured = trained.hits(encoded, clusters, are_independent), before
                notes.append(
                    "the thresholds are for the model's own probabilities, without the slope and the intercept"
                )
            thresholds = choose_thresholds(own, goal, confidence, simultaneous, trained.link)
            names = label_names_of(trained.model)
            details["thresholds"] = described(thresholds, names, source, measured if has_test else None)
            promises["thresholds"] = thresholds.record(names)
        if new_prior is not None:
            promises["prior_shift"] = {name: details["prior_shift"][name] for name in ("train_prior", "new_prior")}
        if isinstance(trained, ChoiceModel):
            promises["option_calibration"] = trained.option_calibration()
        removed = [name for name in drop_promises(trained.model.config, quiet=True) if name not in promises]
        if "thresholds" in removed:
            notes.append(
                "the thresholds in the model's config are removed: give precision or recall to choose new ones"
            )
        if "option_calibration" in removed:
            notes.append("the T for options in the model's config is removed: fit it again, to the corrected model")
        on_top, earlier = "; the correction fitted here comes on top", trained.calibration.get("temperature")
        if temperature is not None and not temperature.values and earlier is not None:
            on_top += f", T = {earlier * temperature.value:.4g} together"
        notes += [*trained.data_notes, *trained.calibration_notes(on_top, "; the one here replaces it")]
        result = trained.result(
            temperature, before, after, fitted_on=source, measured_on=test_source, notes=notes, **details
        )
        try:
            folded = saves and is_main and _correct(trained, result)
            vars(trained.model.config).update(promises)
        finally:
            if on_result is not None:
                on_result(result)
        if saves and is_main:
            folder = Path(mkdtemp(prefix="hf-focal-")) if output is None else Path(output)
            with disk_errors(folder, result):
                _save(folder, trained, result, repository or folder.resolve().name, locations, folded, arguments)
            if repository is not None:
                try:
                    result.details["url"] = str(publish(folder, repository, private=private).repo_url)
                except HubError as error:
                    raise NotPublishedError(str(error), result) from error
                if output is None:
                    shutil.rmtree(folder)
    return result


def _check_foldable(trained: TrainedModel) -> None:
    """Raise `InputError` if temperatures cannot be folded into this classifier's head; the weights do not change."""
    try:
        fold(trained.model, Correction())
    except (TypeError, ValueError) as error:
        raise InputError("the temperature", f"cannot be folded into this model: {one_line(error)}") from error


def _correct(trained: TrainedModel, result: RunResult) -> bool:
    """Fold the fitted correction into the weights, and return True; or store T in the config, and return False.

    T is stored in the config of a language model if it is for the options of questions, because text that is sampled
    with such a T makes no sense, or if it cannot be folded. Raises `NotPublishedError` if the
    dtype of the weights cannot represent the corrected weights.
    """
    notes = result.details["notes"]
    if isinstance(trained, ChoiceModel):
        notes.append(
            "T is for the options of questions, and is stored in the config (option_calibration): the weights, and so "
            "the text that the model generates, do not change"
        )
        result.details["folded"] = False
        return False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fold_correction(trained.model, trained.trainer.correction or 1.0)
        except ValueError as error:
            raise NotPublishedError(f"the temperature cannot be folded into this model: {error}", result) from error
        except TypeError as error:
            correction = trained.trainer.correction
            if correction is not None and correction.method == "platt":
                trained.model.config.calibration = calibration_record(correction, folded=False)
                notes.append(
                    f"the slope and the intercept are in the config, not in the weights ({one_line(error)}): apply "
                    "them to the logits, as the model card shows"
                )
                result.details["folded"] = False
                return False
            if not trained.task.generates:
                raise
            apply_calibrated_generation(trained.model, result.temperature)
            notes.append(
                f"T is in the config, not in the weights ({one_line(error)}): call "
                "hf_focal.apply_calibrated_generation(model) after loading the model"
            )
            result.details["folded"] = False
            return False
    notes += [str(warning.message) for warning in caught if issubclass(warning.category, RoundingWarning)]
    return True


def _save(
    folder: Path,
    trained: TrainedModel,
    result: RunResult,
    name: str,
    locations: tuple[DatasetLocation, DatasetLocation],
    folded: bool,
    arguments: Mapping[str, Any] | None,
) -> None:
    """Save the corrected model, its temperature, its report, and its model card, which calls the model `name`.

    `locations` are the locations of the data for fitting the correction and of the data for measuring it.
    `folded` says whether the correction is in the model's weights. `arguments` are for `write_results`.
    """
    # A process that is killed leaves no half-written file under its final name, and no weights without their config.
    with TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        trained.model.save_pretrained(partial)
        trained.processor.save_pretrained(partial)
        for file in sorted(Path(partial).iterdir(), key=lambda file: file.suffix in (".safetensors", ".onnx")):
            file.rename(folder / file.name)
    if result.temperature.is_fitted:
        result.temperature.save(folder / "temperature.json")
    write_results(folder, result, arguments=arguments)
    if trained.onnx is not None:
        return  # the card would load the model with Transformers
    if trained.task.name == "text-classification":
        copy_settings(trained.name, folder, trained.has_one_sigmoid)
    fitted_on, measured_on = locations
    # A model card can name only one dataset.
    dataset = fitted_on.path if fitted_on.path == measured_on.path else None
    card = model_card(
        result,
        model_name=name,
        task=trained.task.pipeline,
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
    write_whole(folder / "README.md", str(card))
