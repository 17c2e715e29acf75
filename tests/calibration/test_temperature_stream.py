"""One pass over batches against float64 brute force, and what must hold for every stream."""

import math
import pickle
import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.common.memory import peak_bytes
from hf_focal import fit_temperature
from hf_focal.calibration import TemperatureStream
from hf_focal.calibration import temperature_grid as grid_sums
from hf_focal.calibration.temperature_grid import PAPER_GRID

pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
VOCABULARY = 37_000


def tokens(num_rows, num_classes=VOCABULARY, true_temperature=1.5, seed=0):
    """Rows as a language model has them: Zipf's law, some classes far above the rest. Calibrated at about that T."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows, num_classes, generator=generator) - torch.arange(1, num_classes + 1).log()
    raised = torch.randint(num_classes, (num_rows, 4), generator=generator)
    logits.scatter_add_(1, raised, torch.rand(num_rows, 4, generator=generator) * torch.tensor([30.0, 12, 8, 6]))
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * true_temperature, labels


def brute_curves(logits, labels, grid=PAPER_GRID, num_bins=15):
    """ECE and NLL at each temperature, float64, by a softmax for each."""
    logits = logits.double()
    correct = (logits.argmax(1) == labels).double()
    ece, nll = [], []
    for temperature in grid:
        log_p = torch.log_softmax(logits / temperature, 1)
        confidence = log_p.amax(1).exp()
        bins = torch.bucketize(confidence, torch.arange(1, num_bins, dtype=torch.float64) / num_bins)
        ece.append(float(torch.bincount(bins, confidence - correct, num_bins).abs().sum()) / len(labels))
        nll.append(-float(log_p.gather(1, labels[:, None]).mean()))
    return np.array(ece), np.array(nll)


def stream_of(logits, labels, batch=64, **options):
    stream = TemperatureStream(**options)
    for batch_logits, batch_labels in zip(logits.split(batch), labels.split(batch), strict=True):
        stream.update(batch_logits, batch_labels)
    return stream


CASES = {
    "vocabulary, T=1.5": tokens(40),
    "vocabulary, T=0.6": tokens(30, true_temperature=0.6, seed=1),
    "vocabulary, bfloat16": tuple(x.bfloat16() if x.is_floating_point() else x for x in tokens(30, seed=3)),
    "untrained": (0.1 * torch.randn(20, VOCABULARY, generator=torch.Generator().manual_seed(10)), torch.arange(20)),
    "1000 classes": tokens(500, 1000, seed=7),
    "2 classes": tokens(3000, 2, seed=9),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * case.startswith("vocabulary,")) for case in CASES]
)
def test_curves_and_fit_are_those_of_brute_force(case):
    logits, labels = CASES[case]
    stream = stream_of(logits, labels)
    curves = stream.compute()
    ece, nll = brute_curves(logits, labels)
    assert np.abs(curves.ece - ece).max() < 1e-5
    assert np.abs(curves.nll - nll).max() < 1e-5
    assert (np.abs(curves.ece - ece) <= curves.ece_error).all()
    assert curves.temperatures.tolist() == PAPER_GRID.tolist()
    assert curves.ece_before == curves.ece[9] and curves.nll_before == curves.nll[9]

    fit = stream.fit("ece")
    assert fit == curves.fit("ece")
    in_memory = fit_temperature(logits, labels, "ece")
    assert fit.value == in_memory.value == PAPER_GRID[ece.argmin()]
    for name in ("ece_before", "ece_after", "nll_before", "nll_after"):
        assert getattr(fit, name) == pytest.approx(getattr(in_memory, name), abs=1e-5)
    for name in ("objective", "num_samples", "num_bins", "at_grid_end"):
        assert getattr(fit, name) == getattr(in_memory, name)
    assert stream.fit("nll").value == PAPER_GRID[nll.argmin()]
    assert stream.fit("nll").objective == "nll"
    assert f"T = {stream.fit('nll').value:.4g} (lowest NLL of 0.1, 0.2, ..., 10): " in str(stream.fit("nll"))


@pytest.mark.parametrize("method", [grid_sums.Binned, grid_sums.Interpolated])
@pytest.mark.parametrize("num_classes", [2, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("grid", [PAPER_GRID, np.geomspace(0.03, 300, 120)], ids=["paper", "wide"])
def test_every_confidence_is_within_its_error(method, num_classes, grid):
    generator = torch.Generator().manual_seed(1)
    rows = [spread * torch.randn(10, num_classes, generator=generator) for spread in (0.01, 1.0, 7.0, 300.0)]
    # The worst case: all classes but one at the same distance, here where S is about 2 for some temperature.
    distance = math.log(num_classes) * torch.linspace(0.3, 30, 200)[:, None]
    rows += [-distance * (torch.arange(num_classes) > 0), torch.zeros(1, num_classes)]
    logits = torch.cat(rows)
    logits[::3, 1::2] = -torch.inf
    gaps = logits.amax(1, keepdim=True) - logits
    compute = method(grid, num_classes, torch.device("cpu"))
    exact = torch.stack([torch.softmax(logits.double() / t, 1).amax(1) for t in grid.tolist()])
    off = (1 / compute(gaps) - exact).abs().amax(1)
    assert (off <= compute.error).all()
    assert compute.error.max() < 7e-5


@pytest.mark.parametrize(("num_classes", "dtype"), [(10, torch.bfloat16), (9000, torch.float64)])
def test_neither_autocast_nor_the_default_dtype_matters(num_classes, dtype):
    logits, labels = tokens(100, num_classes)
    expected = stream_of(logits, labels).compute()
    torch.set_default_dtype(dtype)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            got = stream_of(logits, labels).compute()
            fitted = fit_temperature(logits, labels, "ece")
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal([got.ece, got.nll], [expected.ece, expected.nll])
    assert fitted == fit_temperature(logits, labels, "ece")


def test_deterministic_algorithms_find_the_same(monkeypatch):
    logits, labels = tokens(200, 10)
    expected = stream_of(logits, labels).compute(), fit_temperature(logits, labels, "ece")

    def refuse(*args):
        raise RuntimeError("_bincount_cuda does not have a deterministic implementation")

    monkeypatch.setattr(torch, "bincount", refuse)  # with weights, on an accelerator
    torch.use_deterministic_algorithms(True)  # as Trainer's full_determinism does
    try:
        got = stream_of(logits, labels).compute(), fit_temperature(logits, labels, "ece")
    finally:
        torch.use_deterministic_algorithms(False)
    np.testing.assert_allclose([got[0].ece, got[0].nll], [expected[0].ece, expected[0].nll], rtol=1e-12)
    assert got[1] == expected[1]


def test_bins_are_exact_where_one_logit_is_far_above_the_rest():
    gaps = torch.full((1, VOCABULARY), 2500.0)
    gaps[0, 7] = 0
    method = grid_sums.row_sums(tuple(PAPER_GRID), VOCABULARY, torch.device("cpu"))
    assert isinstance(method, grid_sums.Binned)
    assert (method(gaps) == 1).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 12), st.floats(0.01, 50), st.integers(0, 10_000), st.booleans())
def test_any_small_set_is_within_the_error(num_rows, num_classes, spread, seed, binned):
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(num_rows, num_classes, generator=generator)
    labels = torch.randint(num_classes, (num_rows,), generator=generator)
    grid_sums.row_sums.cache_clear()
    with mock.patch.object(grid_sums, "_BINNED_FROM", 2 if binned else 1000):
        curves = stream_of(logits, labels, 7).compute()
    grid_sums.row_sums.cache_clear()
    ece, nll = brute_curves(logits, labels)
    assert (np.abs(curves.ece - ece) <= curves.ece_error + 1e-12).all()
    np.testing.assert_allclose(curves.nll, nll, rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 4), st.randoms(use_true_random=False))
def test_neither_batches_nor_order_nor_processes_matter(sizes, cut, random):
    logits, labels = tokens(sum(sizes), 9)
    expected = stream_of(logits, labels, len(labels)).compute()
    batches = list(zip(logits.split(sizes), labels.split(sizes), strict=True))
    random.shuffle(batches)
    first, second = TemperatureStream(), TemperatureStream()
    for index, batch in enumerate(batches):
        (first if index < cut else second).update(*batch)
    merged = first.merge(pickle.loads(pickle.dumps(second)))
    assert merged is first
    curves = merged.compute()
    for name in ("ece", "nll", "ece_error", "ece_before", "nll_before"):
        np.testing.assert_allclose(getattr(curves, name), getattr(expected, name), rtol=1e-6, atol=1e-6)
    assert curves.num_samples == expected.num_samples == sum(sizes)


@pytest.mark.parametrize("num_classes", [6, 9000])
def test_ignored_labels_leave_no_trace(num_classes):
    logits, labels = tokens(240, num_classes)
    ignored = torch.arange(240) % 3 == 0
    garbage = torch.where(ignored[:, None], torch.nan, logits).view(8, 30, num_classes)
    masked = torch.where(ignored, -100, labels).view(8, 30)
    stream = TemperatureStream()
    stream.update(garbage.numpy(), masked.numpy())
    stream.update(garbage, torch.full_like(masked, -100))
    stream.update(garbage[:0], masked[:0])
    expected = stream_of(logits[~ignored], labels[~ignored], 240)
    assert stream.fit("ece") == expected.fit("ece")
    assert stream.compute().num_samples == 160
    other = TemperatureStream(ignore_index=255)
    other.update(garbage, torch.where(masked == -100, 255, masked))
    assert other.fit("ece") == expected.fit("ece")


@pytest.mark.parametrize("num_classes", [5, 9000])
def test_masked_classes_are_as_good_as_absent(num_classes):
    logits, labels = tokens(100, num_classes)
    masked = torch.cat([logits, torch.full((100, 300), -torch.inf)], 1)
    got, expected = stream_of(masked, labels).compute(), stream_of(logits, labels).compute()
    np.testing.assert_allclose(got.ece, expected.ece, atol=1e-6)
    np.testing.assert_allclose(got.nll, expected.nll, atol=1e-6)


def test_another_grid_need_not_hold_1():
    logits, labels = tokens(300, 20)
    grid = [3.0, 0.5, 1.7]
    stream = stream_of(logits, labels, grid=grid, num_bins=10)
    ece, nll = brute_curves(logits, labels, [*grid, 1.0], 10)
    curves, fit = stream.compute(), stream.fit("ece")
    np.testing.assert_allclose([*curves.ece, curves.ece_before], ece, atol=1e-6)
    np.testing.assert_allclose([*curves.nll, curves.nll_before], nll, atol=1e-6)
    assert (fit.value, fit.num_bins) == (grid[ece[:3].argmin()], 10)


def test_the_first_of_tied_temperatures_wins():
    logits = torch.tensor([[2000.0, 0.0], [2000.0, 0.0]])  # confidence is 1.0 to the last bit up to T = 10
    assert stream_of(logits, torch.tensor([0, 1])).fit("ece").value == 0.1
    large = torch.zeros(2, 9000)
    large[:, 3] = 2000.0
    assert stream_of(large, torch.tensor([3, 1])).fit("ece").value == 0.1


def test_the_end_of_the_grid_is_marked():
    logits = 60 * torch.randn(500, 10, generator=torch.Generator().manual_seed(0))
    stream = stream_of(logits, torch.arange(500) % 10)
    for fit in (stream.fit, stream.compute().fit):
        expected = "T = 10 is at an end of its grid.*use a wider grid, as TemperatureStream"
        with pytest.warns(UserWarning, match=expected) as caught:
            fitted = fit()
        assert len(caught) == 1 and caught[0].filename == __file__
        assert (fitted.value, fitted.at_grid_end) == (10.0, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream_of(*tokens(500, 10)).fit("ece").at_grid_end is False


@pytest.mark.slow
def test_memory_does_not_grow_with_the_tokens():
    logits = torch.randn(1024, VOCABULARY)
    labels = torch.arange(1024)
    TemperatureStream().update(logits[:2], labels[:2])  # the table of the bins, which stays
    streams = TemperatureStream(), TemperatureStream(), TemperatureStream()
    few = peak_bytes(lambda: streams[0].update(logits[:128], labels[:128]))
    batches = peak_bytes(lambda: [streams[1].update(logits[:128], labels[:128]) for _ in range(8)])
    one = peak_bytes(lambda: streams[2].update(logits, labels))
    assert 1 < few / 2**20 < 48
    # All that a batch's size may show in are numbers a row, here a row of 8 against one of 37,000 numbers.
    assert batches < few + 2**16
    assert one < few + 1024 * 64
    assert len(pickle.dumps(streams[1])) < 20_000


def test_a_batch_that_raises_leaves_the_stream_as_it_was():
    logits, labels = tokens(1000, 10)
    stream = stream_of(logits, labels)
    before = pickle.dumps(stream)
    broken = logits.clone()
    broken[-1, 3] = torch.nan
    with pytest.raises(ValueError, match=r"logits must have a finite largest value .*, got nan"):
        stream.update(broken, labels)
    with pytest.raises(ValueError, match=r"labels must be in \[0, 10\)"):
        stream.update(logits, labels + 10)
    with pytest.raises(ValueError, match="logits must have 10 classes as before, got 9"):
        stream.update(logits[:, 1:], labels.clamp(max=8))
    assert pickle.dumps(stream) == before


def test_what_cannot_be_merged_is_named():
    stream = stream_of(*tokens(20, 10))
    for other, message in (
        (TemperatureStream(num_bins=10), "num_bins must be the same to add samples, got 10 for 15"),
        (TemperatureStream(grid=[1.0]), r"grid must be the same to add samples, got \[1.\] for \[ 0.1"),
        (stream_of(*tokens(20, 11)), "logits must have 10 classes as before, got 11"),
    ):
        with pytest.raises(ValueError, match=message):
            stream.merge(other)
    assert stream.merge(TemperatureStream()).compute().num_samples == 20
    assert TemperatureStream().merge(stream).fit("ece") == stream.fit("ece")


def test_probabilities_are_told_from_logits_however_they_are_cut():
    logits, labels = tokens(10, 10)
    stream = TemperatureStream()
    stream.update(logits[:1].softmax(-1), labels[:1])  # which may be logits
    with pytest.raises(ValueError, match="logits must not be probabilities, got samples that all lie in"):
        stream.update(logits[1:2].softmax(-1), labels[1:2])
    stream.update(logits, labels)
    stream.update(logits.softmax(-1), labels)
    assert stream.compute().num_samples == 21


def test_errors_name_the_argument_and_the_value():
    with pytest.raises(ValueError, match="the stream must have at least one labeled sample, got none"):
        TemperatureStream().compute()
    with pytest.raises(ValueError, match="objective must be 'ece' or 'nll', got 'adaece'"):
        stream_of(*tokens(20, 10)).fit("adaece")


def test_a_masked_label_has_an_infinite_nll():
    logits, labels = tokens(20, 10)
    logits[0] = torch.where(torch.arange(10) == labels[0], -torch.inf, logits[0])
    curves = stream_of(logits, labels).compute()
    assert (curves.nll == math.inf).all() and np.isfinite(curves.ece).all()


def test_constant_logits_have_a_temperature_of_one():
    stream = stream_of(torch.ones(9, VOCABULARY), torch.arange(9), batch=4)
    other = stream_of(*tokens(4))
    for objective in ("ece", "nll"):
        with pytest.warns(UserWarning, match="the logits are constant: .* T = 1") as warned:
            fit = stream.fit(objective)
        assert len(warned) == 1
        assert (fit.value, fit.at_grid_end) == (1.0, False)
        assert fit.nll_after == fit.nll_before == pytest.approx(math.log(VOCABULARY), rel=1e-4)
    assert stream.compute().are_constant and not stream.merge(other).compute().are_constant
