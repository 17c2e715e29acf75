"""T from one pass of sums against the search over all logits, and sums that add up."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import fit_temperature
from hf_focal.calibration.nll_sums import NLLSums
from hf_focal.calibration.temperature_scaling import InfiniteNLLError


def draws(size, num_classes, scale, temperature, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(size, num_classes, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator).squeeze(-1)
    return logits, labels


def sums_of(*batches, link="softmax"):
    sums = NLLSums(link)
    for batch in batches:
        sums.update(*batch)
    return sums


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([2, 3, 10, 100]),
    st.floats(0.5, 8),
    st.floats(math.log(0.2), math.log(12)).map(math.exp),
    st.integers(0, 2**31),
)
def test_t_is_that_of_the_search(num_classes, spread, temperature, seed):
    batch = draws(2000, num_classes, spread * temperature, temperature, seed)
    value, at_end, error = sums_of(batch).temperature()
    assert value == pytest.approx(fit_temperature(*batch).value, rel=max(1e-6, 10 * error))
    assert not at_end
    assert error < 1e-4


def test_the_same_sums_give_the_same_t():
    sums = [sums_of(draws(500, 10, 3, 1.6, seed)) for seed in range(5)]
    assert all(len({one.temperature()[0] for _ in range(30)}) == 1 for one in sums)


def test_parts_add_up_in_any_order():
    batches = [draws(500, 10, 3, 1.6, seed) for seed in range(4)]
    whole = sums_of(*batches).temperature()[0]
    first, second = sums_of(*batches[2:]), pickle.loads(pickle.dumps(sums_of(*batches[:2])))
    merged = first.merge(second)
    assert merged.count == 2000
    assert merged.temperature()[0] == pytest.approx(whole, rel=1e-12)
    assert len(pickle.dumps(merged)) < 2000
    with pytest.raises(ValueError, match="link must be the same to add samples, got 'sigmoid' for 'softmax'"):
        merged.merge(NLLSums("sigmoid"))


def test_labels_of_a_sigmoid_which_may_be_unknown():
    torch.manual_seed(0)
    logits = 2 * torch.randn(3000, 4)
    labels = (torch.rand_like(logits) < torch.sigmoid(logits / 1.4)).double()
    labels[:500, 1] = torch.nan
    expected = fit_temperature(logits, labels, link="sigmoid").value
    assert sums_of((logits, labels), link="sigmoid").temperature()[0] == pytest.approx(expected, rel=1e-6)


def test_masked_classes_and_ignored_samples():
    logits, labels = draws(3000, 6, 3, 1.3)
    logits[torch.rand(3000) < 0.3, 5] = -torch.inf
    labels[(labels == 5) & logits[:, 5].isinf()] = -100
    expected = fit_temperature(logits, labels).value
    assert sums_of((logits, labels)).temperature()[0] == pytest.approx(expected, rel=1e-6)


def test_very_different_gaps_are_told_to_be_less_precise():
    """Each gap is nearly 0 or 6.9, so the sums change faster with T than those of logits that vary."""
    torch.manual_seed(0)
    logits = torch.randint(0, 2, (20_000, 10)).float() * 6.9 + 0.01 * torch.randn(20_000, 10)
    labels = torch.multinomial(torch.softmax(logits / 1.3, -1), 1).squeeze(-1)
    value, _, error = sums_of((logits, labels)).temperature()
    off = abs(value / fit_temperature(logits, labels).value - 1)
    assert 1e-6 < error < 1e-3
    assert off < error


def test_logits_without_a_temperature():
    logits, labels = draws(500, 4, 3, 1)
    assert sums_of((logits, logits.argmax(1))).temperature() == (None, False, 0.0)  # all are right
    shifted, at_end, _ = sums_of((logits, logits.argmin(1))).temperature()  # worse than chance
    with pytest.warns(UserWarning, match="the logits say less about the labels than chance"):
        expected = fit_temperature(logits, logits.argmin(1)).value
    assert at_end
    assert shifted == pytest.approx(expected)
    for scale in (1e-3, 1e3):  # beyond what the sums cover
        assert sums_of((scale * logits, labels)).temperature() == (None, False, np.inf)
    logits[0, labels[0]] = -torch.inf
    with pytest.raises(InfiniteNLLError, match="the NLL is infinite at every T"):
        sums_of((logits, labels)).temperature()
