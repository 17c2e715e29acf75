"""One self-contained HTML page that compares the reports of several runs: no script, and nothing that it loads."""

import base64
import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ..utils.atomic_write import write_whole
from .gamma_figure import gamma_heatmap
from .markdown_cells import format_number, unescaped
from .read_results import read_result
from .reliability_figures import reliability_diagram
from .run_report import RunResult, results_table
from .translation_report import TranslationResult, temperature_curves, translation_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150
# Wider pictures, in CSS pixels, are not made to fit on a phone, where they could not be read: they scroll.
_WIDE = 540


@dataclass
class _Runs:
    """What the folders hold, each result with a name of its own."""

    classification: dict[str, RunResult] = field(default_factory=dict)
    translation: dict[str, TranslationResult] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, RunResult | TranslationResult]:
        return {**self.classification, **self.translation}


def comparison_page(folders: Sequence[str | Path], path: str | Path, title: str | None = None) -> Path:
    """Write one HTML file that compares runs: tables, reliability diagrams, γ over training, curves.

    It needs no other file and no network, is readable on a phone, in light and dark, and runs no script. All pictures
    are drawn anew from the JSON.

    Args:
        folders: runs' folders, with `report/metrics.json` of `write_report` or `write_translation_report`, or those
            `report` folders themselves; the folder of a comparison stands for the runs in it, in the order of their
            names. What is given twice is shown once. Runs of the same loss are told apart by their folders.
        path: the file; its folder is made where it is not there.
        title: the page's heading.

    Returns:
        The path.

    Raises:
        ValueError: no folders; one without a metrics.json; a metrics.json that no report wrote.
    """
    if isinstance(folders, str | Path):
        raise ValueError(f"folders must be a list of folders, got {str(folders)!r}")
    if not folders:
        raise ValueError("folders must hold at least one run's folder, got none")
    runs = _read([place for folder in folders for place in _reports(Path(folder))])
    count = len(runs.all)
    title = title or f"Calibration of {count} run{'s' if count > 1 else ''}"
    sections = [*_tables(runs), *_diagrams(runs), *_gammas(runs), *_curves(runs)]
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    page = template.substitute(title=html.escape(title), sections="".join(sections))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def _reports(folder: Path) -> list[Path]:
    """The folders that hold the reports of a run, or of the runs of a comparison."""
    candidates = [folder / "report", folder]
    if folder.is_dir():
        children = sorted(child for child in folder.iterdir() if child.is_dir())
        candidates = [*candidates, *(child / "report" for child in children), *children]
    found = [place for place in candidates if (place / "metrics.json").is_file()]
    if not found:
        raise ValueError(
            f"folder must be a run's, its report or a comparison, got {folder}, which has no metrics.json"
        )
    own = [place for place in found if place in candidates[:2]]
    return own or found


def _read(places: Sequence[Path]) -> _Runs:
    results = []
    for place in {place.resolve(): place for place in places}.values():
        file = place / "metrics.json"
        try:
            results.append((read_result(file), place))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{file} must be what a report writes, got {type(error).__name__}: {error}") from None
    named = list(zip(_names(results), (result for result, _ in results), strict=True))
    return _Runs(
        {name: result for name, result in named if isinstance(result, RunResult)},
        {name: result for name, result in named if isinstance(result, TranslationResult)},
    )


def _names(results: Sequence[tuple[Any, Path]]) -> list[str]:
    """The losses; where several runs have the same, with as much of their folders' paths as differs, or numbers."""
    losses = [" ".join(str(result.loss).split()) for result, _ in results]
    names = list(losses)
    for loss in {loss for loss in losses if losses.count(loss) > 1}:
        alike = [number for number, other in enumerate(losses) if other == loss]
        parts = [results[number][1].resolve().parts for number in alike]
        parts = [path[1:-1] if path[-1] == "report" else path[1:] for path in parts]
        places = len(set(parts))
        depth = next(
            depth for depth in range(1, 1 + max(map(len, parts))) if len({p[-depth:] for p in parts}) == places
        )
        for number, path in zip(alike, parts, strict=True):
            names[number] = f"{loss} ({'/'.join(path[-depth:])})"
    return [
        name if names.count(name) == 1 else f"{name} {1 + names[:number].count(name)}"
        for number, name in enumerate(names)
    ]


def _tables(runs: _Runs) -> Iterator[str]:
    for heading, results, table in (
        ("Results", runs.classification, results_table),
        ("Translation", runs.translation, translation_table),
    ):
        if results:
            yield f"<section>\n<h2>{heading}</h2>\n{_numbered(results, table, heading)}</section>\n"


def _diagrams(runs: _Runs) -> Iterator[str]:
    if not runs.all:
        return
    yield '<section>\n<h2>Reliability diagrams</h2>\n<div class="runs">\n'
    for name, result in runs.all.items():
        sides = [
            ("Before temperature scaling", result.pre_bins, result.pre),
            ("After temperature scaling", result.post_bins, result.post),
        ]
        fitted = str(result.temperature).replace("->", "→") + ", on the validation data."
        if not result.temperature.is_fitted:
            sides, fitted = [("As it is", result.pre_bins, result.pre)], "No temperature was fitted."
        yield f"<div>\n<h3>{_breakable(name)}</h3>\n<p>{html.escape(fitted)}</p>\n"
        yield '<div class="pictures">\n'
        for when, bins, metrics in sides:
            caption = f"{when}: ECE {format_number(metrics.get('ece'), 100, 2)} %"
            yield _picture(reliability_diagram(metrics=bins), f"Reliability diagram of {name}. {caption}", caption)
        yield "</div>\n</div>\n"
    yield "</div>\n</section>\n"


def _gammas(runs: _Runs) -> Iterator[str]:
    histories = {name: result.details.get("gamma_history") for name, result in runs.all.items()}
    pictures = [
        _picture(gamma_heatmap(history), f"γ of each bin over the training of {name}", name)
        for name, history in histories.items()
        if history
    ]
    if pictures:
        yield f'<section>\n<h2>γ over training</h2>\n<div class="pictures">\n{"".join(pictures)}</div>\n</section>\n'


def _curves(runs: _Runs) -> Iterator[str]:
    measured = [replace(run, loss=name) for name, run in runs.translation.items() if run.bleu]
    if measured:
        names = ", ".join(run.loss for run in measured)
        alt = f"Test BLEU and validation ECE over the temperature: {names}"
        yield "<section>\n<h2>BLEU and ECE over the temperature</h2>\n"
        yield f"{_picture(temperature_curves(measured), alt)}</section>\n"


def _numbered(runs: dict[str, Any], table: Callable[[Sequence], str], caption: str) -> str:
    """HTML of tables in Markdown. The runs go into it as numbers: whatever their names hold, its cells stay whole."""
    names = list(runs)
    markdown = table([replace(run, loss=str(number)) for number, run in enumerate(runs.values())])
    parts, rows = [], []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("| "):
            rows.append(line.removeprefix("| ").removesuffix(" |").split(" | "))
            continue
        if rows:
            parts.append(_table(rows, names, caption))
            rows = []
        if line:
            parts.append(f"<p>{_inline(line)}</p>\n")
    return "".join(parts)


def _table(rows: Sequence[Sequence[str]], names: Sequence[str], caption: str) -> str:
    titles, _, *body = rows
    head = "".join(f'<th scope="col">{html.escape(unescaped(title))}</th>' for title in titles)
    lines = [
        f'<tr><th scope="row">{_breakable(names[int(number)])}</th>'
        + "".join(f"<td>{_inline(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for number, *cells in body
    ]
    label = html.escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n<table>\n<caption>{label}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>\n</table>\n</div>\n"
    )


def _inline(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def _breakable(name: str) -> str:
    """The name, whose lines may end behind the signs between its words."""
    return re.sub(r"([_:,/])(?=\w)", r"\1<wbr>", html.escape(name))


def _picture(figure: "Figure", alt: str, caption: str | None = None) -> str:
    """The figure as a PNG in the page, half as many pixels wide as it has: sharp on a screen of two a pixel."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    width, height = (round(inches * _DPI / 2) for inches in figure.get_size_inches())
    source = base64.b64encode(file.getvalue()).decode("ascii")
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    picture = f'<img src="data:image/png;base64,{source}" width="{width}" height="{height}" alt="{html.escape(alt)}">'
    if width > _WIDE:
        picture = f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(alt)}">{picture}</div>'
    return f"<figure>{picture}{below}</figure>\n"
