"""Command lines of dataclasses that may name a YAML file of arguments."""

import types
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from ...cli.one_line_parser import OneLineParser


class _Parser(HfArgumentParser):
    """The parser of dataclasses, with errors of one line."""

    error = OneLineParser.error


def parse_arguments(dataclass_types: Sequence[type], argv: Sequence[str], description: str | None = None) -> tuple:
    """Instances of the dataclasses from a command line that may name a YAML file of arguments.

    ``--config FILE.yaml`` supplies defaults, and any other argument of the command line wins over it. A value in the
    file means what the same text means on the command line, so that ``save_strategy: no`` is "no"; lists and mappings
    are taken by the arguments whose type has them.

    Args:
        dataclass_types: as `transformers.HfArgumentParser` takes them.
        argv: the command line without the program's name.
        description: shown by ``--help``.

    Raises:
        SystemExit: unknown arguments on the command line (argparse prints them).
        FileNotFoundError: there is no such config file.
        ValueError: a config file that is no mapping, or has a key that is no argument or a value of another type.
    """
    parser = _Parser(dataclass_types, description=description, allow_abbrev=False)
    parser.add_argument("--config", type=Path, help="A YAML file of arguments; the command line wins over it.")
    config_path = _config_path(argv, parser.prog)
    if config_path is not None:
        config = _read_config(config_path, dataclass_types)
        parser.set_defaults(**config)
        for action in parser._actions:
            action.required = action.required and action.dest not in config
    arguments = parser.parse_args(argv)
    values = {key: value for key, value in vars(arguments).items() if key != "config"}
    return parser.parse_dict(values)


def overridden_config(argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the config file of a command line says that the command line says otherwise, and the rest of that file.

    Values are as they are written; both are empty without ``--config``. `parse_arguments` has checked the file.
    """
    path = _config_path(argv)
    config = {} if path is None else yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    given = {part.partition("=")[0] for part in argv}
    overridden = {key: value for key, value in config.items() if f"--{key}" in given}
    return overridden, {key: value for key, value in config.items() if key not in overridden}


def _config_path(argv: Sequence[str], prog: str | None = None) -> Path | None:
    # By a parser of its own, as the config may have what the other one requires.
    parser = OneLineParser(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    return parser.parse_known_args(argv)[0].config


def _read_config(path: Path, dataclass_types: Sequence[type]) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"--config must be an existing file, got {str(path)!r}")
    text = path.read_text(encoding="utf-8")
    try:
        # Once as YAML understands the values, and once as they are written: "no", "5e-5".
        config, written = yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"--config {path} must hold YAML, got what is none: {error}") from error
    if not isinstance(config, Mapping):
        raise ValueError(f"--config {path} must hold a mapping of arguments, got {type(config).__name__}")
    hints: dict[str, Any] = {}
    for kind in dataclass_types:
        types_of_kind = get_type_hints(kind)
        hints |= {field.name: types_of_kind[field.name] for field in fields(kind) if field.init}
    for key in config:
        if key not in hints:
            near = get_close_matches(str(key), hints, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"--config {path} must hold arguments of this recipe alone, got {key!r}{hint}")
    return {key: _convert(f"--config {path}: {key}", config[key], written[key], hints[key]) for key in config}


def _convert(where: str, value: Any, written: Any, hint: Any) -> Any:
    """The value as the argument's type has it: of a scalar `value`, the text `written` decides."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    plain = [get_origin(kind) or kind for kind in kinds]
    if Any in plain:
        return value
    if value is None or isinstance(value, dict | list):
        if type(value) not in plain:
            raise ValueError(f"{where} must be {_expected(plain)}, got {value!r}")
        if not isinstance(value, list):
            return value
        (items,) = next((get_args(kind) for kind in kinds if get_origin(kind) is list), (str,))
        return [_convert(where, item, text, items) for item, text in zip(value, written, strict=True)]
    error = ValueError(f"{where} must be {_expected(plain)}, got {written!r}")
    # As on the command line, where a union with a str takes any text, and one of an Enum and a str the Enum's values.
    convert: Callable[[Any], Any] | None
    enum = next((kind for kind in plain if isinstance(kind, type) and issubclass(kind, Enum)), None)
    if enum is not None:
        convert = {member.value: member.value for member in enum}.__getitem__
    elif str in plain:
        convert = str
    elif bool in plain:
        convert = bool if isinstance(value, bool) else string_to_bool
        written = value if isinstance(value, bool) else written
    else:
        convert = next((kind for kind in plain if kind in (int, float)), None)
        if convert is None:
            raise error
    try:
        return convert(written)
    except (KeyError, TypeError, ValueError, ArgumentTypeError) as cause:
        raise error from cause


def _expected(kinds: Sequence[Any]) -> str:
    names = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            return f"one of {', '.join(repr(member.value) for member in kind)}"
        if kind is not type(None):
            name = getattr(kind, "__name__", str(kind))
            names.append(f"{'an' if name[0] in 'aeiou' else 'a'} {name}")
    return " or ".join(names)
