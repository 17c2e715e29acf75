"""The process of a command: its GPU, its progress bars, and its place among those of a launcher."""

import os
import sys
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


def hide_progress_bars_in_logs() -> None:
    """Let no library of this process draw progress bars into a file or a pipe.

    They read these variables when they are imported, so no command may have imported them yet.
    """
    if not sys.stderr.isatty():
        for name in ("TQDM_DISABLE", "HF_DATASETS_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_PROGRESS_BARS"):
            os.environ.setdefault(name, "1")


def is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def launched_processes() -> str:
    """Return how many processes a launcher started, such as "2 processes"; "" without a launcher.

    On a CPU, `accelerate launch` starts one, whatever --num_processes asks for; `check_setup` warns of it.
    """
    if "WORLD_SIZE" not in os.environ and not any(name.startswith("ACCELERATE_") for name in os.environ):
        return ""
    number = int(os.environ.get("WORLD_SIZE", 1))
    return f"{number} process" + ("es" if number > 1 else "")
