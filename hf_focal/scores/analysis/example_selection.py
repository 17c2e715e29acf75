"""The samples that a page shows: the most confident mistakes, and the least confident right answers."""

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from ...calibration import Correction
from ...reports.examples import Example, Examples, Picture
from ...reports.wording.number_format import MISSING
from ..sets.score_set import ScoreSet, names_of
from ..sets.scores_in_memory import Scores

_NUM_EXAMPLES = 20
MOST_SCORES = 50_000_000  # more are not kept for examples only
_MOST_CHARACTERS = 500  # of a text
_THUMBNAIL = 96  # pixels, of the longer side


# What a function of the numbers of rows, (M,), returns: their texts or PIL images, or None if only numbers are known.
Inputs = Callable[[np.ndarray], list[Any] | None]


def are_few(scores: ScoreSet) -> bool:
    """Return whether scores are few enough to be kept to show some of their samples."""
    return scores.has_all_rows and len(scores) * max(scores.num_classes, 1) <= MOST_SCORES


def find_examples(scores: Scores, inputs: Inputs, correction: Correction | None = None) -> Examples:
    """Return samples of scores, each that of a sample, ranked after a correction, if there is one."""
    if scores.kind == "confidence":
        confidence, hits = scores.measure()[0].samples()
        rank, right = confidence.numpy().astype(float), hits.numpy()
        known, before, after = np.ones(len(right), bool), rank, None
        labels = predictions = np.full(len(right), MISSING)  # only whether they are equal is known
    elif scores.link == "softmax":
        rank, columns, before, after = _class_log_odds(scores.logits, correction)
        known, names = scores.known_labels >= 0, np.array(names_of(scores), dtype=object)
        right = columns == scores.known_labels
        labels, predictions = names[np.maximum(scores.known_labels, 0)], names[columns]  # those of -100 are not shown
    else:
        return _label_examples(scores, inputs, correction)
    mistakes = _largest(np.where(known & ~right, rank, -np.inf))
    least_confident = _largest(np.where(known & right, -rank, -np.inf))
    shown = _shown_inputs(inputs, np.concatenate([mistakes, least_confident]))

    def listed(rows: np.ndarray) -> list[Example]:
        return [
            Example(
                shown[row],
                str(labels[row]),
                str(predictions[row]),
                float(before[row]),
                None if after is None else float(after[row]),
            )
            for row in rows.tolist()
        ]

    return Examples(listed(mistakes), listed(least_confident))


def _sigmoid(log_odds: Any) -> Any:
    return (1 + np.tanh(log_odds / 2)) / 2


def _class_log_odds(
    logits: np.ndarray, correction: Correction | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the log-odds of the predictions after a correction, their classes, and the probabilities of each side."""
    used = logits if correction is None else np.asarray(correction.apply(logits))
    columns, rows = used.argmax(1), np.arange(len(used))

    def log_odds(values: np.ndarray) -> np.ndarray:
        values = values.astype(np.float64)
        top = values[rows, columns]
        values[rows, columns] = -np.inf
        return top - np.logaddexp.reduce(values, 1)

    rank = log_odds(used)
    if correction is None:
        return rank, columns, _sigmoid(rank), None
    return rank, columns, _sigmoid(log_odds(logits)), _sigmoid(rank)


def _label_examples(scores: Scores, inputs: Inputs, correction: Correction | None) -> Examples:
    """Return entries of labels, whose prediction is whether the label applies."""
    logits, labels = scores.logits.astype(np.float64), scores.known_labels
    used = logits if correction is None else np.asarray(correction.apply(logits), np.float64)
    predicted, known = used >= 0, ~np.isnan(labels)
    right = predicted == (labels == 1)
    mistakes = _largest(np.where(known & ~right, np.abs(used), -np.inf).ravel())
    least_confident = _largest(np.where(known & right, -np.abs(used), -np.inf).ravel())
    width = logits.shape[1]
    shown = _shown_inputs(inputs, np.concatenate([mistakes, least_confident]) // width)
    names = names_of(scores)

    def listed(entries: np.ndarray) -> list[Example]:
        examples = []
        for entry in entries.tolist():
            row, column = divmod(entry, width)
            applies, sign = predicted[row, column], 1 if predicted[row, column] else -1
            answers = names[column], f"not {names[column]}"
            examples.append(
                Example(
                    shown[row],
                    answers[0 if labels[row, column] == 1 else 1],
                    answers[0 if applies else 1],
                    float(_sigmoid(sign * logits[row, column])),
                    None if correction is None else float(_sigmoid(sign * used[row, column])),
                )
            )
        return examples

    return Examples(listed(mistakes), listed(least_confident))


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the places of the largest values above -inf, the largest first, and the first of equal ones."""
    size = min(_NUM_EXAMPLES, len(values))
    bound = np.partition(values, len(values) - size)[len(values) - size] if size else 0.0
    places = np.flatnonzero((values >= bound) & (values > -np.inf))
    return places[np.argsort(-values[places], kind="stable")][:size]


def _shown_inputs(inputs: Inputs, rows: np.ndarray) -> dict[int, str]:
    """Return what to show of each row: its input, or else its number."""
    chosen = np.unique(rows)
    known = inputs(chosen) if len(chosen) else []
    texts = [f"row {row}" for row in chosen.tolist()] if known is None else [_shown(value) for value in known]
    return dict(zip(chosen.tolist(), texts, strict=True))


def _shown(value: Any) -> str:
    """Return a shortened text, or the address of a small picture."""
    if hasattr(value, "thumbnail"):  # a PIL image
        picture, file = value.convert("RGB"), io.BytesIO()
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
        picture.save(file, "JPEG", quality=80)
        return Picture(f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}")
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
