"""What the recipes share: the runs of a comparison, checks before anything is trained, and how a model is saved."""

import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig
from transformers.trainer_utils import TrainOutput

from .hub import HubError, create_repository, publish
from .losses import LossConfig
from .reports import RunResult, write_comparison, write_dynamics_comparison
from .runs import claim_output_dir, folder_of
from .temperature import OBJECTIVES, Temperature
from .trainer import FocalTrainer, FocalTrainingArguments, dynamics_history, gamma_history


@dataclass
class RecipeArguments:
    """Which losses are compared, and how a model is corrected."""

    compare: list[str] | str | None = field(
        default=None, metadata={"help": "Train each of these losses: 'brier,focal:gamma=3'."}
    )
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the papers' grid) or 'nll'."})
    dynamics: bool = field(
        default=False,
        metadata={"help": "Classifiers: log NLL, entropy, calibration and norms at each epoch, and draw them."},
    )

    def __post_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, list):  # in a config file
                setattr(self, name, ",".join(value))
        if self.temperature_objective not in OBJECTIVES:
            raise ValueError(
                f"temperature_objective must be {' or '.join(map(repr, OBJECTIVES))}, "
                f"got {self.temperature_objective!r}"
            )


def check_at_least(low: int, arguments: Any, *names: str) -> None:
    """Raise `ValueError` where one of these arguments is given and less."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")


def check_model_name(name: str, own: Sequence[str]) -> None:
    """Raise `ValueError` where a model's name is nearly one of the recipe's own, which would be asked of the Hub."""
    near = get_close_matches(name.lower(), own, n=1, cutoff=0.75)
    if name not in own and near and not Path(name).exists():
        raise ValueError(
            f"model_name_or_path must be {' or '.join(map(repr, own))} or a Hub id or folder, got {name!r}; "
            f"did you mean {near[0]!r}?"
        )


def check_test_file(data: Any) -> None:
    """Raise `ValueError` where these arguments have a `train_file` and no `test_file`."""
    if data.train_file is not None and data.test_file is None:
        raise ValueError(
            "test_file must be given, got None: the report is about data that neither training nor T has seen"
        )


def check_calibration_size(args: FocalTrainingArguments, num_rows: int, rows: str = "rows") -> None:
    """Raise `ValueError` where AdaFocal's validation set has less than a row (a token, say) for each bin."""
    loss = LossConfig.parse(args.loss)
    bins = loss.options.get("bins", 0)
    if num_rows < bins:
        raise ValueError(
            f"the validation set must hold at least {bins} {rows} for {loss}, got {num_rows}: set validation_size or "
            "another validation_file"
        )


def model_positions(config: PreTrainedConfig, max_length: int | None = None) -> int | None:
    """Tokens that a pretrained model has positions for, None where its configuration sets no limit.

    Raises:
        ValueError: `max_length` is more.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from the one after the padding's.
        if (
            name.endswith("position_embeddings")
            and isinstance(module, nn.Embedding)
            and module.padding_idx is not None
        ):
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    if max_length is not None and max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the positions of {config.name_or_path!r}, got {max_length}"
        )
    return positions


def is_image_classifier(config: PreTrainedConfig) -> bool:
    """Whether a classifier's configuration is of one of images, not of texts.

    Raises:
        ValueError: of neither.
    """
    name = (config.architectures or [type(config).__name__])[0]
    if config.model_type == "timm_wrapper" or name.endswith("ForImageClassification"):
        return True
    if not name.endswith("ForSequenceClassification"):
        raise ValueError(f"models must classify images or texts, got {config.name_or_path!r}, a {name}")
    return False


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
        ValueError: no output folder, a loss beside the comparison, or a comparison under DeepSpeed.
    """
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    if recipe.compare is None:
        return [args]
    if args.loss != type(args).loss:
        raise ValueError(f"loss and compare must not be given together, got {args.loss!r} and {recipe.compare!r}")
    if args.deepspeed_plugin is not None:
        raise ValueError(
            f"compare must not be given under DeepSpeed, which allows a process one training, got "
            f"{recipe.compare!r}: start a run with --loss for each"
        )
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
        claim_output_dir(run.output_dir, settings_of(run), write)
        if run.push_to_hub and write:
            try:
                create_repository(repository_of(run), private=run.hub_private_repo, token=run.hub_token)
            except HubError as error:
                raise HubError(f"{error}; without --push_to_hub nothing is published") from error


def train_classifiers(
    recipe: RecipeArguments,
    args: FocalTrainingArguments,
    runs: Sequence[FocalTrainingArguments],
    run: Callable[[FocalTrainingArguments], RunResult],
) -> tuple[list[RunResult], list[Path]]:
    """Run what is not finished yet, and compare.

    Args:
        recipe, args, runs: as `runs_of` took and gave them.
        run: trains with these arguments and returns what it measured; all processes call it.

    Returns:
        The results, and the folders of the reports, that of the comparison last.
    """
    results, reports = [], [Path(run_args.output_dir) / "report" for run_args in runs]
    for number, (run_args, report) in enumerate(zip(runs, reports, strict=True), start=1):
        logging.info("%s (%d of %d)", run_args.loss, number, len(runs))
        finished = report / "metrics.json"
        result = RunResult.load(finished) if finished.exists() else None
        if result is not None and result.temperature.objective == recipe.temperature_objective:
            logging.info("finished already, see %s", report)
        else:
            result = run(run_args)
        results.append(result)
    if recipe.compare is not None:
        reports.append(Path(args.output_dir) / "report")
        if args.process_index == 0:
            write_comparison(reports[-1], results)
            histories = {result.loss: result.details.get("dynamics_history") for result in results}
            if all(histories.values()):
                write_dynamics_comparison(reports[-1], histories)
    return results, reports


def measure_classifier(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    logits: torch.Tensor,
    labels: torch.Tensor,
    true_calibration_error: tuple[float, float] | None = None,
) -> RunResult:
    """The result of the test set's logits (N, K) and labels (N,), with what is worth knowing of the training.

    Args:
        trainer, trained: which trained, and what its `train` returned.
        temperature: fitted on the validation set.
        logits, labels: of the test set.
        true_calibration_error: before and after the temperature, where the data's posterior is known.
    """
    return RunResult.measure(
        LossConfig.parse(trainer.args.loss),
        temperature,
        logits,
        labels,
        num_bins=trainer.args.calibration_bins,
        true_calibration_error=true_calibration_error,
        details={
            "train_metrics": trained.metrics,
            "best_validation_metric": trainer.state.best_metric,
            "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name,
            "num_parameters": trainer.model.num_parameters(),
            "num_processes": trainer.args.world_size,
            "gamma_history": gamma_history(trainer.state.log_history),
            "dynamics_history": dynamics_history(trainer.state.log_history),
        },
    )


def dataset_of(data: Any, default: str) -> str:
    """What a model card calls the data: the Hub id, or a file's path, which no card takes for an id."""
    if data.dataset_name is None and data.train_file is not None:
        return str(Path(data.train_file).absolute())
    return data.dataset_name or default


def repository_of(args: FocalTrainingArguments) -> str:
    """Where a run is published: `hub_model_id`, or the name of its folder, as Trainer has it."""
    return args.hub_model_id or Path(args.output_dir).absolute().name


def publish_runs(runs: Sequence[FocalTrainingArguments]) -> None:
    """Push the folders of finished runs where `push_to_hub` asks for it, each calibrated and with its card.

    What cannot be pushed does not keep the others from it; then the recipe ends with exit code 1. The same command
    again trains nothing that is finished, and pushes.
    """
    failed = []
    for run in runs:
        if not run.push_to_hub or run.process_index != 0:
            continue
        options = {"private": run.hub_private_repo, "token": run.hub_token, "revision": run.hub_revision}
        try:
            commit = publish(run.output_dir, repository_of(run), **options, commit_message="End of training")
            print(f"\nPublished: {commit.repo_url}")
        except HubError as error:
            failed.append(str(error))
    if failed:
        sys.exit("\n".join(failed))


def prepare_or_exit(prepare: Callable[[list[str]], Any]) -> Any:
    """What `prepare` makes of the command line; an error of the user's ends in one line, as argparse has it."""
    try:
        return prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
