"""The next steps on a page name what a call of Python was given, as its command takes it."""

import numpy as np
import pytest

from hf_focal.workflow.command_arguments import command_arguments


def call(scores, *, num_bins=15, on_result=None, **columns):
    return command_arguments(call, locals())


def test_defaults_are_left_out_and_the_order_is_that_of_the_parameters():
    assert call("a.csv") == {"scores": "a.csv"}
    assert [*call(group="g", num_bins=3, scores="a.csv").items()] == [
        ("scores", "a.csv"),
        ("num_bins", 3),
        ("group", "g"),
    ]
    assert call("a.csv", on_result=print) == {"scores": "a.csv"}


def test_tables_in_memory_have_no_names():
    for table in (np.zeros(3), {"logits": [[0.0, 1.0]], "label": [0]}, [{"logits": [0.0, 1.0], "label": 0}]):
        assert call(table) is None
    assert call(["a.csv", "b.csv"], label_map={"x": "y"}) is not None


def test_each_parameter_must_be_told():
    with pytest.raises(KeyError, match="num_bins"):
        command_arguments(call, {"scores": "a.csv"})
