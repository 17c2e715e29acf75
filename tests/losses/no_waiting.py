"""Refuse what makes the host wait for an accelerator. Tensors on `meta` stand for one: the losses ask only whether
they are on the CPU, reading a value raises, and each copy from the host is seen."""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

aten = torch.ops.aten
READS = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.is_nonzero, aten.equal, aten.bincount)
COPIES = (aten._to_copy, aten.copy_)


class NoReadsAndCopies(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        devices = {x.device.type for x in tree_iter((args, kwargs, result)) if isinstance(x, torch.Tensor)}
        if func.overloadpacket in READS or (func.overloadpacket in COPIES and len(devices) > 1):
            raise RuntimeError(f"{func} waits for the device")
        return result


class NoListsToDevice(TorchFunctionMode):
    """`torch.tensor` of a list copies below what a dispatch mode sees."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor) and result.device.type != "cpu":
            raise RuntimeError(f"{func} waits for the device")
        return result


@contextmanager
def no_waiting():
    """Refuses what makes the host wait: reading a value, and copies between devices."""
    with NoReadsAndCopies(), NoListsToDevice():
        yield
