"""How confident runs are where they are right and where they are wrong: a table over all test samples, and pictures of
some of them with what every run says of each [Mukhoti et al. 2020, appendix F, table 13 and figure 9].
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...calibration.temperature import Temperature
from ...metrics.input_checks import Array, check_count
from ...metrics.sample_scores import read_rows
from ...reports.figure_style import ACCURACY, GREY, finished, wrapped
from ...reports.markdown_tables import check_results, columns_table, format_number
from ...reports.run_results import scaled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...reports import RunResult

# Of the figure of examples: inches; points; characters in a line of a run's and of a label's name; colours of text.
_MARGIN, _COLUMN, _PICTURE, _LINE, _PADDING = 0.1, 1.04, 0.96, 0.14, 0.1
_FONT_SIZE, _NAME_WIDTH, _LABEL_WIDTH = 8.5, 28, 13
_RIGHT, _WRONG = ACCURACY, "#A84300"


@dataclass(frozen=True)
class Predictions:
    """What a run says of each test sample.

    Attributes:
        label: `(N,)`, the true class, int64.
        prediction: `(N,)`, the class with the largest logit (the first of equal ones), int64.
        before, after: `(N,)`, the probability of that class before and after temperature scaling, float32.
    """

    label: np.ndarray
    prediction: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, logits: Array, labels: Array, temperature: Temperature) -> "Predictions":
        """The predictions of logits (N, K), of any floating dtype, with labels (N,), integers in [0, K).

        Raises TypeError and ValueError as `CalibrationMetrics.update` does; ValueError for other shapes too, and for
        labels of -100: left out, they would shift the rows of all samples behind them.
        """
        logits, labels = torch.as_tensor(logits).detach(), torch.as_tensor(labels).detach()
        if logits.ndim != 2 or (labels == -100).any():
            seen = f"logits of shape {tuple(logits.shape)}" if logits.ndim != 2 else "the label -100"
            raise ValueError(f"logits must be (N, K) and every label a class, got {seen}")
        before = _confidence(logits, labels)
        after = _confidence(scaled(logits, temperature.value), labels)
        return cls(labels.cpu().numpy().astype(np.int64), logits.argmax(1).cpu().numpy(), before, after)

    @property
    def correct(self) -> np.ndarray:
        """`(N,)`, whether the prediction is the label, bool."""
        return self.prediction == self.label

    def save(self, path: str | Path) -> None:
        """Write the arrays as a compressed .npz file, whatever its suffix: about 10 bytes a sample."""
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> "Predictions":
        """Read what `save` wrote; KeyError where an array is missing."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def confidence_table(results: Sequence["RunResult"]) -> str:
    """Write a row a run: the share of the test samples with confidence of at least 0.99, S99, and their accuracy; mean
    confidence of the correctly and of the wrongly classified samples. All in % before → after temperature scaling.

    Nothing is in bold: a large S99 is only good where its accuracy is at least 99 %.

    Returns:
        Markdown, ending in a newline. What a run lacks, or is NaN, is shown as "–".

    Raises:
        ValueError: no results.
    """
    check_results(results)
    columns = {
        "S99 %": "s99",
        "accuracy of S99 %": "s99_accuracy",
        "confidence if correct %": "confidence_correct",
        "confidence if wrong %": "confidence_incorrect",
    }
    table = [[run.loss for run in results]]
    for key in columns.values():
        sides = ([format_number(side.get(key), 100, 2) for side in (run.pre, run.post)] for run in results)
        table.append([" → ".join(cells) for cells in sides])
    return columns_table(["Loss", *columns], table)


def choose_examples(
    predictions: Mapping[str, Predictions], count: int = 4, seed: int = 0
) -> tuple[list[int], list[int]]:
    """Draw samples that every run classifies correctly, and samples that every run misclassifies.

    Args:
        predictions: run -> its predictions, all of the same samples in the same order.
        count: how many of each; fewer where there are fewer.
        seed: of the draw.

    Returns:
        Their indices, ascending: (all correct, all wrong).

    Raises:
        TypeError: a count that is not an int.
        ValueError: no runs, runs whose labels or numbers of samples differ, a count below 1.
    """
    check_count("count", count)
    _common_labels(predictions)
    correct = np.stack([run.correct for run in predictions.values()])
    generator = np.random.default_rng(seed)
    right, wrong = (
        np.sort(generator.permutation(np.flatnonzero(chosen))[:count]).tolist()
        for chosen in (correct.all(0), ~correct.any(0))
    )
    return right, wrong


def examples_figure(
    images: Array,
    label_names: Sequence[str],
    predictions: Mapping[str, Predictions],
    rows: Sequence[int],
    path: str | Path | None = None,
) -> "Figure":
    """Draw pictures under their true labels and, below each, what every run predicts.

    That is the label, marked ✓ or ✗, and its confidence before → after temperature scaling.

    Args:
        images: `(n, H, W, 3)`, uint8, the pictures of the rows.
        label_names: the K classes' names.
        predictions: run -> its predictions, all of the same samples in the same order.
        rows: n indices of samples, such as `choose_examples` draws.
        path: where to save the figure too, in the format that its suffix names.

    Returns:
        A `matplotlib.figure.Figure` with one axes, which holds the pictures and the texts.

    Raises:
        ValueError: no rows or runs, rows outside of the predictions, images of another shape or dtype or number than
            the rows, runs whose labels or numbers of samples differ, classes without a name.
    """
    from matplotlib.figure import Figure

    images, rows, labels = np.asarray(images), list(rows), _common_labels(predictions)
    if not rows or min(rows) < 0 or max(rows) >= len(labels):
        raise ValueError(f"rows must be at least one of the {len(labels)} samples, got {rows}")
    if images.dtype != np.uint8 or images.shape[:1] + images.shape[3:] != (len(rows), 3):
        raise ValueError(
            f"images must be uint8 of shape ({len(rows)}, H, W, 3), one for each of the rows, got {images.dtype} of "
            f"shape {images.shape}"
        )
    last = max(int(values[rows].max()) for values in (labels, *(run.prediction for run in predictions.values())))
    if last >= len(label_names):
        raise ValueError(f"label_names must name class {last} too, got {len(label_names)} names")

    heads = [_label(label_names[labels[row]]) for row in rows]
    names = [wrapped(name, _NAME_WIDTH) for name in predictions]
    cells = [[_cell(run, row, label_names) for row in rows] for run in predictions.values()]
    corner = "Predicted label\nand its confidence,\nbefore → after T"
    heights = [_height([name, *texts]) for name, texts in zip(names, cells, strict=True)]
    head_height, picture_height = _height(heads), _PICTURE * images.shape[1] / images.shape[2]
    characters = max(len(line) for text in (corner, *names) for line in text.split("\n"))
    left = _MARGIN + 0.2 + 0.073 * characters
    width = left + len(rows) * _COLUMN + _MARGIN
    bottom = _MARGIN + head_height + max(picture_height, _height([corner]))

    figure = Figure(figsize=(width, bottom + _PADDING + sum(heights) + _MARGIN))
    axes = figure.add_axes((0, 0, 1, 1))  # in inches, downwards

    def write(x: float, middle: float, text: str, room: float, **style: Any) -> None:
        # Placed by the last line's baseline: centred, texts side by side would differ by their letters' heights.
        baseline = middle + _LINE * text.count("\n") / 2 + 0.045
        written = axes.text(x, baseline, text, fontsize=_FONT_SIZE, linespacing=1.2, parse_math=False, **style)
        needed = written.get_window_extent().width / figure.dpi
        if needed > room:  # for wide letters
            written.set_fontsize(_FONT_SIZE * room / needed)

    indent, room = _MARGIN + 0.08, left - _MARGIN - 0.14
    cell: dict[str, Any] = {"room": _COLUMN - 0.04, "ha": "center"}
    write(indent, _MARGIN + head_height / 2, "True label", room, color=GREY)
    write(indent, bottom - 1.5 * _LINE, corner, room, color=GREY)
    # Few pixels are shown as squares, many are smoothed.
    interpolation = "nearest" if images.shape[2] <= 100 else "antialiased"
    centres = [left + _COLUMN * (column + 0.5) for column in range(len(rows))]
    for x, image, head in zip(centres, images, heads, strict=True):
        write(x, _MARGIN + head_height / 2, head, **cell, weight="bold")
        extent = (x - _PICTURE / 2, x + _PICTURE / 2, bottom, bottom - picture_height)
        axes.imshow(image, extent=extent, aspect="auto", interpolation=interpolation)
    top = bottom + _PADDING
    for number, run in enumerate(predictions.values()):
        middle = top + heights[number] / 2
        if number % 2 == 0:
            band = (top, top + heights[number], _MARGIN / width, 1 - _MARGIN / width)
            axes.axhspan(*band, color="#F0F0F0", linewidth=0)
        write(indent, middle, names[number], room)
        for x, row, text in zip(centres, rows, cells[number], strict=True):
            write(x, middle, text, **cell, color=_RIGHT if run.correct[row] else _WRONG)
        top += heights[number]
    axes.set(xlim=(0, width), ylim=(top + _MARGIN, 0))
    axes.set_axis_off()
    return finished(figure, path)


def _confidence(logits: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """The largest probability of each row (N, K), as the metrics compute it, float32."""
    _, blocks = read_rows("logits", logits, labels, -100)
    return np.concatenate([np.empty(0, np.float32), *(block.confidence.float().cpu().numpy() for block in blocks)])


def _common_labels(predictions: Mapping[str, Predictions]) -> np.ndarray:
    """The labels, which every run must have alike."""
    if not predictions:
        raise ValueError("predictions must hold at least one run, got none")
    (first, run), *others = predictions.items()
    for name, other in others:
        if not np.array_equal(other.label, run.label):
            raise ValueError(
                f"predictions must have the same labels in every run, got others in {name!r} and {first!r}"
            )
    return run.label


def _cell(run: Predictions, row: int, label_names: Sequence[str]) -> str:
    label, sign = _label(label_names[run.prediction[row]]), "✓" if run.correct[row] else "✗"
    return f"{sign} {label}\n{100 * run.before[row]:.0f} → {100 * run.after[row]:.0f} %"


def _label(name: str) -> str:
    """A class's name in at most two lines."""
    first, *rest = textwrap.wrap(name.replace("_", " "), _LABEL_WIDTH) or [""]
    second = rest[:1] if len(rest) < 2 else [rest[0][: _LABEL_WIDTH - 1].rstrip(" ,") + "…"]
    return "\n".join([first, *second])


def _height(texts: Sequence[str]) -> float:
    return _LINE * max(text.count("\n") + 1 for text in texts) + _PADDING
