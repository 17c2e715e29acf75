"""The `hf-focal` commands that consoles and pages advise: what follows a run of `evaluate` or `calibrate`.

Outside of the parser, only this module builds whole commands; tests parse whatever it returns. Errors may name an
option that mends them.
"""

import itertools
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .tasks.file_formats import FORMATS, is_file
from .utils.names import DataName

# Arguments of `hf-focal evaluate` that `calibrate` does not take, or that would mean something else there.
_OF_EVALUATE = (
    *("split", "coverage", "threshold_dataset", "threshold_split", "threshold_scores", "reference"),
    *("output", "save_scores"),
)
# Arguments that a command for another threshold does not repeat.
_OLD_GOAL = ("precision", "coverage", "recall", "f1", "cost", "push_to_hub", "private", "reference", "save_scores")
_NUMBERS = ("cost", "new_prior")  # arguments that are numbers with commas between them
_WITH_LINE_BREAKS = ("prompt", "system")  # whose line breaks the parser reads as backslash and n
# Files that stand for data that the user does not have yet, without their suffix: that of the user's own file.
_HELD_OUT, _TEST, _NEW = "held_out", "test", "new"
_DEFAULT_SUFFIX = ".csv"
_TABLE_SUFFIXES = (*FORMATS, ".npz", ".npy")
# What `hf-focal apply` writes for files in formats that it only reads.
_WRITTEN_FOR = {".json": ".jsonl", ".npz": ".jsonl", ".npy": ".jsonl"}


@dataclass(frozen=True)
class CommandLine:
    """An `hf-focal` command: its name, its arguments as its parser returns them, and those without a name first."""

    name: str
    arguments: Mapping[str, Any]
    positional: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the command as a shell reads it."""
        words = [*self.positional]
        for name, value in self.arguments.items():
            words += _words_of(name, value)
        return shlex.join(["hf-focal", self.name, *words])

    def extends(self, other: "CommandLine") -> bool:
        """Return whether this is the other command, perhaps with more arguments at its end."""
        shared = [*self.arguments.items()][: len(other.arguments)]
        return self.name == other.name and shared == [*other.arguments.items()]


def _words_of(name: str, value: Any) -> list[str]:
    """Return the words of an argument; the model has no name before it."""
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    values = [f"{old}={new}" for old, new in value.items()] if isinstance(value, Mapping) else [str(value)]
    if isinstance(value, tuple | list):
        texts = (f"{item:.15g}" for item in value) if name in _NUMBERS else map(str, value)
        values = [",".join(texts)]
    if name in _WITH_LINE_BREAKS:
        values = [values[0].replace("\n", "\\n")]
    if name == "model":
        return values
    if values[0].startswith("-"):  # which would be read as an option
        return [f"--{name}={values[0]}"]
    return [f"--{name}", *values]


def option(name: str, value: Any) -> str:
    """Return an option with its value, such as "--precision 0.9", to be added to a command."""
    return shlex.join(_words_of(name, value))


def apply_command(correction: str, scores: str, output: str) -> CommandLine:
    """Return the command that adds calibrated probabilities to the scores in a file."""
    suffix = suffix_of(scores)
    return CommandLine("apply", {"output": f"{output}{_WRITTEN_FOR.get(suffix, suffix)}"}, (correction, scores))


def suffix_of(file: str | None) -> str:
    """Return the suffix of a file of scores, or of those in a folder; ".csv" if it is unknown."""
    if file is None:
        return _DEFAULT_SUFFIX
    path = Path(file)
    paths = itertools.chain([path], path.rglob("*") if path.is_dir() else ())
    suffixes = (part.suffix.lower() for part in paths)
    return next((suffix for suffix in suffixes if suffix in _TABLE_SUFFIXES), _DEFAULT_SUFFIX)


def report_command(*folders: str) -> CommandLine:
    """Return the command that compares runs: those in one folder, or those whose folders are given."""
    return CommandLine("report", {"output": "comparison.html"}, folders)


@dataclass(frozen=True)
class RunCommands:
    """The commands that follow a run.

    Attributes:
        name: the command that measured: "evaluate" or "calibrate".
        arguments: its arguments, as its parser returns them.
        has_folders: whether the names of the user's files have their folders, which a result does not hold.
    """

    name: str
    arguments: Mapping[str, Any]
    has_folders: bool = True

    @classmethod
    def recorded(
        cls,
        *,
        model: str | None,
        fitted_on: str | None,
        measured_on: str | None,
        new_prior: list[float] | None,
        options: Mapping[str, Any],
        output: str,
    ) -> "RunCommands":
        """Return those that follow a run of which only the result is known.

        `model` is None for a table of scores. `fitted_on` (None without a correction) and `measured_on` name the data,
        and `options` are those of the data.
        """
        arguments: dict[str, Any]
        measured = _name_and_split(measured_on or f"{_TEST}{_DEFAULT_SUFFIX}")
        fitted = measured if fitted_on is None else _name_and_split(fitted_on)
        if model is None:
            arguments = {"scores": fitted[0]} | ({"test_scores": measured[0]} if fitted != measured else {})
        else:
            arguments = {"model": model, "dataset": fitted[0], "split": fitted[1]}
            arguments |= {"test_dataset": measured[0], "test_split": measured[1]} if fitted != measured else {}
        prior = {} if new_prior is None else {"new_prior": new_prior}
        name = "evaluate" if fitted_on is None else "calibrate"
        return cls(name, {**arguments, **prior, **options, "output": output}, has_folders=False)

    @property
    def output(self) -> str | None:
        """The folder that the run wrote, or that it was written to."""
        return self.arguments.get("output")

    @property
    def repository(self) -> str | None:
        """The repository on the Hub that the run published."""
        return self.arguments.get("push_to_hub")

    @property
    def is_of_onnx(self) -> bool:
        return "onnx" in self.arguments

    @property
    def held_out_file(self) -> str:
        """The name of a file with more labeled data in the format of the user's own."""
        return f"{_HELD_OUT}{self._suffix}"

    @property
    def test_file(self) -> str:
        """The name of a file with other labeled data in the format of the user's own."""
        return f"{_TEST}{self._suffix}"

    @property
    def new_file(self) -> str:
        """The name of a file with new scores in the format of the user's own."""
        return f"{_NEW}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return suffix_of(
            None if self._has_splits else str(self.arguments["scores" if self._is_of_table else "dataset"])
        )

    @property
    def data_note(self) -> str:
        """What follows a command in a sentence, to say which data its names stand for; "" if they are the user's."""
        if self.name == "calibrate":
            return ""
        data = "the split validation has data" if self._has_splits else f"{self.held_out_file} has labeled data"
        return f", where {data} that the model was not trained on"

    @property
    def _is_of_table(self) -> bool:
        return "scores" in self.arguments

    @property
    def _has_splits(self) -> bool:
        """Whether the data are a dataset with splits, rather than a file."""
        return not self._is_of_table and not is_file(str(self.arguments["dataset"]))

    @cached_property
    def _next(self) -> dict[str, Any]:
        """The arguments of the next `calibrate`: of the same data or, after `evaluate`, of held-out ones.

        After `evaluate`, the measured data become the test data.
        """
        output = _new_folder(self.arguments, self.output if self.name == "calibrate" else None)
        if self.name == "calibrate":
            # A file of scores must be new; a folder spares the forward pass.
            saved = ("save_scores",) if str(self.arguments.get("save_scores")).endswith(".parquet") else ()
            return self._without("push_to_hub", "private", *saved) | {"output": output}
        rest = self._without(*_OF_EVALUATE, "scores", "model", "dataset") | {"output": output}
        return self._held_out_data() | rest

    def _held_out_data(self) -> dict[str, Any]:
        if self._is_of_table:
            return {"scores": self.held_out_file, "test_scores": self.arguments["scores"]}
        model, data = self.arguments["model"], str(self.arguments["dataset"])
        if not self._has_splits:
            return {"model": model, "dataset": self.held_out_file, "test_dataset": data}
        name, _, config_and_split = data.partition(":")
        config, _, split = config_and_split.partition(":")
        test_split = split or self.arguments.get("split") or "test"
        dataset = f"{name}:{config}" if config else name
        return {"model": model, "dataset": dataset, "split": "validation", "test_split": test_split}

    def _without(self, *names: str) -> dict[str, Any]:
        return {name: value for name, value in self.arguments.items() if name not in names}

    def calibrate(
        self, *, method: str | None = None, precision: float | None = None, recall: float | None = None
    ) -> CommandLine:
        """Return the command that fits a correction, perhaps with another method or a goal of thresholds."""
        changes = {"method": method, "precision": precision, "recall": recall}
        return self._calibrate({name: value for name, value in changes.items() if value is not None})

    def calibrate_all_scores(self) -> CommandLine:
        """Return the command that fits a correction to a table with the scores of all classes."""
        return self._calibrate({"scores": self.held_out_file, "test_scores": self.test_file})

    def calibrate_with_test_data(self) -> CommandLine:
        """Return the command that measures the correction on other data, in `test_file`."""
        return self._calibrate({"test_scores" if self._is_of_table else "test_dataset": self.test_file})

    def calibrate_on_more_data(self) -> CommandLine:
        """Return the command that fits the correction to more data, in `held_out_file`."""
        others = {name: value for name, value in self._next.items() if name != "split"}
        return CommandLine("calibrate", others | {"scores" if self._is_of_table else "dataset": self.held_out_file})

    def calibrate_one_class(self, recall: float) -> CommandLine:
        """Return the command that chooses a threshold of one class by its probability, column p of held_out.csv."""
        scores = {
            "scores": f"{_HELD_OUT}{_DEFAULT_SUFFIX}",
            "score_column": "p",
            "kind": "probabilities",
            "link": "sigmoid",
        }
        return CommandLine("calibrate", scores | {"recall": recall, "output": self._next["output"]})

    def _calibrate(self, changes: Mapping[str, Any]) -> CommandLine:
        return CommandLine("calibrate", {**self._next, **changes})

    def choose_threshold(self, goal: str, value: str) -> CommandLine:
        """Return the command that chooses a threshold for a goal: the run again, with other data after `evaluate`."""
        choosing = self._without(*_OLD_GOAL) | {goal: value}
        if self.name == "calibrate":
            if self.output is not None:
                choosing["output"] = _new_folder(self.arguments, self.output)
            return CommandLine("calibrate", choosing)
        choosing = {name: text for name, text in choosing.items() if name not in ("output", "threshold_split")}
        choosing = {"threshold_scores" if self._is_of_table else "threshold_dataset": self.held_out_file} | choosing
        first = {name: choosing[name] for name in ("scores", "model", "dataset", "split") if name in choosing}
        return CommandLine("evaluate", first | choosing)


def names_held_out_data(command: CommandLine) -> bool:
    """Return whether a command names a file, such as held_out.csv, for data that the user does not have yet."""
    names = (command.arguments.get(name) for name in ("threshold_scores", "threshold_dataset"))
    return command.name == "evaluate" and any(Path(str(name)).stem == _HELD_OUT for name in names)


def _name_and_split(text: str) -> tuple[str, str | None]:
    """Return the name and the split in a result's description of data, such as "split 'test' of dataset 'name'"."""
    data = DataName.parse(text)
    return (text, None) if data is None else (data.name, data.split)


def _new_folder(arguments: Mapping[str, Any], output: Any = None) -> str:
    """Return the name of a folder that is new, and neither the model's nor the output's: `output` with a number."""
    taken = {Path(str(arguments[key])) for key in ("model", "output") if arguments.get(key)}
    base, number = str(output or "calibrated").rstrip("/"), 1
    if numbered := re.fullmatch(r"(.+)_(\d{1,2})", base):
        base, number = numbered[1], int(numbered[2])
    names = (base if count == 1 else f"{base}_{count}" for count in itertools.count(number))
    return next(name for name in names if Path(name) not in taken and not os.path.exists(name))
