"""The analyses without a network: closed forms, a solver of scipy's, and what the paper says of them."""

import csv
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from papers import analyses as recipe
from scipy.optimize import minimize_scalar

from hf_focal import gamma_for_threshold

FLSD_53 = {0.2: 5, 0.25: 3}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with everything that the recipe writes."""
    folder = tmp_path_factory.mktemp("analysis")
    recipe.main(["--output_dir", str(folder)])
    return folder


def table(folder, name):
    with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_only_what_is_asked_for(tmp_path):
    recipe.main(["--output_dir", str(tmp_path / "new"), "--only", "figure_6"])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["figure_6.csv", "figure_6.png"]


@pytest.mark.slow
def test_figure_4a_is_the_paper_s_formula(written):
    assert all(imread(path).std() > 0.05 for path in written.glob("*.png"))
    columns = table(written, "figure_4a")
    p = columns["p"]
    for gamma in (0, 0.5, 1, 3, 5, 10):
        expected = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * np.log(p)
        np.testing.assert_allclose(columns[f"gamma_{gamma:g}"], expected, rtol=1e-5, atol=1e-12)


@pytest.mark.slow
def test_figure_4a_crosses_1_where_the_paper_says(written):
    columns = table(written, "figure_4a")
    for gamma in (0.5, 1, 2, 3, 5, 7, 10):
        above = columns[f"gamma_{gamma:g}"] > 1
        assert (np.diff(above.astype(int)) != 0).sum() == 1  # one threshold, above 1 before and below 1 behind it
        assert above[0]
    assert columns["p"][columns["gamma_1"] > 1].max() == pytest.approx(1 / math.e, abs=2e-3)
    assert columns["gamma_7"][columns["p"] >= 0.5].max() < 0.06  # "nearly 0 for a relatively low p (around 0.5)"


@pytest.mark.slow
def test_thresholds(written):
    columns = table(written, "thresholds")
    np.testing.assert_allclose(columns["g_at_p0"], 1, rtol=1e-6)
    assert (np.diff(columns["gamma"]) < 0).all()
    scales = [recipe.gradient_scale(torch.tensor(p, dtype=torch.float64), gamma) for p, gamma in FLSD_53.items()]
    assert scales == pytest.approx([1, 1], abs=0.02)  # "g(0.2, 5) ≈ 1 and g(0.25, 3) ≈ 1"
    assert gamma_for_threshold(1 / math.e) == pytest.approx(1)


@pytest.mark.parametrize("gamma", [0, 3])
@pytest.mark.slow
def test_figure_6_is_the_minimum_of_equation_5(gamma, written):
    columns = table(written, "figure_6")

    def loss(x, q):
        return -((1 - x) ** gamma) * q * math.log(x) - x**gamma * (1 - q) * math.log(1 - x)

    for index in range(0, 99, 7):
        q = columns["q"][index]
        actual = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), args=(q,), method="bounded", options={"xatol": 1e-10})
        assert columns[f"gamma_{gamma}"][index] == pytest.approx(actual.x, abs=2e-6)
        # No other minimum is lower.
        assert actual.fun <= min(loss(x, q) for x in np.linspace(0.001, 0.999, 999)) + 1e-12


@pytest.mark.slow
def test_the_bound_by_hand_and_that_it_holds(written):
    p, q, gamma = np.array([0.2, 0.7, 0.1]), np.array([0.5, 0.3, 0.2]), 3
    loss, bound = recipe.loss_and_bound(torch.tensor(p).log()[None], torch.tensor(q)[None], gamma)
    assert float(loss) == pytest.approx(-(q * (1 - p) ** gamma * np.log(p)).sum())
    divergence, entropy_q, entropy_p = (q * np.log(q / p)).sum(), -(q * np.log(q)).sum(), -(p * np.log(p)).sum()
    assert float(bound) == pytest.approx(divergence + entropy_q - gamma * entropy_p)
    columns = table(written, "entropy_bound")
    assert len(columns["gamma"]) == 12
    assert (columns["smallest_loss_minus_bound"] >= 0).all()


def test_the_linear_model_is_at_its_minimum():
    generator = np.random.default_rng(2)
    points, labels = recipe.two_clusters_a_class(400, generator, np.tile(np.eye(2), (4, 1, 1)))
    for name, gamma in (("cross_entropy", 0), ("focal:gamma=1", 1)):
        weights, norms, logits = recipe.train_linear_model(name, points, labels)

        def loss(w, gamma=gamma):
            p = torch.sigmoid(points @ w * (2 * labels - 1))
            return ((1 - p) ** gamma * -p.log()).mean()

        best = loss(weights)
        for direction in torch.eye(2, dtype=torch.float64):
            assert min(loss(weights + 0.02 * direction), loss(weights - 0.02 * direction)) > best
        assert norms[-1] == pytest.approx(float(weights.norm()))
        assert logits[-1] == pytest.approx(float((points @ weights).square().mean().sqrt()))


@pytest.mark.slow
def test_the_linear_model_shows_what_the_paper_says(written):
    norms, points = table(written, "figure_7"), table(written, "figure_8")
    assert norms["ce_weight_norm"][-1] > 1.5 * norms["fl1_weight_norm"][-1]
    assert norms["ce_logit_rms"][-1] > 1.5 * norms["fl1_logit_rms"][-1]
    wrong = {name: (points[f"{name}_p1"] > 0.5) != points["label"] for name in ("ce", "fl1")}
    sure = {name: np.maximum(points[f"{name}_p1"], 1 - points[f"{name}_p1"])[wrong[name]] for name in ("ce", "fl1")}
    assert sure["ce"].mean() > sure["fl1"].mean() + 0.05
    assert (wrong["ce"] == wrong["fl1"]).mean() > 0.98  # the same decision regions
    draws = table(written, "linear_model")
    assert draws["draw"].tolist() == list(range(5))
    assert draws["ce_weight_norm"][0] == norms["ce_weight_norm"][-1]
    assert draws["ce_error"][0] == pytest.approx(wrong["ce"].mean())
    assert draws["ce_mistakes_confidence"][0] == pytest.approx(sure["ce"].mean(), abs=1e-5)
    assert draws["fl1_mistakes_above_0.9"][0] == pytest.approx((sure["fl1"] > 0.9).mean())
    assert (draws["ce_mistakes_confidence"] > draws["fl1_mistakes_confidence"]).all()


@pytest.mark.slow
def test_figure_6_is_nearer_to_a_half_the_larger_gamma_is(written):
    columns = table(written, "figure_6")
    np.testing.assert_allclose(columns["gamma_0"], columns["q"], atol=1e-6)
    off = [np.abs(columns[f"gamma_{gamma}"] - 0.5) for gamma in (0, 1, 2, 3, 5)]
    away = columns["q"] != 0.5
    assert all((larger[away] < smaller[away]).all() for smaller, larger in pairwise(off))
