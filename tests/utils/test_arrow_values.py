"""Arrow arrays as NumPy arrays: the values of Arrow's own conversion, without importing pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from hf_focal.utils.arrow_values import numpy_values, with_columns

TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("values", [[1, 0, 3], [], [1, None, 3], [None]], ids=str)
def test_the_values_are_those_of_arrow(type, values):
    numbers = [None if value is None else np.float16(value) if type == pa.float16() else value for value in values]
    for column in (
        pa.array(numbers, type),
        pa.array([numbers[-1:], *[numbers] * 2][1:], pa.list_(type))[1:].flatten(),
    ):
        expected = column.to_numpy(zero_copy_only=False)
        actual = numpy_values(column)
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == (np.float64 if column.null_count else expected.dtype)


@pytest.mark.slow
def test_a_table_is_measured_without_pandas_scipy_and_the_hub(tmp_path):
    rows = "".join(f"{0.1 * (i % 7)},{0.2 * (i % 3)},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "s.csv").write_text("logit_a,logit_b,label\n" + rows)
    code = (
        "import sys, hf_focal; hf_focal.evaluate_scores('s.csv'); "
        "sys.exit([name for name in ('pandas', 'scipy.special', 'scipy.optimize', 'transformers', 'huggingface_hub', "
        "'matplotlib') if name in sys.modules] or 0)"
    )
    actual = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert actual.returncode == 0, actual.stderr


def test_columns_are_added_at_the_end_and_the_metadata_stay():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"of": "a"})], metadata={"of": "table"})
    table = pa.concat_tables([pa.table({"a": [1]}, schema=schema), pa.table({"a": [2]}, schema=schema)])
    longer = with_columns(table, {"b": pa.array(["x", "y"])})
    assert longer.equals(table.append_column("b", pa.array(["x", "y"])), check_metadata=True)
