"""Clusters of samples that depend on each other, and folds that keep each cluster whole."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from ..utils.arrow_values import numpy_values
from ..utils.names import counted

_FEWEST_CLUSTERS = 10  # with fewer clusters that were found, rather than named, the samples are not cut by them


def cluster_keys(clusters: Any, size: int) -> np.ndarray:
    """Return a hash of each sample's cluster, int64 (N,), which depends on nothing but the value in `clusters`, (N,).

    Equal numbers or strings are one cluster. A number has the hash of its text, which a file may hold in its place.

    Raises:
        InputError: `clusters` is not one-dimensional with `size` values, or has missing ones.
    """
    if hasattr(clusters, "detach"):
        clusters = clusters.detach().cpu().numpy()
    values = np.asarray(clusters)
    if values.shape != (size,):
        raise InputError("clusters", f"must have one value for each of the {size:,} samples, got shape {values.shape}")
    if values.dtype.kind == "f" and (wrong := ~np.isfinite(values)).any():
        raise InputError("clusters", f"must have no missing values, got {values[wrong][0]}")
    if values.dtype == object:
        if any(value is None or value != value for value in values):
            raise InputError("clusters", "must have no missing values, got None or NaN")
        values = values.astype(str)
    names, numbers = np.unique(values, return_inverse=True)
    return content_hashes(map(str, names.tolist()))[numbers.reshape(-1)]


def content_hashes(values: Iterable[Any]) -> np.ndarray:
    """Return a hash of each value, int64 (N,), which is the same in every process."""
    return byte_hashes(repr(value).encode("utf-8", "replace") for value in values)


def byte_hashes(values: Iterable[Any]) -> np.ndarray:
    """Return a hash of each value, bytes or a contiguous array, int64 (N,), which is the same in every process."""
    digests = (blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def are_clustered(clusters: np.ndarray | None) -> bool:
    """Return whether any two samples are in one cluster."""
    return clusters is not None and len(np.unique(clusters)) < len(clusters)


def cluster_numbers(clusters: np.ndarray | None) -> np.ndarray | None:
    """Return numbers of the clusters, (N,), from 0 on; None if no two of the N samples are in one cluster."""
    if clusters is None:
        return None
    encoded = pa.array(clusters).dictionary_encode()  # which hashes: to sort a million texts takes seconds
    return numpy_values(encoded.indices) if len(encoded.dictionary) < len(clusters) else None


def usable_clusters(
    clusters: np.ndarray,
    samples: str,
    data_name: str,
    column: str,
    is_named: bool,
    *,
    argument: str = "cluster_column",
    have_intervals: bool = True,
) -> tuple[np.ndarray | None, bool, tuple[str, ...]]:
    """Decide whether samples are cut by their clusters, (N,), and what is known of their independence.

    Args:
        clusters: the value of each sample, or its hash.
        samples: what the samples are called, "rows" or "samples".
        data_name: the name of the data.
        column: the name of the column of clusters.
        is_named: whether the user named the column as that of clusters, rather than that it was found.
        argument: what names clusters.
        have_intervals: whether intervals draw whole clusters, too.

    Returns:
        The clusters, or None for found ones that are so few that folds could not be drawn by them; whether they are
        independent draws; and notes for the reader of a result, none if every sample is a cluster of its own.
    """
    number = len(np.unique(clusters))
    if number == len(clusters):
        return clusters, True, ()
    known = f"the {len(clusters):,} {samples} of {data_name} have {counted(number, 'value')} of {column!r}"
    if is_named or number >= _FEWEST_CLUSTERS:
        uses = "in folds, for thresholds, and for intervals"
        uses = uses if have_intervals else "in folds and for thresholds, but not for the intervals of all rows"
        together = f"{samples} with the same value stay together {uses}"
        return clusters, True, (f"{known}: {together}",)
    advice = f"so they may depend on each other: name what is drawn independently as {argument}"
    return None, False, (f"{known}, {advice}",)


def random_folds(size: int, num_folds: int, clusters: np.ndarray | None = None) -> np.ndarray:
    """Return the number of each sample's fold, (size,): random folds of the same size.

    With `clusters`, the `cluster_keys` (size,), whole clusters are dealt to the folds, in the order of their keys, so
    the order of the samples does not matter.
    """
    if clusters is not None:
        keys, numbers = np.unique(clusters, return_inverse=True)
        return random_folds(len(keys), num_folds)[numbers]
    folds = np.empty(size, np.int64)
    folds[np.random.default_rng(0).permutation(size)] = np.arange(size) % num_folds
    return folds
