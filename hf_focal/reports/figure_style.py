"""How all figures look: colours, axes, and names that are too long for a line."""

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the common forms of colour blindness keep apart; the hatching does without colour.
ACCURACY, GAP, GREY = "#0072B2", "#D55E00", "#595959"
# What several runs are told apart by: Okabe and Ito's colours but yellow, too pale for a line, and one marker more, so
# that 56 runs differ; or kinds of lines.
COLOURS = (ACCURACY, GAP, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
LINES = ("-", "--", "-.", ":")


def title_above(figure: "Figure", title: str) -> None:
    """Write the title, in several lines where the figure is too narrow for one: about 10 characters an inch."""
    width = int(10 * figure.get_figwidth())
    figure.suptitle(title if len(title) <= width else wrapped(title, width), fontsize=12)


def wrapped(name: str, width: int) -> str:
    """End lines behind the commas and colons of a loss's name, not inside its words or at the sign of a number."""
    return textwrap.fill(re.sub("([:,])(?! )", r"\1 ", name), width, break_on_hyphens=False)


def finished(figure: "Figure", path: str | Path | None = None) -> "Figure":
    """The figure, whose names show their dollar signs and backslashes, saved where a path is given."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # Labels of ticks, which may be powers of ten, have no text before the figure is drawn.
        if "$" in text.get_text():
            text.set_parse_math(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def clean_axes(axes: "Axes") -> None:
    """Leave out what says nothing: two of the spines, and most of the grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E0E0E0", linewidth=0.6)
    axes.set_axisbelow(True)
