"""The `hf-focal` command."""

import argparse
import atexit
import gc
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from ..tasks.input_options import InputOptions
from ..tasks.task import TASKS

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


class OneLineParser(argparse.ArgumentParser):
    """An `ArgumentParser` that reports an error without its usage text, which may list a hundred options."""

    where = ""  # text appended to errors, such as the name of a file from which arguments also come

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}{self.where} (see {self.prog} --help)\n")


def main(argv: list[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return the exit code.

    The code is 0 after success, 2 after an error that the user can correct, and 130 after Ctrl-C. In the last two
    cases, one line says what happened. Errors in the arguments themselves raise SystemExit(2).
    """
    if argv is None:  # nothing else runs in this process
        _collect_less_garbage()
        argv = sys.argv[1:]
    known, unknown = _parser().parse_known_args([_underscored(token) for token in argv])
    arguments = vars(known)
    command = arguments.pop("command")
    if unknown:  # the error names the command, whose --help lists the options
        OneLineParser(prog=f"hf-focal {command}").error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        with _one_gpu():
            _run(command, arguments)
    except (ValueError, OSError) as error:
        if command in ("evaluate", "calibrate", "apply", "recipe"):
            from ..validation import InputError

            if not isinstance(error, InputError):  # a bug, which keeps its traceback
                raise
        # Perhaps only one of several processes failed, such as the one that reads a broken image.
        process = "" if _is_main_process() else f"process {os.environ['RANK']}: "
        print(f"hf-focal {command}: {process}error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hf-focal {command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _collect_less_garbage() -> None:
    """Look for cyclic garbage rarely, and not at the exit: imports make many objects that stay, at 0.5 s a command."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _run(command: str, arguments: dict[str, Any]) -> None:
    """Run a command. Modules are imported only in the command that needs them, because importing takes seconds."""
    if command == "env":
        print(describe_environment())
    elif command == "losses":
        print(listed_losses())
    elif command == "gamma":
        from ..losses import gamma_for_threshold

        print(f"{gamma_for_threshold(**arguments):.6g}")
    elif command == "recommend":
        from ..recommendation import recommend

        print(recommend(**arguments))
    elif command == "recipe":
        _recipe(**arguments)
    elif command == "demo":
        from .demo import run_demo

        run_demo(**arguments)
    elif command == "report":
        from ..reports import comparison_page, read_runs, results_table
        from ..reports.markdown_tables import RESULTS_LEGEND

        verb = "Replaced" if Path(arguments["output"]).exists() else "Written to"
        page = comparison_page(arguments["folders"], arguments["output"])  # which names the file if one is broken
        runs = [*read_runs(arguments["folders"]).values()]
        print(f"{results_table(runs)}\n{RESULTS_LEGEND}\n")
        print("\n".join(run.describe() for run in runs))
        print(f"{verb} {page}")
    elif command == "apply":
        from ..scores import correct_file, export_correction

        if "onnx" in arguments:
            if others := sorted(arguments.keys() - {"correction", "onnx"}):
                OneLineParser(prog="hf-focal apply").error(f"with --onnx, {others[0]} must not be given")
            export_correction(arguments["correction"], arguments["onnx"])
            print(f"Written to {arguments['onnx']}: a graph from scores to calibrated probabilities")
            return
        if missing := [name for name in ("scores", "output") if name not in arguments]:
            OneLineParser(prog="hf-focal apply").error(f"the following arguments are required: {', '.join(missing)}")
        rows = correct_file(**arguments)
        print(f"Written to {arguments['output']}: {rows:,} rows with calibrated probabilities")
    elif "scores" in arguments:
        from ..workflow import calibrate_scores, evaluate_scores

        _refuse_several_processes()
        function = evaluate_scores if command == "evaluate" else calibrate_scores
        _check_score_options(function, arguments)
        _measure(function, arguments)
    else:
        from ..scores.table_files import FORMATS
        from ..workflow import calibrate_model, evaluate_model

        if (model := Path(arguments.get("model", ""))).suffix in FORMATS and model.is_file():
            OneLineParser(prog=f"hf-focal {command}").error(
                f"{model} is not a model: for scores, pass --scores {model}"
            )
        if missing := [
            name for name, argument in (("MODEL", "model"), ("--dataset", "dataset")) if argument not in arguments
        ]:
            OneLineParser(prog=f"hf-focal {command}").error(
                f"the following arguments are required: {', '.join(missing)}, or --scores"
            )
        table_only = {"score_column", "kind", "link", "correct_column", "classes", "test_scores", "threshold_scores"}
        if others := sorted(arguments.keys() & table_only):
            OneLineParser(prog=f"hf-focal {command}").error(f"without --scores, --{others[0]} must not be given")
        _measure(evaluate_model if command == "evaluate" else calibrate_model, arguments)


def _recipe(action: str, name: str = "", output_dir: str = ".") -> None:
    from .recipes import copy_recipe, recipes

    if action == "list":
        titles = recipes()
        print("\n".join(f"{name:{max(map(len, titles))}}  {title}" for name, title in titles.items()))
        return
    files = copy_recipe(name, output_dir)
    print(f"Written: {', '.join(map(str, files))}\nNext: see how it is used: `python {files[0]} --help`")


def _refuse_several_processes() -> None:
    """Raise `InputError` in a process of a launcher, because each would measure all rows of a table."""
    from ..validation import InputError

    if (number := int(os.environ.get("WORLD_SIZE", 1))) > 1:
        raise InputError(
            "scores",
            f"must be measured by one process, got {number} of a launcher: use one, or measure shards with "
            "hf_focal.measure and merge them",
        )


def _check_score_options(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Raise `InputError` for an option that is for models and their data, not for tables of scores."""
    from ..scores import read_scores
    from ..validation import InputError

    known = {name for of in (function, read_scores) for name in signature(of).parameters} | {"text_column"}
    if others := sorted(arguments.keys() - known):
        raise InputError(others[0], f"must not be given with scores, got {arguments[others[0]]!r}")


def listed_losses() -> str:
    """Return the list of the losses, as `losses.listing` wrote it: importing the losses takes seconds."""
    return (Path(__file__).parents[1] / "losses" / "losses.txt").read_text(encoding="utf-8").rstrip("\n")


def describe_environment() -> str:
    """Return a text with the package versions, the platform, and the GPU, which a bug report should name."""
    import torch

    packages = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy", "scipy")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return (
        f"hf_focal {version('hf_focal')}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{', '.join(f'{name} {version(name)}' for name in packages)}\n"
        f"GPU: {gpu}, CUDA of torch: {torch.version.cuda or 'none'}"
    )


def _measure(measure: Callable[..., Any], arguments: dict[str, Any]) -> None:
    from ..calibration.temperature_grid import GridEndWarning
    from ..reports.next_steps import next_steps
    from ..reports.text_summary import summary
    from ..validation import InputError

    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no message for each failed attempt to reach the Hub
    if "label_map" in arguments:
        pairs = arguments["label_map"]
        arguments["label_map"] = dict(pairs)
        if len(arguments["label_map"]) < len(pairs):
            text = " ".join(map("=".join, pairs))
            raise InputError("label_map", f"must map each label of the data once, got {text!r}")

    def show(result: Any) -> None:
        if _is_main_process():
            print(f"\n{summary(result)}", flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEndWarning)  # the summary reports it
        result = measure(**arguments, on_result=show)
    if _is_main_process():
        if "output" in arguments:
            print(f"\nWritten to {arguments['output']}: see {Path(arguments['output'], 'report.html')}")
        elif result.method is not None and "push_to_hub" not in arguments:
            print("\nNothing was saved: pass --output or --push_to_hub.")
        if result.data.url is not None:
            print(f"\nPublished: {result.data.url}")
        print("", *(f"Next: {step}" for step in next_steps(result, arguments)), sep="\n")


@contextmanager
def _one_gpu() -> Iterator[None]:
    """Hide all GPUs but one during the block. With several, PyTorch would split batches, which `FocalTrainer` refuses.

    If a launcher such as torchrun started this process, nothing is hidden, because each process has its own GPU.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "LOCAL_RANK" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0" if shown is None else shown.partition(",")[0]
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if shown is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = shown


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def _underscored(token: str) -> str:
    """Replace hyphens in an option's name, so that `--text-column=text` means the same as `--text_column=text`.

    Transformers' parsers also accept both spellings.
    """
    name, equals, value = token.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if token.startswith("--") else token


def _with_line_breaks(text: str) -> str:
    r"""Read \n in a prompt as a line break, which shells do not; the name of a file with the prompt stays as it is."""
    return text if text.startswith("@") or os.path.isfile(text) else text.replace("\\n", "\n")


def _pair(text: str) -> tuple[str, str]:
    name, equals, label = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must hold DATA=MODEL, got {text!r}")
    return name, label


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number, or several like 0.2,0.8, got {text!r}") from error


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="hf-focal", description="Calibrated classifiers with Hugging Face.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('hf_focal')}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train two losses on a generated corpus: a minute, no downloads")
    demo.add_argument("--output_dir", metavar="DIR", default="out/hf_focal", help="models and reports [%(default)s]")
    commands.add_parser("env", help="print the versions that a bug report should name")
    commands.add_parser("losses", help="list the losses with their sources and options")
    gamma = commands.add_parser("gamma", help="the γ of focal loss whose gradient equals cross-entropy's at p0")
    gamma.add_argument("p0", type=float, help="a probability in (0, 0.5)")

    recipe = commands.add_parser("recipe", help="list the training scripts, or copy one to change it")
    actions = recipe.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="print their names and what they train")
    copy = actions.add_parser("copy", help="copy a script and its configuration")
    copy.add_argument("name", metavar="NAME", help="such as text_classification")
    copy.add_argument("--output_dir", metavar="DIR", default=".", help="the folder to copy them to [%(default)s]")

    advice = commands.add_parser("recommend", help="a loss and a correction for fine-tuning an encoder, and why")
    advice.add_argument("--num_classes", type=int, metavar="N", required=True, help="the number of classes")
    advice.add_argument("--train_samples", type=int, metavar="N", required=True, help="the number of training samples")
    advice.add_argument("--epochs", type=float, metavar="N", default=3.0, help="epochs of training [%(default)g]")
    advice.add_argument(
        "--held_out_samples", type=int, metavar="N", required=True, help="labeled samples to correct on"
    )

    # Arguments that the user does not give are absent from the parsed ones, so the functions' own defaults apply.
    options: dict[str, Any] = {"argument_default": argparse.SUPPRESS, "add_help": False}
    options |= {"formatter_class": argparse.RawDescriptionHelpFormatter}
    text = "measure how calibrated a trained model is"
    evaluate = commands.add_parser("evaluate", help=text, description=_EVALUATE, usage=_USAGE, **options)
    evaluate_groups = _grouped(evaluate)
    evaluate_groups["data"].add_argument("--split", help="the split of a dataset [test]")
    evaluate_groups["output"].add_argument("--output", metavar="DIR", help="a new folder for the report")
    text = "fit a correction of a trained model, and fold it in"
    calibrate = commands.add_parser("calibrate", help=text, description=_CALIBRATE, usage=_USAGE, **options)
    calibrate_groups = _grouped(calibrate)
    data, correction, output = (calibrate_groups[name] for name in ("data", "correction", "output"))
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
        type=_numbers,
        help="shift to this share of positives, or to P,P,... of each label or class, in the data in use",
    )
    output.add_argument("--output", metavar="DIR", help="a new folder for the calibrated model and the report")
    output.add_argument("--push_to_hub", metavar="ID", help="publish that folder in this repository")
    output.add_argument("--private", action="store_true", help="make that repository private if it is new")
    output.add_argument(
        "--publish_examples", action="store_true", help="publish a page with samples: report/examples.html"
    )
    for groups in (evaluate_groups, calibrate_groups):
        groups["output"].add_argument(
            "--save_scores",
            metavar="FILE",
            help="a new parquet file of the model's scores, for --scores; a folder lets a killed run go on",
        )
        groups["output"].add_argument(
            "--no_examples", action="store_true", help="leave samples of the data out of report.html"
        )
        thresholds = groups["thresholds"]
        thresholds.add_argument(
            "--precision", type=float, metavar="P", help="choose thresholds above which P are right"
        )
        thresholds.add_argument("--recall", type=float, metavar="R", help="or thresholds that find R of the positives")
        thresholds.add_argument("--confidence", type=float, metavar="C", help="the confidence level of these [0.95]")
        thresholds.add_argument(
            "--simultaneous", action="store_true", help="let them hold for all labels together, not each by itself"
        )
    thresholds = evaluate_groups["thresholds"]
    thresholds.add_argument(
        "--coverage", type=float, metavar="C", help="find the threshold that answers C of the data"
    )
    thresholds.add_argument("--threshold_dataset", metavar="DATA", help="data to choose the threshold on [--dataset]")
    thresholds.add_argument("--threshold_split", metavar="SPLIT", help="the split of that dataset [validation]")
    evaluate_groups["data"].add_argument(
        "--reference", metavar="DATA", help="earlier data, or an earlier table of scores: has the calibration changed?"
    )
    evaluate_groups["scores"].add_argument(
        "--threshold_scores", metavar="FILE", help="the table of scores to choose the threshold on"
    )
    calibrate_groups["scores"].add_argument(
        "--test_scores", metavar="FILE", help="the table of scores to measure on [the same one]"
    )
    apply = commands.add_parser(
        "apply", help="add calibrated probabilities to a file of scores", argument_default=argparse.SUPPRESS
    )
    apply.add_argument("correction", metavar="CORRECTION", help="the correction.json that calibrate --scores wrote")
    apply.add_argument("scores", metavar="SCORES", nargs="?", help="a csv, tsv, json, jsonl or parquet file of scores")
    apply.add_argument("--output", metavar="FILE", help="a new csv, tsv, jsonl or parquet file")
    apply.add_argument("--score_column", metavar="COLUMN", help="as for evaluate")
    apply.add_argument("--onnx", metavar="FILE", help="instead, write the correction as an ONNX graph to this file")
    report = commands.add_parser("report", help="put several runs on one page")
    report.add_argument("folders", metavar="DIR", nargs="+", help="the folder of a run, a report or a comparison")
    report.add_argument("--output", metavar="PAGE", default="report.html", help="the file [%(default)s]")
    return parser


def _grouped(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Add the arguments that `evaluate` and `calibrate` share, and return the groups of `--help`, in their order."""
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
        ("score_column", "COLUMN", "its column of scores, or columns A,B,..., or the beginning of the names of these"),
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
    for field in fields(InputOptions):
        kind: dict[str, Any] = {"metavar": field.name.rpartition("_")[2].upper()}
        if field.name == "label_map":
            kind = {"metavar": "DATA=MODEL", "type": _pair, "nargs": "+", "action": "extend"}
        elif field.name in ("max_length", "max_samples"):
            kind = {"metavar": "N", "type": int}
        elif field.name == "positive_from":
            kind = {"metavar": "GRADE", "type": float}
        elif field.name in ("prompt", "system"):
            kind["type"] = _with_line_breaks
        elif field.name == "save_as" and parser.prog.endswith(" evaluate"):
            continue
        elif field.name in ("chat", "trust_remote_code"):
            kind = {"action": "store_true"}
        groups[field.metadata["group"]].add_argument(f"--{field.name}", help=field.metadata["help"], **kind)
    return groups


if __name__ == "__main__":
    sys.exit(main())
