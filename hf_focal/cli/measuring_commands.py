"""`hf-focal evaluate` and `hf-focal calibrate`: how they run, and what they print."""

import argparse
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import AfterMeasurementError, InputError
from .commands import Command
from .measuring_options import ScopedOptions, calibrate_options, evaluate_options
from .parsing import label_map, refuse_arguments
from .processes import is_main_process, launched_processes

_USAGE = "%(prog)s MODEL --dataset DATA [options]\n       %(prog)s --scores FILE [options]"
_EVALUATE = """Measure how calibrated a trained model is, or a table of its scores.

examples:
  hf-focal evaluate MODEL --dataset test.csv --output out
  hf-focal evaluate LLM --labels positive,negative --prompt "Review: {text} It is" --dataset test.csv
  hf-focal evaluate --scores scores.csv --output out
  hf-focal evaluate --scores 'scores/part-*.parquet' --output out"""
_CALIBRATE = """Fit a correction of a trained model on labeled data that it was not trained on, and save the result.

examples:
  hf-focal calibrate MODEL --dataset validation.csv --test_dataset test.csv --output out
  hf-focal calibrate --scores validation.csv --test_scores test.csv --output out"""

# Arguments that the user does not give are absent from the parsed ones, so the functions' own defaults apply.
_OPTIONS: dict[str, Any] = {"argument_default": argparse.SUPPRESS, "add_help": False, "usage": _USAGE}
_OPTIONS |= {"formatter_class": argparse.RawDescriptionHelpFormatter}


def add_evaluate(commands: Any) -> None:
    text = "measure how calibrated a trained model is"
    parser = commands.add_parser("evaluate", help=text, description=_EVALUATE, **_OPTIONS)
    _command(run_evaluate, evaluate_options(parser)).register(parser)


def run_evaluate(options: ScopedOptions, /, **arguments: Any) -> None:
    from ..workflow import evaluate_model, evaluate_scores

    _run("evaluate", options, evaluate_model, evaluate_scores, arguments)


def add_calibrate(commands: Any) -> None:
    text = "fit a correction of a trained model, and fold it in"
    parser = commands.add_parser("calibrate", help=text, description=_CALIBRATE, **_OPTIONS)
    _command(run_calibrate, calibrate_options(parser)).register(parser)


def run_calibrate(options: ScopedOptions, /, **arguments: Any) -> None:
    from ..workflow import calibrate_model, calibrate_scores

    _run("calibrate", options, calibrate_model, calibrate_scores, arguments)


def _command(run: Callable[..., None], options: ScopedOptions) -> Command:
    # An OSError is a bug: errors of the user's files are InputErrors.
    return Command(partial(run, options), uses_torch=True, user_errors=(InputError, AfterMeasurementError))


def _run(
    command: str,
    options: ScopedOptions,
    measure_model: Callable[..., Any],
    measure_scores: Callable[..., Any],
    arguments: dict[str, Any],
) -> None:
    """Run a command on a table of scores, if one is given, or else on a model."""
    _refuse_confidence_alone(arguments)
    has_scores = "scores" in arguments
    if has_scores:
        _refuse_several_processes()
    else:
        _require_model(command, arguments)
    options.check(arguments)
    if "label_map" in arguments:
        arguments["label_map"] = label_map(arguments["label_map"])
    _print_outcome(_measure(measure_scores if has_scores else measure_model, arguments), arguments)


def _refuse_confidence_alone(arguments: dict[str, Any]) -> None:
    """Raise `InputError` for a confidence, even the default one, of thresholds that promise nothing, or of none."""
    from ..calibration.thresholds import GUARANTEED, check_guarantee

    if not arguments.keys() & {*GUARANTEED}:
        target = next((name for name in ("f1", "cost") if name in arguments), None)
        check_guarantee(target, arguments.get("confidence"), simultaneous=False)


def _require_model(command: str, arguments: dict[str, Any]) -> None:
    """Exit for a file of scores in the place of a model, and for a missing model or dataset."""
    from ..scores.reading.table_formats import FORMATS

    if (model := Path(arguments.get("model", ""))).suffix.lower() in FORMATS and model.is_file():
        refuse_arguments(command, f"{model} is not a model: for scores, pass --scores {model}")
    needed = {"MODEL": "model", "--dataset": "dataset"}
    if missing := [name for name, argument in needed.items() if argument not in arguments]:
        refuse_arguments(command, f"the following arguments are required: {', '.join(missing)}, or --scores")


def _refuse_several_processes() -> None:
    """Raise `InputError` in a process of a launcher, because each would measure all rows of a table."""
    if (number := int(os.environ.get("WORLD_SIZE", 1))) > 1:
        raise InputError(
            "scores",
            f"must be measured by one process, got {number} of a launcher: use one, or measure shards with "
            "hf_focal.measure and merge them",
        )


def _measure(measure: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the result, and print its summary before anything is written."""
    from ..calibration.temperature_grid import GridEndWarning
    from ..reports.wording.text_summary import summary

    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no message for each failed attempt to reach the Hub
    processes = launched_processes()  # before Transformers sets variables of a launcher

    def show(result: Any) -> None:
        if is_main_process():
            print(f"\n{summary(result)}" + (f"\n\nMeasured in {processes}." if processes else ""), flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEndWarning)  # the summary reports it
        return measure(**arguments, on_result=show)


def _print_outcome(result: Any, arguments: dict[str, Any]) -> None:
    """Print what was written, and what may come next."""
    from ..command_lines import RunCommands
    from ..reports.wording.next_steps import next_steps

    if not is_main_process():
        return
    if "output" in arguments:
        print(f"\nWritten to {arguments['output']}: see {Path(arguments['output'], 'report.html')}")
    elif result.method is not None and "push_to_hub" not in arguments:
        print("\nNothing was saved: pass --output or --push_to_hub.")
    if result.data.url is not None:
        print(f"\nPublished: {result.data.url}")
    commands = RunCommands("evaluate" if result.fit.fitted_on is None else "calibrate", arguments)
    print("", *(f"Next: {step}" for step in next_steps(result, commands)), sep="\n")
