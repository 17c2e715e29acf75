"""Parts that all pages share: pictures in the page's colors, cells of tables, and the template's environment."""

import base64
import hashlib
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..calibration.cross_fitting import scaling_name
from ..metrics import ReliabilityBins
from .markdown_tables import Best, Cell, parts
from .number_format import format_metric
from .reliability_figures import reliability_diagram
from .run_results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 540  # CSS pixels: wider figures scroll on a phone instead of shrinking until they cannot be read
# The figures' colors, and the page's colors that replace them in light and dark mode.
_PAGE_COLORS = {"#000000": "currentColor", "#ffffff": "var(--page)"}
_PAGE_COLORS |= {"#e0e0e0": "var(--line)", "#595959": "var(--grey)", "#b3b3b3": "var(--bars)"}
_PAGE_COLORS |= {"#0072b2": "var(--blue)", "#d55e00": "var(--orange)", "#009e73": "var(--green)"}


def environment() -> Environment:
    """Return the environment of the pages' templates."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters |= {
        "breakable": _breakable,
        "digest": _digest,
        "split": _numbers_and_intervals,
        "sentence": _sentence,
    }
    made.tests["best"] = lambda part: isinstance(part, Best)
    made.globals["zip"] = zip
    return made


def _numbers_and_intervals(cell: Cell) -> tuple[list[str], str, str]:
    """Split a cell into the parts that are not intervals, the intervals as text, and the number for sorting rows."""
    numbers = [part for part in parts(cell) if part and not part.startswith(" [")]
    intervals = [part.strip().replace(" ", "\N{NO-BREAK SPACE}") for part in parts(cell) if part.startswith(" [")]
    return numbers, " → ".join(intervals), next((part for part in reversed(numbers) if part[-1].isdigit()), "")


def diagrams(run: RunResult) -> list[dict[str, Any]]:
    sides = [("Before", run.pre_bins, run.pre), ("After", run.post_bins, run.post)]
    pictures = []
    for when, bins, metrics in sides if run.method else sides[:1]:
        caption = f"ECE {format_metric('ece', metrics)}%"
        caption = f"{when} {scaling_name(run.method)}: {caption}" if run.method else caption
        alt = f"Reliability diagram of {run.loss}. {caption}"
        figure = reliability_diagram(metrics=bins, link=run.link)
        pictures.append(picture(figure, alt, caption if run.method else None, _tooltips(figure, bins)))
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


def picture(figure: "Figure", alt: str, caption: str | None = None, tooltips: Iterable[str] = ()) -> dict[str, Any]:
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


def _sentence(text: str) -> str:
    """Capitalize the first letter. Unlike `str.capitalize`, keep the case of the others."""
    return f"{text[:1].upper()}{text[1:]}"


def _digest(script: str) -> str:
    """Return the Base64 SHA-256 hash by which the page's Content-Security-Policy allows the page's only script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
