"""The runs of a comparison: their arguments, their folders, and what is trained of them."""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...hub.hub_publishing import HubError, create_repository, repository_of
from ...losses import LossConfig
from ...reports import RunResult
from ...trainer import FocalTrainingArguments
from ...utils.folder_lock import release_output_dirs
from ..reports.dynamics_figures import write_dynamics_comparison
from ..reports.experiment_report import write_experiment_comparison
from .output_folders import claim_output_dir, default_training_settings, folder_of
from .recipe_arguments import RecipeArguments
from .recipe_checks import check_training_arguments

_Result = TypeVar("_Result")


def runs_of(
    recipe: RecipeArguments, args: FocalTrainingArguments, parse: Callable[[list[str]], tuple], argv: list[str]
) -> list[FocalTrainingArguments]:
    """The training arguments of each run: `args` or, of a comparison, those of each loss in a folder of its own.

    Args:
        recipe: says what is compared.
        args: those of the command line.
        parse: makes them, and what else it returns before them, of a command line. It is asked again for each loss:
            some defaults depend on it.
        argv: the command line.

    Raises:
        ValueError: no output folder, a training that cannot begin, a loss beside the comparison, or a comparison under
            DeepSpeed.
    """
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    if args.resume_from_checkpoint is not None:
        raise ValueError(
            f"resume_from_checkpoint must be absent, got {args.resume_from_checkpoint!r}: a run goes on from the last "
            "complete checkpoint of its output_dir"
        )
    check_training_arguments(args)
    if args.max_steps == 0:
        raise ValueError("max_steps must be at least 1, or -1 for num_train_epochs, got 0")
    if args.max_steps < 0 and not 0 < args.num_train_epochs < math.inf:
        raise ValueError(f"num_train_epochs must be above 0 and finite, got {args.num_train_epochs}")
    if not 0 <= args.learning_rate < math.inf:
        raise ValueError(f"learning_rate must be at least 0 and finite, got {args.learning_rate}")
    if recipe.compare is None:
        return [args]
    if args.loss != type(args).loss:
        raise ValueError(f"loss and compare must not be given together, got {args.loss!r} and {recipe.compare!r}")
    if args.deepspeed_plugin is not None:
        raise ValueError(
            f"compare must not be given under DeepSpeed, which allows a process one training, got "
            f"{recipe.compare!r}: start a run with --loss for each"
        )
    assert isinstance(recipe.compare, str)  # `RecipeArguments` has joined a list
    runs = []
    for loss in LossConfig.parse_list(recipe.compare):
        own = ["--loss", str(loss), "--output_dir", str(folder_of(loss, args.output_dir))]
        if args.push_to_hub:
            own += ["--hub_model_id", f"{repository_of(args)}-{re.sub('[^A-Za-z0-9.]+', '-', str(loss))}"]
        runs.append(parse([*argv, *own])[-1])
    return runs


def claim_folders(
    args: FocalTrainingArguments,
    runs: Sequence[FocalTrainingArguments],
    settings_of: Callable[[FocalTrainingArguments], Mapping[str, Any]],
) -> None:
    """`claim_output_dir` of the comparison, if there is one, and of each of the runs that `runs_of` gave.

    With `push_to_hub` the runs' repositories are created, too: what is wrong with the token shows before the training.
    """
    write = args.process_index == 0
    if runs[0] is not args:
        claim_output_dir(args.output_dir, {"kind": "comparison"}, write)
    for run in runs:
        claim_output_dir(run.output_dir, settings_of(run), write, partial(default_training_settings, run))
        if run.push_to_hub and write:
            try:
                create_repository(repository_of(run), private=run.hub_private_repo, token=run.hub_token)
            except HubError as error:
                raise HubError(f"{error}; without --push_to_hub nothing is published") from error


def train_classifiers(
    experiment: Any, run: Callable[[FocalTrainingArguments, Any], RunResult]
) -> tuple[list[RunResult], list[Path]]:
    """`train_runs` of what is not finished yet."""

    def run_unless_finished(args: FocalTrainingArguments, experiment: Any) -> RunResult:
        finished = Path(args.output_dir) / "report" / "metrics.json"
        result = RunResult.load(finished) if finished.exists() else None
        if result is None or result.temperature.objective != experiment.recipe.temperature_objective:
            return run(args, experiment)
        logging.info("finished already, see %s", finished.parent)
        return result

    def compare(report: Path, results: Sequence[RunResult]) -> None:
        write_experiment_comparison(report, results)
        histories: dict[str, Any] = {result.loss: result.details.get("dynamics_history") for result in results}
        if all(histories.values()):
            write_dynamics_comparison(report, histories)

    return train_runs(experiment, run_unless_finished, compare)


def train_runs(
    experiment: Any, run: Callable[[Any, Any], _Result], compare: Callable[[Path, Sequence[_Result]], None]
) -> tuple[list[_Result], list[Path]]:
    """Do all runs, and compare.

    Args:
        experiment: the recipe's; its `recipe`, `args` and `runs` are what `runs_of` took and gave.
        run: trains with a run's arguments and the experiment, and returns what it measured; all processes call it.
        compare: writes the report of a comparison into a folder, of the results.

    Returns:
        The results, and the folders of the reports, that of the comparison last.
    """
    results, reports = [], [Path(args.output_dir) / "report" for args in experiment.runs]
    for number, args in enumerate(experiment.runs, start=1):
        logging.info("%s (%d of %d)", args.loss, number, len(experiment.runs))
        results.append(run(args, experiment))
    if experiment.recipe.compare is not None:
        reports.append(Path(experiment.args.output_dir) / "report")
        if experiment.args.process_index == 0:
            compare(reports[-1], results)
    release_output_dirs()
    return results, reports
