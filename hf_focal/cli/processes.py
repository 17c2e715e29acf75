"""The process of a command: its GPU, and its place among those of a launcher."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_gpu() -> Iterator[None]:
    """Hide all GPUs but one during the block. With several, PyTorch would split batches, which `FocalTrainer` refuses.

    If a launcher such as torchrun started this process, nothing is hidden, because each process has its own GPU.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "LOCAL_RANK" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0" if shown is None else shown.partition(",")[0]
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if shown is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = shown


def is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0
