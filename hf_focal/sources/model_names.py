"""What reports call a model: by the loss that it was trained with, and by a name that may be published."""

from pathlib import Path

import yaml

from ..errors import InputError, one_line
from ..losses import LossConfig
from ..losses.loss_config import known_loss
from ..utils.names import path_name


def loss_of(model: str | Path) -> str:
    """Return the loss that the report in a model's folder names.

    Without a report, return the `path_name` of `model`, with "model" in front if that is also the name of a loss.

    Raises:
        ValueError: the file report/loss.yaml in the folder does not hold a loss.
    """
    path = Path(model) / "report" / "loss.yaml"
    if not path.is_file():
        name = path_name(str(model))
        return name if known_loss(name) is None else f"model {name}"
    try:
        return str(LossConfig.parse(yaml.safe_load(path.read_text(encoding="utf-8"))))
    except (ValueError, TypeError, OSError, yaml.YAMLError) as error:
        raise InputError(str(path), f"must hold the loss of a run's report, got {one_line(error)}") from error


def public_name(name: str) -> str:
    """Return a model's or dataset's name for reports, which may be published: a Hub id, or the `path_name`."""
    return path_name(name) if Path(name).exists() else name
