"""What to do with a measured model, as commands that name the user's own files."""

import itertools
import math
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...calibration.calibration_fit import is_too_few, reason_for_none
from ...tasks.file_formats import is_file
from ...utils.constants import FEWEST_RECOMMENDED
from ...utils.data_names import DataName
from ..results.run_results import RunResult
from .model_warnings import is_no_better_by_correction, is_no_better_than_majority, ranks_classes
from .verdicts import costs_answers, not_lowered

# Arguments of `hf-focal evaluate` that `calibrate` does not take, or that would mean something else there.
_OF_EVALUATE = (
    *("split", "coverage", "threshold_dataset", "threshold_split", "threshold_scores", "reference"),
    *("output", "save_scores"),
)
_CLASSIFIERS = ("text-classification", "image-classification", "audio-classification", "label-words")
_COST_HINT = "`--cost 1,5` in its place, if a miss costs five times as much as a false alarm"
_NUMBERS = ("cost", "new_prior")  # arguments that are numbers with commas between them
_PIPELINES = ("text-classification", "image-classification", "token-classification")


def next_steps(result: RunResult, arguments: Mapping[str, Any] | None = None, folder: str = "calibrated") -> list[str]:
    """Return sentences on what to do with a measured model, each with a command or call between backquotes.

    Args:
        result: the measured model.
        arguments: the command's arguments, as the user gave them. By default, they are read from the result, which has
            only the last part of each path.
        folder: the folder of the result, if `arguments` is None.
    """
    if result.data.model is None:
        return _steps_with_trainer(result)
    if arguments is None and result.data.task == "scores" and result.data.options is None:
        return _steps_with_source(result)
    knows_folders = arguments is not None
    arguments = _recorded(result) | {"output": folder} if arguments is None else arguments
    evaluated = result.fit.fitted_on is None
    if evaluated:
        rerun, data_note = _from_evaluate(arguments)
    else:
        # A file of scores must be new; a folder spares the forward pass.
        saved = ("save_scores",) if str(arguments.get("save_scores")).endswith(".parquet") else ()
        rerun = {key: value for key, value in arguments.items() if key not in ("push_to_hub", "private", *saved)}
        rerun, data_note = rerun | {"output": _new_name(arguments, arguments.get("output"))}, ""
    steps = _steps_against_majority(result, rerun, data_note)
    if costs_answers(result):
        keeping = command("calibrate", rerun | {"method": "temperature"})
        steps.append(f"to keep the model's own predictions, correct with a temperature only: `{keeping}`")
    steps += _steps_without_threshold(result, rerun)
    if evaluated:
        steps += _steps_after_evaluate(result, rerun, data_note)
    else:
        steps += _steps_after_calibrate(result, arguments, rerun)
    steps += _steps_to_threshold(result, rerun, evaluated and command("calibrate", rerun) in "".join(steps))
    if not knows_folders and any("`hf-focal" in step for step in steps):
        steps.append("put the folders before the names of your files, because a result does not hold them")
    return steps


def _steps_with_trainer(result: RunResult) -> list[str]:
    if result.method is None:
        return ["fit a correction to data that the model was not trained on: `trainer.fit_temperature(validation)`"]
    return ["save the model with its correction: `trainer.save_calibrated()`"]


def _steps_with_source(result: RunResult) -> list[str]:
    """Return steps for an object with `scores(data)`, which no command takes."""
    if result.method is None:
        return ["fit a correction: `calibrate(source, held_out, test=data, output='calibrated')`"]
    return ["correct its logits: `Correction.load('correction.json').apply(logits)`"]


def _steps_against_majority(result: RunResult, rerun: dict[str, Any], data_note: str) -> list[str]:
    """Return what to do about a model that is no better than the majority class; [] for a better one."""
    if not is_no_better_than_majority(result):
        return []
    if ranks_classes(result):
        return [] if result.thresholds else [_threshold_of_rarer_class(result, rerun, data_note)]
    if is_no_better_by_correction(result):
        return []  # a temperature keeps the better predictions
    return [
        "look at the model before its calibration: train it longer, or with another learning rate or class "
        "weights, and check that the labels are in the order of its outputs"
    ]


def _steps_after_evaluate(result: RunResult, rerun: dict[str, Any], data_note: str) -> list[str]:
    calibrate_command = f"`{command('calibrate', rerun)}`{data_note}"
    if result.data.task == "scores" and "brier" not in result.pre:
        needed = command("calibrate", rerun | {"scores": "held_out.csv", "test_scores": "test.csv"})
        return [
            f"a correction needs the scores of all classes: save these in held_out.csv and test.csv, then `{needed}`"
        ]
    if result.data.was_calibrated:
        return [f"use the model; if its ECE is too large, fit a correction: {calibrate_command}"]
    if result.pre_intervals.get("ece", (1,))[0] == 0:
        return ["the ECE may be 0, so a correction has little to gain; more samples would tell"]
    return [f"fit a correction: {calibrate_command}"]


def _steps_after_calibrate(result: RunResult, arguments: Mapping[str, Any], rerun: dict[str, Any]) -> list[str]:
    task, output, repository = result.data.task, arguments.get("output"), arguments.get("push_to_hub")
    if result.method is None:
        fit = result.fit.cross_fit
        if fit is not None and fit.reason and is_too_few(fit.num_samples):
            return [f"fit a correction to at least {FEWEST_RECOMMENDED} samples: {reason_for_none(fit.num_samples)}"]
        reason = f": {reason_for_none(fit.num_samples)}" if fit is not None and fit.reason else ""
        return [f"use the model without a correction{reason}"]
    if not result.has_own_test_data:
        name = "test_scores" if task == "scores" else "test_dataset"
        measuring = command("calibrate", rerun | {name: "test.csv"})
        return [f"measure the correction: `{measuring}`, where test.csv has other labeled data"]
    if "NLL" in not_lowered(result) and not result.prior:
        return ["use the model without this correction, or fit it on more data like these"]
    if output is None and repository is None:
        return [f"save the result: `{command('calibrate', rerun)}`"]
    return _uses(result, str(repository or output), "onnx" in arguments, repository is not None)


def _steps_without_threshold(result: RunResult, rerun: dict[str, Any]) -> list[str]:
    """Return what to do if no label got a threshold; [] if one did, or if none was asked for."""
    if result.thresholds is None or not result.thresholds.is_empty:
        return []
    labels = result.thresholds.labels
    if provable := [label.provable_precision for label in labels if label.provable_precision is not None]:
        percent = math.floor(round(100 * max(provable), 1))  # 100 * 0.57 is 56.99...
        lower = command("calibrate", rerun | {"precision": percent / 100})
        return [f"no threshold reaches the goal; ask for a precision that these data can show: `{lower}`"]
    if any(label.no_costs_least for label in labels):
        return ["at these costs, no threshold is better than always no: check the costs"]
    if (percent := _percent_within_reach(result)) and rerun.get("precision", 0) > percent / 100:
        lower = command("calibrate", rerun | {"precision": percent / 100})
        return [f"no threshold reaches the goal; ask for less, for example: `{lower}`"]
    name = "scores" if "scores" in rerun else "dataset"
    others = {key: value for key, value in rerun.items() if key != "split"} | {name: "held_out.csv"}
    more = command("calibrate", others)
    return [f"no threshold reaches the goal; choose it on more labeled data, here held_out.csv: `{more}`"]


def _percent_within_reach(result: RunResult) -> int:
    """Return a precision, in percent, that at least a quarter of the test samples show; 0 without a curve.

    It is the largest lower end of an interval of four standard errors, so that the same goal may hold for others.
    """
    curve = result.subsets.risk_coverage and result.subsets.risk_coverage.last
    if not curve:
        return 0
    answered = np.array(curve.answered, float)
    precision = 1 - np.array(curve.errors, float) / answered
    lower = precision - 4 * np.sqrt(np.maximum(precision * (1 - precision), 1 / answered) / answered)
    return max(0, math.floor(100 * lower[4 * answered >= answered[-1]].max()))


def _steps_to_threshold(result: RunResult, rerun: dict[str, Any], shows_command: bool) -> list[str]:
    """Return how to choose a threshold of a classifier. `shows_command` is whether an earlier step has its command."""
    is_classifier = result.data.task in _CLASSIFIERS or (result.data.task == "scores" and "brier" in result.pre)
    if not is_classifier or result.thresholds is not None:
        return []
    # A precision would not hold after a prior shift.
    goal = "recall" if result.prior else "precision"
    aim = f"to {'say yes' if result.link == 'sigmoid' else 'answer'} with a known {goal}"
    cost = f"; or {_COST_HINT}" if result.link == "sigmoid" and not result.prior else ""
    if shows_command:
        return [f"{aim}, add it to this command: `--{goal} 0.9`{cost}"]
    if goal == "precision" or result.link == "sigmoid":
        return [f"{aim}, choose a threshold: `{command('calibrate', rerun | {goal: 0.9})}`{cost}"]
    return []


def threshold_command(
    result: RunResult, arguments: Mapping[str, Any] | None = None, folder: str = "calibrated"
) -> tuple[str, str]:
    """Return what a threshold is chosen for, "coverage" or "precision", and the command or call that chooses it.

    The latter has GOAL in the place of the share. The other arguments are those of `next_steps`.
    """
    calibrated = result.fit.fitted_on is not None
    goal = "precision" if calibrated or result.link == "sigmoid" else "coverage"
    if result.data.model is None or (arguments is None and result.data.options is None):
        return goal, f"fit_thresholds(logits, labels, {goal}=GOAL, link={result.link!r})"
    arguments = _recorded(result) | {"output": folder} if arguments is None else dict(arguments)
    old = ("precision", "coverage", "recall", "f1", "cost", "push_to_hub", "private", "reference", "save_scores")
    choosing = {key: value for key, value in arguments.items() if key not in old} | {goal: "GOAL"}
    if not calibrated:
        held_out = "threshold_scores" if "scores" in arguments else "threshold_dataset"
        choosing = {key: value for key, value in choosing.items() if key not in ("output", "threshold_split")}
        choosing = {held_out: "held_out.csv"} | choosing
        first = [name for name in ("scores", "model", "dataset", "split") if name in choosing]
        choosing = {name: choosing[name] for name in first} | choosing
    elif "output" in choosing:
        choosing["output"] = _new_name(arguments, arguments["output"])
    return goal, command("calibrate" if calibrated else "evaluate", choosing)


def command(name: str, arguments: Mapping[str, Any]) -> str:
    """Return an `hf-focal` command as a shell reads it; `arguments` are those that its parser returns."""
    words = []
    for key, value in arguments.items():
        if value is None or value is False:
            continue
        if value is True:
            words.append(f"--{key}")
            continue
        values = [f"{old}={new}" for old, new in value.items()] if isinstance(value, Mapping) else [str(value)]
        if isinstance(value, tuple | list):
            texts = (f"{item:.15g}" for item in value) if key in _NUMBERS else map(str, value)
            values = [",".join(texts)]
        if key in ("prompt", "system"):  # whose line breaks the parser reads as backslash and n
            values = [values[0].replace("\n", "\\n")]
        if key == "model":
            words += values
        elif values[0].startswith("-"):  # which would be read as an option
            words.append(f"--{key}={values[0]}")
        else:
            words += [f"--{key}", *values]
    return shlex.join(["hf-focal", name, *words])


def _threshold_of_rarer_class(result: RunResult, rerun: dict[str, Any], data_note: str) -> str:
    """Say how to choose a threshold for the rarer one of two classes, or for each of several labels.

    `rerun` has the arguments of `calibrate`, and `data_note` says what its data are.
    """
    balance, confusion = result.subsets.class_balance, result.subsets.confusion
    names = confusion.names if confusion else None
    has_labels = result.link == "sigmoid" and balance is None
    sought = "rare labels, choose a threshold for each" if has_labels else "the rarer class, choose a threshold"
    reason = f"to find {sought} by what its errors cost"
    # Of a model with one logit, the command's threshold is for the second class.
    if has_labels or (result.link == "sigmoid" and balance and names and names[0] == balance.majority):
        # A precision would not hold after a prior shift.
        alternative = "" if result.prior else f"; or `--precision 0.9`, or {_COST_HINT}"
        return f"{reason}: `{command('calibrate', rerun | {'recall': 0.8})}`{data_note}{alternative}"
    # No command chooses a threshold of one class of a softmax: its probability must be the only score.
    scores = {"scores": "held_out.csv", "score_column": "p", "kind": "probabilities", "link": "sigmoid"}
    alone = command("calibrate", scores | {"recall": 0.8, "output": rerun["output"]})
    return (
        f"{reason}: `{alone}`, or `--precision 0.9` in place of the recall, where held_out.csv has labeled data that "
        "the model was not trained on, with the class's probability in the column p, and 1 for its samples and 0 for "
        "others in the column label"
    )


def _from_evaluate(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of `calibrate` for a model or scores that were evaluated, and a text about their data."""
    rest = {key: value for key, value in arguments.items() if key not in _OF_EVALUATE}
    rest["output"] = _new_name(arguments)
    if "scores" in arguments:
        first = {"scores": "held_out.csv", "test_scores": rest.pop("scores")}
    elif is_file(data := str(rest.pop("dataset"))):
        first = {"model": rest.pop("model"), "dataset": "held_out.csv", "test_dataset": data}
    else:
        name, _, config_and_split = data.partition(":")
        config, _, split = config_and_split.partition(":")
        first = {"model": rest.pop("model"), "dataset": f"{name}:{config}" if config else name}
        first |= {"split": "validation", "test_split": split or arguments.get("split") or "test"}
        return first | rest, ", where the split validation has data that the model was not trained on"
    return first | rest, ", where held_out.csv has labeled data that the model was not trained on"


def _new_name(arguments: Mapping[str, Any], output: Any = None) -> str:
    """Return the name of a folder that is new, and neither the model's nor the output's: `output` with a number."""
    taken = {Path(str(arguments[key])) for key in ("model", "output") if arguments.get(key)}
    base, number = str(output or "calibrated").rstrip("/"), 1
    if numbered := re.fullmatch(r"(.+)_(\d{1,2})", base):
        base, number = numbered[1], int(numbered[2])
    names = (base if count == 1 else f"{base}_{count}" for count in itertools.count(number))
    return next(name for name in names if Path(name) not in taken and not os.path.exists(name))


def _uses(result: RunResult, output: str, onnx: bool, published: bool) -> list[str]:
    """Return ways to use a corrected model, whose folder, or repository if `published`, is `output`."""
    task, is_folded = result.data.task, result.fit.folded is not False
    has_decisions = result.thresholds is not None and not result.thresholds.is_empty
    if task == "scores":
        correct = shlex.join(
            ["hf-focal", "apply", f"{output}/correction.json", "new.csv", "--output", "corrected.csv"]
        )
        added = "calibrated probabilities and decisions" if has_decisions else "calibrated probabilities"
        return [f"add {added} to new scores, here those of new.csv: `{correct}`"]
    # The page names files of this computer.
    words = ["hf", "upload", f"USER/{Path(output).resolve().name}", output, ".", "--exclude", "report.html"]
    upload = [] if published else [f"publish it, where USER is your name on the Hub: `{shlex.join(words)}`"]
    if task == "multiple-choice":
        scored = "score options, with calibrated probabilities, as its README.md shows: `score_choices`"
        return [f"load `{output}`, and {scored}", *upload]
    if task == "label-words" and not is_folded:
        return [f"apply `{output}/correction.json` to the scores of the labels, as README.md beside it shows", *upload]
    if onnx:
        meaning = (
            "each sigmoid is a probability" if result.link == "sigmoid" else "their softmax has the probabilities"
        )
        place = f"; the thresholds of these are in `{output}/config.json`" if has_decisions else ""
        return [f"serve `{output}/model.onnx`, whose logits are corrected: {meaning}{place}", *upload]
    if not is_folded:
        return [f"load `{output}`, and apply its correction as its README.md shows", *upload]
    if task in _PIPELINES:
        loading = [f"load it like any other model: `pipeline({task!r}, model={output!r})`"]
        if has_decisions and task != "token-classification":
            loading.append(
                "decide by its thresholds: `hf_focal.apply_thresholds(classifier(inputs, top_k=None), "
                "classifier.model.config)`, where classifier is this pipeline"
            )
        return [*loading, *upload]
    return [f"load `{output}` like any other model", *upload]


def _recorded(result: RunResult) -> dict[str, Any]:
    """Return the arguments that a result records: the names of the model and the data, and the options of the data."""
    data, fitted_on = result.data, result.fit.fitted_on
    recorded: dict[str, Any]
    measured = _data(data.measured_on or "test.csv")
    fitted = measured if fitted_on is None else _data(fitted_on)
    if data.task == "scores":
        recorded = {"scores": fitted[0]} | ({"test_scores": measured[0]} if fitted != measured else {})
    else:
        recorded = {"model": data.model, "dataset": fitted[0], "split": fitted[1]}
        recorded |= {"test_dataset": measured[0], "test_split": measured[1]} if fitted != measured else {}
    prior = {"new_prior": result.prior.new_prior} if result.prior else {}
    return {**recorded, **prior, **(data.options or {})}


def _data(source: str) -> tuple[str, str | None]:
    """Return the name and the split in a result's description of data, such as "split 'test' of dataset 'name'"."""
    data = DataName.parse(source)
    return (source, None) if data is None else (data.name, data.split)
