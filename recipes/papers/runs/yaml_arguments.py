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

from hf_focal.cli.main import OneLineParser

# ``--help`` leaves out all of TrainingArguments except these.
_COMMON = {"output_dir", "num_train_epochs", "learning_rate", "per_device_train_batch_size"}
_OTHERS = {field.name for field in fields(Seq2SeqTrainingArguments)} - _COMMON


class _Parser(HfArgumentParser, OneLineParser):
    """An `HfArgumentParser` with one-line errors and short help."""

    def shorten_help(self) -> None:
        """Hide most of `TrainingArguments` from the help, and cut each help text after its first phrase."""
        for action in self._actions:
            action.help = (
                argparse.SUPPRESS if action.dest in _OTHERS else re.split(r"[.;] | \(|\.$", action.help or "")[0]
            )


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each option's help text beside its first name, with the default unless that is None, False, or ""."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=27)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return action.option_strings[0]

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, "") else super()._get_help_string(action)


def parse_arguments(dataclass_types: Sequence[type], argv: Sequence[str], description: str | None = None) -> tuple:
    """Parse a command line into dataclasses. Its option ``--config FILE.yaml`` names a file of defaults.

    A value in the file means what the same text means on the command line, so that ``save_strategy: no`` is "no".
    A mapping becomes JSON text, and a list for an argument that takes a single text is joined with commas. ``bf16:
    auto`` in the file is true if the device computes in bfloat16.

    Args:
        dataclass_types: as for `transformers.HfArgumentParser`.
        argv: the command line without the program's name.
        description: text that ``--help`` shows first. ``--help`` leaves out most of `TrainingArguments`;
            ``--help-all`` shows all of them.

    Returns:
        One instance of each of `dataclass_types`, in the same order.

    Raises:
        SystemExit: an argument is unknown, or a value has the wrong type (argparse prints the error).
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
    """Return the settings of the config file that the command line overrides, and the file's other settings.

    Both dictionaries are empty without a config file. Values are text, as written in the file. Call this only after
    `parse_arguments`, which checks the file.
    """
    path = _config_path(argv)
    config = {} if path is None else yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    given = {part.partition("=")[0] for part in argv}
    overridden = {key: value for key, value in config.items() if f"--{key}" in given}
    return overridden, {key: value for key, value in config.items() if key not in overridden}


def _config_path(argv: Sequence[str], prog: str | None = None) -> Path | None:
    # A separate parser, because the file may hold arguments that the main parser requires.
    parser = OneLineParser(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    return parser.parse_known_args(argv)[0].config


def _as_command_line(path: Path, parser: HfArgumentParser) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"--config must be an existing file, got {str(path)!r}")
    text = path.read_text(encoding="utf-8")
    try:
        # Loaded once with YAML's types, and once as the text that was written, such as "no" or "5e-5".
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
