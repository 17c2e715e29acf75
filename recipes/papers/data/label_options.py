"""Options of a classifier's configuration for its classes or labels."""

from collections.abc import Sequence
from typing import Any

from hf_focal.utils.constants import MULTI_LABEL


def label_options(names: Sequence[str], multi_label: bool = False) -> dict[str, Any]:
    """Return the options of a classifier's configuration that set the number and names of its classes or labels."""
    problem_type = {"problem_type": MULTI_LABEL} if multi_label else {}
    return problem_type | {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }
