"""Tables that are written in batches."""

import math

import pyarrow as pa
from files import strict_json

from hf_focal.scores.correction_files.table_writers import open_writer


def test_json_lines_have_null_in_the_place_of_nan(tmp_path):
    columns = {"x": [1.5, math.nan], "list": [[math.nan, 2.0], [3.0]], "text": ["NaN", None]}
    table = pa.table({name: pa.array(values, from_pandas=False) for name, values in columns.items()})
    writer = open_writer(tmp_path / "t.jsonl", ".jsonl", table.schema)
    writer.write_table(table)
    writer.close()
    text = (tmp_path / "t.jsonl").read_text()
    (tmp_path / "t.json").write_text(f"[{','.join(text.splitlines())}]")
    assert strict_json(tmp_path / "t.json") == [
        {"x": 1.5, "list": [None, 2.0], "text": "NaN"},
        {"x": None, "list": [3.0], "text": None},
    ]
