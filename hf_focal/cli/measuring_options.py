"""The options of `hf-focal evaluate` and `hf-focal calibrate`."""

import argparse
from collections.abc import Mapping
from dataclasses import Field, fields
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import InputError
from ..tasks.input_options import InputOptions
from ..tasks.task import TASKS
from .parsing import label_pair, numbers, prompt_or_file, with_line_breaks


class Scope(Enum):
    """What an option is for."""

    MODEL = "a model and its data"
    TABLE = "a table of scores"
    BOTH = "both"


class ScopedOptions:
    """The options of one command, in the sections of its --help.

    Args:
        parser: the parser to which they are added.
        titles: section -> its title in --help, in this order.

    Attributes:
        scopes: the scope of each argument.
    """

    def __init__(self, parser: argparse.ArgumentParser, titles: Mapping[str, str]) -> None:
        self._sections = {name: parser.add_argument_group(title) for name, title in titles.items()}
        self.scopes: dict[str, Scope] = {}

    def add(self, section: str, scope: Scope, *names: str, **settings: Any) -> None:
        """Add an option; `names` and `settings` are the arguments of `add_argument`."""
        action = self._sections[section].add_argument(*names, **settings)
        self.scopes[action.dest] = scope

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `InputError` for an option that is not for what is measured: a table, if there are `scores`."""
        refused, where = (Scope.MODEL, "with") if "scores" in arguments else (Scope.TABLE, "without")
        for name, value in sorted(arguments.items()):
            if self.scopes[name] is refused:
                raise InputError(name, f"must not be given {where} scores, got {value!r}")


_TITLES = {
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


def evaluate_options(parser: argparse.ArgumentParser) -> ScopedOptions:
    options = ScopedOptions(parser, _TITLES)
    _add_model(options)
    options.add("data", Scope.MODEL, "--split", help="the split of a dataset [test]")
    earlier = "earlier data, or an earlier table of scores: has the calibration changed?"
    options.add("data", Scope.BOTH, "--reference", metavar="DATA", help=earlier)
    _add_table(options)
    _add_others(options)
    _add_inputs(options, saves=False)
    options.add("output", Scope.BOTH, "--output", metavar="DIR", help="a new folder for the report")
    _add_shared_output(options)
    _add_thresholds(options)
    answers = "find the threshold that answers C of the data"
    options.add("thresholds", Scope.BOTH, "--coverage", type=float, metavar="C", help=answers)
    data = "data to choose the threshold on [--dataset]"
    options.add("thresholds", Scope.MODEL, "--threshold_dataset", metavar="DATA", help=data)
    split = "the split of that dataset [validation]"
    options.add("thresholds", Scope.MODEL, "--threshold_split", metavar="SPLIT", help=split)
    table = "the table of scores to choose the threshold on"
    options.add("scores", Scope.TABLE, "--threshold_scores", metavar="FILE", help=table)
    return options


def calibrate_options(parser: argparse.ArgumentParser) -> ScopedOptions:
    options = ScopedOptions(parser, _TITLES)
    _add_model(options)
    options.add("data", Scope.MODEL, "--split", help="the split of a dataset to fit the correction to [validation]")
    data = "the data to measure on [the same dataset]"
    options.add("data", Scope.MODEL, "--test_dataset", metavar="DATA", help=data)
    options.add("data", Scope.MODEL, "--test_split", metavar="SPLIT", help="the split of that dataset [test]")
    _add_correction(options)
    _add_table(options)
    table = "the table of scores to measure on [the same one]"
    options.add("scores", Scope.TABLE, "--test_scores", metavar="FILE", help=table)
    _add_others(options)
    _add_inputs(options, saves=True)
    folder = "a new folder for the calibrated model and the report"
    options.add("output", Scope.BOTH, "--output", metavar="DIR", help=folder)
    options.add("output", Scope.MODEL, "--push_to_hub", metavar="ID", help="publish that folder in this repository")
    private = "make that repository private if it is new"
    options.add("output", Scope.MODEL, "--private", action="store_true", help=private)
    page = "publish a page with samples: report/examples.html"
    options.add("output", Scope.BOTH, "--publish_examples", action="store_true", help=page)
    _add_shared_output(options)
    _add_thresholds(options)
    return options


def _add_model(options: ScopedOptions) -> None:
    name = "a Hub id or a folder; absent with --scores"
    options.add("data", Scope.MODEL, "model", metavar="MODEL", nargs="?", help=name)
    data = "a csv, tsv, json, jsonl or parquet file, or name[:configuration[:split]] of a dataset"
    options.add("data", Scope.MODEL, "--dataset", metavar="DATA", help=data)
    onnx = "an ONNX file that MODEL was exported to, to measure instead"
    options.add("data", Scope.MODEL, "--onnx", metavar="FILE", help=onnx)


def _add_correction(options: ScopedOptions) -> None:
    methods = "none, temperature, bias, vector, matrix, platt or auto [by the data]"
    options.add("correction", Scope.BOTH, "--method", metavar="METHOD", help=methods)
    objectives = "nll, or ece (on the grid 0.1 ... 10) [nll]"
    options.add("correction", Scope.MODEL, "--objective", metavar="NAME", help=objectives)
    each = "one temperature, or slope and intercept, per label"
    options.add("correction", Scope.BOTH, "--per_label", action="store_true", help=each)
    shares = "shift to this share of positives, or to P,P,... of each label or class, in the data in use"
    options.add("correction", Scope.BOTH, "--new_prior", metavar="P", type=numbers, help=shares)


def _add_table(options: ScopedOptions) -> None:
    file = "a csv, tsv, json, jsonl, parquet, npz or npy file of scores and labels, a folder or a pattern"
    columns = "its column of scores, or columns A,B,..., or their names with a * for the class, such as 'P(y=*)'"
    kinds = "logits, probabilities, percentages, log-probabilities or confidence [by the names]"
    links = "softmax for one class, or sigmoid for several labels in each row [by the labels]"
    correct = "for confidences, the column that says whether a prediction is right [correct]"
    names = "the names of the classes in the order of the scores, separated by commas"
    for name, metavar, help in (
        ("--scores", "FILE", file),
        ("--score_column", "COLUMN", columns),
        ("--kind", "KIND", kinds),
        ("--link", "LINK", links),
        ("--correct_column", "COLUMN", correct),
    ):
        options.add("scores", Scope.TABLE, name, metavar=metavar, help=help)
    options.add("scores", Scope.TABLE, "--classes", metavar="NAMES", type=_names, help=names)
    floor = "what replaces a probability of 0 [half a unit of the last decimal]"
    options.add("scores", Scope.TABLE, "--floor", type=float, metavar="P", help=floor)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _add_others(options: ScopedOptions) -> None:
    options.add("others", Scope.BOTH, "-h", "--help", action="help", help="show this text")
    tasks = f"one of {', '.join(TASKS)} [from the model's config]"
    options.add("others", Scope.MODEL, "--task", help=tasks)
    size = "samples per batch on each device [16]"
    options.add("others", Scope.MODEL, "--batch_size", type=int, metavar="N", help=size)
    bins = "bins of the calibration errors [15]"
    options.add("others", Scope.BOTH, "--num_bins", type=int, metavar="N", help=bins)


def _add_inputs(options: ScopedOptions, *, saves: bool) -> None:
    """Add the fields of `InputOptions`; `saves` says whether the command saves a corrected model."""
    annotations = get_type_hints(InputOptions)
    for field in fields(InputOptions):
        if saves or not field.metadata.get("is_for_saving"):
            scope = Scope.BOTH if field.metadata.get("is_for_tables") else Scope.MODEL
            settings = _parsing(field, annotations[field.name])
            options.add(field.metadata["section"], scope, f"--{field.name}", help=field.metadata["help"], **settings)


def _parsing(field: Field, annotation: Any) -> dict[str, Any]:
    """Return how the value of a field is parsed, which its annotation and its metadata say."""
    types, metadata = get_args(annotation) or (annotation,), field.metadata
    if bool in types:
        return {"action": "store_true"}
    metavar = metadata.get("metavar", "N" if int in types else field.name.rpartition("_")[2].upper())
    if any(get_origin(part) is Mapping for part in types):
        return {"metavar": metavar, "type": label_pair, "nargs": "+", "action": "extend"}
    if metadata.get("may_be_file"):
        return {"metavar": metavar, "type": prompt_or_file}
    if metadata.get("has_line_breaks"):
        return {"metavar": metavar, "type": with_line_breaks}
    return {"metavar": metavar, "type": next((kind for kind in (int, float) if kind in types), None)}


def _add_shared_output(options: ScopedOptions) -> None:
    file = "a new parquet file of the model's scores, for --scores; a folder lets a killed run go on"
    options.add("output", Scope.BOTH, "--save_scores", metavar="FILE", help=file)
    examples = "leave samples of the data out of report.html"
    options.add("output", Scope.BOTH, "--no_examples", action="store_true", help=examples)


def _add_thresholds(options: ScopedOptions) -> None:
    costs = "or of the least cost: that of a false positive, and of a false negative, such as 1,5"
    together = "let them hold for all labels together, not each by itself"
    settings: dict[str, dict[str, Any]] = {
        "--precision": {"type": float, "metavar": "P", "help": "choose thresholds above which P are right"},
        "--recall": {"type": float, "metavar": "R", "help": "or thresholds that find R of the positives"},
        "--f1": {"action": "store_true", "help": "or, without a promise, thresholds of the largest F1"},
        "--cost": {"type": numbers, "metavar": "FP,FN", "help": costs},
        "--confidence": {"type": float, "metavar": "C", "help": "the confidence level of these [0.95]"},
        "--simultaneous": {"action": "store_true", "help": together},
    }
    for name in settings:
        options.add("thresholds", Scope.BOTH, name, **settings[name])
