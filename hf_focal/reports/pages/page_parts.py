"""Parts that all pages share: figures in the page's colors, cells of tables, and the templates' environment."""

import base64
import hashlib
import io
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ...utils.constants import WEBSITE
from ..figures.reliability_marks import FEW, Z
from ..results.run_results import RunResult
from ..wording.markdown_tables import Best, Cell, Tied, parts
from ..wording.next_steps import is_code
from ..wording.number_format import format_metric, sentence
from ..wording.text_summary import summary
from .charts import LINES, RELIABILITY, reliability_chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 540  # CSS pixels: wider figures scroll on a phone instead of shrinking until they cannot be read
_SHORT = 12  # characters of a word that is not broken
# The figures' colors, and the page's colors that replace them in light and dark mode.
_PAGE_COLORS = {"#000000": "currentColor", "#ffffff": "var(--page)"}
_PAGE_COLORS |= {"#e0e0e0": "var(--line)", "#595959": "var(--gray)", "#b3b3b3": "var(--bars)"}
_PAGE_COLORS |= {"#0072b2": "var(--blue)", "#d55e00": "var(--orange)", "#009e73": "var(--green)"}


class PageFigure(NamedTuple):
    """A figure of a page: its drawing, its alternative text, and its caption; a wide one scrolls on a phone."""

    svg: Markup
    alt: str
    caption: str | None = None
    is_wide: bool = False


class ResultsTable(NamedTuple):
    """The table of the runs of one test set: what it is of, warnings above it, and notes below it, as sentences."""

    about: str
    warnings: list[str]
    columns: dict[str, list[Cell]]
    notes: list[str]


@cache
def environment() -> Environment:
    """Return the environment of the pages' templates."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters |= {
        "breakable": _breakable,
        "digest": _digest,
        "split": _numbers_and_intervals,
        "sentence": sentence,
        "probability": _probability,
        "value": lambda cell: _numbers_and_intervals(cell)[2],
    }
    made.tests |= {
        "code": is_code,
        "best": lambda part: isinstance(part, Best),
        "tied": lambda part: isinstance(part, Tied),
    }
    made.globals |= {"zip": zip, "frame": RELIABILITY[:4], "lines_frame": LINES[:4], "site": WEBSITE}
    made.globals |= {"few": FEW, "z": Z}
    made.globals["guide"] = f"{WEBSITE}guides/reliability_diagram.html"
    return made


def _numbers_and_intervals(cell: Cell) -> tuple[list[str], str, str]:
    """Split a cell into the parts that are not intervals, the intervals as text, and the number for sorting rows."""
    numbers = [part for part in parts(cell) if part and not part.startswith(" [")]
    intervals = [part.strip().replace(" ", "\N{NO-BREAK SPACE}") for part in parts(cell) if part.startswith(" [")]
    return numbers, " → ".join(intervals), next((part for part in reversed(numbers) if part[-1].isdigit()), "")


def reliability_figures(run: RunResult) -> list[PageFigure]:
    """Return the reliability diagrams of a run before and, with a correction, after it."""
    sides = [("Before", run.pre_bins, run.pre), ("After", run.post_bins, run.post)]
    figures = []
    for when, bins, metrics in sides if run.method else sides[:1]:
        caption = f"ECE {format_metric('ece', metrics)}%"
        caption = f"{when} {run.scaling}: {caption}" if run.method else caption
        alt = f"Reliability diagram of {run.name}. {caption}"
        figures.append(PageFigure(reliability_chart(bins, run.axes, alt), alt, caption if run.method else None))
    return figures


def notebook_view(run: RunResult) -> str:
    """Return the verdict, the table, and the reliability diagrams of a run as HTML for a notebook."""
    figures = reliability_figures(run) if run.pre_bins.count.sum() else []
    template = environment().get_template("notebook_view.html.jinja")
    return template.render(text=summary(run), figures=figures)


def matplotlib_page_figure(figure: "Figure", alt: str, caption: str | None = None) -> PageFigure:
    """Return a figure of Matplotlib as SVG in the page's colors."""
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": alt}):  # text stays text; ids differ among figures
        figure.savefig(file, format="svg", dpi=192)
    drawing = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    root, _, drawing = drawing[drawing.index("<svg") :].partition(">")
    drawing = re.sub(r' id="[\w.]+_\d+"', "", drawing)
    drawing = re.sub("|".join(_PAGE_COLORS), lambda match: _PAGE_COLORS[match[0]], drawing)
    width = round(96 * figure.get_figwidth())
    box = re.findall('viewBox="[^"]*"', root)[0]
    svg = Markup('<svg {} role="img" aria-label="{}">').format(Markup(box), alt) + Markup(drawing)
    return PageFigure(svg, alt, caption, is_wide=width > _WIDE)


def _breakable(name: str) -> Markup:
    """Escape a name and allow line breaks after the punctuation between its words, unless it is short."""
    words = re.split(r"(\s+)", name)
    return Markup("").join(
        escape(word) if len(word) <= _SHORT else Markup(re.sub(r"([_:,/=])(?=\w)", r"\1<wbr>", str(escape(word))))
        for word in words
    )


def _probability(value: float) -> str:
    """Format a probability as a percentage that is 0 or 100 only if it is."""
    text = f"{100 * value:.2f}"
    if text in ("100.00", "0.00") and 0 < value < 1:
        return ">99.99" if value > 0.5 else "<0.01"
    return text


def _digest(script: str) -> str:
    """Return the Base64 SHA-256 hash by which the page's Content-Security-Policy allows the page's only script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
