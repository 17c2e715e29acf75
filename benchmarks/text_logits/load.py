"""Load the logits of text classifiers: `sets()` lists them, `load(name)` reads one.

from benchmarks.text_logits.load import load, sets
table = sets()
logits = load(table.index[0])
logits.validation_logits, logits.validation_labels, logits.test_logits, logits.test_labels
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = Path(__file__).resolve().parent
TABLE = FOLDER / "sets.csv"


@dataclass(frozen=True)
class Logits:
    """Logits (N, K), float32, whose rows have a mean of 0, and labels (N,), int64, of held-out and test texts."""

    validation_logits: np.ndarray
    validation_labels: np.ndarray
    test_logits: np.ndarray
    test_labels: np.ndarray


def sets() -> pd.DataFrame:
    """Return the table of the sets, by name; README.md describes its columns."""
    return pd.read_csv(TABLE, index_col="name", keep_default_na=False)


def load(name: str) -> Logits:
    with np.load(FOLDER / "logits" / f"{name}.npz") as arrays:
        return Logits(*(arrays[key].astype(np.float32 if key.endswith("logits") else np.int64) for key in FIELDS))


FIELDS = tuple(Logits.__dataclass_fields__)
