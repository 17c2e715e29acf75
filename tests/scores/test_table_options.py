from inspect import signature

import numpy as np
import pytest

from hf_focal import calibrate_scores, evaluate_scores, read_scores
from hf_focal.scores.reading import table_batches
from hf_focal.scores.table_options import TableOptions


def test_the_options_are_those_of_read_scores():
    parameters = signature(read_scores).parameters
    assert [*parameters] == ["scores", "schema", *TableOptions.__dataclass_fields__, "needs_labels", "name"]
    options = TableOptions()
    assert all(getattr(options, name) == parameters[name].default for name in TableOptions.names())


@pytest.mark.parametrize("most_rows", [1000, 10])
@pytest.mark.parametrize("measure", [evaluate_scores, calibrate_scores])
def test_an_unknown_option_is_refused_whatever_the_size_of_the_table(measure, most_rows, monkeypatch):
    monkeypatch.setattr(table_batches, "MOST_ROWS", most_rows)
    table = {"prob_cat": np.linspace(0, 1, 60), "prob_dog": 1 - np.linspace(0, 1, 60), "label": ["cat", "dog"] * 30}
    with pytest.raises(TypeError, match=r"_scores\(\) got an unexpected keyword argument 'lable_column'"):
        measure(table, lable_column="nonsense")
