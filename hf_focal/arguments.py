"""What the recipes' command lines share: a YAML file of arguments, and an output folder that holds one run."""

import json
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool


def parse_arguments(dataclass_types: Sequence[type], argv: Sequence[str], description: str | None = None) -> tuple:
    """Instances of the dataclasses from a command line that may name a YAML file of arguments.

    ``--config FILE.yaml`` supplies defaults, and any other argument of the command line wins over it.

    Args:
        dataclass_types: as `transformers.HfArgumentParser` takes them.
        argv: the command line without the program's name.
        description: shown by ``--help``.

    Raises:
        SystemExit: unknown arguments on the command line (argparse prints them).
        ValueError: a config file that is no mapping, or has a key that is no argument or a
            value of another type.
    """
    parser = HfArgumentParser(dataclass_types, description=description, allow_abbrev=False)
    parser.add_argument("--config", type=Path, help="A YAML file of arguments; the command line wins over it.")
    config_path = parser.parse_known_args([arg for arg in argv if arg not in ("-h", "--help")])[0].config
    if config_path is not None:
        parser.set_defaults(**_read_config(config_path, parser))
    arguments = parser.parse_args(argv)
    values = {key: value for key, value in vars(arguments).items() if key != "config"}
    return parser.parse_dict(values)


def _read_config(path: Path, parser: HfArgumentParser) -> dict[str, Any]:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(config, Mapping):
        raise ValueError(f"--config {path} must hold a mapping of arguments, got {type(config).__name__}")
    actions = {action.dest: action for action in parser._actions if action.dest not in ("config", "help")}
    unknown = [key for key in config if key not in actions]
    if unknown:
        raise ValueError(f"--config {path} has {unknown[0]!r}, which is no argument of this recipe")
    return {key: _convert(f"--config {path}: {key}", value, actions[key].type) for key, value in config.items()}


def _convert(where: str, value: Any, kind: Any) -> Any:
    """YAML reads 5e-5 as a string, and a schedule 5/3/2 too: the argument's own type has the last word."""
    if not isinstance(value, str) or kind is None:
        return value
    try:
        return kind(value)
    except (ValueError, ArgumentTypeError) as error:
        name = "bool" if kind is string_to_bool else kind.__name__
        raise ValueError(f"{where} must be a {name}, got {value!r}") from error


def claim_output_dir(output_dir: str | Path, settings: Mapping[str, Any], write: bool = True) -> None:
    """Make `output_dir` the folder of the run with these settings, or check that it already is.

    A run that was interrupted can so be resumed, and no run continues from another's checkpoints.

    Args:
        output_dir: the run's folder.
        settings: JSON values that determine the run's result; kept in ``run.json``.
        write: whether this process writes the file (the main process of several).

    Raises:
        ValueError: the folder belongs to a run with other settings; they are named.
    """
    path = Path(output_dir) / "run.json"
    settings = json.loads(json.dumps(settings))
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        different = [
            f"{key}: {earlier.get(key)!r} there, {settings.get(key)!r} now"
            for key in sorted({*earlier, *settings})
            if earlier.get(key) != settings.get(key)
        ]
        if different:
            raise ValueError(
                f"output_dir {str(output_dir)!r} holds a run with other settings ({'; '.join(different)}): "
                "choose another folder, or delete this one"
            )
    elif write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
