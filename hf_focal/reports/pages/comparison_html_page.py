"""Self-contained HTML page that compares the reports of several runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...command_lines import RunCommands
from ...errors import InputError
from ...tasks.task import unit_of
from ...utils.atomic_write import write_whole
from ...utils.names import DataName
from ..examples import Examples
from ..figures.gamma_figure import gamma_heatmap
from ..figures.reliability_marks import LINK_WORDS
from ..results.run_results import READ_ERRORS, RunResult, shared_axes
from ..wording.headlines import headline_of
from ..wording.markdown_tables import results_columns, results_notes
from ..wording.model_warnings import warnings_of
from ..wording.text_summary import decision_lines
from .charts import reliability_lines
from .page_parts import PageFigure, ResultsTable, environment, matplotlib_page_figure, reliability_figures
from .run_html_page import run_page


def comparison_page(
    folders: Sequence[str | Path],
    path: str | Path,
    title: str | None = None,
    *,
    commands: RunCommands | None = None,
    examples: Examples | None = None,
) -> Path:
    """Write one HTML file that compares runs with tables, reliability diagrams, and heat maps of AdaFocal's γ.

    The page of a single run says in words how calibrated it is and what to do next, explains its metrics, and shows
    whatever the run holds of: the risk-coverage curve, the confusion matrix, labels, groups, and thresholds.

    The page needs no other file and no network, and works without JavaScript (a script only adds sorting by column).
    The page is readable on a phone, and in light and dark mode. Runs that were measured on different test sets cannot
    be ranked against each other, so each test set has its own table.

    Args:
        folders: each is the folder of a run, which has `report/metrics.json`; the `report` folder itself; or the
            folder of a comparison, which stands for all runs in it. A run that is given twice is shown once. Runs are
            named after their losses. If several runs have the same loss, parts of their paths are added to the names.
        path: the file to write and return; its folder is created if missing.
        title: the page's heading; by default, "Calibration of N runs", or the name of the only run's model.
        commands: those that follow a single run, so that the next steps on its page name the user's files; by default,
            they have only the last parts of their paths, as a result does not hold more.
        examples: samples of the data, which the page of a single run shows.

    Raises:
        InputError: `folders` is empty, a folder has no metrics.json, or a metrics.json was not written by a report.
    """
    runs = read_runs(folders)
    tables = by_test_set([*runs.values()])
    [(file, run), *others] = runs.items()
    if others:
        page = _comparison(runs, title or f"Calibration of {len(runs)} runs", tables)
    else:
        heading = title or f"Calibration of {_name(file, run)}"
        page = run_page(
            run,
            heading,
            _results_table(*tables.popitem(), is_comparison=False),
            _folder_of(file).name,
            commands,
            examples,
        )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


class ComparedRun(NamedTuple):
    """A run of a comparison: its headline, sentences about its correction and thresholds, and its diagrams."""

    result: RunResult
    fitted_on: str
    headline: str
    sentences: list[str]
    figures: list[PageFigure]


def _comparison(runs: dict[Path, RunResult], title: str, tables: dict[str, list[RunResult]]) -> str:
    compared, gammas = [], []
    for run in runs.values():
        fitted_on = _data_name(run.fit.fitted_on) or "the validation data"
        compared.append(ComparedRun(run, fitted_on, headline_of(run), decision_lines(run), reliability_figures(run)))
        if history := run.subsets.gamma_history:
            alt = f"γ of each bin over the training of {run.name}"
            gammas.append(matplotlib_page_figure(gamma_heatmap(history), alt, run.name))
    return (
        environment()
        .get_template("comparison_page.html.jinja")
        .render(
            title=title,
            tables=[_results_table(test_set, runs, is_comparison=True) for test_set, runs in tables.items()],
            runs=compared,
            link=shared_axes([*runs.values()]),
            has_intervals=any(run.pre_intervals for run in runs.values()),
            changes_predictions=any(run.method not in (None, "temperature") for run in runs.values()),
            overlays=_overlays([*runs.values()]),
            gammas=gammas,
        )
    )


def _overlays(runs: Sequence[RunResult]) -> list[PageFigure]:
    """Return figures with the reliability of all runs, before and, if any has one, after the correction."""
    titles = LINK_WORDS[shared_axes(runs)].percent_titles
    sides = {"before the correction": {run.name: run.pre_bins for run in runs}}
    if is_corrected := any(run.method for run in runs):
        sides["after the correction"] = {run.name: run.post_bins for run in runs}
    figures = []
    for when, named_bins in sides.items():
        bins = {name: side for name, side in named_bins.items() if side.count.sum()}
        caption, alt = "", "Reliability of all runs"
        if is_corrected:
            caption, alt = when.capitalize(), f"{alt} {when}"
        if bins:
            figures.append(PageFigure(reliability_lines(bins, *titles, alt), alt, caption))
    return figures


def _name(file: Path, run: RunResult) -> str:
    """Return the name of a run's model, or that of its folder with the loss that it was trained with."""
    if run.data.model:
        return run.data.model
    return f"{_folder_of(file).name}, trained with {run.name}" if run.loss_config else run.name


def _folder_of(file: Path) -> Path:
    """Return the run's folder that holds this metrics.json, perhaps in its subfolder `report`."""
    folder = file.resolve().parent
    return folder.parent if folder.name == "report" else folder


def read_runs(folders: Sequence[str | Path]) -> dict[Path, RunResult]:
    """Return path of metrics.json -> run for the folders and with the names and errors of `comparison_page`."""
    if not folders:
        raise InputError("folders", "must hold at least one run's folder, got none")
    files = {file.resolve(): file for folder in folders for file in _metrics_files(Path(folder))}
    runs = {}
    for file in files.values():
        with _errors_of(file):
            runs[file] = RunResult.load(file)
    names = _unique_names([" ".join(run.name.split()) for run in runs.values()], list(runs))
    return {file: replace(run, name=name) for name, (file, run) in zip(names, runs.items(), strict=True)}


def _metrics_files(folder: Path) -> list[Path]:
    """Return the metrics.json files in a folder: that of a run or its report, or those of the runs in a comparison."""
    for patterns in (("report/metrics.json", "metrics.json"), ("*/report/metrics.json", "*/metrics.json")):
        if files := [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()]:
            return files
    expected = "must be the folder of a run, a report or a comparison"
    raise InputError("folder", f"{expected}, got {folder}, which has no metrics.json")


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise InputError(str(file), f"must be what a report writes, got {type(error).__name__}: {error}") from None


def _unique_names(losses: Sequence[str], files: Sequence[Path]) -> list[str]:
    """Return a unique name for each run: its loss and, if others have that loss, part of its path or else a number."""
    names = list(losses)
    folders = [file.resolve().parts[1:-1] for file in files]
    folders = [parts[:-1] if parts[-1:] == ("report",) else parts for parts in folders]
    for loss in {loss for loss in losses if losses.count(loss) > 1}:
        alike = [number for number, other in enumerate(losses) if other == loss]
        paths = [folders[number] for number in alike]
        depth = next(n for n in range(1, 1 + max(map(len, paths))) if len({p[-n:] for p in paths}) == len(set(paths)))
        for number, path in zip(alike, paths, strict=True):
            names[number] = f"{loss} ({'/'.join(path[-depth:])})"
    return [
        name if names.count(name) == 1 else f"{name} {1 + names[:number].count(name)}"
        for number, name in enumerate(names)
    ]


def _data_name(name: str | None) -> str:
    """Return the name of data, or "", without the argument "dataset" or "test_dataset" of a file."""
    data = DataName.parse(name or "")
    is_file = data is not None and data.split is None and data.argument in ("dataset", "test_dataset")
    return repr(data.name) if data is not None and is_file else name or ""


def by_test_set(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Return description of a test set -> the runs that were measured on it: only these can be ranked."""
    tables: dict[str, list[RunResult]] = {}
    for run in runs:
        tables.setdefault(_test_set(run), []).append(run)
    return tables


def _test_set(run: RunResult) -> str:
    """Describe a run's test set by its name, size, and class balance; runs with equal descriptions share a table."""
    name, balance, task = _data_name(run.data.measured_on), run.subsets.class_balance, run.data.task
    labels = len(run.subsets.label_names)
    has_samples = balance or labels or task == "scores"  # or else labels of tokens or pixels
    unit = unit_of(task, "samples" if has_samples else "labels")
    size = f"{int(run.pre['num_samples']):,} {unit}" if "num_samples" in run.pre else ""
    if balance and not run.is_of_answers:
        counts = dict.fromkeys(f"{count:,}" for count in (balance.smallest, balance.largest))
        size += f" of {balance.classes} classes, {' to '.join(counts)} of each"
    elif labels > 1:
        size += f" with {labels} labels"
    return "; ".join(filter(None, (name, size)))


def _results_table(test_set: str, runs: Sequence[RunResult], is_comparison: bool) -> ResultsTable:
    """Return the table of the runs of one test set, which `test_set` describes; a comparison names the runs."""
    dates = sorted({run.data.date for run in runs if run.data.date is not None})
    measured = f"measured {' to '.join(dict.fromkeys([*dates[:1], *dates[-1:]]))}" if dates else ""
    notes = [
        f"The correction of {run.name} was fitted on the samples that it is measured on, so the values after it are "
        "optimistic"
        for run in runs
        if not run.has_own_test_data
    ]
    return ResultsTable(
        about="; ".join(filter(None, (test_set, measured))),
        warnings=[warning for run in runs for warning in warnings_of(run, run.name if is_comparison else None)],
        columns=results_columns(runs),
        notes=notes + results_notes(runs),
    )
