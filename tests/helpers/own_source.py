"""A source of one's own, and what it gives."""

import numpy as np

from hf_focal import Scores

CLASSES = ("no", "maybe", "yes")


class Own:
    link, classes = "softmax", CLASSES

    def scores(self, data: tuple[np.ndarray, np.ndarray]) -> Scores:
        return Scores(*data)


def sampled(size: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (N, 3) of an overconfident model, and labels (N,)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(size, 3))
    return 3 * logits, (logits + rng.gumbel(size=logits.shape)).argmax(1)
