"""The loop over the losses of a recipe, in which runs are trained, resumed, or reused, then compared and published."""

import logging
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hf_focal.calibration.temperature_grid import few_samples
from hf_focal.hub.hub_publishing import HubError, create_repository, publish, repository_of
from hf_focal.reports import RunResult
from hf_focal.reports.run_results import READ_ERRORS
from hf_focal.trainer import FocalTrainingArguments, last_complete_checkpoint
from hf_focal.utils.folder_lock import unlock_all

from ..figures.dynamics_figures import write_dynamics_comparison
from ..figures.experiment_report import write_experiment_comparison
from ..figures.translation_report import read_result
from . import recipe_checks as check
from .output_folders import claim_output_dir, default_training_settings, run_settings
from .recipe_arguments import RecipeArguments
from .recipe_command import after_start, print_written


def write_classifier_comparison(report: Path, results: Sequence[RunResult]) -> None:
    """Write the table and figures that compare classifiers, and their training dynamics if all runs recorded them."""
    write_experiment_comparison(report, results)
    histories: dict[str, Any] = {result.loss: result.details.get("dynamics_history") for result in results}
    if all(histories.values()):
        write_dynamics_comparison(report, histories)


def train_each_loss(
    train_one: Callable[[Any, str | None], Any],
    runs: Sequence[FocalTrainingArguments],
    recipe_args: RecipeArguments,
    *,
    settings: Sequence[Any],
    num_classes: int | None = None,
    calibration_size: int,
    unit: str = "samples",
    summary: Callable[[list], str],
    compare: Callable[[Path, list], Any] = write_classifier_comparison,
    reusable: Callable[[Any], bool] = lambda result: True,
    next_steps: Sequence[str | None] = (),
) -> list:
    """Train with the loss of each run, and report the results; several runs are compared.

    A run that has finished is not trained again; an interrupted run resumes from its last complete checkpoint. While
    runs are in progress, their folders are locked. All processes must call this.

    Args:
        train_one: function of a run's training arguments and the checkpoint to resume from, or None to train from the
            start. It trains, writes the report into "report" in the run's folder, with ``metrics.json`` as the last
            file, and returns the result.
        runs: training arguments of each run. The folders of several runs are in one folder, which gets the comparison.
        recipe_args: recipe arguments from the command line.
        settings: the dataclasses and mappings that determine the result, besides those of `runs`.
        num_classes: number of classes, to check the number of class weights of a loss; None for no check.
        calibration_size: size of the validation set, which must be at least AdaFocal's number of bins.
        unit: what `calibration_size` counts, such as "samples" or "words".
        summary: function that returns the text to print about the results.
        compare: function that writes the report of a comparison into a folder.
        reusable: function that returns whether the result of a finished run is complete. If not, the run is trained
            or measured again.
        next_steps: suggestions to print for the user. {folder!r} stands for the best run's folder in Python code, and
            {quoted} in shell commands. Entries that are None are left out.

    Returns:
        The results, one for each loss.

    Raises:
        ValueError: the validation set is too small, or a folder belongs to another run.
        HubError: with `push_to_hub`, a repository cannot be created.
        SystemExit: a finished run cannot be published. The other runs are published first.
    """
    if num_classes is not None:
        check.class_weights(runs, num_classes)
    for run in runs:
        check.calibration_size(run, calibration_size, unit)
    if warning := few_samples(recipe_args.temperature_objective, calibration_size, unit):
        logging.warning("%s; set validation_size or another validation_file", warning)
    args, folder = runs[0], Path(runs[0].output_dir)
    if len(runs) > 1:
        folder = folder.parent
    with args.main_process_first(desc="claiming the output folders"):
        _claim(folder, runs, settings)
    reports = [Path(run.output_dir) / "report" for run in runs]
    finished, results = [_read_result(report) for report in reports], []
    try:
        for number, (run, report, result) in enumerate(zip(runs, reports, finished, strict=True), start=1):
            logging.info("%s (%d of %d)", run.loss, number, len(runs))
            with after_start(f"training {run.loss}"):
                if result and recipe_args.reusable(result) and reusable(result):
                    logging.info("finished already, see %s", report)
                else:
                    result = train_one(run, last_complete_checkpoint(run.output_dir))
                results.append(result)
        with after_start("comparing the runs"):
            if len(runs) > 1:
                reports.append(folder / "report")
                if args.process_index == 0:
                    compare(reports[-1], results)
            if args.process_index == 0:
                print(f"\n{summary(results)}")
                print_written(reports)
                best, _ = min(zip(runs, results, strict=True), key=lambda pair: pair[1].post.get("nll", math.inf))
                names = {"folder": best.output_dir, "quoted": shlex.quote(best.output_dir)}
                steps = [step.format(**names) for step in next_steps if step is not None]
                page = f"see the figures on one page: hf-focal report {shlex.quote(str(folder))}"
                print("\nNext:", page, *steps, sep="\n  ")
    finally:
        unlock_all()
    _publish(runs)
    return results


def _claim(folder: Path, runs: Sequence[FocalTrainingArguments], settings: Sequence[Any]) -> None:
    """Claim the output folders, and create the Hub repositories to push to, so that a bad token fails early."""
    write = runs[0].process_index == 0
    if len(runs) > 1:
        claim_output_dir(folder, {"kind": "comparison"}, write)
    for run in runs:
        claim_output_dir(run.output_dir, run_settings(run, *settings), write, partial(default_training_settings, run))
        if run.push_to_hub and write:
            try:
                create_repository(repository_of(run), private=run.hub_private_repo, token=run.hub_token)
            except HubError as error:
                raise HubError(f"{error}; without --push_to_hub nothing is published") from error


def _read_result(report: Path) -> Any:
    """Return the result in a report folder; None if the run is not finished."""
    path = report / "metrics.json"
    try:
        return read_result(path) if path.exists() else None
    except READ_ERRORS as error:
        raise ValueError(
            f"output_dir must hold complete reports, got {str(path)!r}: {error!r}; delete it to measure the run again"
        ) from error


def _publish(runs: Sequence[FocalTrainingArguments]) -> None:
    """Push the folders of finished runs if `push_to_hub` is set; exit with code 1 if a folder cannot be pushed."""
    failed = []
    for run in runs:
        if not run.push_to_hub or run.process_index != 0:
            continue
        options = {"private": run.hub_private_repo, "token": run.hub_token}
        try:
            repo_id = create_repository(repository_of(run), **options)
            _name_in_card(Path(run.output_dir), repo_id)
            options["revision"] = run.hub_revision
            commit = publish(run.output_dir, repo_id, **options, commit_message="End of training")
            print(f"\nPublished: {commit.repo_url}")
        except HubError as error:
            failed.append(str(error))
    if failed:
        sys.exit("\n".join(failed))


def _name_in_card(folder: Path, repo_id: str) -> None:
    """Make the code on the model card load the model from the Hub, also if the run had finished without a push."""
    card, text = folder / "README.md", (folder / "README.md").read_text("utf-8")
    for loads in ('model="{}"', 'from_pretrained("{}")'):
        text = text.replace(loads.format(f"your-username/{folder.absolute().name}"), loads.format(repo_id))
    card.write_text(text, "utf-8")
