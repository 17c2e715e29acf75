"""Charts of a page as small SVG drawings, whose colors follow the page and whose marks have their values as titles.

Matplotlib draws the figures of papers, cards, and `hf_focal.reports`; a page needs neither its time nor its size.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ...metrics import ReliabilityBins
from ..figures.reliability_marks import FEW, LINK_WORDS, wilson_interval
from ..results.result_sections import Groups


class Frame(NamedTuple):
    """The place of a chart's axes: `left`, `top`, `width`, and `height` in the units of its drawing."""

    left: float
    top: float
    width: float
    height: float
    low: tuple[float, float] = (0.0, 0.0)
    high: tuple[float, float] = (1.0, 1.0)
    log: bool = False

    def _share(self, value: float, axis: int) -> float:
        low, high = self.low[axis], self.high[axis]
        if self.log:
            value, low, high = (math.log10(max(number, low)) for number in (value, low, high))
        return min(max((value - low) / (high - low), 0), 1)

    def x(self, value: float) -> float:
        return round(self.left + self.width * self._share(value, 0), 1)

    def y(self, value: float) -> float:
        return round(self.top + self.height * (1 - self._share(value, 1)), 1)


# The script of the page draws the diagram of a class in the frame RELIABILITY, and moves a point in the frame LINES.
RELIABILITY = Frame(44, 18, 270, 220)
SHARES = Frame(44, 252, 270, 50)
_SIZE = (322, 348)
_SMALL = Frame(30, 20, 130, 110)
_SMALL_SIZE = (168, 150)
LINES = Frame(48, 12, 400, 250, (0, 0), (100, 100.0))


def reliability_chart(
    bins: ReliabilityBins, link: str, label: str, small: bool = False, axis_end: float = 1.0
) -> Markup:
    """Draw the reliability diagram of bins; those with unequal widths are drawn as points on logarithmic axes.

    `label` is the alternative text. The other axes end at `axis_end`, which may be less than 1 in a small diagram.

    Raises:
        ValueError: the bins hold no samples.
    """
    if not bins.count.sum():
        raise ValueError("bins must hold at least one sample, got none")
    size, frame = (_SMALL_SIZE, _SMALL) if small else (_SIZE, RELIABILITY)
    log = not np.allclose(np.diff(bins.edges), np.diff(bins.edges)[0], atol=1e-6)
    if log:
        frame = frame._replace(low=(bins.edges[1] / 3, bins.edges[1] / 3), log=True)
    else:
        frame = frame._replace(high=(axis_end, axis_end))
    if log:
        ticks = [10.0**power for power in range(-4 if small else -5, 1, 2 if small else 1)]
    else:
        ticks = [frame.high[0] * share for share in ((0, 0.5, 1) if small else (0, 0.2, 0.4, 0.6, 0.8, 1))]
    parts = [_axes(frame, ticks, ticks, numbers_below=frame if small or log else SHARES)]
    if not small:
        words = LINK_WORDS[link]
        parts += [_title(words.horizontal, frame, SHARES, size), _upright(words.vertical, frame)]
        if not log:
            parts += [_shares(bins, SHARES)]
    parts += [_line(frame, [(frame.low[0], frame.low[1]), frame.high], "diagonal")]
    parts += [_bin(bins, index, frame, link, log) for index in np.flatnonzero(bins.count).tolist()]
    parts += [_text(frame.left, 11, f"ECE {100 * bins.ece():.1f}%", "ece")]
    return _svg(size, label, parts)


def small_axis_end(sides: Sequence[ReliabilityBins]) -> float:
    """Return the common end of the axes of small diagrams: one decimal up to a half, or else 1.

    No bin and no bar goes beyond it.
    """
    ends = [0.1]
    for bins in sides:
        filled = np.flatnonzero(bins.count)
        ends += [*bins.edges[filled + 1], *bins.accuracy[filled]]
    end = math.ceil(10 * float(max(ends)) - 1e-6) / 10
    return end if end <= 0.5 else 1.0  # so that the numbers of the axes are short


def _bin(bins: ReliabilityBins, index: int, frame: Frame, link: str, log: bool) -> Markup:
    """Draw a bin: its bar, or its point, with its gap, its interval, and its values as a title."""
    left, right = (float(edge) for edge in bins.edges[index : index + 2])
    count, confidence, accuracy = (values[index] for values in (bins.count, bins.confidence, bins.accuracy))
    low, high = (float(end) for end in wilson_interval(np.array(accuracy), np.array(count)))
    words = LINK_WORDS[link]
    tip = (
        f"{words.horizontal} {left:.3g} to {right:.3g}: {count:,} predictions, mean {confidence:.1%}, "
        f"{words.vertical.lower()} {accuracy:.1%} [{low:.1%}, {high:.1%}]"
    )
    marks = []
    if log:
        x = frame.x(confidence)
        marks += [_vertical(x, frame.y(low), frame.y(high), "interval")]
        marks += [Markup('<circle class="point" cx="{}" cy="{}" r="3"/>').format(x, frame.y(accuracy))]
    else:
        x, width = frame.x(left), round(frame.x(right) - frame.x(left), 1)
        marks += [_rectangle(x, frame.y(accuracy), width, frame.y(0) - frame.y(accuracy), "accuracy")]
        top, bottom = frame.y(max(confidence, accuracy)), frame.y(min(confidence, accuracy))
        marks += [_rectangle(x, top, width, bottom - top, "over" if confidence > accuracy else "under")]
        marks += [_vertical(x + width / 2, frame.y(low), frame.y(high), "interval")]
    x, width = frame.x(max(left, frame.low[0])), frame.x(right) - frame.x(max(left, frame.low[0]))
    marks += [_rectangle(x, frame.top, width, frame.height, "tip")]
    kind = "bin" if count >= FEW else "bin pale"
    return Markup('<g class="{}"><title>{}</title>{}</g>').format(kind, tip, Markup("").join(marks))


def _shares(bins: ReliabilityBins, frame: Frame) -> Markup:
    """Draw the share of the samples in each bin, and the mean confidence and the accuracy of all."""
    shares = bins.count / bins.count.sum()
    bars = []
    for index in np.flatnonzero(bins.count).tolist():
        x, width = frame.x(bins.edges[index]), frame.x(bins.edges[index + 1]) - frame.x(bins.edges[index])
        y = frame.y(shares[index] / shares.max())
        title = Markup("<title>{}</title>").format(f"{bins.count[index]:,} samples, {shares[index]:.1%}")
        bars.append(Markup("<g>{}{}</g>").format(_rectangle(x, y, width, frame.y(0) - y, "count"), title))
    confidence, accuracy = bins.means()
    marks = [_vertical(frame.x(accuracy), frame.y(0), frame.top, "mean")]
    marks += [_vertical(frame.x(confidence), frame.y(0), frame.top, "mean over")]
    bottom = Markup('<path class="axis" d="M{} {}H{}"/>').format(frame.left, frame.y(0), frame.left + frame.width)
    most = _text(frame.left - 4, frame.top + 8, f"{shares.max():.0%}", "tick end")
    return Markup("").join([*bars, *marks, bottom, most])


class Line(NamedTuple):
    """A line of a chart, in percent; the legend has its name."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class MarkedPoint(NamedTuple):
    """A marked place of a chart, in percent, and what the legend says of it."""

    x: float
    y: float
    text: str


def line_chart(
    lines: Sequence[Line],
    horizontal: str,
    vertical: str,
    label: str,
    point: MarkedPoint | None = None,
    has_slider: bool = False,
) -> Markup:
    """Draw lines of percentages, 0 to 100, with a legend and, if given, a marked point.

    With `has_slider`, there is a ring that the page's script moves to the threshold of its slider.
    """
    most = _axis_end(max((max(line.y, default=0) for line in lines), default=0))
    x_name, y_name = (title.partition(":")[0].lower() for title in (horizontal, vertical))
    frame = LINES._replace(high=(100, most))
    parts = []
    for number, line in enumerate(lines):
        parts.append(_line(frame, [*zip(line.x, line.y, strict=True)], _line_style(number)))
        for x, y in zip(line.x, line.y, strict=True):
            tip = f"{line.name}: {x_name} {x:.1f}%, {y_name} {y:.2f}%"
            dot = Markup('<circle class="tip" cx="{}" cy="{}" r="5"/>').format(frame.x(x), frame.y(y))
            parts.append(Markup("<g><title>{}</title>{}</g>").format(tip, dot))
        parts.append(_legend_entry(number, line.name))
    if point is not None:
        title = Markup("<title>{}</title>").format(point.text)
        dot = Markup('<circle class="mark" cx="{}" cy="{}" r="4.5"/>')
        parts.append(Markup("<g>{}{}</g>").format(dot.format(frame.x(point.x), frame.y(point.y)), title))
        parts.append(dot.format(60, _legend_y(len(lines)) - 4) + _legend_text(len(lines), point.text))
    num_marks = 0 if point is None else 1
    if has_slider:  # the script moves the ring to the slider's threshold, and shows it with its entry in the legend
        row = len(lines) + num_marks
        ring = Markup('<circle class="slider-ring" cx="60" cy="{}" r="5.5"/>').format(_legend_y(row) - 4)
        entry = ring + _legend_text(row, "at the slider's threshold")
        parts.append(Markup('<g class="of-slider" visibility="hidden">{}</g>').format(entry))
        parts.append(Markup('<circle class="slider-ring moving of-slider" r="5.5" visibility="hidden"/>'))
        num_marks += 1
    return _framed(frame, parts, horizontal, vertical, label, len(lines) + num_marks)


def reliability_lines(bins: Mapping[str, ReliabilityBins], horizontal: str, vertical: str, label: str) -> Markup:
    """Draw the accuracy of several bins against their confidence, in percent, with a legend."""
    frame = LINES
    parts = [_line(frame, [(0, 0), (100, 100)], "diagonal")]
    for number, (name, side) in enumerate(bins.items()):
        style, filled = _line_style(number), side.count > 0
        count, confidence, accuracy = side.count[filled], 100 * side.confidence[filled], 100 * side.accuracy[filled]
        solid = count >= FEW
        parts.append(_line(frame, [*zip(confidence[solid], accuracy[solid], strict=True)], style))
        low, high = (100 * end for end in wilson_interval(accuracy / 100, count))
        for x, y, below, above, size in zip(confidence, accuracy, low, high, count, strict=True):
            tip = f"{name}: confidence {x:.1f}%, accuracy {y:.1f}% of {size:,} samples"
            interval = _vertical(frame.x(x), frame.y(below), frame.y(above), f"{style} thin")
            dot = Markup('<circle class="{} dot" cx="{}" cy="{}" r="3.5"/>').format(style, frame.x(x), frame.y(y))
            kind = "" if size >= FEW else "pale"
            parts.append(Markup('<g class="{}"><title>{}</title>{}{}</g>').format(kind, tip, interval, dot))
        parts.append(_legend_entry(number, name))
    return _framed(frame, parts, horizontal, vertical, label, len(bins))


def _axis_end(largest: float) -> float:
    """Return the end of an axis in percent that has room for this value."""
    return next(end for end in (1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100) if end >= min(largest, 100))


def _line_style(number: int) -> str:
    return f"line c{number % 7}"


def _legend_entry(number: int, name: str) -> Markup:
    line = Markup('<path class="{}" d="M48 {}h24"/>').format(_line_style(number), _legend_y(number) - 4)
    return line + _legend_text(number, name)


def _legend_text(row: int, text: str) -> Markup:
    return _text(78, _legend_y(row), wrapped_line(text, 60), "")


def _legend_y(row: int) -> float:
    return 318 + 18 * row


def _framed(
    frame: Frame, parts: Sequence[Markup], horizontal: str, vertical: str, label: str, legend_rows: int
) -> Markup:
    """Draw axes in percent around the parts of a chart with a legend of `legend_rows`."""
    size, most = (460, 312 + 18 * legend_rows), frame.high[1]
    axes = _axes(frame, [0, 20, 40, 60, 80, 100], [most * part / 5 for part in range(6)])
    titles = [_title(horizontal, frame, frame, size), _upright(vertical, frame)]
    return _svg(size, label, [axes, *parts, *titles], Markup(' data-most="{}"').format(most))


def group_chart(groups: Groups) -> Markup:
    """Draw the ECE of each group with its interval and, in gray, the ECE before the correction."""
    size = (460, 50 + 22 * len(groups.name))
    ends = [end for end in (*groups.ece_high, *(groups.ece_before or ())) if not math.isnan(end)]
    most = _axis_end(100 * max([0.01, *ends]))
    frame = Frame(150, 4, 300, 22 * len(groups.name), (0, 0), (most, 1))
    parts = [_axes(frame, [most * part / 5 for part in range(6)], [])]
    for number, (name, ece, low, high) in enumerate(
        zip(groups.name, groups.ece, groups.ece_low, groups.ece_high, strict=True)
    ):
        y = 15 + 22 * number
        marks = [_text(frame.left - 6, y + 4, wrapped_line(name, 22), "end")]
        tip = f"{name}: ECE {100 * ece:.2f}% [{100 * low:.2f}, {100 * high:.2f}]"
        if groups.ece_before is not None:
            x = frame.x(100 * groups.ece_before[number])
            marks.append(Markup('<circle class="before" cx="{}" cy="{}" r="3.5"/>').format(x, y))
            tip += f", before {100 * groups.ece_before[number]:.2f}%"
        ends = [frame.x(100 * end) for end in (low, high)]
        marks.append(Markup('<path class="line c0 thin" d="M{} {}H{}"/>').format(ends[0], y, ends[1]))
        marks.append(Markup('<circle class="point" cx="{}" cy="{}" r="4"/>').format(frame.x(100 * ece), y))
        parts.append(Markup("<g><title>{}</title>{}</g>").format(tip, Markup("").join(marks)))
    title = "ECE with its 95% interval, %" + ("" if groups.ece_before is None else "; gray: before the correction")
    parts.append(_text(size[0] / 2, size[1] - 8, title, "middle"))
    return _svg(size, "ECE of the groups with its 95% interval, %", parts)


def wrapped_line(name: str, most: int = 52) -> str:
    """Shorten a name to one line."""
    line = " ".join(name.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _svg(size: tuple[float, float], label: str, parts: Sequence[Markup], data: str = "") -> Markup:
    start = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}"{}>')
    return start.format(*size, label, data) + Markup("").join(parts) + Markup("</svg>")


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, round(x, 1), round(y, 1), text)


def _number(tick: float) -> str:
    return f"{tick:.3g}" if tick == 0 or tick >= 1e-3 else f"{tick:.0e}".replace("e-0", "e-")


def _title(text: str, frame: Frame, lowest: Frame, size: tuple[float, float]) -> Markup:
    y = lowest.top + lowest.height + 32
    return _text(frame.left + frame.width / 2, min(y, size[1] - 2), text, "middle")


def _upright(text: str, frame: Frame) -> Markup:
    y = round(frame.top + frame.height / 2, 1)
    return Markup('<text class="middle" transform="translate(12 {}) rotate(-90)">{}</text>').format(y, text)


def _axes(
    frame: Frame, horizontal: Sequence[float], vertical: Sequence[float], numbers_below: Frame | None = None
) -> Markup:
    """Draw a grid with numbers; those of the horizontal axis are below the frame, or below another one."""
    bottom, right = frame.top + frame.height, frame.left + frame.width
    parts = [Markup('<path class="axis" d="M{} {}V{}H{}"/>').format(frame.left, frame.top, bottom, right)]
    ends = [tick for tick in vertical if frame.low[1] <= tick <= frame.high[1] * 1.001]
    for tick in ends:
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(frame.left, frame.y(tick), right))
        parts.append(_text(frame.left - 4, frame.y(tick) + 4, _number(tick), "tick end"))
    lowest = numbers_below or frame
    below = lowest.top + lowest.height
    for tick in horizontal:
        if frame.low[0] <= tick <= frame.high[0] * 1.001:
            parts.append(_text(frame.x(tick), below + 14, _number(tick), "tick middle"))
    return Markup("").join(parts)


def _line(frame: Frame, points: Sequence[tuple[float, float]], kind: str) -> Markup:
    path = "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in points)
    return Markup('<path class="{}" d="M{}"/>').format(kind, path) if path else Markup("")


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    text = '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>'
    return Markup(text).format(kind, x, y, round(width, 1), round(height, 1))


def _vertical(x: float, low: float, high: float, kind: str) -> Markup:
    return Markup('<path class="{}" d="M{} {}V{}"/>').format(kind, round(x, 1), low, high)
