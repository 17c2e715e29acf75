"""Objects of a user's own as sources."""

from types import SimpleNamespace

import pytest

from hf_focal import InputError, Source
from hf_focal.sources.wrapped_source import as_source


class Named(Source):
    name = None

    def scores(self, data):
        return data


def test_an_object_becomes_a_source_with_its_name():
    source = as_source(SimpleNamespace(link="sigmoid", classes=["spam"], scores=len, name="mine"))
    assert (source.link, source.classes, source.name) == ("sigmoid", ("spam",), "mine")
    assert source.scores([1, 2]) == 2
    assert as_source(source) is source and isinstance(source, Source)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SimpleNamespace(link="softmax"), "source must have link, classes, and .* without classes"),
        (SimpleNamespace(link="relu", classes=(), scores=len), "source must have the link .*, got 'relu'"),
        (SimpleNamespace(link="softmax", classes=(), scores=len, name=3), "source must have a name .* text, got 3"),
        (Named(), "source must have a name that is a text, got None"),
    ],
)
def test_an_object_that_is_no_source(given, message):
    with pytest.raises(InputError, match=message):
        as_source(given)
