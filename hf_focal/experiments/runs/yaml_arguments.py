"""Command lines of dataclasses, with a YAML file of defaults."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser, Seq2SeqTrainingArguments
from transformers.utils import is_torch_bf16_gpu_available

from ...cli.main import OneLineParser

# What ``--help`` leaves out: all of TrainingArguments but these.
_COMMON = {"output_dir", "num_train_epochs", "learning_rate", "per_device_train_batch_size"}
_OTHERS = {field.name for field in fields(Seq2SeqTrainingArguments)} - _COMMON


class _Parser(HfArgumentParser, OneLineParser):
    """The parser of dataclasses, with one-line errors."""

    def shorten_help(self) -> None:
        """Leave out most of `TrainingArguments`, and all but the beginning of each text."""
        for action in self._actions:
            action.help = (
                argparse.SUPPRESS if action.dest in _OTHERS else re.split(r"[.;] | \(|\.$", action.help or "")[0]
            )


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help texts beside the first name of each option, with the defaults that say something."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=27)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return action.option_strings[0]

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, "") else super()._get_help_string(action)


def parse_arguments(dataclass_types: Sequence[type], argv: Sequence[str], description: str | None = None) -> tuple:
    """Parse a command line into dataclasses; ``--config FILE.yaml`` gives defaults.

    A value in the file means what the same text means on the command line, so that ``save_strategy: no`` is "no".
    A mapping becomes JSON text, and a list for an argument that takes a single text is joined with commas. ``bf16:
    auto`` in the file is true where the device computes in bfloat16.

    Args:
        dataclass_types: as for `transformers.HfArgumentParser`.
        argv: the command line without the program's name.
        description: shown by ``--help``, which leaves most of `TrainingArguments` to ``--help-all``.

    Raises:
        SystemExit: unknown arguments, or values of the wrong type (argparse prints them).
        FileNotFoundError: the config file does not exist.
        ValueError: the config file is not a mapping, or has an unknown key.
    """
    options: dict[str, Any] = {"formatter_class": _Formatter, "usage": "%(prog)s [--config FILE.yaml] [options]"}
    # mypy does not see the constructor of HfArgumentParser.
    parser = _Parser(dataclass_types, description=description, allow_abbrev=False, **options)  # type: ignore[arg-type]
    parser.add_argument("--help-all", action="help", help="show also all TrainingArguments")
    parser.add_argument("--config", type=Path, help="A YAML file of arguments; the command line wins over it.")
    parser._action_groups.append(parser._action_groups.pop(1))  # the recipe's own options come first
    if "--help-all" not in argv:
        parser.shorten_help()
    path = _config_path(argv, parser.prog)
    if path is not None:
        parser.where = f", on the command line or in {path}"
        argv = [*_as_command_line(path, parser), *argv]
    values = vars(parser.parse_args(argv))
    del values["config"]
    return parser.parse_dict(values)


def overridden_config(argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command line overrides of its config file, and the rest of the file; both are empty without one.

    Values are as they are written. `parse_arguments` has checked the file.
    """
    path = _config_path(argv)
    config = {} if path is None else yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    given = {part.partition("=")[0] for part in argv}
    overridden = {key: value for key, value in config.items() if f"--{key}" in given}
    return overridden, {key: value for key, value in config.items() if key not in overridden}


def _config_path(argv: Sequence[str], prog: str | None = None) -> Path | None:
    # A parser of its own: the file may hold what the other one requires.
    parser = OneLineParser(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    return parser.parse_known_args(argv)[0].config


def _as_command_line(path: Path, parser: HfArgumentParser) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"--config must be an existing file, got {str(path)!r}")
    text = path.read_text(encoding="utf-8")
    try:
        # Once with YAML's types, and once as written: "no", "5e-5".
        config, written = yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"--config {path} is not valid YAML: {error}") from error
    if not isinstance(config, Mapping):
        raise ValueError(f"--config {path} must hold a mapping of arguments, got {type(config).__name__}")
    actions = {action.dest: action for action in parser._actions if action.dest not in ("help", "help_all", "config")}
    argv: list[str] = []
    for key, value in config.items():
        if key not in actions:
            near = get_close_matches(str(key), actions, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"--config {path} must hold arguments of this recipe only, got {key!r}{hint}")
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in written[key]):
                raise ValueError(f"--config {path}: {key} must be a value or a flat list, got {value}")
            argv += [f"--{key}", *written[key]] if actions[key].nargs else [f"--{key}={','.join(written[key])}"]
        elif (key, value) == ("bf16", "auto"):
            argv.append(f"--bf16={is_torch_bf16_gpu_available()}")
        elif isinstance(value, Mapping):
            argv.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            argv.append(f"--{key}={written[key]}")
        elif actions[key].default is not None:
            raise ValueError(f"--config {path}: {key} must have a value, got null")
    return argv
