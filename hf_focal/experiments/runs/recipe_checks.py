"""What can be wrong with a command line, found before anything is trained."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations import get_available_reporting_integrations

from ...cli.input_errors import check_id_or_folder
from ...losses import LossConfig
from ...metrics import CalibrationMetrics, ConfusionMatrix
from ...trainer import FocalTrainingArguments
from .yaml_arguments import overridden_config


def check_at_least(low: int, arguments: Any, *names: str) -> None:
    """Raise `ValueError` where one of these arguments is given and less."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not value >= low:  # NaN is not
            raise ValueError(f"{name} must be at least {low}, got {value}")


def check_fraction(arguments: Any, *names: str) -> None:
    """Raise `ValueError` where one of these arguments is not from 0 to below 1."""
    for name in names:
        if not 0 <= getattr(arguments, name) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(arguments, name)}")


def check_choice(argument: str, value: str, choices: Sequence[str]) -> None:
    """Raise `ValueError` where an argument's value is none of the choices; the error names the nearest."""
    if value not in choices:
        near = get_close_matches(value, choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument} must be one of {', '.join(choices)}, got {value!r}{hint}")


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


def check_fine_tuning(argv: Sequence[str], name: str, own: Sequence[str]) -> None:
    """Raise `ValueError` where a pretrained model would be trained as a config file says for a model from scratch.

    Args:
        argv: the command line. name: the model's. own: the names of the models that are trained from scratch.
    """
    overridden, config = overridden_config(argv)
    model = overridden.get("model_name_or_path")
    wrong = [argument for argument in ("learning_rate", "max_grad_norm") if argument in config]
    if model in own and name not in own and wrong:
        values = " and ".join(config[argument] for argument in wrong)
        raise ValueError(
            f"{' and '.join(wrong)} must be given with the pretrained model {name!r}, got {values} of --config, for "
            f"{model!r}: to fine-tune, learning_rate 2e-5 and max_grad_norm 1 are usual"
        )


def check_test_file(data: Any) -> None:
    """Raise `ValueError` where these arguments have a `train_file` and no `test_file`."""
    if data.train_file is not None and data.test_file is None:
        raise ValueError(
            "test_file must be given, got None: the report is about data that neither training nor T has seen"
        )


def check_training_arguments(args: TrainingArguments) -> None:
    """Raise `ValueError` where Transformers would fail with these, or train in vain, once the data are there."""
    check_at_least(1, args, "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
    check_at_least(0, args, "dataloader_num_workers")
    for name in args.report_to:
        check_choice("report_to", name, ["none", *get_available_reporting_integrations()])
    if args.metric_for_best_model is not None:
        check_choice("metric_for_best_model", args.metric_for_best_model.removeprefix("eval_"), _metrics())


def _metrics() -> list[str]:
    """What an evaluation measures, other than the recipes' classes."""
    logits, labels = torch.eye(2), torch.arange(2)
    measured: list[str] = ["loss"]
    for sums in (CalibrationMetrics(), ConfusionMatrix()):
        sums.update(logits, labels)
        measured += sums.compute()
    return list(dict.fromkeys(measured))


def check_class_weights(runs: Sequence[FocalTrainingArguments], num_classes: int) -> None:
    """Raise `ValueError` where the loss of a run has weights of another number of classes."""
    for run in runs:
        loss = LossConfig.parse(str(run.loss))  # as which the arguments keep it
        weights = loss.options.get("weights")
        if weights is not None and len(weights) != num_classes:
            raise ValueError(f"weights must be {num_classes}, one for each class, got {len(weights)} of {str(loss)!r}")


def check_calibration_size(args: FocalTrainingArguments, num_rows: int, rows: str = "rows") -> None:
    """Raise `ValueError` where AdaFocal's validation set has less than a row (a token, say) for each bin."""
    loss = LossConfig.parse(str(args.loss))
    bins = loss.options.get("bins", 0)
    if num_rows < bins:
        raise ValueError(
            f"the validation set must hold at least {bins} {rows} for {loss}, got {num_rows}: set validation_size or "
            "another validation_file"
        )
