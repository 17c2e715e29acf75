"""The loop over the losses of a recipe, in which runs are trained, resumed, or reused, then compared."""

import logging
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hf_focal.reports import RunResult
from hf_focal.trainer import FocalTrainingArguments, last_complete_checkpoint
from hf_focal.utils.folder_lock import unlock_all
from papers.runs.arguments import TemperatureArguments
from papers.runs.output_folders import claim_output_dir, run_settings
from papers.runs.reports import write_classifier_comparison
from papers.runs.translation_results import read_result


def train_each_loss(
    train_one: Callable[[Any, str | None], Any],
    runs: Sequence[FocalTrainingArguments],
    recipe_args: TemperatureArguments,
    *,
    settings: Sequence[Any],
    summary: Callable[[list], str],
    compare: Callable[[Path, list], Any] = write_classifier_comparison,
    reusable: Callable[[RunResult], bool] = lambda result: True,
) -> list:
    """Train with the loss of each run, and report the results; several runs are compared.

    A run that has finished is not trained again; an interrupted run resumes from its last complete checkpoint. While
    runs are in progress, their folders are locked. All processes must call this.

    Args:
        train_one: function of a run's training arguments and the checkpoint to resume from, or None. It trains, writes
            "report" in the run's folder, with ``metrics.json`` as the last file, and returns the result.
        runs: training arguments of each run. The folders of several runs are in one folder, which gets the comparison.
        recipe_args: recipe arguments from the command line.
        settings: the dataclasses and mappings that determine the result, besides those of `runs`.
        summary: function that returns the text to print about the results.
        compare: function that writes the report of a comparison into a folder.
        reusable: whether the result of a finished run is complete. If not, the run is trained or measured again.

    Returns:
        The results, one for each loss.
    """
    args, folder = runs[0], Path(runs[0].output_dir)
    with args.main_process_first(desc="claiming the output folders"):
        for run in runs:
            claim_output_dir(run.output_dir, run_settings(run, *settings), args.process_index == 0)
    reports = [Path(run.output_dir) / "report" for run in runs]
    paths = [report / "metrics.json" for report in reports]
    finished, results = [read_result(path) if path.exists() else None for path in paths], []
    try:
        for number, (run, report, result) in enumerate(zip(runs, reports, finished, strict=True), start=1):
            logging.info("%s (%d of %d)", run.loss, number, len(runs))
            is_corrected = result and result.temperature.objective == recipe_args.temperature_objective
            if is_corrected and reusable(result):
                logging.info("finished already, see %s", report)
            else:
                result = train_one(run, last_complete_checkpoint(run.output_dir))
            results.append(result)
        if args.process_index == 0:
            if len(runs) > 1:
                folder = folder.parent
                reports.append(folder / "report")
                compare(reports[-1], results)
            print(f"\n{summary(results)}\n\nWritten:")
            for report in reports:
                print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")
            print(f"\nThe figures on one page: hf-focal report {shlex.quote(str(folder))}")
    finally:
        unlock_all()
    return results
