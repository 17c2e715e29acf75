import json
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from hf_focal.losses import AdaFocalGamma, SampleDependentGamma, ScheduledGamma, adafocal_update, gamma_for_threshold

from . import reference


def g(p, gamma):
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)


@pytest.mark.parametrize("p0", [0.001, 0.2, 0.25, 1 / math.e, 0.49])
def test_gamma_for_threshold_is_the_positive_root_of_g_1(p0):
    # γ = 0 is a root too; g - 1 is positive between the two.
    gamma = gamma_for_threshold(p0)
    root = brentq(lambda x: g(p0, x) - 1, gamma / 2, gamma * 2 + 1, xtol=1e-13)
    assert gamma == pytest.approx(root, rel=1e-9)


# Roots of γ log(1 - p0) + log(1 - γ p0 log(p0) / (1 - p0)), solved with 650 digits.
@pytest.mark.parametrize(
    ("p0", "gamma"),
    [
        (1e-300, 8.701473673289477e300),
        (1e-100, 7.447689428166974e100),
        (1e-10, 46916069522.39848),
        (0.001, 3113.1219586147317),
        (0.2499999, 3.070229851862846),
        (0.25, 3.070227101505456),
        (0.45, 0.2926570834660244),
        (0.499, 0.005122655548117818),
        (0.4995, 0.0025580080915342833),
        (0.49999, 5.109523870397092e-05),
        (0.499999, 5.109404755478521e-06),
        (0.4999999999, 5.109391945009571e-10),
    ],
)
def test_gamma_for_threshold_keeps_its_digits_over_the_whole_range(p0, gamma):
    assert gamma_for_threshold(p0) == pytest.approx(gamma, rel=1e-9, abs=0)


@pytest.mark.parametrize("p0", [0.0, 0.5])
def test_gamma_for_threshold_refuses_probabilities_without_such_a_gamma(p0):
    with pytest.raises(ValueError, match=rf"p0 must be within \(0, 0.5\).*got {p0}"):
        gamma_for_threshold(p0)


def test_the_paper_schedule_switches_at_100_and_250_of_350_epochs():
    policy = ScheduledGamma((0, 5), (100 / 350, 3), (250 / 350, 2))
    p = torch.rand(3)
    gammas = []
    for epoch in range(351):
        policy.set_progress(epoch / 350)
        gammas.append(policy(p))
    assert gammas == [5.0] * 100 + [3.0] * 150 + [2.0] * 101


def test_a_schedule_resumes_where_it_was():
    policy, resumed = (ScheduledGamma((0, 5), (0.5, 3)) for _ in range(2))
    policy.set_progress(0.7)
    resumed.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    assert resumed(torch.rand(1)) == 3.0


@pytest.mark.parametrize("progress", [1.01, math.nan])
def test_progress_outside_0_and_1_is_refused(progress):
    with pytest.raises(ValueError, match="fraction must be"):
        ScheduledGamma((0, 5), (0.5, 3)).set_progress(progress)


@pytest.mark.parametrize("stages", [((0.1, 5),), ((0, 5), (0.5, 3), (0.5, 2))])
def test_stages_must_start_at_0_and_increase_below_1(stages):
    with pytest.raises(ValueError, match=r"stages must start at 0 and increase within \[0, 1\)"):
        ScheduledGamma(*stages)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_flsd_takes_5_below_its_threshold_and_3_at_it(dtype):
    threshold = torch.tensor(0.2, dtype=dtype)
    below = torch.nextafter(threshold, torch.zeros((), dtype=dtype))
    gamma = SampleDependentGamma((0.2,), (5, 3))(torch.stack([below, threshold, 0 * threshold, 0 * threshold + 1]))
    assert gamma.dtype == dtype and gamma.tolist() == [5.0, 3.0, 5.0, 3.0]


def test_flsd532_takes_three_gammas():
    p = torch.tensor([0.0, 0.19, 0.2, 0.49, 0.5, 1.0])
    assert SampleDependentGamma((0.2, 0.5), (5, 3, 2))(p).tolist() == [5, 5, 3, 3, 2, 2]


@pytest.mark.parametrize(
    ("thresholds", "gammas", "message"),
    [
        ((0.5, 0.2), (5, 3, 2), r"thresholds must increase within \(0, 1\), got \[0.5, 0.2\]"),
        ((0.2,), (5, 3, 2), "gammas must have one more value than thresholds, got 3 gammas for 1"),
        ((0.2,), (5, -3), "gammas must be at least 0, got -3"),
    ],
)
def test_thresholds_and_gammas_that_do_not_fit_are_refused(thresholds, gammas, message):
    with pytest.raises(ValueError, match=message):
        SampleDependentGamma(thresholds, gammas)


def test_a_row_is_in_the_bin_that_holds_p_and_the_outer_bins_are_open():
    policy = AdaFocalGamma(3)
    policy.load_state_dict({"gammas": [1.0, 2.0, 3.0], "edges": [0.4, 0.5, 0.75, 0.9]})
    p = torch.tensor([0.0, 0.1, 0.4999, 0.5, 0.7499, 0.75, 0.95, 1.0])
    assert policy(p).tolist() == [1, 1, 1, 2, 2, 3, 3, 3]


def test_equal_edges_leave_the_bins_between_them_empty():
    policy = AdaFocalGamma(3)
    policy.load_state_dict({"gammas": [1.0, 2.0, 3.0], "edges": [0, 1.0, 1.0, 1]})
    assert policy(torch.tensor([0.3, 0.9999, 1.0])).tolist() == [1, 1, 3]


@given(
    data=st.data(), bins=st.integers(1, 6), lam=st.floats(0, 5), switch=st.floats(0.05, 1), gamma_max=st.floats(1, 20)
)
@settings(max_examples=100, deadline=None)
def test_an_update_is_that_of_the_algorithm(data, bins, lam, switch, gamma_max):
    gamma_min = -data.draw(st.floats(switch, 5))
    gammas = data.draw(st.lists(st.floats(gamma_min, gamma_max), min_size=bins, max_size=bins))
    samples = data.draw(st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 1)), min_size=bins, max_size=30))
    confidence, correct = zip(*samples, strict=True)
    *expected, margin = reference.adafocal_update(gammas, confidence, correct, lam, switch, gamma_max, gamma_min)
    assume(margin > 1e-9)  # nearer to the switch, rounding decides
    new_gammas, edges = adafocal_update(
        gammas,
        torch.tensor(confidence),
        torch.tensor(correct),
        lam=lam,
        switch=switch,
        gamma_max=gamma_max,
        gamma_min=gamma_min,
    )
    assert new_gammas == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
    assert edges == expected[1]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_the_order_of_samples_does_not_matter_even_with_ties(data):
    samples = data.draw(st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1.0]), st.booleans()), min_size=4, max_size=20))
    shuffled = data.draw(st.permutations(samples))
    results = [
        adafocal_update([1.0, 0.5, -0.5, 2.0], *(torch.tensor(values) for values in zip(*order, strict=True)))
        for order in (samples, shuffled)
    ]
    assert results[0] == results[1]


def test_a_perfectly_calibrated_constant_predictor_keeps_its_gamma():
    policy = AdaFocalGamma()
    correct = torch.zeros(1000)
    correct[torch.randperm(1000)[:100]] = 1
    for _ in range(5):
        policy.update(torch.full((1000,), 0.1), correct)
    assert policy.gammas == pytest.approx([1.0] * 15, abs=1e-6)


def test_saturated_confidences_share_their_hits_between_the_bins():
    confidence = torch.cat([torch.linspace(0.1, 0.9, 88), torch.ones(12)]).double()
    correct = torch.cat([torch.ones(88), torch.tensor([0.0] * 6 + [1.0] * 6)])
    gammas, _ = adafocal_update([1.0] * 20, confidence, correct)  # bins of 5 samples; the last two are all saturated
    assert gammas[-2:] == pytest.approx([math.exp(0.5)] * 2)


@pytest.mark.parametrize(
    ("gamma", "confidence", "correct", "lam", "expected"),
    [
        (1.0, 0.9, 0, 1.0, math.exp(0.9)),  # overconfident: γ grows
        (1.0, 0.6, 1, 1.0, math.exp(-0.4)),  # underconfident: γ shrinks
        (0.25, 0.6, 1, 1.0, -0.2),  # below the switch: inverse focal
        (-0.25, 0.9, 0, 1.0, 0.2),  # and back
        (-1.0, 0.6, 1, 1.0, -math.exp(0.4)),
        (-1.0, 0.9, 0, 1.0, -math.exp(-0.9)),
        (15.0, 0.9, 0, 1.0, 20.0),  # clipped
        (-1.9, 0.6, 1, 1.0, -2.0),
        (1.0, 1.0, 0, 1e4, 20.0),  # would overflow
        (1.0, 0.0, 1, 1e4, -0.2),  # underflows to 0, from above
        (1.0, 0.5, 0, 0.0, 1.0),  # λ = 0 stands still
    ],
)
def test_gamma_moves_switches_and_is_clipped(gamma, confidence, correct, lam, expected):
    (moved,), edges = adafocal_update([gamma], torch.tensor([confidence]), torch.tensor([correct]), lam=lam)
    assert moved == pytest.approx(expected, rel=1e-6)
    assert edges == [0.0, 1.0]


def test_edges_are_the_lowest_confidence_of_each_bin():
    confidence = torch.tensor([0.9, 0.3, 0.5, 0.4, 0.8, 0.7, 0.6], dtype=torch.float64)
    _, edges = adafocal_update([1.0, 1.0, 1.0], confidence, torch.ones(7))
    assert edges == [0.0, 0.6, 0.8, 1.0]  # 3 + 2 + 2 samples


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5], [1], "at least one sample for each of the 2 bins, got 1"),
        ([0.5, 0.5], [1], "one-dimensional and equally long"),
        ([0.5, 1.5], [1, 1], r"confidence must be in \[0, 1\], got values from 0.5 to 1.5"),
        ([0.5, math.nan], [1, 1], r"confidence must be in \[0, 1\]"),
        ([0.5, 0.5], [0.5, 1], "correct must be 0 or 1"),
    ],
)
def test_samples_that_cannot_be_binned_are_refused(confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        adafocal_update([1.0, 1.0], torch.tensor(confidence), torch.tensor(correct))


def test_the_state_of_the_bins_survives_json():
    policy, resumed = AdaFocalGamma(4, lam=2.0), AdaFocalGamma(4, lam=2.0)
    generator = torch.Generator().manual_seed(0)
    confidence, correct = torch.rand(100, generator=generator), torch.rand(100, generator=generator) < 0.5
    policy.update(confidence, correct)
    assert policy.gammas != [1.0] * 4
    assert (policy.gammas, policy.edges) == adafocal_update([1.0] * 4, confidence, correct, lam=2.0)
    resumed.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    p = torch.rand(50, generator=generator)
    assert torch.equal(resumed(p), policy(p))
    policy.update(confidence, correct)
    resumed.update(confidence, correct)
    assert resumed.state_dict() == policy.state_dict()


def test_a_state_that_is_refused_changes_nothing():
    policy = AdaFocalGamma(3)
    before = policy.state_dict()
    with pytest.raises(ValueError, match="state must have 3 gammas and 4 edges, got 3 and 3"):
        policy.load_state_dict({**before, "edges": [0, 0.5, 1]})
    assert policy.state_dict() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 0}, "bins must be an integer of at least 1, got 0"),
        ({"lam": math.nan}, "lam must be a finite number, got nan"),
        ({"switch": 1.5}, r"switch must be within \(0, 1\], got 1.5"),
        ({"gamma_max": 0.5}, "gamma_max must be at least 1, got 0.5"),
        ({"gamma_min": -0.1}, "gamma_min must be at most -switch = -0.2, got -0.1"),
    ],
)
def test_bins_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AdaFocalGamma(**options)
