"""Types in which the cells of csv files keep their values."""

import pyarrow as pa
import pytest

from hf_focal.scores.reading.csv_files import exact_types

LONG = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([["3", "-12", "0"]], pa.int64()),
        ([["3"], ["007"]], pa.string()),
        ([["-0"]], pa.float64()),
        ([["9223372036854775807"]], pa.int64()),
        ([["3"], ["9223372036854775808"]], LONG),
        ([["1" * 39]], pa.string()),
        ([["1", "2.50"]], pa.float64()),
        ([["1"], ["1e-7", "-0.5"]], pa.float64()),
        ([["12345678901234567", "0.5"]], pa.string()),  # not exact in float64
        ([["12345678901234567"], ["0.5"]], pa.string()),
        ([["9223372036854775808"], ["0.5"]], pa.string()),
        ([["", "NA", "4"]], pa.int64()),
        ([["", ""]], None),
        ([["true", "False"]], pa.bool_()),
        ([["true", "1"]], pa.string()),
        ([["2024-01-31"]], pa.string()),
        ([["1,5", "+3"]], pa.string()),
    ],
)
def test_types_keep_what_cells_hold(blocks, expected):
    batches = [pa.record_batch({"column": pa.array(cells)}) for cells in blocks]
    assert exact_types(batches) == ({} if expected is None else {"column": expected})
