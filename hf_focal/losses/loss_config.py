"""`LossConfig`: the name and options of a loss, converted from and to text and mappings."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args, get_origin

import yaml

from ..errors import InputError, require
from ..validation import check_number
from .base_loss import LOSSES, Loss, Option
from .sigmoid_loss import SIGMOID_OPTIONS, SigmoidLoss, has_sigmoid

# Names of the weights of classes in other libraries, and in `class_balanced`.
_CLASS_WEIGHTS = ("weights", "weight", "class_weights", "class_weight")


@dataclass(frozen=True)
class LossConfig:
    """The name and options of a loss. Equal configs describe equal losses.

    Attributes:
        name: a key of `LOSSES`.
        options: the value of every option of that loss, plus any of `SIGMOID_OPTIONS` that are given. An option that
            is not given, or given as None, has its default, or None if another given option replaces it. Read-only.
        link: "sigmoid" if an option is given that only sigmoid heads have, "softmax" otherwise.

    Examples:
        >>> from hf_focal import LossConfig
        >>> LossConfig.parse("focal:gamma=3") == LossConfig.parse({"name": "focal", "gamma": 3})
        True
        >>> str(LossConfig.parse("flsd:thresholds=0.2/0.5,gammas=5/3/2"))
        'flsd:thresholds=0.2/0.5,gammas=5/3/2'
    """

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        name = self.name
        expected = f"must be one of {', '.join(LOSSES)}"
        require(name in LOSSES, "loss", f"{expected}, got {name!r}{_nearest(name, LOSSES)}")
        loss_options, known = LOSSES[name].options, self._known_options()
        expected = f"of loss {name} must {'be among ' + ', '.join(loss_options) if loss_options else 'be none'}"
        for key in self.options:
            if key not in known and key in _CLASS_WEIGHTS:
                raise InputError("loss", f"{name} has no {key}: {self._with_class_weights(self.options[key])}")
            require(key in known, "options", f"{expected}, got {key!r}{_nearest(key, known)}")
        set_options = {key: value for key, value in self.options.items() if value is not None}
        values = {}
        for key, option in known.items():
            replacements = [other for other in option.unless if other in set_options]
            if key in set_options:
                clash = f"{name}: {key} must not be given with {', '.join(replacements)}, got both"
                require(not replacements, "loss", clash)
                values[key] = _convert(name, key, set_options[key], option)
            elif key in loss_options:
                values[key] = None if replacements else option.default
        object.__setattr__(self, "options", MappingProxyType(values))
        build_loss(self, self.link)  # reject incompatible options now, not when training starts

    def _known_options(self) -> dict[str, Option]:
        loss = LOSSES[self.name]
        return loss.options | SIGMOID_OPTIONS | loss.options if has_sigmoid(loss) else loss.options

    def _with_class_weights(self, weights: Any) -> str:
        """Return the hint to use the loss that has the weights of classes, with the γ of this config, if any."""
        gamma = self.options.get("gamma") if "gamma" in LOSSES[self.name].options else None
        values = weights.tolist() if hasattr(weights, "tolist") else weights
        shown = format_value(tuple(values) if isinstance(values, list | tuple) else values)
        short = f"class_balanced:weights={shown}" + (f",gamma={format_value(gamma)}" if gamma is not None else "")
        return (
            f"use {short}, cross-entropy or focal loss with a weight of each class, whose sum is divided by the "
            "number of samples, not by Σ w as F.cross_entropy divides it"
        )

    @property
    def link(self) -> str:
        return "softmax" if self.options.keys() <= LOSSES[self.name].options.keys() else "sigmoid"

    @classmethod
    def parse(cls, value: "str | Mapping[str, Any] | LossConfig") -> "LossConfig":
        """Create a `LossConfig` from any form in which a loss can be written.

        `value` is ``"focal:gamma=3"``, ``"flsd:thresholds=0.2/0.5,gammas=5/3/2"``; a mapping ``{"name": "focal",
        "gamma": 3}``; YAML or JSON text of such a mapping, or the path of a ``.yaml`` file that contains it; or a
        `LossConfig`. Raises InputError for another type, invalid YAML, an unknown loss or option (a similar name, if
        any, is suggested), or an option's value out of range, and FileNotFoundError if there is no such file.
        """
        if isinstance(value, LossConfig):
            return value
        if isinstance(value, str):
            text = value.strip()
            if text.endswith((".yaml", ".yml")):
                if not Path(text).is_file():
                    raise FileNotFoundError(f"loss must be an existing file, got {text!r}")
                value = _load(Path(text).read_text(encoding="utf-8"))
            elif text.startswith("{") or "name" in text:  # "focal: gamma=3" is not YAML but the short form
                value = _load(text)
            if isinstance(value, str):
                return cls._parse_short(value.strip())
        if not isinstance(value, Mapping):
            raise InputError("loss", f"must be a string, a mapping or a LossConfig, got {value!r}")
        options = dict(value)
        require("name" in options, "loss", f"must have a 'name', one of {', '.join(LOSSES)}, got {options}")
        return cls(str(options.pop("name")), options)

    @classmethod
    def _parse_short(cls, text: str) -> "LossConfig":
        name, colon, rest = text.partition(":")
        words = [word for word in re.split(r"[\s,]+", name) if word]
        if not colon and "=" in text and words[0].lower() in LOSSES:
            meant = f"{words[0].lower()}:{','.join(words[1:])}"
            raise InputError("loss", f"must have a colon before its options, got {text!r}: did you mean {meant!r}?")
        options: dict[str, str] = {}
        for item in filter(None, rest.split(",")):
            key, _, option = (part.strip() for part in item.partition("="))
            written = f"must be written name:key=value,key=value, got {item!r} in {text!r}"
            require(bool(option), "loss options", written)
            require(key not in options, f"loss option {key!r}", f"must be given once, got it twice in {text!r}")
            options[key] = option
        return cls(name.strip(), options)

    def to_dict(self) -> dict[str, Any]:
        """Return a mapping of the name and every option that is not None, as JSON values that `parse` reads back."""
        set_options = {key: value for key, value in self.options.items() if value is not None}
        return {"name": self.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in set_options.items()}}

    def __str__(self) -> str:
        """Return the short form (``focal:gamma=3``), which `parse` reads back and which omits most default values."""
        known = self._known_options()
        shown = [
            f"{key}={format_value(value)}"
            for key, value in self.options.items()
            if value is not None and (value != known[key].default or known[key].always_shown)
        ]
        return self.name + (":" + ",".join(shown) if shown else "")

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (self.to_dict(),)


def build_loss(config: str | Mapping[str, Any] | LossConfig, link: str = "softmax") -> Loss:
    """Build the loss module that a config describes.

    Args:
        config: the loss, in any form that `LossConfig.parse` accepts.
        link: "softmax" for one class per sample (see `Loss.forward`); "sigmoid" for several labels per sample or for a
            single logit (see `SigmoidLoss`).

    Examples:
        >>> import torch
        >>> from hf_focal import build_loss
        >>> loss = build_loss("focal:gamma=2")
        >>> round(loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item(), 4)
        0.0227
    """
    config = LossConfig.parse(config)
    require(link in ("softmax", "sigmoid"), "link", f"must be 'softmax' or 'sigmoid', got {link!r}")
    loss_options = LOSSES[config.name].options
    sigmoid_options = {key: value for key, value in config.options.items() if key not in loss_options}
    if sigmoid_options and link == "softmax":
        gamma, alpha = format_value(config.options.get("gamma") or 0.0), config.options.get("alpha") or 0.25
        problem = (
            f"must be 'sigmoid' with {', '.join(sigmoid_options)}, got {config}: a softmax has a weight of each "
            f"class: class_balanced:weights={1 - alpha:g}/{alpha:g},gamma={gamma} is α = {alpha:g}, but its sum is "
            "divided by the number of samples N, not by Σ w as F.cross_entropy divides it"
        )
        raise InputError("link", problem)
    try:
        loss = LOSSES[config.name](**{key: config.options[key] for key in loss_options})
        state = [name for name, _ in (*loss.named_parameters(), *loss.named_buffers())]
        require(not state, "state", f"must be in get_extra_state, as JSON, got parameters or buffers {state}")
        return loss if link == "softmax" else SigmoidLoss(loss, **sigmoid_options)
    except ValueError as error:
        raise InputError("loss", f"{config.name}: {error}") from None


def format_value(value: Any) -> str:
    """Format an option's value for the short form: ``5/3/2``, ``true``, ``2`` for 2.0."""
    if isinstance(value, tuple):
        return "/".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    return str(value)


def _load(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("loss", f"must be a mapping in YAML or JSON, got {text!r}: {error}") from None


def _convert(loss: str, key: str, value: Any, option: Option) -> Any:
    """Convert a given value, which may be text, an array, or a tensor, to the option's type."""
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = get_args(option.kind)
    kind = parts[0] if NoneType in parts else option.kind
    if get_origin(kind) is Literal:
        converted = value if value in parts else None
        expected = f"one of {', '.join(parts)}"
    elif kind is bool:
        converted, expected = {"true": True, "false": False}.get(str(value).lower()), "true or false"
    elif kind in (int, float):
        converted, expected = _number(value), "a finite number"
        if kind is int and converted is not None:
            converted, expected = int(converted) if converted.is_integer() else None, "a whole number"
    else:
        numbers = value.split("/") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        converted, expected = tuple(map(_number, numbers)), "numbers separated by '/', such as 5/3/2"
        converted = None if None in converted or not converted else converted
    if converted is None:
        hint = _nearest(value, parts) if get_origin(kind) is Literal else ""
        raise InputError("loss", f"{loss}: {key} must be {expected}, got {value!r}{hint}")
    return converted


def _number(value: Any) -> float | None:
    try:
        return check_number("value", float(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def _nearest(word: Any, known: Iterable[str]) -> str:
    """Return a suggestion to append to a message: the known name with the initials `word`, or a similar name."""
    word, known = str(word).lower(), list(known)
    initials = {"".join(part[0] for part in name.split("_")): name for name in known if "_" in name}
    matches = [initials[word]] if word in initials else difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {matches[0]!r}?" if matches else ""


def known_loss(name: str) -> LossConfig | None:
    """Parse the `loss` of a result. Return None if it names no loss, as for a model that was trained elsewhere."""
    try:
        return None if name.endswith((".yaml", ".yml")) else LossConfig.parse(name)
    except (TypeError, ValueError):
        return None
