"""Each format of a file of scores gives the same table, whole and in batches, and names its lines in errors."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.mark.parametrize(
    "line",
    [
        b'{"prob": 0.5, "label": "gr\xf6n"}',
        b'{"gr\xf6n": 0.5}',
        b'{"scores": {"gr\xf6n": 0.5}}',
        b'{"a": [{"b": "\xf6"}]}',
    ],
)
def test_json_lines_with_bytes_that_are_no_text_are_refused(line, tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(line)
    for read in (lambda: load("scores", path), lambda: [*score_batches(path, BatchOptions(16))]):
        with pytest.raises(InputError, match="scores must be in UTF-8, got another encoding"):
            read()


def test_a_parquet_file_with_bytes_that_are_no_text_is_refused(tmp_path):
    labels = pa.array([b"a", b"gr\xf6n"]).view(pa.string())
    pq.write_table(pa.table({"prob": [0.5, 0.5], "label": labels}), tmp_path / "scores.parquet")
    with pytest.raises(InputError, match="scores must be in UTF-8, got another encoding"):
        load("scores", tmp_path / "scores.parquet")


def test_a_list_in_json_lines_may_begin_with_null(tmp_path):
    """Arrow's own reader would move all later numbers up by one."""
    path, rows = tmp_path / "scores.jsonl", [{"probs": [None, 0.5], "id": 1}, {"probs": [0.2, 0.8], "other": "x"}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (batch,) = score_batches(path, BatchOptions(16))
    for table in (load("scores", path).table, batch.table):
        assert table.to_pydict() == {"probs": [[None, 0.5], [0.2, 0.8]], "id": [1, None], "other": [None, "x"]}


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.json"])
@pytest.mark.parametrize("content", ["null", '\n null\n{"prob": 0.5}\n'])
def test_json_without_records_is_refused(name, content, tmp_path):
    """Arrow's own reader would end the process."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"expected a .*record.*, got .*null"):
        load("scores", tmp_path / name)
    with pytest.raises(InputError, match=r"expected a .*record.*, got .*null"):
        [*score_batches(tmp_path / name, BatchOptions(16))]


def test_records_of_json_need_not_have_all_columns(tmp_path):
    (tmp_path / "scores.json").write_text(json.dumps([{"prob": 0.5}, {"prob": 0.2, "id": 1}]), encoding="utf-8")
    assert load("scores", tmp_path / "scores.json").table.to_pydict() == {"prob": [0.5, 0.2], "id": [None, 1]}
