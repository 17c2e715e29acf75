"""The samples that a page shows: the most confident mistakes, and the least confident right answers."""

import base64
import io
from typing import Any

import numpy as np

from ..calibration import Correction
from ..reports.examples import Example, Examples, Picture
from ..reports.number_format import MISSING
from ..scores.score_set import ScoreSet
from ..scores.score_table import Scores
from .source import Samples, Source, names_of

_NUM_EXAMPLES = 20
_MOST_SCORES = 50_000_000  # more are not kept for examples only
_MOST_CHARACTERS = 500  # of a text
_THUMBNAIL = 96  # pixels, of the longer side


def has_examples(source: Source, scores: ScoreSet) -> bool:
    """Return whether each score is that of a sample, and the scores are few enough to be kept to show some samples."""
    if not scores.has_all_rows:
        return False
    return source.has_independent_samples and len(scores) * max(scores.num_classes, 1) <= _MOST_SCORES


def find_examples(source: Source, samples: Samples, correction: Correction | None = None) -> Examples:
    """Return some of the samples that `source` read, ranked after a correction, if there is one."""
    collected = samples.scores.collected()
    if collected.kind == "confidence":
        confidence, hits = collected.measure()[0].samples()
        rank, right = confidence.numpy().astype(float), hits.numpy()
        known, before, after = np.ones(len(right), bool), rank, None
        labels = predictions = np.full(len(right), MISSING)  # only whether they are equal is known
    elif collected.link == "softmax":
        rank, columns, before, after = _of_classes(collected.logits, correction)
        known, names = collected.known_labels >= 0, np.array(names_of(collected), dtype=object)
        right = columns == collected.known_labels
        labels, predictions = names[collected.known_labels], names[columns]
    else:
        return _of_labels(source, samples, collected, correction)
    mistakes = _largest(np.where(known & ~right, rank, -np.inf))
    doubtful = _largest(np.where(known & right, -rank, -np.inf))
    inputs = _inputs(source, samples, np.concatenate([mistakes, doubtful]))

    def listed(rows: np.ndarray) -> list[Example]:
        return [
            Example(
                inputs[row],
                str(labels[row]),
                str(predictions[row]),
                float(before[row]),
                None if after is None else float(after[row]),
            )
            for row in rows.tolist()
        ]

    return Examples(listed(mistakes), listed(doubtful))


def _sigmoid(log_odds: Any) -> Any:
    return (1 + np.tanh(log_odds / 2)) / 2


def _of_classes(
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


def _of_labels(source: Source, samples: Samples, collected: Scores, correction: Correction | None) -> Examples:
    """Return entries of labels, whose prediction is whether the label applies."""
    logits, labels = collected.logits.astype(np.float64), collected.known_labels
    used = logits if correction is None else np.asarray(correction.apply(logits), np.float64)
    predicted, known = used >= 0, ~np.isnan(labels)
    right = predicted == (labels == 1)
    mistakes = _largest(np.where(known & ~right, np.abs(used), -np.inf).ravel())
    doubtful = _largest(np.where(known & right, -np.abs(used), -np.inf).ravel())
    width = logits.shape[1]
    inputs = _inputs(source, samples, np.concatenate([mistakes, doubtful]) // width)
    names = names_of(collected)

    def listed(entries: np.ndarray) -> list[Example]:
        examples = []
        for entry in entries.tolist():
            row, column = divmod(entry, width)
            applies, sign = predicted[row, column], 1 if predicted[row, column] else -1
            answers = names[column], f"not {names[column]}"
            examples.append(
                Example(
                    inputs[row],
                    answers[0 if labels[row, column] == 1 else 1],
                    answers[0 if applies else 1],
                    float(_sigmoid(sign * logits[row, column])),
                    None if correction is None else float(_sigmoid(sign * used[row, column])),
                )
            )
        return examples

    return Examples(listed(mistakes), listed(doubtful))


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the places of the largest values above -inf, the largest first, and the first of equal ones."""
    size = min(_NUM_EXAMPLES, len(values))
    bound = np.partition(values, len(values) - size)[len(values) - size] if size else 0.0
    places = np.flatnonzero((values >= bound) & (values > -np.inf))
    return places[np.argsort(-values[places], kind="stable")][:size]


def _inputs(source: Source, samples: Samples, rows: np.ndarray) -> dict[int, str]:
    """Return what to show of each row: what the source knows of it, or else its number."""
    chosen = np.unique(rows)
    inputs = source.inputs(samples, chosen) if len(chosen) else []
    inputs = [f"row {row}" for row in chosen.tolist()] if inputs is None else [_shown(value) for value in inputs]
    return dict(zip(chosen.tolist(), inputs, strict=True))


def _shown(value: Any) -> str:
    """Return a shortened text, or the address of a small picture."""
    if hasattr(value, "thumbnail"):  # a PIL image
        picture, file = value.convert("RGB"), io.BytesIO()
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
        picture.save(file, "JPEG", quality=80)
        return Picture(f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}")
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
