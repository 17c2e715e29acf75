"""Each format of a file of scores gives the same table, whole and in batches, and names its lines in errors."""

import json

import numpy as np
import pandas as pd
import pytest

from hf_focal import InputError
from hf_focal.scores.reading.batch_options import BatchOptions
from hf_focal.scores.reading.score_rows import load, score_batches
from hf_focal.scores.reading.table_formats import FORMATS, format_of

TABLE = pd.DataFrame({"prob_a": np.arange(40) / 64, "prob_b": 1 - np.arange(40) / 64, "label": [1, 0] * 20})
COLUMNS = {name: column.tolist() for name, column in TABLE.items()}
WRITERS = {
    ".csv": lambda path: TABLE.to_csv(path, index=False),
    ".tsv": lambda path: TABLE.to_csv(path, index=False, sep="\t"),
    ".json": lambda path: TABLE.to_json(path, orient="records", double_precision=15),
    ".jsonl": lambda path: TABLE.to_json(path, orient="records", lines=True, double_precision=15),
    ".parquet": TABLE.to_parquet,
    ".npz": lambda path: np.savez(path, **{name: column.to_numpy() for name, column in TABLE.items()}),
    ".npy": lambda path: np.save(path, TABLE.to_records(index=False)),
}


@pytest.fixture(params=FORMATS)
def path(request, tmp_path):
    path = tmp_path / f"scores{request.param}"
    WRITERS[request.param](path)
    return path


def as_columns(table):
    """The columns as lists; labels are read from text files as they are written."""
    return {name: [int(value) if name == "label" else value for value in table[name].to_pylist()] for name in COLUMNS}


def test_every_format_is_read_whole_and_in_batches(path):
    whole = load("scores", path).table
    assert as_columns(whole) == COLUMNS
    batches = [*score_batches(path, BatchOptions(16, ("prob_a", "prob_b")))]
    assert [batch.first for batch in batches] == [*np.cumsum([0, *(len(batch.table) for batch in batches[:-1])])]
    parts = [as_columns(batch.table) for batch in batches]
    assert {name: [value for part in parts for value in part[name]] for name in COLUMNS} == COLUMNS


def test_errors_name_the_line_of_a_text_file_and_else_the_row(path):
    first_line = {".csv": 2, ".tsv": 2, ".jsonl": 1}.get(path.suffix)  # below the header, if there is one
    expected = f"row 0 of {path.name}" if first_line is None else f"line {first_line} of {path.name}"
    assert load("scores", path).where(0) == expected


def test_a_format_without_a_reader_is_refused(tmp_path):
    assert format_of(tmp_path / "SCORES.CSV") is FORMATS[".csv"] and format_of(tmp_path / "scores.txt") is None
    with pytest.raises(InputError, match=r"scores must end in \.csv, .*\.npy, got '.*scores\.txt'"):
        load("scores", tmp_path / "scores.txt")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_later_file_without_a_column_is_refused_by_name(tmp_path, suffix):
    path = tmp_path / f"scores{suffix}"
    WRITERS[suffix](path)
    options = BatchOptions(16, ("prob_a",), only=("prob_a", "prob_c"))
    with pytest.raises(InputError, match=f"must have the column 'prob_c' of the first table, got scores{suffix} "):
        next(score_batches(path, options))


def test_dates_in_json_lines_stay_as_they_are_written(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps({"prob": 0.5, "id": "2024-01-02 03:04:05"}), encoding="utf-8")
    (batch,) = score_batches(path, BatchOptions(16, ("prob",)))
    for table in (load("scores", path).table, batch.table):
        assert table["id"].to_pylist() == ["2024-01-02 03:04:05"]
