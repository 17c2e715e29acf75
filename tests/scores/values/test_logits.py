"""Probabilities and log-probabilities as logits: what replaces a 0, and what does not change."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax

from hf_focal import InputError, calibrate_scores, evaluate_scores, read_scores
from hf_focal.cli.main import main
from hf_focal.reports.wording.model_warnings import warnings_of
from hf_focal.scores import Schema, correct_file

NAMES = [*"abc"]


def sharp_table(num_classes, size=400):
    """Return probabilities of which one is large in each row, and labels that are drawn from them."""
    random = np.random.default_rng(0)
    weights = np.exp(random.normal(size=(size, num_classes)) * 0.5)
    weights[range(size), random.integers(0, num_classes, size)] *= np.exp(random.uniform(3, 14, size))
    p = weights / weights.sum(1, keepdims=True)
    return p, np.array([random.choice(num_classes, p=row) for row in p])


def ece(confidence, correct, num_bins=15):
    index = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    chosen = [index == i for i in range(num_bins)]
    return sum(abs(confidence[rows].mean() - correct[rows].mean()) * rows.mean() for rows in chosen if rows.any())


def shared_by_hand(rounded, unit):
    """Return each row with its zeros replaced, as the guide on scores says, one row at a time."""
    result = rounded.copy()
    for row in result:
        zeros = row == 0
        if zeros.any():
            row[zeros] = min(unit / 2, max(1 - row.sum(), unit / 10) / zeros.sum())
        row /= row.sum()
    return result


@pytest.mark.parametrize(("num_classes", "decimals"), [(20, 2), (77, 2), (1000, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("total", [1, 100])
def test_rounded_probabilities_of_many_classes_stay_as_they_are_written(num_classes, decimals, dtype, total):
    p, labels = sharp_table(num_classes)
    rounded = p.round(decimals)
    correct = rounded.argmax(1) == labels
    by_hand = shared_by_hand(rounded, 10.0**-decimals)
    table = {"probabilities": (total * rounded).round(decimals).astype(dtype), "label": labels}
    kind = "probabilities" if total == 1 else "percentages"
    scores = read_scores(table, kind=kind)
    found = softmax(scores.logits.astype(float), 1)
    np.testing.assert_allclose(found, by_hand, rtol=2e-3, atol=1e-7)
    assert found.max(1).mean() == pytest.approx(rounded.max(1).mean(), abs=0.002)  # it was lower by 0.06 to 0.2
    assert ece(found.max(1), correct) == pytest.approx(ece(rounded.max(1), correct), abs=0.006)
    assert scores.floor == 10.0**-decimals / 2 and scores.schema.decimals == decimals
    assert any("which share what the others leave of 1" in note for note in scores.notes)
    nll = evaluate_scores(table, kind=kind).pre["nll"]
    assert nll == pytest.approx(-np.log(by_hand[range(len(labels)), labels]).mean(), rel=1e-4)
    exact = -np.log(p[range(len(labels)), labels]).mean()
    assert nll == pytest.approx(exact, rel=0.06)


def test_a_label_whose_rounded_probability_is_0_has_a_finite_nll():
    rows = [[1.0, 0.0, 0.0, 0.0], [0.51, 0.5, 0.0, 0.0], [0.98, 0.01, 0.0, 0.0], [0.33, 0.33, 0.33, 0.0]]
    p = softmax(read_scores({"probabilities": rows, "label": [1, 2, 3, 3]}).logits, 1)
    for row, low, given in zip(p, (0.001 / 3, 0.0005, 0.005, 0.005), rows, strict=True):
        expected = np.where(np.equal(given, 0), low, given)
        np.testing.assert_allclose(row, expected / expected.sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_other_probabilities_are_raised_to_their_floor_only(dtype):
    p = softmax(np.random.default_rng(0).normal(size=(300, 10)) * 12, 1).astype(dtype).astype(float)
    floor = 2.0**-25 if dtype is np.float16 else 1e-12
    scores = read_scores({"probabilities": p, "label": np.zeros(300, int)})
    np.testing.assert_array_equal(scores.logits, np.log(np.maximum(p, floor)))
    assert scores.floor == floor and scores.schema.decimals is None
    rounded = p.round(3)
    given = read_scores({"probabilities": rounded, "label": np.zeros(300, int)}, floor=1e-4)
    np.testing.assert_array_equal(given.logits, np.log(np.maximum(rounded, 1e-4)))
    labels = np.eye(10, dtype=int)[[0] * 300] + np.eye(10, dtype=int)[[1] * 300]
    several = read_scores({"probabilities": rounded, "labels": labels}, link="sigmoid")
    q = np.clip(rounded, 0.0005, 1)
    np.testing.assert_allclose(several.logits, np.log(q) - np.log(np.maximum(1 - rounded, 0.0005)), rtol=1e-12)


@pytest.mark.parametrize("floor", [0.0004, 0.0005, 0.0006])
def test_a_floor_that_the_user_gives_replaces_each_smaller_probability(floor):
    p = softmax(np.random.default_rng(0).normal(size=(300, 10)) * 4, 1).round(3)
    logits = read_scores({"probabilities": p, "label": np.zeros(300, int)}, floor=floor).logits
    np.testing.assert_array_equal(logits, np.log(np.maximum(p, floor)))


@pytest.mark.parametrize("floor", [0.0, -0.1, 0.5])
@pytest.mark.parametrize("column", ["probabilities", "logprobs"])
def test_a_floor_is_a_small_probability(column, floor):
    values = np.array([[0.2, 0.8], [0.6, 0.4]])
    table = {column: np.log(values) if column == "logprobs" else values, "label": [0, 1]}
    with pytest.raises(InputError, match="floor must be a probability between 0 and"):
        read_scores(table, floor=floor)


@pytest.fixture
def unknown_log_probabilities():
    random = np.random.default_rng(0)
    p = random.dirichlet([1, 1, 1], 300)
    labels = np.array([random.choice(3, p=row) for row in p])
    return np.where(p > 0.05, np.log(p), -np.inf), labels


@pytest.mark.parametrize("unknown", [-np.inf, -9999.0])
def test_the_floor_replaces_log_probabilities_that_an_api_does_not_return(
    unknown, unknown_log_probabilities, tmp_path
):
    values, labels = unknown_log_probabilities
    p = np.maximum(np.exp(values), 0.01)
    expected = -np.log((p / p.sum(1, keepdims=True))[range(300), labels]).mean()
    table = {"logprobs": np.where(np.isinf(values), unknown, values), "label": labels}
    result = calibrate_scores(table, floor=0.01, output=tmp_path / "out", method="temperature")
    assert result.pre["nll"] == pytest.approx(expected, rel=1e-9)
    low = int(np.isinf(values).any(1).sum())
    assert f"{low} rows of scores have probabilities below 1e-02, which are taken as 1e-02" in result.notes
    assert json.loads((tmp_path / "out" / "correction.json").read_text())["floor"] == 0.01
    pd.DataFrame({"logprobs": [*table["logprobs"].tolist()]}).to_parquet(tmp_path / "new.parquet")
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "new.parquet", tmp_path / "corrected.parquet")
    found = np.stack(pd.read_parquet(tmp_path / "corrected.parquet").calibrated)
    np.testing.assert_allclose(found, softmax(np.log(p) / result.temperature.value, 1), rtol=1e-6)


@pytest.mark.parametrize("unknown", [-np.inf, -9999.0])
def test_without_a_floor_an_unknown_log_probability_is_refused(unknown, unknown_log_probabilities, tmp_path, capsys):
    values, labels = unknown_log_probabilities
    columns = {
        f"logprob_{name}": np.where(np.isinf(column), unknown, column)
        for name, column in zip(NAMES, values.T, strict=True)
    }
    pd.DataFrame(columns | {"label": np.array(NAMES)[labels]}).to_parquet(tmp_path / "s.parquet")
    for command in ("evaluate", "calibrate"):
        assert main([command, "--scores", str(tmp_path / "s.parquet")]) == 2
        error = capsys.readouterr().err
        assert f"some APIs give {unknown:g} for one that they do not return" in error and "with --floor" in error
        assert len(error.splitlines()) == 1


def test_masked_classes_of_log_probabilities_are_as_good_as_absent():
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(200, 4)), random.integers(0, 3, 200)
    logits[:, 3] = -np.inf
    found = evaluate_scores({"logprobs": log_softmax(logits, 1), "label": labels}).pre["nll"]
    alone = evaluate_scores({"logprobs": log_softmax(logits[:, :3], 1), "label": labels}).pre["nll"]
    assert found == pytest.approx(alone, rel=1e-9)


def test_results_have_null_for_an_infinite_nll(tmp_path):
    logits = np.random.default_rng(0).normal(size=(200, 3))
    logits[0, 1] = -np.inf
    result = evaluate_scores({"logits": logits, "label": np.ones(200, int)}, output=tmp_path / "out")
    warnings = " ".join(warnings_of(result))
    assert "an infinite NLL: it gives a label the probability 0" in warnings and "NLL of inf" not in warnings
    text = (tmp_path / "out" / "report" / "metrics.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["pre"]["nll"] is None


def confident_table(decimals=None, pattern="prob_{}"):
    random = np.random.default_rng(0)
    logits = random.normal(size=(800, 3)) * 6
    labels = np.array([random.choice(3, p=row) for row in softmax(logits / 4, 1)])
    p = softmax(logits, 1)
    p = p if decimals is None else p.round(decimals)
    columns = {pattern.format(name): p[:, i] for i, name in enumerate(NAMES)}
    return pd.DataFrame(columns | {"label": np.array(NAMES)[labels]})


@pytest.mark.parametrize(("first", "second"), [(None, 3), (None, 6), (4, 2), (3, 2)])
def test_probabilities_with_fewer_decimals_than_those_of_the_fit_are_refused(first, second, tmp_path):
    table, coarse = confident_table(first), confident_table(second)
    calibrate_scores(table, method="temperature", output=tmp_path / "out")
    correction = tmp_path / "out" / "correction.json"
    assert json.loads(correction.read_text())["schema"]["decimals"] == first
    coarse.to_csv(tmp_path / "coarse.csv", index=False)
    seen = "not rounded" if first is None else f"rounded to {first} decimals"
    message = rf"{seen}, in each row, got .*; these are rounded to {second} decimals, so a 0 may be as much as"
    with pytest.raises(InputError, match=message):
        correct_file(correction, tmp_path / "coarse.csv", tmp_path / "corrected.csv")
    with pytest.raises(InputError, match=message):
        calibrate_scores(table, test_scores=coarse, method="temperature")
    assert calibrate_scores(table, test_scores=coarse, floor=1e-4, method="temperature").post["nll"] < 1


def test_probabilities_with_as_many_decimals_or_without_zeros_are_corrected(tmp_path):
    for first, new in ((3, 3), (3, None), (None, None)):
        folder = tmp_path / f"{first}_{new}"
        calibrate_scores(confident_table(first), method="temperature", output=folder)
        confident_table(new).to_csv(folder / "new.csv", index=False)
        assert correct_file(folder / "correction.json", folder / "new.csv", folder / "corrected.csv") == 800
    few = {"prob_a": [0.5, 1.0], "prob_b": [0.5, 0.0], "prob_c": [0.0, 0.0]}  # which shows nothing
    assert len(read_scores(few, schema=read_scores(confident_table(3)).schema, needs_labels=False)) == 2
    inside = {"prob_a": [0.5] * 50, "prob_b": [0.4] * 50, "prob_c": [0.1] * 50}
    assert len(read_scores(inside, schema=read_scores(confident_table()).schema, needs_labels=False)) == 50


def test_a_file_of_an_older_version_keeps_its_floor(tmp_path):
    table = confident_table(3)
    calibrate_scores(table, method="temperature", output=tmp_path / "out")
    path = tmp_path / "out" / "correction.json"
    saved = json.loads(path.read_text())
    del saved["schema"]["decimals"]
    path.write_text(json.dumps(saved))
    table.to_csv(tmp_path / "s.csv", index=False)
    correct_file(path, tmp_path / "s.csv", tmp_path / "corrected.csv")
    logits = np.log(np.maximum(table[[f"prob_{name}" for name in NAMES]].to_numpy(), 0.0005))
    expected = softmax(logits / saved["correction"]["temperature"], 1)
    found = pd.read_csv(tmp_path / "corrected.csv")[[f"calibrated_{name}" for name in NAMES]]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(ValueError, match="expected a number of decimals or null, got '3'"):
        Schema.from_dict(saved["schema"] | {"decimals": "3"})


@pytest.mark.parametrize(("scale", "total"), [(1, 1), (100, 100)])
def test_probabilities_in_columns_of_logits_are_refused(scale, total, tmp_path):
    p = confident_table(pattern="logit_{}")
    logits = p.copy()
    logits.iloc[:, :3] = np.log(np.maximum(p.iloc[:, :3], 1e-9))
    calibrate_scores(logits, method="temperature", output=tmp_path / "out")
    p.iloc[:, :3] *= scale
    p.to_csv(tmp_path / "p.csv", index=False)
    message = f"scores must hold logits like the first table, got numbers in p.csv which sum to {total} in each row"
    with pytest.raises(InputError, match=message):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "p.csv", tmp_path / "corrected.csv")
