"""Small batches that wait until they are added together, because adding has a fixed cost.

On the CPU this is a millisecond for any number of samples. On an accelerator, the host waits for the device, several
times.
"""

import math

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..validation import ProbabilityEvidence

_HOST_SCORES, _DEVICE_SCORES = 2**18, 2**22  # that are added at once
_MOST_BATCHES = 4096


def is_on_host(tensor: Tensor) -> bool:
    """Return whether reading values of a tensor waits for nothing: subclasses may stand for other devices."""
    return type(tensor) is Tensor and tensor.device.type == "cpu"


def _is_valid(logits: Tensor, labels: Tensor, ignore_index: int) -> bool:
    """Return whether labels (N,) on the host are classes or ignored, and logits (N, K) have finite largest values."""
    numbers = labels.numpy()
    ignored = numbers == ignore_index
    finite = np.isfinite(logits.amax(1).double().numpy()) if len(numbers) else ignored
    return bool((((numbers >= 0) & (numbers < logits.shape[1]) & finite) | ignored).all())


class BatchBuffer:
    """Base class of what sums up batches: small ones wait, as copies, until they are many or a result is wanted.

    A subclass defines `_add_now`, which either adds a batch or raises InputError and changes nothing, and calls
    `_flush` before anything that was added is read.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._num_waiting = 0  # scores

    def _add_now(self, scores: Tensor, labels: Tensor) -> None:
        raise NotImplementedError

    @property
    def _waiting_classes(self) -> int | None:
        """The number of scores of a sample in the batches that wait; None if none wait."""
        return self._waiting[-1][0].shape[1] if self._waiting else None

    def _add_logits(self, logits: Tensor, labels: Tensor, evidence: ProbabilityEvidence, ignore_index: int) -> None:
        """Add logits (N, K) and labels (N,) later, but on the host now if they may raise an error."""
        if is_on_host(logits) and not (evidence.nats == -math.inf and _is_valid(logits, labels, ignore_index)):
            self._flush()
            self._add_now(logits, labels)
        else:
            self._add_later(logits, labels)

    def _add_later(self, scores: Tensor, labels: Tensor) -> None:
        """Add scores (N, K) and labels (N, ...) now if they are many, or else with others."""
        if self._waiting and _likeness(*self._waiting[-1]) != _likeness(scores, labels):
            self._flush()
        most = _HOST_SCORES if scores.device.type == "cpu" else _DEVICE_SCORES
        if scores.numel() >= most:
            self._flush()
            self._add_now(scores, labels)
            return
        self._waiting.append((scores.clone(), labels.clone()))
        self._num_waiting += scores.numel()
        if self._num_waiting >= most or len(self._waiting) >= _MOST_BATCHES:
            self._flush()

    def _flush(self) -> None:
        """Add the batches that wait. Raise the first one's InputError if some are wrong, after adding the others."""
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        if not waiting:
            return
        try:
            self._add_now(*(torch.cat(parts) for parts in zip(*waiting, strict=True)))
        except InputError:
            if len(waiting) == 1:
                raise
            errors = []
            for batch in waiting:
                try:
                    self._add_now(*batch)
                except InputError as error:
                    errors.append(error)
            if errors:
                raise errors[0] from None


def _likeness(scores: Tensor, labels: Tensor) -> tuple:
    """Return what batches that are concatenated have in common."""
    return scores.dtype, scores.device, scores.shape[1:], labels.dtype, labels.device, labels.shape[1:]
