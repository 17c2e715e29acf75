"""Errors of scores name the cell at fault."""

import pandas as pd
import pytest

from hf_focal import InputError, read_scores


@pytest.mark.parametrize("cell", ["(3,[1],[1.0])", "0.5", "", "[[0.2,0.3,0.5]]"])
def test_the_first_cell_that_is_no_list_is_named(cell, tmp_path):
    frame = pd.DataFrame({"probability": ["[0.2,0.3,0.5]"] * 20, "label": [2] * 20})
    frame.loc[[10, 15], "probability"] = cell
    frame.to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(InputError) as refused:
        read_scores(tmp_path / "s.csv")
    expected = f"must hold a list of numbers in each row, got {cell!r} in 'probability' in line 12 of s.csv"
    assert expected in str(refused.value)
