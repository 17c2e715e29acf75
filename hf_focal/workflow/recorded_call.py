"""The `hf-focal` command that does what a call of Python does, for the next steps on its page."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..calibration.threshold_goal import ThresholdGoal
from ..calibration.thresholds import DEFAULT_CONFIDENCE
from ..command_lines import RunCommands
from ..sources.source import Data
from .settings import CalibrationSettings, EvaluationSettings
from .source_arguments import SourceArguments

# What the command calls the data of `evaluate` and `calibrate`, for each kind of source that it takes.
_DATA = {
    "model": {"data": "dataset", "test": "test_dataset", "threshold_data": "threshold_dataset"},
    "table": {"test": "test_scores", "threshold_data": "threshold_scores"},
}
_LOADING = {"onnx": None, "task": None, "batch_size": 16}  # how a model is loaded, with the defaults
# Arguments that name data with splits, and those that name the split.
_SPLITS = {"dataset": "split", "test_dataset": "test_split", "threshold_dataset": "threshold_split"}
_FOLDER = "FOLDER"  # stands for a list of files: a command takes a folder or a pattern instead


def run_commands(source: SourceArguments, settings: EvaluationSettings | CalibrationSettings) -> RunCommands | None:
    """Return the commands that follow a call; None if no command does the same (see `recorded_call`)."""
    call = recorded_call(source, settings)
    name = "evaluate" if isinstance(settings, EvaluationSettings) else "calibrate"
    return None if call is None else RunCommands(name, call)


def recorded_call(
    source: SourceArguments, settings: EvaluationSettings | CalibrationSettings
) -> dict[str, Any] | None:
    """Return the arguments of the command that does the same, without those that are its defaults.

    The source comes first, then the settings in their order, and then the options of the data. None is returned if
    there is no such command, because the source is an object, or because an argument cannot be typed, such as a table
    in memory.
    """
    if source.kind == "object":
        return None
    names, options = _DATA[source.kind], dict(source.options)
    loading = {name: options.pop(name, default) for name, default in _LOADING.items()}
    call = ({} if source.kind == "table" else {"model": source.source}) | _named_data(source.data, names)
    call |= {name: value for name, value in loading.items() if not _is_same(value, _LOADING[name])}
    call |= _changed(settings, names) | options
    for name in _defaults_by_source(source, settings):
        call.pop(names.get(name, name), None)
    return call if all(map(_can_be_typed, call.values())) else None


def _defaults_by_source(source: SourceArguments, settings: EvaluationSettings | CalibrationSettings) -> list[str]:
    """Return the names of arguments that have the default of the command for this source."""
    if source.kind == "table":
        return ["method"] if isinstance(settings, CalibrationSettings) and settings.method == "auto" else []
    if isinstance(settings, EvaluationSettings):
        other, is_default = settings.threshold_data, True
    else:  # without a split, the default is the data that the correction is fitted to
        other, is_default = settings.test, settings.test.split is not None
    return [other.argument] if is_default and other.value == source.data.value else []


def _changed(settings: EvaluationSettings | CalibrationSettings, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that settings other than defaults stand for; `names` are those of data in the command."""
    changed: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Data):
            changed |= _named_data(value, names)
        elif isinstance(value, ThresholdGoal):
            changed |= _named_goal(value)
        elif field.name != "on_result" and not _is_same(value, field.default):
            changed[field.name] = value
    return changed


def _named_data(data: Data, names: Mapping[str, str]) -> dict[str, Any]:
    if not data.is_given:
        return {}
    name, value = names.get(data.argument, data.argument), _FOLDER if _are_files(data.value) else data.value
    return {name: value} | ({} if data.split is None else {_SPLITS[name]: data.split})


def _are_files(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(part, str | Path) for part in value)


def _named_goal(goal: ThresholdGoal) -> dict[str, Any]:
    named = {goal.target: goal.value}
    if goal.confidence != DEFAULT_CONFIDENCE:
        named["confidence"] = goal.confidence
    return named | ({"simultaneous": True} if goal.simultaneous else {})


def _is_same(value: Any, default: Any) -> bool:
    """Return whether a value is the default; a number may be equal to it, and an array is none."""
    return value is default or (isinstance(value, str | int | float) and value == default)


def _can_be_typed(value: Any) -> bool:
    """Return whether a value is one of a command line: no table, even as a mapping of columns or a list of rows.

    Commas separate the items of a list, so no item may have one.
    """
    if isinstance(value, tuple | list):
        return all(isinstance(part, str | int | float) and "," not in str(part) for part in value)
    parts = value.values() if isinstance(value, Mapping) else [value]
    return all(isinstance(part, str | Path | int | float | None) for part in parts)
