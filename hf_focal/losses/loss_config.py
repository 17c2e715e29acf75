"""`LossConfig`: the one value that says which loss, from the command line to the model card."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from .class_weighted_losses import ClassBalanced, RecallLoss
from .gamma_policies import ByBin, ByProbability, Fixed, Scheduled, gamma_for_threshold
from .loss_modules import MMCE, Brier, CrossEntropyFamily, LabelSmoothing, Loss
from .number_checks import at_least_0, finite, increasing


class LossSpec(NamedTuple):
    """What `hf_focal` knows of a loss: how it is built, its options and where it comes from."""

    build: Callable[..., Loss]
    options: dict[str, "Option"]
    summary: str
    source: str


class Option(NamedTuple):
    """An option of a loss.

    Attributes:
        kind: "number", "integer", "numbers", "flag" or a tuple of choices.
        default: the value where the option is not given.
        help: what it means.
        unless: other options, each of which takes the place of the default when it is given.
        always_shown: the short form names the option also where it has its default.
    """

    kind: str | tuple[str, ...]
    default: Any
    help: str
    unless: tuple[str, ...] = ()
    always_shown: bool = False


Numbers = tuple[float, ...]


def _focal(gamma: float | None, schedule: Numbers | None, switches: Numbers | None, p0: float | None) -> Loss:
    given = [name for name, value in (("gamma", gamma), ("schedule", schedule), ("p0", p0)) if value is not None]
    if len(given) != 1:
        raise ValueError(f"gamma, schedule and p0 must be given one at a time, got {' and '.join(given)}")
    if schedule is None:
        if switches is not None:
            raise ValueError(f"switches must come with schedule, got them with {given[0]}")
        gamma = at_least_0("gamma", gamma) if p0 is None else gamma_for_threshold(p0)
        return CrossEntropyFamily(Fixed(gamma))
    if switches is None:
        if len(schedule) != 3:
            raise ValueError(
                "switches must be given unless schedule has 3 gammas (then they are 100/350 and 250/350), got a "
                f"schedule of {len(schedule)}"
            )
        switches = (100 / 350, 250 / 350)
    if len(switches) != len(schedule) - 1:
        raise ValueError(
            f"switches must be one fewer than the gammas of schedule, got {len(switches)} switches for "
            f"{len(schedule)} gammas"
        )
    if not increasing([0.0, *switches, 1.0]):
        raise ValueError(f"switches must increase within (0, 1), got {format_value(switches)}")
    gammas = [at_least_0("schedule", gamma) for gamma in schedule]
    return CrossEntropyFamily(Scheduled(*zip((0.0, *switches), gammas, strict=True)))


def _flsd(thresholds: Numbers, gammas: Numbers | None, p0: Numbers | None = None) -> Loss:
    if p0 is not None:
        if gammas is not None:
            raise ValueError("gammas must not be given with p0, got both")
        if len(p0) != len(thresholds) + 1:
            raise ValueError(f"p0 must be one more than thresholds, got {len(p0)} p0 for {len(thresholds)} thresholds")
        gammas = tuple(gamma_for_threshold(p) for p in p0)
    return CrossEntropyFamily(ByProbability(thresholds, gammas or ()))


def _adafocal(bins: int, **options: float) -> Loss:
    if bins < 1:  # by the option's name
        raise ValueError(f"bins must be at least 1, got {bins}")
    return CrossEntropyFamily(ByBin(bins, **options))


def _class_balanced(beta: float | None, gamma: float, weights: Numbers | None) -> Loss:
    if beta is None:
        return ClassBalanced(gamma=gamma, weights=weights)
    if weights is not None:
        raise ValueError("beta must not be given with weights, got both")
    return ClassBalanced(beta, gamma)


_MUKHOTI = "Mukhoti et al. 2020"

LOSSES: dict[str, LossSpec] = {
    "cross_entropy": LossSpec(lambda: CrossEntropyFamily(Fixed(0)), {}, "-log p", "the baseline"),
    "label_smoothing": LossSpec(
        LabelSmoothing,
        {
            "alpha": Option(
                "number", 0.05, "share of the target that is spread over the classes, within [0, 1)", always_shown=True
            ),
            "convention": Option(
                ("torch", "paper"), "torch", "torch: α/K on all classes; paper: α/(K-1) on the others"
            ),
        },
        "cross-entropy against a smoothed target",
        "Szegedy et al. 2016; Kapoor 2023",
    ),
    "brier": LossSpec(Brier, {}, "Σ (softmax - onehot)²", "Brier 1950"),
    "mmce": LossSpec(
        MMCE,
        {
            "lam": Option("number", 2.0, "λ, the weight of the MMCE term: 2 for images, 8 for documents"),
            "weighted": Option("flag", False, "the weighted form of the term"),
            "gather": Option("flag", False, "on several processes: one term over the rows of all, not one for each"),
        },
        "cross-entropy + λ · maximum mean calibration error",
        "Kumar et al. 2018",
    ),
    "focal": LossSpec(
        _focal,
        {
            "gamma": Option("number", 3.0, "γ, at least 0", unless=("schedule", "p0"), always_shown=True),
            "schedule": Option("numbers", None, "γ of each stage of the training: 5/3/2"),
            "switches": Option("numbers", None, "shares of the training where the stage changes; 100/350 and 250/350"),
            "p0": Option("number", None, "instead of gamma: the probability, in (0, 0.5), where g(p0, γ) = 1"),
        },
        "(1-p)^γ · -log p",
        f"Lin et al. 2017; {_MUKHOTI}",
    ),
    "flsd53": LossSpec(lambda: _flsd((0.2,), (5, 3)), {}, "focal, γ = 5 if p < 0.2 else 3", _MUKHOTI),
    "flsd532": LossSpec(
        lambda: _flsd((0.2, 0.5), (5, 3, 2)), {}, "focal, γ = 5 if p < 0.2, 3 if p < 0.5, else 2", _MUKHOTI
    ),
    "flsd": LossSpec(
        _flsd,
        {
            "thresholds": Option("numbers", (0.2,), "probabilities where γ changes, increasing within (0, 1)"),
            "gammas": Option(
                "numbers", (5.0, 3.0), "γ below, between and above the thresholds", ("p0",), always_shown=True
            ),
            "p0": Option("numbers", None, "instead of gammas: the probabilities where g(p0, γ) = 1"),
        },
        "focal, γ by the row's own p",
        _MUKHOTI,
    ),
    "inverse_focal": LossSpec(
        lambda gamma: CrossEntropyFamily(Fixed(-at_least_0("gamma", gamma))),
        {"gamma": Option("number", 2.0, "γ, at least 0", always_shown=True)},
        "(1+p)^γ · -log p: raises confidence",
        "Ghosh et al. 2022",
    ),
    "adafocal": LossSpec(
        _adafocal,
        {
            "bins": Option("integer", 15, "number of bins, each with its own γ"),
            "lam": Option("number", 1.0, "λ, how fast γ follows the calibration gap"),
            "switch": Option("number", 0.2, "S, below which |γ| changes sign (focal ↔ inverse focal)"),
            "gamma_max": Option("number", 20.0, "largest γ"),
            "gamma_min": Option("number", -2.0, "smallest γ"),
        },
        "focal or inverse focal, γ of each bin moved by its calibration on held-out data",
        "Ghosh et al. 2022",
    ),
    "recall": LossSpec(
        RecallLoss,
        {
            "ema": Option("number", None, "α of the average recall over the steps, in (0, 1]; if absent the batch's"),
            "gamma": Option("number", 0.0, "γ of the focal loss that is weighted, at least 0"),
        },
        "(1 - recall of the class) · -log p, or · focal",
        "Tian et al. 2021",
    ),
    "class_balanced": LossSpec(
        _class_balanced,
        {
            "beta": Option("number", 1.0, "β of the effective number of rows, in [0, 1]", unless=("weights",)),
            "gamma": Option("number", 0.0, "γ of the focal loss that is weighted, at least 0"),
            "weights": Option("numbers", None, "instead of beta: the weight of each class, 1/2/5, used as given"),
        },
        "w · -log p, or · focal, w the inverse of the class's number of training rows",
        "Cui et al. 2019",
    ),
}


@dataclass(frozen=True)
class LossConfig:
    """Which loss with which options. Made by `parse`; equal configs describe equal losses.

    Attributes:
        name: a key of `LOSSES`.
        options: every option of that loss, defaults filled in where it is missing or None. Read-only.
    """

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)}, got {self.name!r}{_nearest(self.name, LOSSES)}"
            )
        known = LOSSES[self.name].options
        for key in self.options:
            if key not in known:
                expected = f"be among {', '.join(known)}" if known else "be none"
                hint = _weights_hint(self.options) if (self.name, key) == ("focal", "alpha") else _nearest(key, known)
                raise ValueError(f"options of loss {self.name} must {expected}, got {key!r}{hint}")
        given = {key: value for key, value in self.options.items() if value is not None}
        values = {}
        for key, option in known.items():
            default = None if given.keys() & set(option.unless) else option.default
            values[key] = _convert(self.name, key, given[key], option) if key in given else default
        object.__setattr__(self, "options", MappingProxyType(values))
        build_loss(self)  # options that do not fit together are refused here, not when training starts

    @classmethod
    def parse(cls, value: "str | Mapping[str, Any] | LossConfig") -> "LossConfig":
        """A `LossConfig` from any way of writing one.

        Args:
            value: ``"focal:gamma=3"``, ``"flsd:thresholds=0.2/0.5,gammas=5/3/2"``; a mapping
                ``{"name": "focal", "gamma": 3}``; YAML or JSON text of such a mapping, or the path of a ``.yaml`` file
                with it; or a `LossConfig`, returned as it is.

        Raises:
            ValueError: text that is no YAML, an unknown loss or option (the nearest is suggested), or a value out of
                range.
            TypeError: any other type.
            FileNotFoundError: there is no such file.
        """
        if isinstance(value, LossConfig):
            return value
        if isinstance(value, str):
            text = value.strip()
            if text.endswith((".yaml", ".yml")):
                if not Path(text).is_file():
                    raise FileNotFoundError(f"loss must be an existing file, got {text!r}")
                value = _load(Path(text).read_text(encoding="utf-8"))
            elif text.startswith("{") or "name" in text:  # so that "focal: gamma=3" is the short form too
                value = _load(text)
            else:
                return cls._parse_short(text)
            if isinstance(value, str):
                return cls._parse_short(value)
        if not isinstance(value, Mapping):
            raise TypeError(f"loss must be a string, a mapping or a LossConfig, got {value!r}")
        options = dict(value)
        if "name" not in options:
            raise ValueError(f"loss must have a 'name', one of {', '.join(LOSSES)}, got {dict(value)}")
        return cls(str(options.pop("name")), options)

    @classmethod
    def parse_list(cls, text: str) -> "list[LossConfig]":
        """The configs of ``"cross_entropy,flsd:thresholds=0.2/0.5,gammas=5/3/2,brier"``: a comma also separates the
        options of one loss, so what has a "=" but no name belongs to the loss before it.

        Raises:
            ValueError: what `parse` raises; an empty list; the same loss twice.
        """
        items: list[str] = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            is_option = "=" in part and ":" not in part
            if is_option and items:
                items[-1] += f",{part}"
            else:
                items.append(part)
        configs = [cls.parse(item) for item in items]
        if not configs:
            raise ValueError(f"losses must name at least one of {', '.join(LOSSES)}, got {text!r}")
        for index, config in enumerate(configs):
            if config in configs[:index]:
                raise ValueError(f"losses must differ from each other, got {config} twice in {text!r}")
        return configs

    @classmethod
    def _parse_short(cls, text: str) -> "LossConfig":
        name, colon, rest = text.partition(":")
        words = [word for word in re.split(r"[\s,]+", name) if word]
        if not colon and "=" in text and words[0].lower() in LOSSES:
            meant = f"{words[0].lower()}:{','.join(words[1:])}"
            raise ValueError(f"loss must have a colon before its options, got {text!r}: did you mean {meant!r}?")
        options: dict[str, str] = {}
        for item in filter(None, rest.split(",")):
            key, equals, option = item.partition("=")
            if not equals or not option.strip():
                raise ValueError(f"loss options must be written name:key=value,key=value, got {item!r} in {text!r}")
            if key.strip() in options:
                raise ValueError(f"loss option {key.strip()!r} must be given once, got it twice in {text!r}")
            options[key.strip()] = option.strip()
        return cls(name.strip(), options)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON and YAML values: the name and every option; `parse` reads it back."""
        return {
            "name": self.name,
            **{
                key: list(value) if isinstance(value, tuple) else value
                for key, value in self.options.items()
                if value is not None
            },
        }

    def __str__(self) -> str:
        """The short form, without most options that have their default; `parse` reads it back."""
        known = LOSSES[self.name].options
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


def build_loss(config: str | Mapping[str, Any] | LossConfig) -> Loss:
    """The loss module that a config describes.

    Args:
        config: anything that `LossConfig.parse` takes.

    Returns:
        A module called as ``loss(logits, labels, reduction="mean", num_items=None)``; see `Loss.forward`.

    Raises:
        TypeError, ValueError, FileNotFoundError: what `LossConfig.parse` raises.
    """
    config = LossConfig.parse(config)
    try:
        return LOSSES[config.name].build(**config.options)
    except ValueError as error:
        raise ValueError(f"loss {config.name}: {error}") from None


def format_value(value: Any) -> str:
    """An option's value as the short form has it: ``5/3/2``, ``true``, ``2`` for 2.0."""
    if isinstance(value, tuple):
        return "/".join(format_value(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    return str(value)


def _load(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"loss must be YAML or JSON of a mapping, got {text!r}: {error}") from None


def _convert(loss: str, key: str, value: Any, option: Option) -> Any:
    problem = f"loss {loss}: {key} must be {{}}, got {value!r}"
    if isinstance(option.kind, tuple):
        if value not in option.kind:
            raise ValueError(problem.format(f"one of {', '.join(option.kind)}") + _nearest(value, option.kind))
        return value
    if option.kind == "flag":
        flag = {"true": True, "false": False}.get(str(value).lower())
        if flag is None:
            raise ValueError(problem.format("true or false"))
        return flag
    if option.kind == "numbers":
        parts = value.split("/") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        try:
            numbers = tuple(_number(key, part) for part in parts)
        except ValueError:
            numbers = ()
        if not numbers:
            raise ValueError(problem.format("numbers separated by '/', as 5/3/2"))
        return numbers
    try:
        number = _number(key, value)
    except ValueError:
        raise ValueError(problem.format("a finite number")) from None
    if option.kind == "integer":
        if number != int(number):
            raise ValueError(problem.format("a whole number"))
        return int(number)
    return number


def _number(key: str, value: Any) -> float:
    return finite(key, float(value) if isinstance(value, str) else value)


def _weights_hint(options: Mapping[str, Any]) -> str:
    """The ending of a message about α, which in focal loss of a softmax is a weight of each class."""
    gamma = options.get("gamma", 3)
    return (
        f": for a softmax α is a weight of each class, class_balanced:weights=0.25/0.75,gamma={gamma} for two of "
        "them, whose sum is divided by the number of rows N, not by Σ w as in F.cross_entropy"
    )


def _nearest(word: Any, known: Iterable[str]) -> str:
    """The ending of a message that suggests one of the known words: the nearest, or that of these initials."""
    word, known = str(word).lower(), list(known)
    initials = {"".join(part[0] for part in name.split("_")): name for name in known if "_" in name}
    matches = [initials[word]] if word in initials else difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {matches[0]!r}?" if matches else ""
