"""What the studies of corrections share: the samples that a correction is fitted to, and when it does harm."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.text_logits.load import load

MAIN_SIZE = 100  # samples
HARM = 1e-3  # nats above the NLL without a correction

Map = Callable[[Tensor], Tensor]  # from logits to corrected ones, both (N, K)


@dataclass(frozen=True)
class Split:
    """Logits (N, K), float64, and labels (N,)."""

    logits: Tensor
    labels: Tensor

    def draw(self, size: int, seed: int) -> "Split":
        """Return a random sample without repetition."""
        chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(self.labels))[:size])
        return Split(self.logits[chosen], self.labels[chosen])

    def first(self, size: int) -> "Split":
        return Split(self.logits[:size], self.labels[:size])


def read_splits(name: str) -> tuple[Split, Split]:
    """Return the validation and the test split of a set of text_logits."""
    arrays = load(name)
    pairs = (arrays.validation_logits, arrays.validation_labels), (arrays.test_logits, arrays.test_labels)
    validation, test = (Split(torch.from_numpy(z).double(), torch.from_numpy(labels)) for z, labels in pairs)
    return validation, test
