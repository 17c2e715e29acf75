"""What the recipes share: the runs of a comparison, checks before anything is trained, and how a model is saved."""

import logging
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import TrainOutput

from .data.input_errors import check_id_or_folder
from .hub import HubError, create_repository, publish
from .losses import LossConfig, hits_and_rows
from .reports import RunResult, class_table, per_class_table, write_comparison, write_dynamics_comparison
from .runs import claim_output_dir, folder_of, release_output_dirs
from .temperature import OBJECTIVES, Temperature
from .trainer import (
    ClassWeights,
    Dynamics,
    FocalTrainer,
    FocalTrainingArguments,
    class_weight_history,
    dynamics_history,
    gamma_history,
)


@dataclass
class RecipeArguments:
    """Which losses are compared, and how a model is corrected."""

    compare: list[str] | str | None = field(
        default=None, metadata={"help": "Train each of these losses: 'brier,focal:gamma=3'."}
    )
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the papers' grid) or 'nll'."})

    def __post_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, list):  # in a config file
                setattr(self, name, ",".join(value))
        if self.temperature_objective not in OBJECTIVES:
            raise ValueError(
                f"temperature_objective must be {' or '.join(map(repr, OBJECTIVES))}, "
                f"got {self.temperature_objective!r}"
            )


@dataclass
class ClassifierArguments(RecipeArguments):
    """Which losses are compared, how a model is corrected, and what is recorded of its classes."""

    class_weights_steps: int | None = field(
        default=None,
        metadata={"help": "Record and draw each class's mean focal and recall weight every so many steps."},
    )

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "class_weights_steps")


@dataclass
class SampleClassifierArguments(ClassifierArguments):
    """The same of classifiers of whole samples, and whether the dynamics of the training are measured."""

    dynamics: bool = field(
        default=False, metadata={"help": "Log NLL, entropy, calibration and norms at each epoch, and draw them."}
    )


def watch_classes(trainer: FocalTrainer, recipe: ClassifierArguments) -> None:
    """Have the trainer record the weights of the classes, if that is asked for."""
    if recipe.class_weights_steps is not None:
        trainer.add_callback(ClassWeights(trainer, recipe.class_weights_steps))


def watch_samples(trainer: FocalTrainer, recipe: SampleClassifierArguments, test_dataset: Any) -> None:
    """Have the trainer record what is asked for: the weights of the classes, the dynamics of training and test set."""
    watch_classes(trainer, recipe)
    if recipe.dynamics:
        trainer.add_callback(Dynamics(trainer, test_dataset))


def check_at_least(low: int, arguments: Any, *names: str) -> None:
    """Raise `ValueError` where one of these arguments is given and less."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")


def check_model_name(name: str, own: Sequence[str]) -> None:
    """Raise `ValueError` where a model's name would be asked of the Hub in vain: it is nearly one of the recipe's own,
    or the path of no folder."""
    check_id_or_folder("model_name_or_path", name)
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


def input_length(name: str, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None) -> int:
    """Tokens after which an input is cut: `max_length`, or what the tokenizer and the pretrained model take.

    Raises:
        ValueError: `max_length` is more than the model has positions for.
    """
    positions = model_positions(AutoConfig.from_pretrained(name), max_length)
    if max_length is not None:
        return max_length
    # A tokenizer that knows no limit says 10^30.
    limits = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None and limit < 10**6]
    return min(limits, default=1000)


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
        ValueError: no output folder, a training that cannot begin, a loss beside the comparison, or a comparison under
            DeepSpeed.
    """
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    check_at_least(1, args, "per_device_train_batch_size", "per_device_eval_batch_size")
    if args.max_steps == 0:
        raise ValueError("max_steps must be at least 1, or -1 for num_train_epochs, got 0")
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
    release_output_dirs()
    return results, reports


def measure_classifier(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    logits: torch.Tensor,
    labels: torch.Tensor,
    true_calibration_error: tuple[float, float] | None = None,
    train_labels: torch.Tensor | None = None,
) -> RunResult:
    """The result of the test set's logits (N, K) and labels (N,), with what is worth knowing of the training.

    Args:
        trainer, trained: which trained, and what its `train` returned.
        temperature: fitted on the validation set.
        logits, labels: of the test set.
        true_calibration_error: before and after the temperature, where the data's posterior is known.
        train_labels: integers in [0, K), for what the report says of large and small classes.
    """
    details = {}
    if train_labels is not None:
        hits, rows = hits_and_rows(logits, labels)
        details["class_counts"] = torch.bincount(train_labels, minlength=len(rows)).tolist()
        details["class_recall"] = (hits.double() / rows).tolist()
    return RunResult.measure(
        LossConfig.parse(trainer.args.loss),
        temperature,
        logits,
        labels,
        num_bins=trainer.args.calibration_bins,
        true_calibration_error=true_calibration_error,
        details=_details(trainer, trained) | details,
    )


def measure_dense(
    trainer: FocalTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    dataset: Any,
    class_names: Sequence[str],
    class_counts: Sequence[int],
) -> RunResult:
    """The result of a classifier of pixels or tokens on the test set, whose logits are not kept.

    Args:
        trainer, trained, temperature: as `measure_classifier` takes them; the temperature is the trainer's own.
        dataset: the test set, as the trainer takes it. All processes must call.
        class_names: of the K classes.
        class_counts: how many training pixels or tokens each class has.
    """
    before, after = trainer.measure(dataset)
    loss, details = LossConfig.parse(trainer.args.loss), _details(trainer, trained)
    details["class_counts"] = list(map(int, class_counts))
    details["class_recall"] = trainer.confusion.by_class()["accuracy"].tolist()
    return RunResult.of_classes(loss, temperature, before, after, trainer.confusion, class_names, details)


def _details(trainer: FocalTrainer, trained: TrainOutput) -> dict[str, Any]:
    return {
        "train_metrics": trained.metrics,
        "best_validation_metric": trainer.state.best_metric,
        "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": trainer.args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
        "dynamics_history": dynamics_history(trainer.state.log_history),
        "class_weights": class_weight_history(trainer.state.log_history),
        "training_losses": [(entry["epoch"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry],
    }


def show_classes(reports: Sequence[Path], results: Sequence[RunResult]) -> None:
    """Write classes.md into each report of `train_classifiers`, and into that of the comparison: how well each class
    of pixels or tokens is found."""
    for report, some in [*zip(reports, ([run] for run in results), strict=False), (reports[-1], results)]:
        text = f"{class_table(some)}\nAccuracy of each class, %\n\n{per_class_table(some)}"
        (report / "classes.md").write_text(f"{text}\nIoU of each class, %\n\n{per_class_table(some, 'iou')}", "utf-8")


class BatchStatisticsTrainer(FocalTrainer):
    """`FocalTrainer` of models with batch normalisation: all processes measure with the same statistics."""

    def evaluation_loop(self, *args, **kwargs):
        self.share_buffers()
        return super().evaluation_loop(*args, **kwargs)

    def _collect(self, *args, **kwargs):
        self.share_buffers()
        return super()._collect(*args, **kwargs)

    def share_buffers(self) -> None:
        """Give all processes the first one's batch statistics, which are saved; each has moved on by its own batch."""
        broadcast(list(self.model.buffers()))


class NextEpoch(TrainerCallback):
    """Tells the training set, at `set_epoch`, which epoch begins. (accelerate does so on one process alone.)"""

    def on_epoch_begin(self, args, state, control, train_dataloader, **kwargs):
        train_dataloader.dataset.set_epoch(int(state.epoch))


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
    """Let the card of a run that was finished without a push load the model from where it is pushed to."""
    card, text = folder / "README.md", (folder / "README.md").read_text("utf-8")
    for loads in ('model="{}"', 'from_pretrained("{}")'):
        text = text.replace(loads.format(folder.absolute().name), loads.format(repo_id))
    card.write_text(text, "utf-8")


def prepare_or_exit(prepare: Callable[[list[str]], Any]) -> Any:
    """What `prepare` makes of the command line; an error of the user's ends in one line, as argparse has it."""
    try:
        return prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
