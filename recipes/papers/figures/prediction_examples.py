"""Confidence of correct and wrong predictions: a table and a figure of examples [Mukhoti et al. 2020, appendix F]."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from hf_focal.calibration import Temperature
from hf_focal.metrics.sample_scores import sample_blocks
from hf_focal.reports import RunResult
from hf_focal.reports.figure_style import ACCURACY, GRAY, finished, wrapped
from hf_focal.reports.markdown_tables import columns_table, format_number
from hf_focal.reports.run_results import scaled
from hf_focal.validation import Array

# Layout of the figure of examples: lengths in inches; font size in points; characters per line; text colors.
_MARGIN, _COLUMN, _PICTURE, _LINE, _PADDING = 0.1, 1.04, 0.96, 0.14, 0.1
_FONT_SIZE, _NAME_WIDTH, _LABEL_WIDTH = 8.5, 28, 13
_RIGHT, _WRONG = ACCURACY, "#A84300"


@dataclass(frozen=True)
class Predictions:
    """A run's predictions on the N samples of the test set.

    `label` and `prediction` are int64 (N,): the true classes, and those with the largest logits (in a tie, the first).
    `before` and `after` are float32 (N,): the probabilities of the predictions before and after temperature scaling.
    """

    label: np.ndarray
    prediction: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, logits: Array, labels: Array, temperature: Temperature) -> "Predictions":
        """Make `Predictions` from logits (N, K) of any floating dtype, and labels (N,), integers in [0, K)."""
        logits, labels = torch.as_tensor(logits).detach(), torch.as_tensor(labels).detach()
        before = _confidence(logits, labels)
        after = _confidence(scaled(logits, temperature.value), labels)
        return cls(labels.cpu().numpy().astype(np.int64), logits.argmax(1).cpu().numpy(), before, after)

    @property
    def correct(self) -> np.ndarray:
        """bool (N,), whether each prediction equals the label."""
        return self.prediction == self.label


def confidence_table(results: Sequence[RunResult]) -> str:
    """Format a table of confidences with a line for each run, in % before → after temperature scaling.

    The columns are S99, the share of the test samples with a confidence of at least 0.99; the accuracy of these
    samples; and the mean confidence of the correctly and of the wrongly classified samples. No value is bold, because
    a large S99 is only good if the accuracy beside it is at least 99%. Missing values are shown as "–".
    """
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
    """Choose `count` random samples that every run classifies correctly, and as many that every run misclassifies.

    Returns two lists of ascending indices; they are shorter if there are not enough such samples.
    """
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
    samples: Sequence[int],
    path: str | Path | None = None,
) -> Figure:
    """Draw images, uint8 (n, H, W, 3), with their true labels and the prediction of every run.

    `samples` are the n images' indices in `predictions`. Predictions are marked ✓ or ✗ and show their confidence
    before → after temperature scaling.
    """
    images, labels = np.asarray(images), next(iter(predictions.values())).label
    heads = [_label(label_names[labels[sample]]) for sample in samples]
    names = [wrapped(name, _NAME_WIDTH) for name in predictions]
    cells = [[_cell(run, sample, label_names) for sample in samples] for run in predictions.values()]
    corner = "Predicted label\nand its confidence,\nbefore → after T"
    heights = [_height([name, *texts]) for name, texts in zip(names, cells, strict=True)]
    head_height, picture_height = _height(heads), _PICTURE * images.shape[1] / images.shape[2]
    characters = max(len(line) for text in (corner, *names) for line in text.split("\n"))
    left = _MARGIN + 0.2 + 0.073 * characters
    width = left + len(samples) * _COLUMN + _MARGIN
    bottom = _MARGIN + head_height + max(picture_height, _height([corner]))

    figure = Figure(figsize=(width, bottom + _PADDING + sum(heights) + _MARGIN))
    axes = figure.add_axes((0, 0, 1, 1))  # coordinates are inches from the left and the top

    def write(x: float, middle: float, text: str, room: float, **style: Any) -> None:
        # Align by the baseline of the last line: centered texts would be offset by the heights of their letters.
        baseline = middle + _LINE * text.count("\n") / 2 + 0.045
        written = axes.text(x, baseline, text, fontsize=_FONT_SIZE, linespacing=1.2, parse_math=False, **style)
        needed = written.get_window_extent().width / figure.dpi
        if needed > room:
            written.set_fontsize(_FONT_SIZE * room / needed)

    indent, room = _MARGIN + 0.08, left - _MARGIN - 0.14
    cell: dict[str, Any] = {"room": _COLUMN - 0.04, "ha": "center"}
    write(indent, _MARGIN + head_height / 2, "True label", room, color=GRAY)
    write(indent, bottom - 1.5 * _LINE, corner, room, color=GRAY)
    # Pixels of small images are shown as squares; large images are smoothed.
    interpolation = "nearest" if images.shape[2] <= 100 else "antialiased"
    centers = [left + _COLUMN * (column + 0.5) for column in range(len(samples))]
    for x, image, head in zip(centers, images, heads, strict=True):
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
        for x, sample, text in zip(centers, samples, cells[number], strict=True):
            write(x, middle, text, **cell, color=_RIGHT if run.correct[sample] else _WRONG)
        top += heights[number]
    axes.set(xlim=(0, width), ylim=(top + _MARGIN, 0))
    axes.set_axis_off()
    return finished(figure, path)


def _confidence(logits: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """Return the largest probability of each sample, float32 (N,), as `CalibrationMetrics` computes it."""
    _, blocks = sample_blocks("logits", logits, labels, -100)
    return np.concatenate([np.empty(0, np.float32), *(block.confidence.float().cpu().numpy() for block in blocks)])


def _cell(run: Predictions, sample: int, label_names: Sequence[str]) -> str:
    label, sign = _label(label_names[run.prediction[sample]]), "✓" if run.correct[sample] else "✗"
    return f"{sign} {label}\n{100 * run.before[sample]:.0f} → {100 * run.after[sample]:.0f}%"


def _label(name: str) -> str:
    """Break the name of a class into at most two lines, and cut off the rest."""
    first, *rest = textwrap.wrap(name.replace("_", " "), _LABEL_WIDTH) or [""]
    second = rest[:1] if len(rest) < 2 else [rest[0][: _LABEL_WIDTH - 1].rstrip(" ,") + "…"]
    return "\n".join([first, *second])


def _height(texts: Sequence[str]) -> float:
    return _LINE * max(text.count("\n") + 1 for text in texts) + _PADDING
