"""Style of all figures: colors, markers, axes, titles, and the wrapping of long names."""

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colors by Okabe and Ito, distinct under common forms of color blindness. The hatching of bars works without color.
ACCURACY, GAP, GRAY = "#0072B2", "#D55E00", "#595959"
OVER, UNDER = GAP, "#009E73"  # confidence above and below the accuracy
# Okabe and Ito's colors without yellow, which is too pale for lines. 7 colors and 8 markers distinguish 56 runs.
COLORS = (ACCURACY, GAP, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
LINES = ("-", "--", "-.", ":")


def title_above(figure: "Figure", title: str) -> None:
    """Write a title at the top of a figure, wrapped at 10 characters per inch of the figure's width."""
    width = int(10 * figure.get_figwidth())
    figure.suptitle(title if len(title) <= width else wrapped(title, width), fontsize=12)


def wrapped(name: str, width: int) -> str:
    """Wrap a loss's name to `width` characters per line, at spaces, commas, and colons but not at minus signs."""
    return textwrap.fill(re.sub("([:,])(?! )", r"\1 ", name), width, break_on_hyphens=False)


def finished(figure: "Figure", path: str | Path | None = None) -> "Figure":
    """Keep `$` in the figure's texts from being parsed as math, save the figure if `path` is given, and return it."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # Tick labels can be powers of ten, which are math. They have no text before the figure is drawn, so they stay.
        if "$" in text.get_text():
            text.set_parse_math(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def clean_axes(axes: "Axes", ticks: Literal["x", "y"] = "y") -> None:
    """Remove the top and right spines, and draw a light grid at the `ticks` of one axis."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=ticks, color="#E0E0E0", linewidth=0.6)
    axes.set_axisbelow(True)
