"""What to do with a measured model, as commands that name the user's own files."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..calibration.cross_fitting import AS_IT_IS
from ..tasks.file_formats import is_file
from .run_results import RunResult
from .verdicts import is_no_better_than_majority, not_lowered, ranks_classes

# Arguments of `hf-focal evaluate` that `calibrate` does not take, or that would mean something else there.
_OF_EVALUATE = (
    *("split", "coverage", "threshold_dataset", "threshold_split", "threshold_scores", "reference"),
    *("output", "save_scores"),
)
_PIPELINES = ("text-classification", "image-classification", "token-classification")


def next_steps(result: RunResult, given: Mapping[str, Any] | None = None, folder: str = "calibrated") -> list[str]:
    """Return sentences on what to do with a measured model, each with a command or call between backquotes.

    Args:
        result: the measured model.
        given: the command's arguments, as the user gave them. By default, they are read from the result, which has
            only the last part of each path.
        folder: the folder of the result, if `given` is None.
    """
    task, steps = result.data.task, []
    if result.data.model is None:  # of a trainer
        if result.method is None:
            return [
                "fit a correction to data that the model was not trained on: `trainer.fit_temperature(validation)`"
            ]
        return ["save the model with its correction: `trainer.save_calibrated()`"]
    if given is None and task == "scores" and result.data.options is None:  # of an object with scores(data)
        if result.method is None:
            return ["fit a correction: `calibrate(source, held_out, test=data, output='calibrated')`"]
        return ["correct its logits: `Correction.load('correction.json').apply(logits)`"]
    knows_folders = given is not None
    given = _recorded(result) | {"output": folder} if given is None else given
    output, repository = given.get("output"), given.get("push_to_hub")
    evaluated = result.fit.fitted_on is None
    if evaluated:
        again, others = _from_evaluate(given)
    else:
        again = {key: value for key, value in given.items() if key not in ("push_to_hub", "private")}
        again, others = again | {"output": _new_name(given)}, ""
    if is_no_better_than_majority(result) and ranks_classes(result):
        if result.thresholds is None:
            steps.append(_threshold_of_rarer_class(result, command("calibrate", again | {"recall": 0.8}), others))
    elif is_no_better_than_majority(result):
        steps.append(
            "look at the model before its calibration: train it longer, or with another learning rate or class "
            "weights, and check that the labels are in the order of its outputs"
        )
    if evaluated and task == "scores" and "brier" not in result.pre:
        steps.append(
            f"save the scores of all classes, which a correction needs: `{command('calibrate', again)}`{others}"
        )
    elif evaluated and result.data.was_calibrated:
        steps.append(
            f"use the model; if its ECE is too large, fit a correction: `{command('calibrate', again)}`{others}"
        )
    elif evaluated and result.pre_intervals.get("ece", (1,))[0] == 0:
        steps.append("the ECE may be 0, so a correction has little to gain; more samples would tell")
    elif evaluated:
        steps.append(f"fit a correction: `{command('calibrate', again)}`{others}")
    elif result.method is None:
        steps.append(f"use the model without a correction: {AS_IT_IS}")
    elif not result.has_own_test_data:
        name = "test_scores" if task == "scores" else "test_dataset"
        steps.append(
            f"measure the correction: `{command('calibrate', again | {name: 'test.csv'})}`, where test.csv has other "
            "labeled data"
        )
    elif "NLL" in not_lowered(result) and not result.prior:
        steps.append("use the model without this correction, or fit it on more data like these")
    elif output is None and repository is None:
        steps.append(f"save the result: `{command('calibrate', again)}`")
    else:
        is_folded = result.fit.folded is not False
        steps += _uses(str(repository or output), task, "onnx" in given, repository is not None, is_folded)
    if task in ("text-classification", "image-classification") and result.thresholds is None:
        # A precision would not hold after a prior shift.
        goal = "recall" if result.prior else "precision"
        aim = f"to {'say yes' if result.link == 'sigmoid' else 'answer'} with a known {goal}"
        if evaluated and command("calibrate", again) in "".join(steps):
            steps.append(f"{aim}, add it to this command: `--precision 0.9`")
        elif goal == "precision" or result.link == "sigmoid":
            steps.append(f"{aim}, choose a threshold: `{command('calibrate', again | {goal: 0.9})}`")
    if not knows_folders and any("`hf-focal" in step for step in steps):
        steps.append("put the folders before the names of your files, because a result does not hold them")
    return steps


def threshold_command(
    result: RunResult, given: Mapping[str, Any] | None = None, folder: str = "calibrated"
) -> tuple[str, str]:
    """Return what a threshold is chosen for, "coverage" or "precision", and the command or call that chooses it.

    The latter has GOAL in the place of the share. The arguments are those of `next_steps`.
    """
    calibrated = result.fit.fitted_on is not None
    goal = "precision" if calibrated or result.link == "sigmoid" else "coverage"
    if result.data.model is None or (given is None and result.data.options is None):
        return goal, f"fit_thresholds(logits, labels, {goal}=GOAL, link={result.link!r})"
    given = _recorded(result) | {"output": folder} if given is None else dict(given)
    old = ("precision", "coverage", "recall", "push_to_hub", "private", "reference", "save_scores")
    arguments = {key: value for key, value in given.items() if key not in old} | {goal: "GOAL"}
    if not calibrated:
        other = "threshold_scores" if "scores" in given else "threshold_dataset"
        arguments = {key: value for key, value in arguments.items() if key not in ("output", "threshold_split")}
        arguments = {other: "held_out.csv"} | arguments
        first = [name for name in ("scores", "model", "dataset", "split") if name in arguments]
        arguments = {name: arguments[name] for name in first} | arguments
    elif "output" in arguments:
        arguments["output"] = _new_name(given)
    return goal, command("calibrate" if calibrated else "evaluate", arguments)


def command(name: str, arguments: Mapping[str, Any]) -> str:
    """Return an `hf-focal` command as a shell reads it; `arguments` are those that its parser returns."""
    words = []
    for key, value in arguments.items():
        if value is None or value is False:
            continue
        values = [f"{old}={new}" for old, new in value.items()] if isinstance(value, Mapping) else [str(value)]
        if isinstance(value, tuple | list):
            values = [",".join(map(str, value))]
        words += [] if key == "model" else [f"--{key}"]
        words += [] if value is True else values
    return shlex.join(["hf-focal", name, *words])


def _threshold_of_rarer_class(result: RunResult, recall_command: str, others: str) -> str:
    """Say how to choose a threshold for the rarer one of two classes; `others` says what the command's data are."""
    balance, confusion = result.parts.class_balance, result.parts.confusion
    names = confusion.names if confusion else None
    reason = "to find the rarer class, choose a threshold by what its errors cost"
    # Of a model with one logit, the command's threshold is for the second class.
    if result.link == "sigmoid" and balance and names and names[0] == balance.majority:
        # A precision would not hold after a prior shift.
        other = "" if result.prior else "; or `--precision 0.9` in the place of `--recall 0.8`"
        return f"{reason}: `{recall_command}`{others}{other}"
    return (
        f"{reason}: `fit_thresholds(p.double().logit(eps=1e-12), y, recall=0.8)`, or `precision=0.9`, where p is its "
        "probability, and y is 1 for its samples, both (N, 1), of labeled data that the model was not trained on"
    )


def _from_evaluate(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of `calibrate` for a model or scores that were evaluated, and a text about their data."""
    rest = {key: value for key, value in given.items() if key not in _OF_EVALUATE} | {"output": _new_name(given)}
    if "scores" in given:
        arguments = {"scores": "held_out.csv", "test_scores": rest.pop("scores")}
    elif is_file(data := str(rest.pop("dataset"))):
        arguments = {"model": rest.pop("model"), "dataset": "held_out.csv", "test_dataset": data}
    else:
        name, _, config_and_split = data.partition(":")
        config, _, split = config_and_split.partition(":")
        arguments = {"model": rest.pop("model"), "dataset": f"{name}:{config}" if config else name}
        arguments |= {"split": "validation", "test_split": split or given.get("split") or "test"}
        return arguments | rest, ", where the split validation has data that the model was not trained on"
    return arguments | rest, ", where held_out.csv has labeled data that the model was not trained on"


def _new_name(given: Mapping[str, Any]) -> str:
    """Return the name of a folder that is neither the model's nor the output's."""
    taken = {Path(str(given[key])) for key in ("model", "output") if given.get(key)}
    return next(name for name in ("calibrated", "calibrated_2", "calibrated_3") if Path(name) not in taken)


def _uses(output: str, task: str | None, onnx: bool, published: bool, is_folded: bool) -> list[str]:
    """Return ways to use a corrected model, whose folder, or repository if `published`, is `output`."""
    if task == "scores":
        correct = shlex.join(
            ["hf-focal", "apply", f"{output}/correction.json", "new.csv", "--output", "corrected.csv"]
        )
        return [f"add calibrated probabilities to scores, here new.csv: `{correct}`"]
    # The page names files of this computer.
    words = ["hf", "upload", f"USER/{Path(output).resolve().name}", output, ".", "--exclude", "report.html"]
    upload = [] if published else [f"publish it, where USER is your name on the Hub: `{shlex.join(words)}`"]
    if task == "multiple-choice":
        scored = "score options, with calibrated probabilities, as its README.md shows: `score_choices`"
        return [f"load `{output}`, and {scored}", *upload]
    if task == "label-words" and not is_folded:
        return [f"apply `{output}/correction.json` to the scores of the labels, as README.md beside it shows", *upload]
    if onnx:
        return [f"serve `{output}/model.onnx`, whose logits are corrected", *upload]
    if not is_folded:
        return [f"load `{output}`, and apply its correction as its README.md shows", *upload]
    if task in _PIPELINES:
        return [f"load it like any other model: `pipeline({task!r}, model={output!r})`", *upload]
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
    if match := re.fullmatch(r"(?:split '(.*?)' of )?\w+ '(.*)'", source, flags=re.DOTALL):
        return match[2], match[1]
    return source, None
