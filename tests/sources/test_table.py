"""Tables as a source: what reading one keeps, and where."""

import numpy as np
import pyarrow as pa

from hf_focal.sources.source import Data, Samples
from hf_focal.sources.table import TableSource


def table(texts: list[str]) -> pa.Table:
    labels = [number % 2 for number in range(len(texts))]
    columns = {"logit_0": [1.0, 0.5] * (len(texts) // 2), "logit_1": [0.0] * len(texts)}
    return pa.table({**columns, "label": labels, "message": texts})


def test_each_table_has_its_own_texts_whatever_is_read_after_it():
    source = TableSource(text_column="message")
    first, second = (source.read(Data("scores", table([name] * 4 + ["last"] * 2))) for name in ("one", "two"))
    assert first.inputs(np.array([0, 5])) == ["one", "last"] and second.inputs(np.array([0])) == ["two"]
    assert first.select(np.arange(6) > 3).inputs(np.array([0])) == ["last"]
    assert vars(source) == vars(TableSource(text_column="message"))


def test_columns_of_texts_that_could_be_shown_are_named():
    source, data = TableSource(), Data("scores", table(["a", "b"]))
    hint = source.inputs_hint(Samples(data, source.read(data)))
    assert hint == "To see the texts in 'message' here, add --text_column message."
