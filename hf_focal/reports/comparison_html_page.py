"""Self-contained HTML page that compares the reports of several runs."""

import base64
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..metrics import ReliabilityBins
from ..tasks.task import unit_of
from ..utils.atomic_write import write_whole
from .base_rate_warnings import base_rate_warnings
from .gamma_figure import gamma_heatmap
from .markdown_tables import Best, Cell, format_number, parts, results_columns, results_notes, results_table
from .reliability_figures import reliability_diagram
from .run_results import READ_ERRORS, RunResult
from .text_summary import decision_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 540  # CSS pixels: wider figures scroll on a phone instead of shrinking until they cannot be read
# The figures' colors, and the page's colors that replace them in light and dark mode.
_PAGE_COLORS = {"#000000": "currentColor", "#ffffff": "var(--page)"}
_PAGE_COLORS |= {"#e0e0e0": "var(--line)", "#595959": "var(--grey)", "#b3b3b3": "var(--bars)"}
_PAGE_COLORS |= {"#0072b2": "var(--blue)", "#d55e00": "var(--orange)", "#009e73": "var(--green)"}


def comparison_page(folders: Sequence[str | Path], path: str | Path, title: str | None = None) -> Path:
    """Write one HTML file that compares runs with tables, reliability diagrams, and heat maps of AdaFocal's γ.

    The page needs no other file and no network, and works without JavaScript (a script only adds sorting by column).
    The page is readable on a phone, and in light and dark mode. Runs that were measured on different test sets cannot
    be ranked against each other, so each test set has its own table.

    Args:
        folders: each is the folder of a run, which has `report/metrics.json`; the `report` folder itself; or the
            folder of a comparison, which stands for all runs in it. A run that is given twice is shown once. Runs are
            named after their losses. If several runs have the same loss, parts of their paths are added to the names.
        path: the file to write and return; its folder is created if missing.
        title: the page's heading; by default, "Calibration of N runs".

    Raises:
        ValueError: `folders` is empty, a folder has no metrics.json, or a metrics.json was not written by a report.
    """
    runs = read_runs(folders)
    shown, gammas = [], []
    test_sets: dict[str, list[RunResult]] = {}
    for file, run in runs.items():
        with _errors_of(file):
            results_table([run])  # so that an error in the run's numbers names the file
            test_sets.setdefault(_test_set(run), []).append(run)
            fitted_on = _data_name(run, "fitted_on") or "the validation data"
            shown.append((run, fitted_on, decision_lines(run.details), _diagrams(run)))
            if history := run.details.get("gamma_history"):
                alt = f"γ of each bin over the training of {run.loss}"
                gammas.append(_picture(gamma_heatmap(history), alt, run.loss))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"breakable": _breakable, "digest": _digest, "split": _numbers_and_intervals}
    environment.tests["best"] = lambda part: isinstance(part, Best)
    page = environment.get_template("comparison_page.html.jinja").render(
        title=title or f"Calibration of {len(runs)} run{'s' if len(runs) > 1 else ''}",
        tables=[_table(test_set, runs) for test_set, runs in test_sets.items()],
        zip=zip,
        runs=shown,
        gammas=gammas,
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def read_runs(folders: Sequence[str | Path]) -> dict[Path, RunResult]:
    """Return path of metrics.json -> run for the folders and with the names and errors of `comparison_page`."""
    if not folders:
        raise ValueError("folders must hold at least one run's folder, got none")
    files = {file.resolve(): file for folder in folders for file in _metrics_files(Path(folder))}
    runs = {}
    for file in files.values():
        with _errors_of(file):
            runs[file] = RunResult.load(file)
    names = _unique_names([" ".join(run.loss.split()) for run in runs.values()], list(runs))
    return {file: replace(run, loss=name) for name, (file, run) in zip(names, runs.items(), strict=True)}


def _metrics_files(folder: Path) -> list[Path]:
    """Return the metrics.json files in a folder: that of a run or its report, or those of the runs in a comparison."""
    for patterns in (("report/metrics.json", "metrics.json"), ("*/report/metrics.json", "*/metrics.json")):
        if files := [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()]:
            return files
    raise ValueError(
        f"folder must be the folder of a run, a report or a comparison, got {folder}, which has no metrics.json"
    )


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise ValueError(f"{file} must be what a report writes, got {type(error).__name__}: {error}") from None


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


def _data_name(run: RunResult, detail: str) -> str:
    """Return the data's name in `run.details[detail]`, or "", without the leading word "dataset" or "test_dataset"."""
    return re.sub("^(test_)?dataset ", "", str(run.details.get(detail, "")))


def _test_set(run: RunResult) -> str:
    """Describe a run's test set by its name, size, and class balance; runs with equal descriptions share a table."""
    name = _data_name(run, "measured_on")
    balance = run.details.get("class_balance")
    unit = unit_of(run.details.get("task", ""), "samples" if balance else "labels")  # labels of tokens or pixels
    size = f"{int(run.pre['num_samples']):,} {unit}" if "num_samples" in run.pre else ""
    if balance:
        counts = dict.fromkeys(f"{balance[name]:,}" for name in ("smallest", "largest"))
        size += f" of {balance['classes']} classes, {' to '.join(counts)} of each"
    return "; ".join(filter(None, (name, size)))


def _table(test_set: str, runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return the "columns" of one test set's table, the texts above it ("about", "warnings"), and below ("notes")."""
    dates = sorted({str(run.details["date"]) for run in runs if "date" in run.details})
    measured = f"measured {' to '.join(dict.fromkeys([*dates[:1], *dates[-1:]]))}" if dates else ""
    about = "; ".join(filter(None, (test_set, measured)))
    notes = [
        f"The correction of {run.loss} was fitted on the samples that it is measured on, so the values after it are "
        "optimistic"
        for run in runs
        if "fitted_on" in run.details and run.details["fitted_on"] == run.details.get("measured_on")
    ]
    warnings = [warning for run in runs for warning in base_rate_warnings(run)]
    return {
        "about": about,
        "warnings": warnings,
        "columns": results_columns(runs),
        "notes": notes + results_notes(runs),
    }


def _numbers_and_intervals(cell: Cell) -> tuple[list[str], str, str]:
    """Split a cell into the parts that are no intervals, the intervals as text, and the number for sorting rows."""
    numbers = [part for part in parts(cell) if part and not part.startswith(" [")]
    intervals = [part.strip().replace(" ", "\N{NO-BREAK SPACE}") for part in parts(cell) if part.startswith(" [")]
    return numbers, " → ".join(intervals), next((part for part in reversed(numbers) if part[-1].isdigit()), "")


def _diagrams(run: RunResult) -> list[dict[str, Any]]:
    sides = [("Before", run.pre_bins, run.pre), ("After", run.post_bins, run.post)]
    pictures = []
    for when, bins, metrics in sides if run.method else [("Without", run.pre_bins, run.pre)]:
        caption = f"{when} {run.method or 'temperature'} scaling: ECE {format_number(metrics.get('ece'), 100, 2)}%"
        alt = f"Reliability diagram of {run.loss}. {caption}"
        figure = reliability_diagram(metrics=bins, link=run.link)
        pictures.append(_picture(figure, alt, caption, _tooltips(figure, bins)))
    return pictures


def _tooltips(figure: "Figure", bins: ReliabilityBins) -> list[str]:
    """Cover bins that have samples with nearly invisible bars (ids "tip-0", ...), and return the bars' tooltips."""
    filled = bins.count > 0
    left, right = bins.edges[:-1][filled], bins.edges[1:][filled]
    bars = figure.axes[0].bar(left, figure.axes[0].get_ylim()[1], right - left, align="edge", alpha=0.004)
    for number, bar in enumerate(bars):
        bar.set_gid(f"tip-{number}")
    rows = np.stack([left, right, bins.count[filled], bins.confidence[filled], bins.accuracy[filled]], 1).tolist()
    confidence, accuracy = figure.axes[1].get_xlabel(), figure.axes[0].get_ylabel().lower()
    text = f"{confidence} {{:.3g}} to {{:.3g}}: {{:,.0f}} predictions, mean {{:.1%}}, {accuracy} {{:.1%}}"
    return [text.format(*row) for row in rows]


def _picture(figure: "Figure", alt: str, caption: str | None = None, tooltips: Iterable[str] = ()) -> dict[str, Any]:
    """Return what the template needs to show a figure: SVG in the page's colors, alternative text, and a caption."""
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": alt}):  # text stays text; ids differ among figures
        figure.savefig(file, format="svg", dpi=192)
    drawing = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    root, _, drawing = drawing[drawing.index("<svg") :].partition(">")
    drawing = re.sub(r' id="[\w.]+_\d+"', "", drawing)
    for number, text in enumerate(tooltips):
        drawing = drawing.replace(f'<g id="tip-{number}">', f"<g><title>{text}</title>")
    drawing = re.sub("|".join(_PAGE_COLORS), lambda match: _PAGE_COLORS[match[0]], drawing)
    width = round(96 * figure.get_figwidth())
    box = re.findall('viewBox="[^"]*"', root)[0]
    source = Markup('<svg {} role="img" aria-label="{}">').format(Markup(box), alt) + Markup(drawing)
    return {"source": source, "alt": alt, "caption": caption, "wide": width > _WIDE}


def _breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after the punctuation between its words."""
    return Markup(re.sub(r"([_:,/=])(?=\w)", r"\1<wbr>", str(escape(name))))


def _digest(script: str) -> str:
    """Return the Base64 SHA-256 hash by which the page's Content-Security-Policy allows the page's only script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
