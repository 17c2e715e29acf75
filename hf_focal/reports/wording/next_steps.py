"""What to do with a measured model, as steps with commands that name the user's own files."""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from ...calibration.calibration_fit import is_too_few, reason_for_none, scaling_name
from ...command_lines import CommandLine, RunCommands, apply_command, option, report_command
from ...tasks.task import Unit, classifies_samples, unit_of
from ...utils.constants import FEWEST_RECOMMENDED
from ...utils.names import counted
from ..results.run_results import READ_ERRORS, RunResult
from .correction_effects import lower_ece_methods, not_lowered, raises_ece, temperature_is_worse
from .model_warnings import is_no_better_by_correction, is_no_better_than_guessing, ranks_classes
from .verdicts import costs_answers


class Code(str):
    """Code in a step that is no `hf-focal` command: a call, an option, or the name of a file."""


Part = str | Code | CommandLine


@dataclass(frozen=True)
class Step:
    """What to do next; `parts` are texts, code, and commands, in their order."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, *parts: Part) -> "Step":
        """Return a step without its empty texts."""
        return cls(tuple(part for part in parts if part != ""))

    def __str__(self) -> str:
        """Return the step as a console shows it, with code between backquotes."""
        return "".join(f"`{part}`" if is_code(part) else str(part) for part in self.parts)

    @property
    def commands(self) -> list[CommandLine]:
        """The `hf-focal` commands of the step."""
        return [part for part in self.parts if isinstance(part, CommandLine)]


def is_code(part: Part) -> bool:
    """Return whether a part of a step is code or a command, rather than text."""
    return isinstance(part, Code | CommandLine)


_PIPELINES = ("text-classification", "image-classification", "token-classification")
_COST_OPTION = Code(option("cost", (1, 5)))
_COST_HINT = " in its place, if a miss costs five times as much as a false alarm"
# What Transformers leaves in the folder of a training, which `hub_publishing` does not upload either.
_TRAINING_FILES = ("checkpoint-*", "training_args.bin", "trainer_state.json")
_PRECISION, _RECALL = 0.9, 0.8  # goals of thresholds in steps


def next_steps(result: RunResult, commands: RunCommands | None = None, folder: str = "calibrated") -> list[Step]:
    """Return what to do with a measured model.

    Args:
        result: the measured model.
        commands: those that follow the run. By default, they are read from the result, which has only the last part of
            each path.
        folder: the folder of the result, if `commands` is None.
    """
    if result.data.model is None:
        return _steps_with_trainer(result)
    if commands is None and result.data.task == "scores" and result.data.options is None:
        return _steps_with_source(result)
    commands = commands or recorded_commands(result, folder)
    evaluated = result.fit.fitted_on is None
    steps = _steps_against_majority(result, commands)
    if costs_answers(result):
        steps.append(_step_that_keeps_predictions(result, commands))
    if raises_ece(result) and "NLL" not in not_lowered(result):
        steps.append(_step_for_ece(result, commands))
    steps += _steps_without_threshold(result, commands)
    steps += _steps_after_evaluate(result, commands) if evaluated else _steps_after_calibrate(result, commands)
    steps += _steps_for_other_labels(result, commands)
    shown, calibrating = [command for step in steps for command in step.commands], commands.calibrate()
    shows_command = evaluated and any(command.extends(calibrating) for command in shown)
    steps += _steps_to_threshold(result, commands, shows_command)
    if not commands.has_folders and any(step.commands for step in steps):
        steps.append(Step.of("put the folders before the names of your files, because a result does not hold them"))
    return steps


def recorded_commands(result: RunResult, folder: str) -> RunCommands:
    """Return the commands that follow a run of which only the result is known, and its `folder`."""
    data = result.data
    return RunCommands.recorded(
        model=None if data.task == "scores" else data.model,
        fitted_on=result.fit.fitted_on,
        measured_on=data.measured_on,
        new_prior=result.prior.new_prior if result.prior else None,
        options=data.options or {},
        output=folder,
    )


def _steps_with_trainer(result: RunResult) -> list[Step]:
    if result.method is None:
        call = Code("trainer.fit_temperature(validation)")
        return [Step.of("fit a correction to data that the model was not trained on: ", call)]
    return [Step.of("save the model with its correction: ", Code("trainer.save_calibrated()"))]


def _steps_with_source(result: RunResult) -> list[Step]:
    """Return steps for an object with `scores(data)`, which no command takes."""
    if result.method is None:
        call = Code("calibrate(source, held_out, test=data, output='calibrated')")
        return [Step.of("fit a correction: ", call)]
    return [Step.of("correct its logits: ", Code("Correction.load('correction.json').apply(logits)"))]


def _steps_against_majority(result: RunResult, commands: RunCommands) -> list[Step]:
    """Return what to do about a model that is no better than the majority class; [] for a better one."""
    if not is_no_better_than_guessing(result):
        return []
    if ranks_classes(result):
        return [] if result.thresholds else [_threshold_of_rarer_class(result, commands)]
    if is_no_better_by_correction(result):
        return []  # a temperature keeps the better predictions
    first = "look at the model before its calibration"
    if result.data.chance_error is not None:
        check = "check the prompt, and that the answers are those of the options, or use another model"
    elif unit_of(result.data.task) == Unit.TOKENS:
        check = "check that it is trained, and that the texts are like those that it was trained on"
    else:
        check = (
            "train it longer, or with another learning rate or class weights, and check that the labels are in the "
            "order of its outputs"
        )
    return [Step.of(f"{first}: {check}")]


def _step_that_keeps_predictions(result: RunResult, commands: RunCommands) -> Step:
    keeping, fit = "to keep the model's own predictions, ", result.fit.cross_fit
    if not temperature_is_worse(result) or fit is None or not fit.scores:
        return Step.of(f"{keeping}correct with a temperature only: ", commands.calibrate(method="temperature"))
    before, after = fit.before, fit.scores["temperature"]
    changes = f"the ECE from {_percent(before['ece'])} to {_percent(after['ece'])}"
    if after["nll"] > before["nll"]:
        changes += f", and the NLL from {before['nll']:.4f} to {after['nll']:.4f}"
    alone = f"a temperature alone, cross-fitted, changes {changes}"
    return Step.of(f"{keeping}use it without a correction: {alone}")


def _step_for_ece(result: RunResult, commands: RunCommands) -> Step:
    """Offer what this run shows to have a lower ECE than the correction that was fitted."""
    wanted, fit = "if the ECE matters more to you than the NLL, ", result.fit.cross_fit
    if fit is None or not fit.scores:
        return Step.of(f"{wanted}use the model without this correction: this run compared no other")
    chosen, better = _percent(fit.after["ece"]), lower_ece_methods(result)
    if better and fit.scores[better[0]]["ece"] < fit.after["ece"]:
        name, ece = scaling_name(better[0]), _percent(fit.scores[better[0]]["ece"])
        reason = f"correct with {name}, whose cross-fitted ECE is {ece} in the place of {chosen}: "
        return Step.of(wanted + reason, commands.calibrate(method=better[0]))
    if fit.before["ece"] < fit.after["ece"]:
        numbers = f"its cross-fitted ECE is {_percent(fit.before['ece'])}, with the correction {chosen}"
    else:
        numbers = (
            f"the ECE on these test data is {_percent(result.pre['ece'])}, with it {_percent(result.post['ece'])}"
        )
    others = "no other that was tried is shown to lower both"
    return Step.of(f"{wanted}use the model without this correction: {numbers}; {others}")


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _steps_after_evaluate(result: RunResult, commands: RunCommands) -> list[Step]:
    if result.data.task == "scores" and "brier" not in result.pre:
        files = f"{commands.held_out_file} and {commands.test_file}"
        save = f"a correction needs the scores of all classes: save these in {files}, then "
        return [Step.of(save, commands.calibrate_all_scores())]
    calibrating: tuple[Part, Part] = commands.calibrate(), commands.data_note
    if result.data.was_calibrated:
        return [Step.of("use the model; if its ECE is too large, fit a correction: ", *calibrating)]
    if result.pre_intervals.get("ece", (1,))[0] == 0:
        return [Step.of("the ECE may be 0, so a correction has little to gain; more samples would tell")]
    return [Step.of("fit a correction: ", *calibrating)]


def _steps_after_calibrate(result: RunResult, commands: RunCommands) -> list[Step]:
    if result.method is None:
        fit = result.fit.cross_fit
        if fit is not None and fit.reason and is_too_few(fit.num_samples):
            reason = reason_for_none(fit.num_samples)
            return [Step.of(f"fit a correction to at least {FEWEST_RECOMMENDED} samples: {reason}")]
        because = f": {reason_for_none(fit.num_samples)}" if fit is not None and fit.reason else ""
        return [Step.of(f"use the model without a correction{because}")]
    if not result.has_own_test_data:
        other = f", where {commands.test_file} has other labeled data"
        return [Step.of("measure the correction: ", commands.calibrate_with_test_data(), other)]
    if "NLL" in not_lowered(result) and not result.prior:
        return [Step.of("use the model without this correction, or fit it on more data like these")]
    if commands.output is None and commands.repository is None:
        return [Step.of("save the result: ", commands.calibrate())]
    if result.data.task == "scores":
        return [_step_with_new_scores(result, commands)]
    is_published = commands.repository is not None
    return _uses(result, str(commands.repository or commands.output), commands.is_of_onnx, is_published)


def _steps_without_threshold(result: RunResult, commands: RunCommands) -> list[Step]:
    """Return what to do if no label got a threshold; [] if one did, or if none was asked for."""
    if result.thresholds is None or not result.thresholds.is_empty:
        return []
    labels, none = result.thresholds.labels, "no threshold reaches the goal"
    if provable := [label.provable_precision for label in labels if label.provable_precision is not None]:
        percent = _whole_percent(max(provable))
        if result.link == "sigmoid" and len(labels) == 1 and percent <= 100 * (share := result.post_bins.means()[1]):
            without = (
                f"{none}, and these data can show no precision above the {100 * share:.1f}% of a yes to everything"
            )
            held_out = commands.calibrate_on_more_data()
            return [Step.of(f"{without}; choose it on more labeled data, here {commands.held_out_file}: ", held_out)]
        lower = commands.calibrate(precision=percent / 100)
        return [Step.of(f"{none}; ask for a precision that these data can show: ", lower)]
    if any(label.no_costs_least for label in labels):
        return [Step.of("at these costs, no threshold is better than always no: check the costs")]
    more = commands.calibrate_on_more_data()
    return [Step.of(f"{none}; choose it on more labeled data, here {commands.held_out_file}: ", more)]


def _whole_percent(share: float) -> int:
    return math.floor(round(100 * share, 1))  # 100 * 0.57 is 56.99...


def _steps_for_other_labels(result: RunResult, commands: RunCommands) -> list[Step]:
    """Return what to do for labels without a threshold if others have one; [] if a no to each sample costs least."""
    if result.thresholds is None or result.thresholds.is_empty:
        return []
    missing = [label for label in result.thresholds.labels if label.value is None and not label.no_costs_least]
    if not missing:
        return []
    without = f"for the {counted(len(missing), 'label')} without a threshold"
    labels = result.subsets.labels
    shares = dict(zip(labels.name, labels.frequency, strict=True)) if labels else {}
    percents = [_whole_percent(label.provable_precision or 0) for label in missing]
    # A yes to everything has the precision of a label's share.
    pairs = zip(missing, percents, strict=True)
    reached = [percent for label, percent in pairs if percent > 100 * shares.get(label.name, 0)]
    if not reached:
        more, file = commands.calibrate_on_more_data(), commands.held_out_file
        return [Step.of(f"{without}, choose it on more labeled data, here {file}: ", more)]
    if len(reached) < len(missing):
        without = f"for {len(reached)} of the {len(missing)} labels without a threshold"
    lower = commands.calibrate(precision=min(reached) / 100)
    return [Step.of(f"{without}, ask for a precision that these data can show: ", lower)]


def _steps_to_threshold(result: RunResult, commands: RunCommands, shows_command: bool) -> list[Step]:
    """Return how to choose a threshold of a classifier. `shows_command` is whether an earlier step has its command."""
    is_classifier = classifies_samples(result.data.task) or (result.data.task == "scores" and "brier" in result.pre)
    if not is_classifier or result.thresholds is not None:
        return []
    # A precision would not hold after a prior shift.
    goal = "recall" if result.prior else "precision"
    verb = "answer" if result.link == "softmax" else "accept answers" if result.is_of_answers else "say yes"
    aim = f"to {verb} with a known {goal}"
    cost = _or_by_cost() if result.link == "sigmoid" and not result.prior else ()
    if shows_command:
        return [Step.of(f"{aim}, add this to the calibrate command above: ", Code(option(goal, _PRECISION)), *cost)]
    if goal == "recall" and result.link == "softmax":
        return []
    choosing = commands.calibrate(recall=_PRECISION) if result.prior else commands.calibrate(precision=_PRECISION)
    return [Step.of(f"{aim}, choose a threshold: ", choosing, *cost)]


def _or_by_cost() -> tuple[Part, ...]:
    return "; or ", _COST_OPTION, _COST_HINT


def _threshold_of_rarer_class(result: RunResult, commands: RunCommands) -> Step:
    """Say how to choose a threshold for the rarer one of two classes, or for each of several labels."""
    balance, confusion = result.subsets.class_balance, result.subsets.confusion
    names = confusion.names if confusion else None
    has_labels = result.link == "sigmoid" and balance is None
    sought = "rare labels, choose a threshold for each" if has_labels else "the rarer class, choose a threshold"
    reason, by_precision = f"to find {sought} by its recall: ", Code(option("precision", _PRECISION))
    # Of a model with one logit, the command's threshold is for the second class.
    if has_labels or (result.link == "sigmoid" and balance and names and names[0] == balance.majority):
        # A precision would not hold after a prior shift.
        others = () if result.prior else ("; or ", by_precision, " or ", _COST_OPTION, _COST_HINT)
        return Step.of(reason, commands.calibrate(recall=_RECALL), commands.data_note, *others)
    # No command chooses a threshold of one class of a softmax: its probability must be the only score.
    data = (
        " in place of the recall, where held_out.csv has labeled data that the model was not trained on, with the "
        "class's probability in the column p, and 1 for its samples and 0 for others in the column label"
    )
    return Step.of(reason, commands.calibrate_one_class(recall=_RECALL), ", or ", by_precision, data)


def threshold_command(
    result: RunResult, commands: RunCommands | None = None, folder: str = "calibrated"
) -> tuple[str, Code | CommandLine]:
    """Return what a threshold is chosen for, "coverage" or "precision", and the command or call that chooses it.

    The latter has GOAL in the place of the share. The other arguments are those of `next_steps`.
    """
    calibrated = result.fit.fitted_on is not None
    goal = "precision" if calibrated or result.link == "sigmoid" else "coverage"
    if result.data.model is None or (commands is None and result.data.options is None):
        return goal, Code(f"fit_thresholds(logits, labels, {goal}=GOAL, link={result.link!r})")
    return goal, (commands or recorded_commands(result, folder)).choose_threshold(goal, "GOAL")


def _step_with_new_scores(result: RunResult, commands: RunCommands) -> Step:
    """Say how to correct new scores in the format of those that the correction was fitted to."""
    has_decisions = result.thresholds is not None and not result.thresholds.is_empty
    added = "calibrated probabilities and decisions" if has_decisions else "calibrated probabilities"
    correction = f"{commands.repository or commands.output}/correction.json"
    correct = apply_command(correction, commands.new_file, "corrected")
    return Step.of(f"add {added} to new scores, here those of {commands.new_file}: ", correct)


def _uses(result: RunResult, output: str, onnx: bool, published: bool) -> list[Step]:
    """Return ways to use a corrected model, whose folder, or repository if `published`, is `output`."""
    task, is_folded = result.data.task, result.fit.folded is not False
    has_decisions = result.thresholds is not None and not result.thresholds.is_empty
    load, upload = ("load ", Code(output)), [] if published else _steps_to_publish(result, output)
    if task == "multiple-choice":
        scored = ", and score options, with calibrated probabilities, as its README.md shows: "
        return [Step.of(*load, scored, Code("score_choices")), *upload]
    if task == "label-words" and not is_folded:
        scores = " to the scores of the labels, as README.md beside it shows"
        return [Step.of("apply ", Code(f"{output}/correction.json"), scores), *upload]
    if onnx:
        return [_serving_step(result, output, has_decisions), *upload]
    if not is_folded:
        return [Step.of(*load, ", and apply its correction as its README.md shows"), *upload]
    if auto_class := result.data.auto_class:
        loaded = Code(f"{auto_class}.from_pretrained({output!r})")
        return [Step.of("load it with its own class, since a pipeline loads another head: ", loaded), *upload]
    if task in _PIPELINES:
        loading = [Step.of("load it like any other model: ", Code(f"pipeline({task!r}, model={output!r})"))]
        if has_decisions and task != "token-classification":
            call = "hf_focal.apply_thresholds(classifier(inputs, top_k=None), classifier.model.config)"
            loading.append(Step.of("decide by its thresholds: ", Code(call), ", where classifier is this pipeline"))
        return [*loading, *upload]
    return [Step.of(*load, " like any other model"), *upload]


def _serving_step(result: RunResult, output: str, has_decisions: bool) -> Step:
    """Say how to serve a corrected ONNX graph."""
    meaning = "each sigmoid is a probability" if result.link == "sigmoid" else "their softmax has the probabilities"
    place: tuple[Part, ...] = ()
    if has_decisions:
        place = "; the thresholds of these are in ", Code(f"{output}/config.json")
    return Step.of("serve ", Code(f"{output}/model.onnx"), f", whose logits are corrected: {meaning}", *place)


def _steps_to_publish(result: RunResult, folder: str, *others: str) -> list[Step]:
    """Return how to upload a folder, without its page and `others`; [] for a model that is no better than guessing."""
    if is_no_better_than_guessing(result) and not ranks_classes(result):
        return []
    excluded = ("report.html", *others)  # the page names files of this computer
    words = ["hf", "upload", f"USER/{Path(folder).resolve().name}", folder, "."]
    words += [word for name in excluded for word in ("--exclude", name)]
    return [Step.of("publish it, where USER is your name on the Hub: ", Code(shlex.join(words)))]


def steps_after_training(result: RunResult, folder: str, published: bool) -> list[Step]:
    """Return what to do with the folder of a trained, corrected, and perhaps `published` model."""
    steps = [Step.of("load it, as ", Code(str(Path(folder, "README.md"))), " shows")]
    steps += [] if published else _steps_to_publish(result, folder, *_TRAINING_FILES)
    parent = Path(folder).resolve().parent
    reports = sorted(parent.glob("*/report/metrics.json"))
    compared = [file.parents[1].name for file in reports if _has_test_set_of(result, file)]
    if len(compared) > 1:
        shown = Path(folder).parent
        # Other folders beside it, such as those of other data, are left out.
        is_all = len(compared) == len(reports)
        folders = [str(shown)] if is_all else [str(shown / name) for name in compared]
        steps.append(Step.of("compare it with the other runs beside it: ", report_command(*folders)))
    return steps


def _has_test_set_of(result: RunResult, file: Path) -> bool:
    """Return whether a file holds a result of the same kind on a test set of the same name and size."""
    try:
        other = RunResult.load(file)
    except (*READ_ERRORS, OSError):
        return False
    sides = [
        (run.data.task, run.data.measured_on, run.pre.get("num_samples"), [*run.subsets.label_names])
        for run in (result, other)
    ]
    return sides[0] == sides[1]
