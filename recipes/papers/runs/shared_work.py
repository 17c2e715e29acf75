"""Work that one process does, and whose result the others read."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
from filelock import FileLock


@contextmanager
def one_process_at_a_time(name: str) -> Iterator[Path]:
    """Let the processes of this machine that name the same work do it one after the other.

    Yields the path of a folder for the result, in the cache of `datasets`; it exists once a process has made it. This
    is no operation of the process group, as `TrainingArguments.main_process_first` is, so the first process may take
    longer than the group's timeout of half an hour.
    """
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "hf_focal_papers"
    cache.mkdir(parents=True, exist_ok=True)
    result = cache / hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    with FileLock(result.with_suffix(".lock")):
        yield result
