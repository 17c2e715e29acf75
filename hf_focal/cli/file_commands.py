"""`hf-focal apply` and `hf-focal report`, for files that other commands wrote.

Modules are imported only in the command that needs them, because importing takes seconds.
"""

import argparse
from pathlib import Path
from typing import Any

from ..errors import InputError
from .commands import Command
from .parsing import refuse_arguments


def add_apply(commands: Any) -> None:
    text = "add calibrated probabilities, and decisions, to a file of scores"
    parser = commands.add_parser("apply", help=text, argument_default=argparse.SUPPRESS)
    parser.add_argument("correction", metavar="CORRECTION", help="the correction.json that calibrate --scores wrote")
    parser.add_argument(
        "scores", metavar="SCORES", nargs="?", help="a csv, tsv, json, jsonl or parquet file of scores"
    )
    parser.add_argument("--output", metavar="FILE", help="a new csv, tsv, jsonl or parquet file")
    parser.add_argument("--score_column", metavar="COLUMN", help="as for evaluate")
    parser.add_argument("--onnx", metavar="FILE", help="instead, write the correction as an ONNX graph to this file")
    Command(run_apply, uses_torch=True, user_errors=(InputError,)).register(parser)


def run_apply(**arguments: Any) -> None:
    from ..scores import correct_file, export_correction
    from ..scores.correction_files.correction_json import read_correction
    from ..utils.names import counted, listed

    if "onnx" in arguments:
        if others := sorted(arguments.keys() - {"correction", "onnx"}):
            refuse_arguments("apply", f"with --onnx, {others[0]} must not be given")
        export_correction(arguments["correction"], arguments["onnx"])
        print(f"Written to {arguments['onnx']}: a graph from scores to calibrated probabilities")
        return
    if missing := [name for name in ("scores", "output") if name not in arguments]:
        refuse_arguments("apply", f"the following arguments are required: {', '.join(missing)}")
    rows = correct_file(**arguments)
    thresholds = read_correction(arguments["correction"]).thresholds
    decisions = " and decisions" if thresholds else ""
    print(f"Written to {arguments['output']}: {counted(rows, 'row')} with calibrated probabilities{decisions}")
    if thresholds and (missing := [name for name in thresholds.get("labels", ()) if name not in thresholds["values"]]):
        if thresholds.get("link") == "softmax":
            print("No row has an answer, because no threshold of the confidence reached the goal.")
        else:
            print(f"No row has a yes to {listed(missing)}, because no threshold reached the goal there.")


def add_report(commands: Any) -> None:
    parser = commands.add_parser("report", help="put several runs on one page")
    parser.add_argument("folders", metavar="DIR", nargs="+", help="the folder of a run, a report or a comparison")
    parser.add_argument("--output", metavar="PAGE", default="report.html", help="a new file [%(default)s]")
    Command(run_report, uses_torch=True).register(parser)


def run_report(folders: list[str], output: str) -> None:
    from ..reports import comparison_page, read_runs, results_table
    from ..reports.pages.comparison_html_page import by_test_set
    from ..reports.wording.markdown_tables import RESULTS_LEGEND

    if not output or Path(output).exists() or Path(output).is_symlink():
        raise InputError("output", f"must be a new file, got {output!r}: name another, or remove this one")
    page = comparison_page(folders, output)  # which names the file if one is broken
    runs = [*read_runs(folders).values()]
    tables = by_test_set(runs)
    for test_set, measured in tables.items():
        about = f"On {test_set}:\n\n" if len(tables) > 1 and test_set else ""
        print(f"{about}{results_table(measured)}")
    print(f"{RESULTS_LEGEND}\n")
    print("\n".join(run.describe() for run in runs))
    print(f"Written to {page.absolute()}")
