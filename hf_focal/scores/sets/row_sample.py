"""A uniform sample of rows that is drawn while they pass by, and that shards draw together."""

import hashlib
from typing import Any, Self

import numpy as np

_SEEDING = 512  # rows that seed the keys of a batch


def keys_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a random number for each row of a batch, (N,), int64.

    They depend on the rows alone, so that the same batches have the same sample, in whatever order and process.
    """
    digest = hashlib.blake2b(f"{scores.shape}".encode(), digest_size=16)
    for values in (scores, labels):
        digest.update(np.ascontiguousarray(values[:_SEEDING]).tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest())).integers(2**63, size=len(scores))


class RowSample:
    """At most `size` rows: those with the smallest of random keys, so that the sample of a union is that of samples.

    `columns` maps names to arrays whose first dimension are the rows. A name that some batches lack is dropped.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        self._largest = 2**63 - 1  # of the keys that may still be in the sample
        self._pending = 0

    def wanted(self, keys: np.ndarray) -> np.ndarray:
        """Return the indices of the rows of a batch that may be in the sample."""
        if not self.size:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(keys <= self._largest)
        return rows[np.argpartition(keys[rows], self.size - 1)[: self.size]] if len(rows) > self.size else rows

    def add(self, keys: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        """Add rows, those that are `wanted`."""
        if len(keys):
            self._parts.append((keys, columns))
            self._pending += len(keys)
        if self._pending > 2 * self.size:
            self._compress()

    def merge(self, other: "RowSample") -> Self:
        self.size = min(self.size, other.size)
        for part in other._parts:
            self.add(*part)
        self._compress()
        return self

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns of the sample, in an order that depends on the rows alone; {} without rows."""
        self._compress()
        return dict(self._parts[0][1]) if self._parts else {}

    def __len__(self) -> int:
        return min(self.size, self._pending)

    def _compress(self) -> None:
        if not self._parts:
            return
        keys = np.concatenate([keys for keys, _ in self._parts])
        order = np.argsort(keys, kind="stable")[: self.size]
        names = [name for name in self._parts[0][1] if all(name in part for _, part in self._parts)]
        columns = {name: np.concatenate([part[name] for _, part in self._parts])[order] for name in names}
        self._parts, self._pending = [(keys[order], columns)], len(order)
        if 0 < len(order) == self.size:
            self._largest = int(keys[order[-1]])

    def __getstate__(self) -> dict[str, Any]:
        self._compress()
        return self.__dict__
