"""Packed samples: nothing is lost, and their order is that of the uncertainty."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hf_focal.metrics.packed_samples import concatenate, histogram_sums, pack, sum_ties, tie_starts, unpack


@st.composite
def samples(draw, dtypes=(np.float32, np.float64)):
    dtype, size = draw(st.sampled_from(dtypes)), draw(st.integers(0, 30))
    width = np.dtype(dtype).itemsize * 8
    values = st.floats(0, 1, width=width) | st.sampled_from([-0.0, 0.0, 0.5, 1.0])
    uncertainty, correct = draw(arrays(dtype, size, elements=values)), draw(arrays(bool, size))
    return torch.from_numpy(uncertainty), torch.from_numpy(correct)


@given(samples())
def test_nothing_is_lost_and_sorting_is_by_uncertainty(batch):
    uncertainty, correct = batch
    packed = pack(uncertainty, correct)
    assert packed.itemsize == uncertainty.element_size()
    unpacked, hits = unpack(packed)
    np.testing.assert_array_equal(unpacked, uncertainty)
    np.testing.assert_array_equal(hits, correct)
    np.testing.assert_array_equal(unpack(np.sort(packed))[0], np.sort(uncertainty.numpy()))


@given(samples((np.float32,)), samples((np.float64,)))
def test_float32_and_float64_can_be_joined(narrow, wide):
    uncertainty, correct = unpack(concatenate([pack(*narrow), pack(*wide)]))
    assert uncertainty.dtype == np.float64
    np.testing.assert_array_equal(uncertainty, torch.cat([narrow[0].double(), wide[0]]))
    np.testing.assert_array_equal(correct, torch.cat([narrow[1], wide[1]]))


@given(samples())
def test_sums_of_ties_are_those_of_each_distinct_uncertainty(batch):
    uncertainty, correct = batch[0].double().numpy() + 0, batch[1].numpy()
    count, confidence, hits = sum_ties(pack(*batch))
    distinct = np.unique(uncertainty)[::-1]
    assert len(tie_starts(np.sort(pack(*batch))[::-1])) == len(distinct)
    np.testing.assert_array_equal(count, [(uncertainty == value).sum() for value in distinct])
    np.testing.assert_array_equal(hits, [correct[uncertainty == value].sum() for value in distinct])
    np.testing.assert_allclose(confidence, count * (1 - distinct), rtol=1e-6, atol=1e-6)
    in_cells = histogram_sums(batch[0], 1 - batch[0], batch[1])
    assert in_cells[0].sum() == len(correct) and in_cells[2].sum() == correct.sum()
    assert in_cells[1].sum() == pytest.approx(confidence.sum(), abs=1e-5)
