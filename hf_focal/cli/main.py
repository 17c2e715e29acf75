"""The `hf-focal` command: a demonstration, the losses, γ from a threshold, and calibration of trained models."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import __version__
from .one_line_parser import OneLineParser


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 2 for an error of the user's, 130 for Ctrl-C; both are one line."""
    arguments = vars(_parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        with _one_gpu():
            _COMMANDS[command](**arguments)
    except _user_errors(command) as error:
        # Of several processes only one may have failed, such as that of the rows with a broken image.
        process = "" if _is_main_process() else f"process {os.environ['RANK']}: "
        print(f"hf-focal {command}: {process}error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hf-focal {command}: interrupted", file=sys.stderr)
        return 130
    return 0


def describe_losses() -> str:
    """Each loss with its formula, source and options, as text."""
    from ..losses import LOSSES
    from ..losses.loss_config import format_value

    lines = []
    for name, spec in LOSSES.items():
        lines.append(f"{name}: {spec.summary} ({spec.source})")
        for key, option in spec.options.items():
            default = "" if option.default is None else f" [{format_value(option.default)}]"
            lines.append(f"    {key}: {option.help}{default}")
    return "\n".join(lines)


def _losses() -> None:
    print(describe_losses())


def _gamma(p0: float) -> None:
    from ..losses import gamma_for_threshold

    print(f"{gamma_for_threshold(p0):.6g}")


def _demo(output_dir: str) -> None:
    from .demo import run_demo

    run_demo(output_dir)


def _report(folders: list[str], output: str) -> None:
    from ..reports import comparison_page

    print(f"Written to {comparison_page(folders, output)}")


def _evaluate(**arguments: Any) -> None:
    from .calibrate_command import evaluate_model

    _measure(evaluate_model, arguments)


def _calibrate(**arguments: Any) -> None:
    from .calibrate_command import calibrate_model

    _measure(calibrate_model, arguments)


_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": _demo,
    "losses": _losses,
    "gamma": _gamma,
    "evaluate": _evaluate,
    "calibrate": _calibrate,
    "report": _report,
}


def _measure(measure: Callable[..., Any], arguments: dict[str, Any]) -> None:
    from huggingface_hub.utils import logging

    from .calibrate_command import summary

    logging.set_verbosity_error()  # it says of each attempt that it failed
    if "label_map" in arguments:
        arguments["label_map"] = dict(arguments["label_map"])

    def show(result: Any) -> None:
        if _is_main_process():
            print(f"\n{summary(result)}", flush=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the fitted T")  # which the summary says
        result = measure(**arguments, on_result=show)
    if _is_main_process():
        if "output" in arguments:
            print(f"\nWritten to {arguments['output']}")
        if "url" in result.details:
            print(f"\nPublished: {result.details['url']}")


def _user_errors(command: str) -> tuple[type[Exception], ...]:
    """What goes wrong in a command that the user can put right. All else is a bug, and has its traceback."""
    if command in ("evaluate", "calibrate"):
        from .input_errors import InputError

        return (InputError,)
    return (ValueError, OSError)


@contextmanager
def _one_gpu() -> Iterator[None]:
    """Show PyTorch a single GPU: it would divide batches among those of a process, which `FocalTrainer` does not take.

    A launcher gives each process its own.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "LOCAL_RANK" in os.environ:
        yield
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if shown is None else shown.partition(",")[0]
    try:
        yield
    finally:
        if shown is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = shown


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, label = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must hold DATA=MODEL, got {text!r}")
    return name, label


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="hf-focal", description="Calibrated classifiers with Hugging Face.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train two losses on a generated corpus: a minute, no downloads")
    demo.add_argument("--output_dir", metavar="DIR", default="out/hf_focal", help="models and reports [%(default)s]")
    commands.add_parser("losses", help="what each loss is, where it comes from, its options")
    gamma = commands.add_parser("gamma", help="the γ of focal loss whose gradient is cross-entropy's at p0")
    gamma.add_argument("p0", type=float, help="a probability in (0, 0.5)")

    # What is not given is not there: the defaults are those of the functions.
    options: dict[str, Any] = {"parents": [_options()], "argument_default": argparse.SUPPRESS}
    evaluate = commands.add_parser("evaluate", help="measure how calibrated a trained model is", **options)
    evaluate.add_argument("--split", help="of a dataset that is no file [test]")
    evaluate.add_argument("--output", metavar="DIR", help="a new folder for the report")
    calibrate = commands.add_parser("calibrate", help="fit and fold in the temperature of a trained model", **options)
    calibrate.add_argument("--split", help="what T is fitted to, of a dataset that is no file [validation]")
    calibrate.add_argument("--test_dataset", metavar="DATA", help="what T is measured on [the same dataset]")
    calibrate.add_argument("--test_split", metavar="SPLIT", help="of that [test]")
    calibrate.add_argument("--objective", help="ece, on the grid 0.1 ... 10, or nll [ece]")
    calibrate.add_argument("--output", metavar="DIR", help="a new folder for the calibrated model and the report")
    calibrate.add_argument("--push_to_hub", metavar="ID", help="publish that folder in this repository")
    calibrate.add_argument("--private", action="store_true", help="which nobody else sees, where it is new")
    report = commands.add_parser("report", help="put several runs on one page")
    report.add_argument("folders", metavar="DIR", nargs="+", help="of a run, of its report, or of a comparison")
    report.add_argument("--output", metavar="PAGE", default="report.html", help="the file [%(default)s]")
    return parser


def _options() -> argparse.ArgumentParser:
    """What `evaluate` and `calibrate` share."""
    parser = OneLineParser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("model", metavar="MODEL", help="a Hub id or a folder")
    parser.add_argument(
        "--dataset",
        metavar="DATA",
        required=True,
        help="a csv, json, jsonl or parquet file, or name[:configuration[:split]] of a dataset",
    )
    length = "tokens after which a text is cut [what the model takes; of language models 1024 at most]"
    tasks = "text-classification, image-classification, token-classification, causal-lm or seq2seq-lm"
    parser.add_argument("--task", help=f"{tasks}, where the model's config does not say")
    parser.add_argument("--batch_size", type=int, metavar="N", help="rows of a batch on a device [16]")
    parser.add_argument("--max_length", type=int, metavar="N", help=length)
    parser.add_argument("--max_samples", type=int, metavar="N", help="rows of each set, drawn at random [all]")
    parser.add_argument("--num_bins", type=int, metavar="N", help="bins of the calibration errors [15]")
    columns = parser.add_argument_group("columns")
    columns.add_argument("--text_column", metavar="NAME", help="texts [text]")
    columns.add_argument("--text_pair_column", metavar="NAME", help="second texts, of models of pairs")
    columns.add_argument("--image_column", metavar="NAME", help="images [image]")
    columns.add_argument("--label_column", metavar="NAME", help="labels of texts and images [label]")
    columns.add_argument("--source_column", metavar="NAME", help="what is translated, or its language [source]")
    columns.add_argument("--target_column", metavar="NAME", help="translations, or their language [target]")
    columns.add_argument("--source_prefix", metavar="TEXT", help="put before each source, as T5 wants it")
    columns.add_argument("--source_lang", metavar="CODE", help="of models of several languages: eng_Latn of NLLB")
    columns.add_argument("--target_lang", metavar="CODE", help="of the same")
    columns.add_argument("--token_column", metavar="NAME", help="lists of words [tokens]")
    columns.add_argument("--tag_column", metavar="NAME", help="lists of the words' labels [tags]")
    columns.add_argument(
        "--label_map",
        nargs="+",
        type=_pair,
        metavar="DATA=MODEL",
        help="what the model calls the data's labels: neg=NEGATIVE",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
