"""A hash of what scores depend on: a model's weights and settings, and the data."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from torch import nn

from ..utils.weights_hash import hash_weights

_HASHED_ROWS = 1000


def hash_contents(
    settings: Sequence[Mapping[str, Any]], model: nn.Module, weights_file: str | Path | None, data: Sequence[Dataset]
) -> str:
    """Return a hash of a model's settings and weights and of data, whatever the names of their files are.

    `weights_file` is one whose weights are not in the model's state.
    """
    digest = blake2b(digest_size=16)
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    if weights_file is not None:
        with Path(weights_file).open("rb") as file:
            for content in takewhile(len, (file.read(2**24) for _ in count())):
                digest.update(content)
    hash_weights(digest, model)
    for part in data:
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
