"""A model's scores in a folder, written in shards while the model runs, so that a killed evaluation can go on.

The rows, in the order in which the model takes them, are cut into blocks. For each block, every process writes the
scores that it computed as a file, whole or not at all. A block is done if the files of all processes are there. The
folder can be passed as ``--scores``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset

from ..scores.sets.saved_scores import ROW, read_saved, scores_table
from ..scores.sets.scores_in_memory import Scores
from ..utils.atomic_write import write_whole
from ..utils.folder_lock import LOCK, lock_folder, unlock_folder
from ..validation import InputError, one_line

if TYPE_CHECKING:
    from .model import ModelSource

# Names that begin with "_" or "." are not read by `--scores`.
_RECORD = "_scores.json"
_FORMAT = 1
_BATCHES, _MOST_BLOCKS = 64, 1000  # the fewest batches of a block, and the most blocks
_FILE = re.compile(r"rows-(\d+)-(\d+)-process-(\d+)-of-(\d+)\.parquet")
_HASHED_ROWS = 1000


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
        """Write this process's scores of a block; `rows`, (N,), are their rows in the data."""
        state, sink = PartialState(), pa.BufferOutputStream()
        pq.write_table(scores_table(scores, rows), sink)
        name = _name(*block, state.process_index, state.num_processes)
        write_whole(self.folder / name, sink.getvalue().to_pybytes())

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
    folder: str | Path, model_source: "ModelSource", samples: Dataset, encoded: Dataset
) -> Iterator[ScoreShards]:
    """Open a new folder, or one with scores of the same model and data, which is locked during the block.

    Every process must call this. `samples` and `encoded` are those of `ModelScores`.

    Raises:
        InputError: the folder holds something else, is in use, is not writable, or is not the same for all processes.
    """
    folder, state = Path(folder), PartialState()
    prepared: list[Any] = [None]
    try:
        if state.is_main_process:
            prepared = [_prepared(folder, model_source, samples, encoded)]
        broadcast_object_list(prepared)  # so that no process waits for one that failed
        if isinstance(prepared[0], InputError):
            raise prepared[0]
        if not all(gather_object([(folder / _RECORD).is_file()])):
            raise InputError("save_scores", f"must be a folder that all processes share, got {str(folder)!r}")
        yield ScoreShards(folder, len(encoded), *prepared[0])
    finally:
        if state.is_main_process and not isinstance(prepared[0], InputError | None):
            unlock_folder(folder)


def _prepared(
    folder: Path, model_source: "ModelSource", samples: Dataset, encoded: Dataset
) -> tuple[int, list[tuple[int, int]]] | InputError:
    """Lock the folder; return the size of its blocks and those that are missing, or what the user must correct."""
    path = folder / _RECORD
    try:
        if folder.exists() and not folder.is_dir():
            return InputError("save_scores", f"must end in .parquet, or be a folder, got the file {str(folder)!r}")
        lock_folder(folder, "save_scores")
    except (ValueError, OSError) as error:
        return InputError("", one_line(error))
    problem: InputError | None = None
    try:
        key = content_key(model_source, samples, encoded)
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            if record.get("format") != _FORMAT or record.get("key") != key:
                expected = "must be a new folder, or have scores of the same model and data"
                problem = InputError("save_scores", f"{expected}, got {str(folder)!r} with others: remove it")
        elif any(part.name != LOCK for part in folder.iterdir()):
            problem = InputError("save_scores", f"must be a new folder, got {str(folder)!r}, which is not empty")
        else:
            batch = model_source.args.per_device_eval_batch_size * PartialState().num_processes
            batches = max(_BATCHES, -(-len(encoded) // (batch * _MOST_BLOCKS)))
            record = {"format": _FORMAT, "key": key, "block_size": batch * batches}
            write_whole(path, json.dumps(record))
        if problem is None:
            done = _done(folder, len(encoded), record["block_size"])
            _remove_parts(folder, {part for _, paths in done for part in paths})
            missing = [*_blocks(len(encoded), record["block_size"])]
            return record["block_size"], [block for block in missing if block not in dict(done)]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        problem = InputError("save_scores", f"must be a folder of scores, got {str(folder)!r}: {one_line(error)}")
    unlock_folder(folder)
    assert problem is not None
    return problem


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


def content_key(model_source: "ModelSource", samples: Dataset, encoded: Dataset) -> str:
    """Return a hash of a model's weights and settings and of all data that it takes, whatever their names are."""
    digest = blake2b(digest_size=16)
    settings = [
        {**model_source.config.to_dict(), "_name_or_path": "", "transformers_version": ""},
        model_source.options.to_dict(),
    ]
    if model_source.task.encode is None:  # what the processor does is not in the encoded samples
        settings.append(model_source.processor.to_dict())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    if model_source.weights_file is not None:
        with Path(model_source.weights_file).open("rb") as file:
            for content in takewhile(len, (file.read(2**24) for _ in count())):
                digest.update(content)
    for name, tensor in model_source.model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for part in (samples,) if model_source.task.encode is None else (samples, encoded):
        _add_rows(digest, part)
    return digest.hexdigest()


def _add_rows(digest: Any, data: Dataset) -> None:
    for batch in data.with_format("arrow").iter(_HASHED_ROWS):
        for column in batch.schema:
            values = batch.column(column.name)
            digest.update(f"{column.name} {len(values)}".encode())
            if pa.types.is_struct(column.type) and {"bytes", "path"} <= {field.name for field in column.type}:
                for value in values.to_pylist():  # images and sounds, perhaps in files of their own
                    digest.update(_content(value))
            else:
                # A copy, whose bytes do not depend on where the rows lie in a larger table.
                rows = pa.table({column.name: values}).take(pa.array(np.arange(len(values)))).combine_chunks()
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as stream:
                    stream.write_table(rows)
                digest.update(sink.getvalue())


def _content(value: dict[str, Any] | None) -> bytes:
    if value is None:
        return b"none"
    path = Path(value["path"] or "")
    return value["bytes"] or (path.read_bytes() if path.is_file() else str(path).encode())
