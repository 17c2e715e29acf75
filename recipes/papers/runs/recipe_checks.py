"""Checks of recipes' arguments. A recipe imports this module as `check`: `check.at_least(1, self, "max_length")`."""

import logging
import math
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import TrainingArguments
from transformers.integrations import get_available_reporting_integrations

from hf_focal.cli.main import OneLineParser
from hf_focal.losses import LossConfig
from hf_focal.metrics import CalibrationMetrics, ConfusionMatrix
from hf_focal.tasks.input_errors import check_id_or_folder
from hf_focal.trainer import FocalTrainingArguments

_logger = logging.getLogger(__name__)


def at_least(low: int, arguments: Any, *names: str) -> None:
    """Raise `ValueError` if one of the attributes `names` of `arguments` is below `low`. None is accepted."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not value >= low:  # also catches NaN
            raise ValueError(f"{name} must be at least {low}, got {value}")


def fraction(arguments: Any, *names: str) -> None:
    """Raise `ValueError` if one of the attributes `names` of `arguments` is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(arguments, name) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(arguments, name)}")


def choice(argument: str, value: str, choices: Sequence[str]) -> None:
    """Raise `ValueError` if an argument's value is not one of the choices. The error suggests the nearest choice."""
    if value not in choices:
        near = get_close_matches(value, choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument} must be one of {', '.join(choices)}, got {value!r}{hint}")


def model_name(name: str, own: Sequence[str]) -> None:
    """Raise `ValueError` if a model name is a path that does not exist, or a misspelling of a name in `own`."""
    check_id_or_folder("model_name_or_path", name)
    near = get_close_matches(name.lower(), own, n=1, cutoff=0.75)
    if name not in own and near and not Path(name).exists():
        raise ValueError(
            f"model_name_or_path must be {' or '.join(map(repr, own))} or a Hub id or folder, got {name!r}; "
            f"did you mean {near[0]!r}?"
        )


def learning_rate(argv: Sequence[str], args: TrainingArguments, name: str, own: Sequence[str]) -> None:
    """Check that the learning rate suits the kind of the model: trained from scratch, or pretrained.

    An Adam optimizer whose learning rate is unusual for the kind causes a warning.

    Args:
        argv: the command line.
        args: the training arguments that were parsed from `argv`.
        name: name of the model.
        own: names of the models that are trained from scratch. All other models are pretrained.

    Raises:
        ValueError: the learning rate or the gradient clipping comes from a config file whose own model, which the
            command line replaces, is of the other kind.
    """
    overridden, config = _overridden_config(argv)
    model = overridden.get("model_name_or_path")
    wrong = [argument for argument in ("learning_rate", "max_grad_norm") if argument in config]
    usual = "to train it from scratch, learning_rate 1e-3 and max_grad_norm 0 are usual"
    if name not in own:
        usual = "to fine-tune it, learning_rate 5e-5 (1e-4 for a small encoder) and max_grad_norm 1 are usual"
    if model is not None and (model in own) != (name in own) and wrong:
        values = " and ".join(config[argument] for argument in wrong)
        raise ValueError(
            f"{' and '.join(wrong)} must be given with the model {name!r}, got {values} of --config, for {model!r}: "
            f"{usual}"
        )
    if args.optim.startswith("adam") and (args.learning_rate < 2e-4 if name in own else args.learning_rate > 3e-4):
        kind = "low" if name in own else "high"
        _logger.warning("learning_rate %g is unusually %s for %r: %s", args.learning_rate, kind, name, usual)


def _overridden_config(argv: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the config file that the command line overrides, and the file's other settings."""
    parser = OneLineParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    path = parser.parse_known_args(argv)[0].config
    config = {} if path is None else yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    given = {part.partition("=")[0] for part in argv}
    overridden = {key: value for key, value in config.items() if f"--{key}" in given}
    return overridden, {key: value for key, value in config.items() if key not in overridden}


def training_arguments(args: TrainingArguments) -> None:
    """Raise `ValueError` for values that recipes do not support or Transformers rejects only after data is loaded."""
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    if args.resume_from_checkpoint is not None:
        raise ValueError(
            f"resume_from_checkpoint must not be given, got {args.resume_from_checkpoint!r}: a run resumes from the "
            "last complete checkpoint of its output_dir"
        )
    at_least(1, args, "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
    at_least(0, args, "dataloader_num_workers")
    if args.max_steps == 0:
        raise ValueError("max_steps must be at least 1, or -1 for num_train_epochs, got 0")
    if args.max_steps < 0 and not 0 < args.num_train_epochs < math.inf:
        raise ValueError(f"num_train_epochs must be above 0 and finite, got {args.num_train_epochs}")
    if not 0 <= args.learning_rate < math.inf:
        raise ValueError(f"learning_rate must be at least 0 and finite, got {args.learning_rate}")
    for name in args.report_to:
        choice("report_to", name, ["none", *get_available_reporting_integrations()])
    if args.metric_for_best_model is not None:
        choice("metric_for_best_model", args.metric_for_best_model.removeprefix("eval_"), _metrics())


def _metrics() -> list[str]:
    """Return the names of the metrics that an evaluation computes."""
    logits, labels = 2 * torch.eye(2), torch.arange(2)  # the factor keeps them from being taken for probabilities
    measured: list[str] = ["loss", "nll_refined"]
    of_labels = CalibrationMetrics(link="sigmoid")
    for sums, targets in ((CalibrationMetrics(), labels), (ConfusionMatrix(), labels), (of_labels, torch.eye(2))):
        sums.update(logits, targets)
        measured += sums.compute()
    return list(dict.fromkeys(measured))


def class_weights(runs: Sequence[FocalTrainingArguments], num_classes: int) -> None:
    """Raise `ValueError` if the loss of a run has class weights, but not one for each of the `num_classes` classes."""
    for run in runs:
        loss = LossConfig.parse(str(run.loss))
        weights = loss.options.get("weights")
        if weights is not None and len(weights) != num_classes:
            raise ValueError(f"weights must be {num_classes}, one for each class, got {len(weights)} of {str(loss)!r}")


def calibration_size(args: FocalTrainingArguments, size: int, unit: str) -> None:
    """Raise `ValueError` if the size of the validation set, counted in `unit`, is below AdaFocal's number of bins."""
    loss = LossConfig.parse(str(args.loss))
    bins = loss.options.get("bins", 0)
    if size < bins:
        raise ValueError(
            f"the validation set must hold at least {bins} {unit} for {loss}, got {size}: set validation_size or "
            "another validation_file"
        )
