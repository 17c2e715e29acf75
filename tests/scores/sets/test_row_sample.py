"""A uniform sample of rows that shards draw together."""

import numpy as np

from hf_focal.scores.sets.row_sample import RowSample


def sample_of(keys, size=4, **columns):
    sample = RowSample(size)
    sample.add(np.array(keys), {name: np.array(values) for name, values in columns.items()})
    return sample


def test_the_sample_of_a_union_has_the_rows_with_the_smallest_keys():
    first, second = sample_of([5, 1, 9], x=[50, 10, 90]), sample_of([2, 7, 3], x=[20, 70, 30])
    assert first.merge(second).columns()["x"].tolist() == [10, 20, 30, 50]


def test_columns_that_some_batches_lack_are_dropped():
    first, second = sample_of([1], x=[10], name=["a"]), sample_of([2], x=[20])
    assert {name: values.tolist() for name, values in first.merge(second).columns().items()} == {"x": [10, 20]}
