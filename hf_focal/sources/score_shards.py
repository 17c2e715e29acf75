"""A model's scores in a folder, written in shards while the model runs, so that a killed evaluation can go on.

The rows, in the order in which the model takes them, are cut into blocks. For each block, every process writes the
scores that it computed as a file, whole or not at all. A block is done if the files of all processes are there. The
folder can be passed as ``--scores``.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from ..errors import InputError, one_line
from ..scores.sets.saved_scores import ROW, read_saved, scores_table
from ..scores.sets.scores_in_memory import Scores
from ..utils.atomic_write import write_whole
from ..utils.folder_lock import LOCK, is_locked, lock_folder, unlock_folder

# Names that begin with "_" or "." are not read by `--scores`.
_RECORD = "_scores.json"
_FORMAT = 1
_BATCHES, _MOST_BLOCKS = 64, 1000  # the fewest batches of a block, and the most blocks
_FILE = re.compile(r"rows-(\d+)-(\d+)-process-(\d+)-of-(\d+)\.parquet")


@dataclass(frozen=True)
class ScoreShards:
    """The shards of one model's scores of one data set.

    Attributes:
        folder: where they are.
        num_rows: the number of rows that the model takes.
        block_size: rows of a block.
        missing: the blocks, as (start, stop), that are not done.
    """

    folder: Path
    num_rows: int
    block_size: int
    missing: Sequence[tuple[int, int]]

    def write(self, block: tuple[int, int], scores: Scores, rows: np.ndarray) -> None:
        """Write this process's scores of a block; `rows`, (N,), are their rows in the data.

        Raises:
            InputError: the file cannot be written, for example because the disk is full.
        """
        state, sink = PartialState(), pa.BufferOutputStream()
        pq.write_table(scores_table(scores, rows), sink)
        name = _name(*block, state.process_index, state.num_processes)
        try:
            write_whole(self.folder / name, sink.getvalue().to_pybytes())
        except OSError as error:
            raise InputError(
                "save_scores",
                f"must be a folder with room for the scores, got {str(self.folder)!r}: {error.strerror}; repeat the "
                "command to go on from those that are written",
            ) from error

    def read(self, classes: Sequence[str], link: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return logits, labels, and rows in the data of all processes' scores, in the order of the data."""
        PartialState().wait_for_everyone()
        done = _done(self.folder, self.num_rows, self.block_size)
        table = pa.concat_tables([_read_shard(path) for _, paths in done for path in paths])
        rows = np.asarray(table.column(ROW))
        order = np.argsort(rows, kind="stable")
        return *read_saved(table.take(pa.array(order)), classes, link), rows[order]


def _read_shard(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        expected = "must be a folder of scores"
        raise InputError(
            "save_scores", f"{expected}, got {str(path)!r}, which is damaged: {one_line(error)}"
        ) from error


@contextmanager
def open_shards(
    folder: str | Path, content_key: Callable[[], str], batch_size: int, num_rows: int
) -> Iterator[ScoreShards]:
    """Open a new folder, or one with scores of the same model and data, which is locked during the block.

    Every process must call this. `content_key` returns the `hash_contents` of the model and of the data; the main
    process calls it. The model takes `num_rows` rows, in each process `batch_size` at once.

    Raises:
        InputError: the folder holds something else, is in use, is not writable, or is not the same for all processes.
    """
    folder = Path(folder)
    on_main_process(partial(_lock, folder))
    try:
        block_size, missing = on_main_process(partial(_prepare, folder, content_key, batch_size, num_rows))
        if not all(gather_object([(folder / _RECORD).is_file()])):
            raise InputError("save_scores", f"must be a folder that all processes share, got {str(folder)!r}")
        yield ScoreShards(folder, num_rows, block_size, missing)
    finally:
        if PartialState().is_main_process:
            unlock_folder(folder)


def on_main_process(function: Callable[[], Any]) -> Any:
    """Call a function on the main process, and return its value, or raise its `InputError`, on all processes.

    So no process waits for one that failed. Every process must call this.
    """
    value, error = None, None
    if PartialState().is_main_process:
        try:
            value = function()
        except InputError as raised:
            error = raised
    value, error = broadcast_object_list([value, error])
    if error is not None:
        raise error
    return value


def _lock(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError("save_scores", f"must end in .parquet, or be a folder, got the file {str(folder)!r}")
    if is_locked(folder):
        raise InputError("save_scores", f"must not be the folder of another output, got {str(folder)!r}")
    try:
        lock_folder(folder, "save_scores")
    except (ValueError, OSError) as error:
        raise InputError("", one_line(error)) from error


def _prepare(
    folder: Path, content_key: Callable[[], str], batch_size: int, num_rows: int
) -> tuple[int, list[tuple[int, int]]]:
    """Check a folder's record, or write that of a new one. Return the size of its blocks, and the missing ones."""
    key = content_key()
    try:
        if (folder / _RECORD).is_file():
            block_size = _recorded_block_size(folder, key)
        else:
            block_size = _write_record(folder, key, num_rows, batch_size * PartialState().num_processes)
        return block_size, _missing_blocks(folder, num_rows, block_size)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, AttributeError) as error:
        expected = f"must be a folder of scores, got {str(folder)!r}"
        raise InputError("save_scores", f"{expected}: {one_line(error)}") from error


def _recorded_block_size(folder: Path, key: str) -> int:
    """Return the size of the blocks of scores with this content key; raise `InputError` for those of another one."""
    record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    if record.get("format") != _FORMAT or record.get("key") != key:
        expected = "must be a new folder, or have scores of the same model and data"
        raise InputError("save_scores", f"{expected}, got {str(folder)!r} with others: remove it")
    return record["block_size"]


def _write_record(folder: Path, key: str, num_rows: int, batch: int) -> int:
    """Write the record of an empty folder, and return the size of its blocks of batches with `batch` rows."""
    if any(part.name != LOCK for part in folder.iterdir()):
        raise InputError("save_scores", f"must be a new folder, got {str(folder)!r}, which is not empty")
    block_size = batch * max(_BATCHES, -(-num_rows // (batch * _MOST_BLOCKS)))
    record = {"format": _FORMAT, "key": key, "block_size": block_size}
    write_whole(folder / _RECORD, json.dumps(record))
    return block_size


def _missing_blocks(folder: Path, num_rows: int, size: int) -> list[tuple[int, int]]:
    """Return the blocks that are not done, and remove what a killed run has left of them."""
    done = dict(_done(folder, num_rows, size))
    _remove_parts(folder, {file for files in done.values() for file in files})
    return [block for block in _blocks(num_rows, size) if block not in done]


def _blocks(num_rows: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, num_rows)) for start in range(0, num_rows, size))


def _name(start: int, stop: int, process: int, num_processes: int) -> str:
    return f"rows-{start:010}-{stop:010}-process-{process}-of-{num_processes}.parquet"


def _done(folder: Path, num_rows: int, size: int) -> list[tuple[tuple[int, int], list[Path]]]:
    """Return the blocks that are done with the files of all processes, of one run: others may have more processes."""
    names = {path.name for path in folder.iterdir()}
    numbers = sorted({int(match[4]) for name in names if (match := _FILE.fullmatch(name))})
    done = []
    for block in _blocks(num_rows, size):
        for num_processes in numbers:
            files = [_name(*block, process, num_processes) for process in range(num_processes)]
            if names.issuperset(files):
                done.append((block, [folder / name for name in files]))
                break
    return done


def _remove_parts(folder: Path, done_files: set[Path]) -> None:
    """Remove what a killed run has left of blocks that are not done."""
    for path in folder.iterdir():
        if (path not in done_files and _FILE.fullmatch(path.name)) or path.name.startswith((".rows-", f".{_RECORD}")):
            path.unlink()
