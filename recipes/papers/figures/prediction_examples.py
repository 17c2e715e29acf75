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
from hf_focal.reports import RunResult
from hf_focal.reports.figures.figure_style import ACCURACY, finished, wrapped
from hf_focal.reports.results.measured_sections import scaled
from hf_focal.reports.wording.markdown_tables import columns_table, format_number
from hf_focal.validation import Array

_RIGHT, _WRONG = ACCURACY, "#A84300"  # colors of predictions
_NAME_WIDTH, _LABEL_WIDTH = 28, 13  # characters per line


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
        logits, labels = torch.as_tensor(logits).detach().cpu(), torch.as_tensor(labels).detach().cpu()
        before, after = (scaled(logits, T).softmax(1).amax(1).float().numpy() for T in (1.0, temperature.value))
        return cls(labels.long().numpy(), logits.argmax(1).numpy(), before, after)

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
    labels, size = next(iter(predictions.values())).label, (2.2 + 1.1 * len(samples), 1.8 + 0.45 * len(predictions))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        1 + len(predictions),
        1 + len(samples),
        squeeze=False,
        width_ratios=[2, *[1] * len(samples)],
        height_ratios=[3, *[1] * len(predictions)],
    )
    for axes in grid.flat:
        axes.set_axis_off()
    style: dict[str, Any] = {"fontsize": 8.5, "va": "center", "parse_math": False}
    grid[0, 0].text(
        0, 0.5, "Above: true label\nBelow: predicted label\nand its confidence,\nbefore → after T", **style
    )
    for axes, image, sample in zip(grid[0, 1:], np.asarray(images), samples, strict=True):
        # Pixels of small images are shown as squares; large images are smoothed.
        axes.imshow(image, interpolation="nearest" if image.shape[1] <= 100 else "antialiased")
        axes.set_title(_label(label_names[labels[sample]]), fontsize=8.5, weight="bold", parse_math=False)
    for line, (name, run) in zip(grid[1:], predictions.items(), strict=True):
        line[0].text(0, 0.5, wrapped(name, _NAME_WIDTH), **style)
        for axes, sample in zip(line[1:], samples, strict=True):
            color = _RIGHT if run.correct[sample] else _WRONG
            axes.text(0.5, 0.5, _cell(run, sample, label_names), ha="center", color=color, **style)
    return finished(figure, path)


def _cell(run: Predictions, sample: int, label_names: Sequence[str]) -> str:
    label, sign = _label(label_names[run.prediction[sample]]), "✓" if run.correct[sample] else "✗"
    return f"{sign} {label}\n{100 * run.before[sample]:.0f} → {100 * run.after[sample]:.0f}%"


def _label(name: str) -> str:
    """Break the name of a class into at most two lines, and cut off the rest."""
    first, *rest = textwrap.wrap(name.replace("_", " "), _LABEL_WIDTH) or [""]
    second = rest[:1] if len(rest) < 2 else [rest[0][: _LABEL_WIDTH - 1].rstrip(" ,") + "…"]
    return "\n".join([first, *second])
