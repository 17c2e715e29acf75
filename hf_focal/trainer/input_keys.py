"""Keys of the inputs of a trainer's samples, which are equal for samples with equal inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..calibration.clusters import byte_hashes, usable_clusters
from .accumulators import in_order
from .shown_inputs import pair_separators


class InputKeys:
    """Collects a hash of each sample's main input, such as "input_ids", in the pass that computes its logits.

    As for `calibrate_model`, equal first texts are equal inputs, whatever second texts follow; of several options, it
    is the first text of the first. After `gather`, `keys`, int64 (N,), are in the order of the dataset on every
    process, or None if some batch has no tensor of this input.

    Args:
        name: the name of the input in a batch.
        processor: the tokenizer, or a processor that has one, or anything else for other inputs than texts.
    """

    pass_name = "measuring"

    def __init__(self, name: str, processor: Any) -> None:
        separators, self.num_separators = pair_separators(getattr(processor, "tokenizer", processor))
        self.name, self.separators = name, [token for token in separators if token is not None]
        self.batches: list[tuple[np.ndarray, bool]] = []  # keys, and whether they are known
        self.keys: np.ndarray | None = None

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Do nothing: `add` takes the inputs."""

    def add(self, batch: Mapping[str, Any], size: int) -> None:
        """Add the first `size` samples of a batch of this process."""
        values, mask = batch.get(self.name), batch.get("attention_mask")
        if not isinstance(values, Tensor) or values.ndim < 2 or len(values) < size:
            self.batches.append((np.zeros(size, np.int64), False))
            return
        is_real = mask > 0 if isinstance(mask, Tensor) and mask.shape == values.shape else torch.ones_like(values) > 0
        contents = map(self._contents, values[:size].detach().cpu(), is_real[:size].cpu())
        self.batches.append((byte_hashes(contents), True))

    def _contents(self, values: Tensor, is_real: Tensor) -> np.ndarray:
        """Return what is hashed of a sample: its bytes without padding, and of token ids those of the first text."""
        if values.is_floating_point():
            return values[is_real].view(torch.uint8).numpy()
        if values.ndim == 2:  # a row for each option
            values, is_real = values[0], is_real[0]
        ids = values[is_real].numpy()
        is_separator = np.isin(ids, self.separators)
        if not self.num_separators or is_separator.sum() != self.num_separators:
            return ids
        start = int(is_separator.argmin())
        return ids[start : start + int(is_separator[start:].argmax())]

    def gather(self) -> np.ndarray | None:
        batches = in_order(self.batches)
        if batches and all(is_known for _, is_known in batches):
            self.keys = np.concatenate([keys for keys, _ in batches])
        return self.keys

    def usable(self, rows: np.ndarray, data_name: str) -> tuple[np.ndarray | None, tuple[str, ...]]:
        """Return the `usable_clusters` of rows of the dataset: keys of all rows, or None; and notes for the reader."""
        if self.keys is None or not len(rows):
            return None, ()
        keys, name = self.keys[np.unique(rows)], "clusters in fit_correction"
        clusters, _, notes = usable_clusters(keys, "samples", data_name, self.name, False, argument=name)
        return (None if clusters is None or not notes else self.keys), notes
