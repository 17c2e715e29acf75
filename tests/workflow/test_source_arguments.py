"""What the arguments of `evaluate` and `calibrate` stand for."""

import pytest
from own_source import Own

from hf_focal import InputError
from hf_focal.sources.source import Data
from hf_focal.workflow.source_arguments import SourceArguments, source_arguments


def arguments(source=None, data=None, scores=None, **options):
    return source_arguments("evaluate", source, data, scores, options, "validation")


def test_each_kind_of_source_has_its_arguments():
    table = arguments(scores="a.csv", label_column="y")
    assert table == SourceArguments(data=Data("scores", "a.csv"), options={"label_column": "y"})
    data, options = Data("data", "d", None, "validation"), {"batch_size": 4, "max_length": 8}
    model = arguments("m", "d", **options)
    assert model == SourceArguments(source="m", data=data, options=options)
    source = Own()
    own = arguments(source, [1])
    assert own == SourceArguments(source=source, data=data._replace(value=[1]))
    assert (table.kind, model.kind, own.kind) == ("table", "model", "object")


def test_the_arguments_of_a_table_open_it():
    source = arguments(scores="a.csv", label_column="y").open(7)
    assert (source.options.label_column, source.num_bins) == ("y", 7)


def test_data_may_have_a_name_of_its_own():
    data = Data("dataset", "test.csv", "train")
    assert Data.named("data", data) is data
    assert Data.named("threshold_data", "t.csv", "validation") == Data("threshold_data", "t.csv", None, "validation")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": len, "scores": "s.csv"}, "scores must not be given with a source and its data"),
        ({"data": [1]}, "source must be given, got None: give source and data, or scores"),
        ({"source": len}, "data must be given, got None: give source and data, or scores"),
        (
            {"source": Own(), "data": [1], "batch_size": 3},
            "batch_size must not be given for a source that is an object",
        ),
    ],
)
def test_what_stands_for_no_source(given, message):
    with pytest.raises(InputError, match=message):
        arguments(**given)
