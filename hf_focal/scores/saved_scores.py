"""Writing scores to a file that `read_scores` reads back, so that what follows a forward pass can be repeated."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..validation import InputError
from .score_table import Scores


def write_scores(path: str | Path, scores: Scores) -> None:
    """Write logits, labels, and what identifies the rows as a parquet file.

    The columns are ``logit_<class>``, or one column ``logits`` of lists if the classes have no names; ``label``, by
    name if the classes have names, or, for several labels, ``label_<name>`` or lists ``labels`` of a 0 or 1 for each
    (null if unknown); ``row``; and, if there are any, ``cluster`` and ``group``.

    Raises:
        InputError: there are only confidences.
    """
    if scores.confidences is not None:
        raise InputError("save_scores", f"needs the scores of all classes, got confidences in {scores.source}")
    names = scores.score_names
    columns: dict[str, Any] = {}
    if len(names) == scores.num_classes and scores.num_classes > 1:
        columns |= {f"logit_{name}": pa.array(column) for name, column in zip(names, scores.logits.T, strict=True)}
    elif scores.num_classes == 1:
        columns["logit"] = pa.array(scores.logits[:, 0])
    else:
        columns["logits"] = pa.array([*scores.logits])
    columns |= _labels(scores) | {"row": pa.array(np.arange(len(scores)))}
    for name, values in (("cluster", scores.clusters), ("group", scores.groups)):
        columns |= {} if values is None else {name: pa.array(values)}
    pq.write_table(pa.table(columns), path)


def _labels(scores: Scores) -> dict[str, Any]:
    labels = scores.known_labels
    if scores.link == "softmax":
        names = np.array([*scores.score_names, None], dtype=object)
        return {"label": pa.array(names[labels] if len(names) > 1 else labels)}
    if scores.num_classes == 1:
        return {"label": pa.array(labels[:, 0], from_pandas=True)}
    if len(scores.score_names) == scores.num_classes:
        columns = zip(scores.score_names, labels.T, strict=True)
        return {f"label_{name}": pa.array(column, from_pandas=True) for name, column in columns}
    return {"labels": pa.array([pa.array(row, from_pandas=True).to_pylist() for row in labels])}
