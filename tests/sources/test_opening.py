"""Which source the arguments of `evaluate` and `calibrate` stand for."""

from types import SimpleNamespace

import pytest
from own_source import Own

from hf_focal import InputError, Source
from hf_focal.scores.table_options import TableOptions
from hf_focal.sources.opening import as_source, open_source
from hf_focal.sources.source import Data
from hf_focal.sources.table import TableSource


def test_a_table():
    source, data = open_source(None, None, "scores.csv", 15, {"label_column": "label"})
    assert isinstance(source, TableSource) and data == Data("scores", "scores.csv")
    assert source.options == TableOptions(label_column="label") and source.num_bins == 15


def test_an_object():
    given = SimpleNamespace(link="sigmoid", classes=["spam"], scores=len, name="mine")
    source, data = open_source(given, [1], None, 15, {})
    assert (source.link, source.classes, source.name) == ("sigmoid", ("spam",), "mine")
    assert data == Data("data", [1]) and source.scores([1, 2]) == 2
    assert as_source(source) is source and isinstance(source, Source)


def test_data_may_have_a_name_of_its_own():
    data = Data("dataset", "test.csv", "train")
    assert Data.named("data", data) is data
    assert Data.named("threshold_data", "test.csv", "validation") == Data(
        "threshold_data", "test.csv", None, "validation"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((len, None, "s.csv", {}), "scores must not be given with a source and its data"),
        ((None, [1], None, {}), "source must be given, got None: give source and data, or scores"),
        ((len, None, None, {}), "data must be given, got None: give source and data, or scores"),
        ((Own(), [1], None, {"batch_size": 3}), "batch_size must not be given for a source that is an object"),
        ((SimpleNamespace(link="softmax"), [1], None, {}), "source must have link, classes, and .* without classes"),
    ],
)
def test_what_stands_for_none(arguments, message):
    source, data, scores, options = arguments
    with pytest.raises(InputError, match=message):
        open_source(source, data, scores, 15, options)
