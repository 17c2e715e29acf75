"""`hf-focal evaluate` and `hf-focal calibrate`: their arguments, and what they print."""

import argparse
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import AfterMeasurementError, InputError
from ..scores.table_options import TableOptions
from ..tasks.input_options import InputOptions
from ..tasks.task import TASKS
from .parsing import label_pair, numbers, refuse_arguments, text_with_line_breaks
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
# What `main` must know to run them: an OSError is a bug where errors of the user's files are InputErrors.
_RUNNING = {"uses_torch": True, "user_errors": (InputError, AfterMeasurementError)}
_MODEL_OPTIONS = {field.name for field in fields(InputOptions)}
_TABLE_ONLY = TableOptions.names() - _MODEL_OPTIONS | {"test_scores", "threshold_scores"}


def add_evaluate(commands: Any) -> None:
    text = "measure how calibrated a trained model is"
    parser = commands.add_parser("evaluate", help=text, description=_EVALUATE, **_OPTIONS)
    groups = _shared_arguments(parser, saves=False)
    groups["data"].add_argument("--split", help="the split of a dataset [test]")
    groups["data"].add_argument(
        "--reference", metavar="DATA", help="earlier data, or an earlier table of scores: has the calibration changed?"
    )
    groups["output"].add_argument("--output", metavar="DIR", help="a new folder for the report")
    _add_output_and_thresholds(groups)
    thresholds = groups["thresholds"]
    thresholds.add_argument(
        "--coverage", type=float, metavar="C", help="find the threshold that answers C of the data"
    )
    thresholds.add_argument("--threshold_dataset", metavar="DATA", help="data to choose the threshold on [--dataset]")
    thresholds.add_argument("--threshold_split", metavar="SPLIT", help="the split of that dataset [validation]")
    groups["scores"].add_argument(
        "--threshold_scores", metavar="FILE", help="the table of scores to choose the threshold on"
    )
    parser.set_defaults(run=run_evaluate, **_RUNNING)


def run_evaluate(**arguments: Any) -> None:
    from ..workflow import evaluate_model, evaluate_scores

    _run("evaluate", evaluate_model, evaluate_scores, arguments)


def add_calibrate(commands: Any) -> None:
    text = "fit a correction of a trained model, and fold it in"
    parser = commands.add_parser("calibrate", help=text, description=_CALIBRATE, **_OPTIONS)
    groups = _shared_arguments(parser, saves=True)
    data, correction, output = (groups[name] for name in ("data", "correction", "output"))
    data.add_argument("--split", help="the split of a dataset to fit the correction to [validation]")
    data.add_argument("--test_dataset", metavar="DATA", help="the data to measure on [the same dataset]")
    data.add_argument("--test_split", metavar="SPLIT", help="the split of that dataset [test]")
    correction.add_argument(
        "--method",
        "--calibration",
        metavar="METHOD",
        help="none, temperature, bias, vector, matrix, platt or auto [by the data]",
    )
    correction.add_argument("--objective", metavar="NAME", help="nll, or ece (on the grid 0.1 ... 10) [nll]")
    correction.add_argument(
        "--per_label", action="store_true", help="one temperature, or slope and intercept, per label"
    )
    correction.add_argument(
        "--new_prior",
        metavar="P",
        type=numbers,
        help="shift to this share of positives, or to P,P,... of each label or class, in the data in use",
    )
    output.add_argument("--output", metavar="DIR", help="a new folder for the calibrated model and the report")
    output.add_argument("--push_to_hub", metavar="ID", help="publish that folder in this repository")
    output.add_argument("--private", action="store_true", help="make that repository private if it is new")
    output.add_argument(
        "--publish_examples", action="store_true", help="publish a page with samples: report/examples.html"
    )
    _add_output_and_thresholds(groups)
    groups["scores"].add_argument(
        "--test_scores", metavar="FILE", help="the table of scores to measure on [the same one]"
    )
    parser.set_defaults(run=run_calibrate, **_RUNNING)


def run_calibrate(**arguments: Any) -> None:
    from ..workflow import calibrate_model, calibrate_scores

    _run("calibrate", calibrate_model, calibrate_scores, arguments)


def _shared_arguments(parser: argparse.ArgumentParser, *, saves: bool) -> dict[str, Any]:
    """Add the arguments that `evaluate` and `calibrate` share, and return the groups of `--help`, in their order.

    `saves` says whether the command saves a corrected model.
    """
    titles = {
        "data": "model and data",
        "correction": "correction",
        "thresholds": "thresholds",
        "output": "output",
        "scores": "a table of scores instead of a model and data",
        "columns": "columns and labels of the data",
        "prompt": "a prompt and label words, for a language model as a classifier",
        "questions": "questions with options, for a language model",
        "others": "more options",
    }
    groups = {name: parser.add_argument_group(title) for name, title in titles.items()}
    groups["data"].add_argument("model", metavar="MODEL", nargs="?", help="a Hub id or a folder; absent with --scores")
    data = "a csv, tsv, json, jsonl or parquet file, or name[:configuration[:split]] of a dataset"
    groups["data"].add_argument("--dataset", metavar="DATA", help=data)
    onnx = "an ONNX file that MODEL was exported to, to measure instead"
    groups["data"].add_argument("--onnx", metavar="FILE", help=onnx)
    score_options = groups["scores"]
    for name, metavar, help in (
        (
            "scores",
            "FILE",
            "a csv, tsv, json, jsonl, parquet, npz or npy file of scores and labels, a folder or a pattern",
        ),
        (
            "score_column",
            "COLUMN",
            "its column of scores, or columns A,B,..., or their names with a * for the class, such as 'P(y=*)'",
        ),
        ("kind", "KIND", "logits, probabilities, percentages, log-probabilities or confidence [by the names]"),
        ("link", "LINK", "softmax for one class, or sigmoid for several labels in each row [by the labels]"),
        ("correct_column", "COLUMN", "for confidences, the column that says whether a prediction is right [correct]"),
    ):
        score_options.add_argument(f"--{name}", metavar=metavar, help=help)
    names = "the names of the classes in the order of the scores, separated by commas"
    score_options.add_argument("--classes", metavar="NAMES", type=lambda text: tuple(text.split(",")), help=names)
    others = groups["others"]
    others.add_argument("-h", "--help", action="help", help="show this text")
    others.add_argument("--task", help=f"one of {', '.join(TASKS)} [from the model's config]")
    others.add_argument("--batch_size", type=int, metavar="N", help="samples per batch on each device [16]")
    others.add_argument("--num_bins", type=int, metavar="N", help="bins of the calibration errors [15]")
    annotations = get_type_hints(InputOptions)
    for field in fields(InputOptions):
        if saves or not field.metadata.get("is_for_saving"):
            _add_input_option(groups[field.metadata["group"]], field, annotations[field.name])
    return groups


def _add_input_option(group: Any, field: Field, annotation: Any) -> None:
    """Add the option of a field of `InputOptions`, whose annotation says how its value is parsed."""
    name, help = f"--{field.name}", field.metadata["help"]
    types = get_args(annotation) or (annotation,)
    if bool in types:
        group.add_argument(name, help=help, action="store_true")
        return
    last_word = field.name.rpartition("_")[2].upper()
    metavar = field.metadata.get("metavar", "N" if int in types else last_word)
    if any(get_origin(part) is Mapping for part in types):
        group.add_argument(name, help=help, metavar=metavar, type=label_pair, nargs="+", action="extend")
        return
    number = next((kind for kind in (int, float) if kind in types), None)
    parse = text_with_line_breaks if field.metadata.get("has_line_breaks") else number
    group.add_argument(name, help=help, metavar=metavar, type=parse)


def _add_output_and_thresholds(groups: dict[str, Any]) -> None:
    """Add the arguments that `evaluate` and `calibrate` share, behind their own ones of the same groups."""
    output, thresholds = groups["output"], groups["thresholds"]
    output.add_argument(
        "--save_scores",
        metavar="FILE",
        help="a new parquet file of the model's scores, for --scores; a folder lets a killed run go on",
    )
    output.add_argument("--no_examples", action="store_true", help="leave samples of the data out of report.html")
    thresholds.add_argument("--precision", type=float, metavar="P", help="choose thresholds above which P are right")
    thresholds.add_argument("--recall", type=float, metavar="R", help="or thresholds that find R of the positives")
    thresholds.add_argument("--f1", action="store_true", help="or, without a promise, thresholds of the largest F1")
    costs = "or of the least cost: that of a false positive, and of a false negative, such as 1,5"
    thresholds.add_argument("--cost", type=numbers, metavar="FP,FN", help=costs)
    thresholds.add_argument("--confidence", type=float, metavar="C", help="the confidence level of these [0.95]")
    thresholds.add_argument(
        "--simultaneous", action="store_true", help="let them hold for all labels together, not each by itself"
    )


def _run(
    command: str, measure_model: Callable[..., Any], measure_scores: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    """Run a command on a table of scores, if one is given, or else on a model."""
    _refuse_confidence_alone(arguments)
    if "scores" in arguments:
        _refuse_several_processes()
        _check_score_options(measure_scores, arguments)
        _measure(measure_scores, arguments)
    else:
        _check_model_options(command, arguments)
        _measure(measure_model, arguments)


def _refuse_confidence_alone(arguments: dict[str, Any]) -> None:
    """Raise `InputError` for a confidence, even the default one, of thresholds that promise nothing, or of none."""
    from ..calibration.thresholds import GUARANTEED, check_guarantee

    if not arguments.keys() & {*GUARANTEED}:
        target = next((name for name in ("f1", "cost") if name in arguments), None)
        check_guarantee(target, arguments.get("confidence"), simultaneous=False)


def _check_model_options(command: str, arguments: dict[str, Any]) -> None:
    """Exit for a file of scores in the place of a model, for missing arguments, and for options of tables."""
    from ..scores.reading.table_formats import FORMATS

    if (model := Path(arguments.get("model", ""))).suffix in FORMATS and model.is_file():
        refuse_arguments(command, f"{model} is not a model: for scores, pass --scores {model}")
    needed = {"MODEL": "model", "--dataset": "dataset"}
    if missing := [name for name, argument in needed.items() if argument not in arguments]:
        refuse_arguments(command, f"the following arguments are required: {', '.join(missing)}, or --scores")
    if others := sorted(arguments.keys() & _TABLE_ONLY):
        refuse_arguments(command, f"without --scores, --{others[0]} must not be given")


def _refuse_several_processes() -> None:
    """Raise `InputError` in a process of a launcher, because each would measure all rows of a table."""
    if (number := int(os.environ.get("WORLD_SIZE", 1))) > 1:
        raise InputError(
            "scores",
            f"must be measured by one process, got {number} of a launcher: use one, or measure shards with "
            "hf_focal.measure and merge them",
        )


def _check_score_options(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Raise `InputError` for an option that is for models and their data, not for tables of scores."""
    known = {*signature(function).parameters, *TableOptions.names(), "text_column"}
    if others := sorted(arguments.keys() - known):
        raise InputError(others[0], f"must not be given with scores, got {arguments[others[0]]!r}")


def _measure(measure: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Measure, print the summary as soon as there is one, and then what was written and what may come next."""
    from ..calibration.temperature_grid import GridEndWarning
    from ..reports.wording.next_steps import next_steps
    from ..reports.wording.text_summary import summary

    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no message for each failed attempt to reach the Hub
    if "label_map" in arguments:
        pairs = arguments["label_map"]
        arguments["label_map"] = dict(pairs)
        if len(arguments["label_map"]) < len(pairs):
            text = " ".join(map("=".join, pairs))
            raise InputError("label_map", f"must map each label of the data once, got {text!r}")

    processes = launched_processes()  # before Transformers sets variables of a launcher

    def show(result: Any) -> None:
        if is_main_process():
            print(f"\n{summary(result)}" + (f"\n\nMeasured in {processes}." if processes else ""), flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEndWarning)  # the summary reports it
        result = measure(**arguments, on_result=show)
    if is_main_process():
        if "output" in arguments:
            print(f"\nWritten to {arguments['output']}: see {Path(arguments['output'], 'report.html')}")
        elif result.method is not None and "push_to_hub" not in arguments:
            print("\nNothing was saved: pass --output or --push_to_hub.")
        if result.data.url is not None:
            print(f"\nPublished: {result.data.url}")
        print("", *(f"Next: {step}" for step in next_steps(result, arguments)), sep="\n")
