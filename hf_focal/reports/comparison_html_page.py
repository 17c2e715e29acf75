"""Self-contained HTML page that compares the reports of several runs, without scripts or external files."""

import base64
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..utils.atomic_write import write_whole
from .bleu_and_ece_figure import temperature_curves
from .gamma_figure import gamma_heatmap
from .markdown_tables import (
    Best,
    format_number,
    parts,
    results_columns,
    results_notes,
    results_table,
    signatures,
    translation_columns,
)
from .reliability_figures import reliability_diagram
from .run_results import READ_ERRORS, MeasuredRun, RunResult, TranslationResult, read_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 96  # CSS pixels per inch, so that fonts have their size
# Images wider than this, in CSS pixels, scroll on a phone instead of shrinking until they cannot be read.
_WIDE = 540


def comparison_page(folders: Sequence[str | Path], path: str | Path, title: str | None = None) -> Path:
    """Write one HTML file that compares runs: tables, reliability diagrams, γ over training, and curves over T.

    The page needs no other file and no network, runs no script, and is readable on a phone, in light and dark mode.

    Args:
        folders: folders of runs with `report/metrics.json`, their `report` folders, or the folders of comparisons,
            which stand for the runs in them. A run that is given twice is shown once; runs of the same loss are told
            apart by their folders.
        path: the file to write and return; its folder is created if missing.
        title: the page's heading.

    Raises:
        ValueError: no folders, a folder without metrics.json, or a metrics.json that is not a report's.
    """
    if not folders:
        raise ValueError("folders must hold at least one run's folder, got none")
    runs = _read_runs([file for folder in folders for file in _metrics_files(Path(folder))])
    classifiers = [run for run in runs.values() if isinstance(run, RunResult)]
    translations = [run for run in runs.values() if isinstance(run, TranslationResult)]
    shown, gammas = [], []
    for file, run in sorted(runs.items(), key=lambda item: isinstance(item[1], TranslationResult)):
        with _errors_of(file):
            if isinstance(run, RunResult):
                results_table([run])  # so that an error in its numbers names its file
            shown.append((run, _diagrams(run)))
            if history := run.details.get("gamma_history"):
                alt = f"γ of each bin over the training of {run.loss}"
                gammas.append(_picture(gamma_heatmap(history), alt, run.loss))
    measured = [run for run in translations if run.bleu]
    alt = f"Test BLEU and validation ECE over the temperature: {', '.join(run.loss for run in measured)}"
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["breakable"] = _breakable
    environment.tests["best"] = lambda part: isinstance(part, Best)
    page = environment.get_template("comparison_page.html.jinja").render(
        title=title or f"Calibration of {len(runs)} run{'s' if len(runs) > 1 else ''}",
        tables=[
            *([("Results", results_columns(classifiers), results_notes(classifiers))] if classifiers else []),
            *(
                [
                    (
                        "Translation",
                        translation_columns(translations),
                        [f"BLEU: {text}" for text in signatures(translations)],
                    )
                ]
                if translations
                else []
            ),
        ],
        zip=zip,
        parts=parts,
        runs=shown,
        gammas=gammas,
        curves=_picture(temperature_curves(measured), alt) if measured else None,
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def _metrics_files(folder: Path) -> list[Path]:
    """Return the metrics.json of a run or a report, or those of the runs of a comparison."""
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


def _read_runs(files: Sequence[Path]) -> dict[Path, MeasuredRun]:
    """Read each file once. The loss of each run becomes its unique name."""
    runs = {}
    for file in {file.resolve(): file for file in files}.values():
        with _errors_of(file):
            runs[file] = read_result(file)
    names = _unique_names([" ".join(run.loss.split()) for run in runs.values()], list(runs))
    return {file: replace(run, loss=name) for name, (file, run) in zip(names, runs.items(), strict=True)}


def _unique_names(losses: Sequence[str], files: Sequence[Path]) -> list[str]:
    """Append to each repeated loss as much of its folder's path as tells the runs apart, or else a number."""
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


def _diagrams(run: MeasuredRun) -> list[dict[str, Any]]:
    sides = [("Before", run.pre_bins, run.pre), ("After", run.post_bins, run.post)]
    pictures = []
    for when, bins, metrics in sides if run.temperature.is_fitted else [("Without", run.pre_bins, run.pre)]:
        caption = f"{when} temperature scaling: ECE {format_number(metrics.get('ece'), 100, 2)} %"
        alt = f"Reliability diagram of {run.loss}. {caption}"
        pictures.append(_picture(reliability_diagram(metrics=bins), alt, caption))
    return pictures


def _picture(figure: "Figure", alt: str, caption: str | None = None) -> dict[str, Any]:
    """Embed a figure as a PNG with two pixels per CSS pixel, so that it is sharp on high-resolution screens."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * _DPI)
    width, height = (round(inches * _DPI) for inches in figure.get_size_inches())
    source = base64.b64encode(file.getvalue()).decode("ascii")
    return {"source": source, "width": width, "height": height, "alt": alt, "caption": caption, "wide": width > _WIDE}


def _breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after the punctuation between its words."""
    return Markup(re.sub(r"([_:,/])(?=\w)", r"\1<wbr>", str(escape(name))))
