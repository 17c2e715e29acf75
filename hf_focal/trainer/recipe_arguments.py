"""Command lines of recipes: dataclasses, a YAML file of defaults, and several losses."""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from os.path import isdir
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser, Seq2SeqTrainingArguments
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import is_torch_bf16_gpu_available

from ..errors import InputError
from ..losses import LossConfig
from ..utils.one_line_parser import OneLineParser

__all__ = ["loss_folder", "parse_arguments", "parse_losses", "parse_recipe"]

# ``--help`` leaves out all of TrainingArguments except these.
_COMMON = {"output_dir", "num_train_epochs", "learning_rate", "per_device_train_batch_size", "push_to_hub"}
_HIDDEN = {field.name for field in fields(Seq2SeqTrainingArguments)} - _COMMON


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and the description as it is: it has commands, one on a line."""


class _Parser(HfArgumentParser, OneLineParser):
    """An `HfArgumentParser` with one-line errors."""


def parse_recipe(
    recipe_arguments: type | Sequence[type],
    training_arguments: type,
    description: str | None = None,
    argv: Sequence[str] | None = None,
) -> tuple[Any, list[Any]]:
    """Parse the command line of a recipe into its own arguments and the training arguments of each run.

    Two options are added to those of the dataclasses. ``--config FILE.yaml`` names a file of defaults, whose values
    mean what the same text means on the command line; ``bf16: auto`` means bfloat16 if the device supports it. With
    ``--losses cross_entropy,focal:gamma=3``, there is one run for each loss, with a subfolder of `output_dir` and a
    Hub repository that are named after the loss. With ``--resume_from_checkpoint true``, each run's
    `resume_from_checkpoint` is the last checkpoint in its folder, or None if there is none.

    Args:
        recipe_arguments: dataclass of the recipe's own arguments, or several.
        training_arguments: `FocalTrainingArguments` or a subclass.
        description: text that ``--help`` shows first. ``--help-all`` also shows all fields of `TrainingArguments`.
        argv: the command line without the program's name; by default that of this process.

    Returns:
        A `recipe_arguments` (a tuple for several), and a list of `training_arguments`: a single one without
        ``--losses``.

    Raises:
        SystemExit: an argument is unknown or has the wrong type, or a config file is wrong. One line says what.
        InputError: ``--losses`` comes with ``--loss``, or names a loss twice.

    Examples:
        >>> from hf_focal import FocalTrainingArguments, parse_recipe
        >>> from hf_focal.tasks import DataArguments
        >>> command = "--train_file train.csv --output_dir out --losses cross_entropy,flsd53"
        >>> data, runs = parse_recipe(DataArguments, FocalTrainingArguments, "A recipe.", command.split())
        >>> data.train_file, [args.loss for args in runs]
        ('train.csv', ['cross_entropy', 'flsd53'])
    """
    recipe_types = [recipe_arguments] if isinstance(recipe_arguments, type) else [*recipe_arguments]
    losses_help = "train once with each of these losses: 'cross_entropy,focal:gamma=3'"
    parser, argv = _with_config([*recipe_types, training_arguments], argv, description, losses=losses_help)

    def parsed(*more: str) -> tuple[tuple[Any, ...], Any, str | None]:
        values = vars(parser.parse_args([*argv, *more]))
        losses = values.pop("losses")
        del values["config"]
        *recipe, args = parser.parse_dict(values)
        return tuple(recipe), args, losses

    recipes, args, losses = parsed()
    recipe = recipes[0] if isinstance(recipe_arguments, type) else recipes
    if losses is None:
        return recipe, [_resuming(args)]
    if any(part.partition("=")[0] == "--loss" for part in argv):
        raise InputError("losses", f"must be given without loss, got {losses!r} and {args.loss!r}")
    repository = args.hub_model_id or Path(args.output_dir).absolute().name
    runs = []
    for name in parse_losses(losses):
        model_id = f"{repository}-{re.sub('[^A-Za-z0-9.]+', '-', name)}"
        folder = loss_folder(args.output_dir, name)
        options = [f"--loss={name}", f"--output_dir={folder}", f"--hub_model_id={model_id}"]
        runs.append(_resuming(parsed(*options)[1]))
    return recipe, runs


def parse_arguments(
    dataclass_types: Sequence[type], argv: Sequence[str] | None = None, description: str | None = None
) -> tuple[Any, ...]:
    """Parse a command line, and the file of defaults that its ``--config`` names, into one object of each dataclass.

    Options, `description`, and errors are as in `parse_recipe`.
    """
    parser, argv = _with_config(dataclass_types, argv, description)
    values = vars(parser.parse_args(argv))
    del values["config"]
    return parser.parse_dict(values)


def parse_losses(text: str) -> list[str]:
    """Split a list of losses, such as ``"brier,flsd:thresholds=0.2/0.5,gammas=5/3/2"``, and normalize each of them.

    Raises:
        InputError: a loss is unknown or comes twice, or there is none.
    """
    # A comma is followed by the next loss, or by another option of the same one, which has no colon before its "=".
    names = [str(LossConfig.parse(part.strip())) for part in re.split(r",(?![^,:]*=)", text) if part.strip()]
    if not names or len({*names}) < len(names):
        raise InputError("losses", f"must be different losses, separated by commas, got {text!r}")
    return names


def loss_folder(output_dir: str | Path, loss: str) -> Path:
    """Return the folder of the run with `loss` in the folder of several runs, `output_dir`."""
    return Path(output_dir, re.sub(r"[^\w.-]+", "_", loss))


def _with_config(
    types: Sequence[type], argv: Sequence[str] | None, description: str | None, **more: str
) -> tuple[_Parser, list[str]]:
    """Return a parser of dataclasses, and the command line after the values of the file that it names.

    `more` has further options with their help.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    options: Any = {"formatter_class": _Help, "allow_abbrev": False}
    usage = "%(prog)s [--config FILE.yaml] [options]"
    # mypy does not see the constructor of HfArgumentParser.
    parser = _Parser(types, description=description, usage=usage, **options)  # type: ignore[arg-type]
    parser.add_argument("--config", type=Path, help="a YAML file of arguments; the command line wins over it")
    for name, text in more.items():
        parser.add_argument(f"--{name}", help=text)
    parser.add_argument("--help-all", action="help", help="show also all fields of TrainingArguments")
    if "--help-all" not in argv:
        for action in parser._actions:
            action.help = argparse.SUPPRESS if action.dest in _HIDDEN else (action.help or " ")
    first = OneLineParser(prog=parser.prog, add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    if (path := first.parse_known_args(argv)[0].config) is not None:
        parser.where = f", on the command line or in {path}"
        argv = [*_as_command_line(path, parser), *argv]
    return parser, argv


def _resuming(args: Any) -> Any:
    """Return `args` with the last checkpoint of its folder in place of "true" in `resume_from_checkpoint`."""
    if str(args.resume_from_checkpoint).lower() in ("true", "1", "yes"):
        args.resume_from_checkpoint = get_last_checkpoint(args.output_dir) if isdir(args.output_dir) else None
    return args


def _as_command_line(path: Path, parser: _Parser) -> list[str]:
    """Return the settings of a YAML file as arguments; exit with one line if the file or a key is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        # Loaded once with YAML's types, and once as the text that was written, such as "no" or "5e-5".
        config, written = yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        parser.error(f"--config {path} must be a YAML file: {' '.join(str(error).split())}")
    if not isinstance(config, Mapping):
        parser.error(f"--config {path} must hold a mapping of arguments, got {type(config).__name__}")
    actions = {action.dest: action for action in parser._actions if action.dest not in ("help", "help_all", "config")}
    argv: list[str] = []
    for key, value in config.items():
        if key not in actions:
            near = get_close_matches(str(key), actions, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            parser.error(f"--config {path} must hold arguments of this recipe only, got {key!r}{hint}")
        if isinstance(value, list):
            items = [str(item) for item in written[key]]
            argv += [f"--{key}", *items] if actions[key].nargs else [f"--{key}={','.join(items)}"]
        elif (key, value) == ("bf16", "auto"):
            argv.append(f"--bf16={is_torch_bf16_gpu_available()}")
        elif isinstance(value, Mapping):
            argv.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            argv.append(f"--{key}={written[key]}")
    return argv
