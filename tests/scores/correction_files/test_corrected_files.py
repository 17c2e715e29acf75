"""Measurement, correction, and comparison of scores: the same figures as from arrays, and files that come back."""

import csv
import json
import os
import re
import shutil
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from slow_variants import some_slow

from hf_focal import (
    CalibrationMetrics,
    Correction,
    InputError,
    apply_thresholds,
    calibrate_scores,
    evaluate_scores,
    fit_correction,
    fit_temperature,
    shift_prior,
)
from hf_focal.cli.main import main
from hf_focal.reports.wording.text_summary import summary
from hf_focal.scores import correct_file
from hf_focal.scores.correction_files import corrected_files, table_writers
from hf_focal.scores.correction_files.correction_json import read_correction, write_correction


def sampled(size, sharpness, seed=0):
    """Return logits of a model that is overconfident by a factor of `sharpness`, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(size, 3)) * 1.5
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return logits * sharpness, labels


LOGITS, LABELS = sampled(2000, 2.0)
NAMES = ["cat", "dog", "emu"]


def softmax(logits):
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


@pytest.fixture
def file(tmp_path):
    """A file of probabilities, as a tree or a service would give them."""
    columns = {f"prob_{name}": column for name, column in zip(NAMES, softmax(LOGITS).T, strict=True)}
    groups = np.where(np.arange(len(LABELS)) % 4 == 0, "de", "en")
    pd.DataFrame({**columns, "label": [NAMES[i] for i in LABELS], "language": groups}).to_csv(
        tmp_path / "s.csv", index=False
    )
    return tmp_path / "s.csv"


def test_the_figures_are_those_of_the_logits(file):
    expected = CalibrationMetrics()
    expected.update(LOGITS, LABELS)
    measured = evaluate_scores(file).pre
    for name, value in expected.compute().items():
        assert measured[name] == pytest.approx(value, abs=1e-6), name


def test_confidences_give_what_they_can():
    confidence, correct = softmax(LOGITS).max(1), LOGITS.argmax(1) == LABELS
    result = evaluate_scores({"confidence": confidence, "correct": correct})
    expected = CalibrationMetrics()
    expected.update(LOGITS, LABELS)
    for name in ("ece", "adaece", "smooth_ece", "mce", "aurc", "error", "confidence"):
        assert result.pre[name] == pytest.approx(expected.compute()[name], abs=1e-6), name
    assert "brier" not in result.pre and "confidences alone give no NLL" in result.notes[-1]
    with pytest.raises(InputError, match="scores must have the scores of all classes, got confidences"):
        calibrate_scores({"confidence": confidence, "correct": correct})


def test_the_error_for_confidences_names_the_options_that_calibrate_them():
    confidence, correct = softmax(LOGITS).max(1), LOGITS.argmax(1) == LABELS
    table = {"conf": confidence, "is_correct": correct}
    advice = "--score_column conf --label_column is_correct --kind probabilities"
    names = {"score_column": "conf", "correct_column": "is_correct"}
    with pytest.raises(
        InputError, match=f"confidences in .*; to calibrate the probability of being right, .*{advice}"
    ):
        calibrate_scores(table, **names)
    options = dict(pair.split() for pair in advice.removeprefix("--").split(" --"))
    result = calibrate_scores(table, **options)
    assert result.pre["nll"] > 0


def test_test_scores_of_another_kind_are_refused():
    scores = {"logits": LOGITS, "label": LABELS}
    confidences = {"confidence": softmax(LOGITS).max(1), "correct": LOGITS.argmax(1) == LABELS}
    with pytest.raises(
        InputError, match=r"test_scores must have the columns of logits of the first table, \['logits'\]"
    ):
        calibrate_scores(scores, test_scores=confidences)
    hot = {"logits": LOGITS, "label": np.eye(LOGITS.shape[1])[LABELS]}
    same = calibrate_scores(scores, test_scores=hot)  # the link is that of the first table
    assert same.pre["nll"] == pytest.approx(evaluate_scores(scores).pre["nll"])
    hot["label"][0] = 1
    with pytest.raises(InputError, match="label_column must hold one class in each row with link softmax"):
        calibrate_scores(scores, test_scores=hot)


def test_groups_are_measured_on_their_own(file):
    groups = evaluate_scores(file, group="language").subsets.groups
    rows = np.arange(len(LABELS)) % 4 == 0
    for name, mask in (("de", rows), ("en", ~rows)):
        own, at = CalibrationMetrics(), groups.name.index(name)
        own.update(LOGITS[mask], LABELS[mask])
        assert groups.num_samples[at] == mask.sum()
        assert groups.ece[at] == pytest.approx(own.compute()["ece"], abs=1e-6)
        assert groups.ece_low[at] <= groups.ece[at] <= groups.ece_high[at]
    assert groups.ece == sorted(groups.ece, reverse=True)
    with pytest.raises(InputError, match="group must have at most 50 different values, got"):
        evaluate_scores({"logits": LOGITS, "label": LABELS, "id": np.arange(len(LABELS))}, group="id")


@pytest.mark.parametrize("suffix", some_slow([".csv", ".tsv", ".jsonl", ".parquet"], quick=[".csv"]))
def test_a_saved_correction_gives_the_same_figures_elsewhere(suffix, file, tmp_path):
    result = calibrate_scores(file, method="temperature", output=tmp_path / "out")
    expected = fit_temperature(LOGITS, LABELS)
    assert result.temperature.value == pytest.approx(expected.value, rel=1e-6)
    assert (tmp_path / "out" / "report.html").is_file()
    card = ModelCard.load(tmp_path / "out" / "README.md")
    figures = {entry.metric_name: entry.metric_value for entry in card.data.eval_results}
    assert card.data.library_name == "hf_focal"
    assert figures["ECE before temperature scaling"] == pytest.approx(result.pre["ece"])
    assert figures["ECE (optimistic: T was fitted on these samples)"] == pytest.approx(result.post["ece"])
    assert "hf-focal apply correction.json" in card.text and "s.csv" in card.text
    loaded = Correction.load(tmp_path / "out" / "correction.json")
    np.testing.assert_allclose(loaded.apply(LOGITS), LOGITS / result.temperature.value)
    written = tmp_path / f"calibrated{suffix}"
    assert correct_file(tmp_path / "out" / "correction.json", file, written) == len(LABELS)
    again = evaluate_scores(written, score_column="calibrated_", kind="probabilities")
    for name in ("ece", "nll", "brier"):
        assert again.pre[name] == pytest.approx(result.post[name], abs=1e-9), name
    with pytest.raises(InputError, match="output must be a new file"):
        correct_file(tmp_path / "out" / "correction.json", file, written)


def test_only_the_scores_to_measure_need_groups(file, tmp_path):
    pd.read_csv(file).drop(columns="language").to_csv(tmp_path / "held_out.csv", index=False)
    result = calibrate_scores(tmp_path / "held_out.csv", test_scores=file, group="language")
    assert sorted(result.subsets.groups.name) == ["de", "en"]


def test_batches_do_not_change_the_result(file, tmp_path, monkeypatch):
    calibrate_scores(file, output=tmp_path / "out")
    frame = pd.read_csv(file)
    frame.to_parquet(tmp_path / "s.parquet")
    parts = []
    for rows in (100_000, 70):
        monkeypatch.setattr("hf_focal.scores.correction_files.corrected_files._ROWS", rows)
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "s.parquet", tmp_path / f"{rows}.parquet")
        parts.append(pd.read_parquet(tmp_path / f"{rows}.parquet"))
    pd.testing.assert_frame_equal(*parts)


def test_a_full_disk_is_an_error_of_the_output_that_leaves_no_file(file, tmp_path, monkeypatch):
    class FullDisk:
        def __init__(self, path, *_, **__):
            path.touch()

        def write_table(self, batch):
            raise OSError(28, "No space left on device")

    calibrate_scores(file, output=tmp_path / "out")
    monkeypatch.setattr(table_writers, "SeparatedWriter", FullDisk)
    (tmp_path / "full").mkdir()
    with pytest.raises(InputError, match=r"^output must be a file that can be written, got .*No space left"):
        correct_file(tmp_path / "out" / "correction.json", file, tmp_path / "full" / "c.csv")
    assert not [*(tmp_path / "full").iterdir()]


def test_columns_in_another_order_are_those_of_the_same_classes(file, tmp_path):
    result = calibrate_scores(file, method="vector", output=tmp_path / "out")
    frame = pd.read_csv(file)
    frame[frame.columns[::-1]].to_csv(tmp_path / "reversed.csv", index=False)
    reordered = calibrate_scores(file, method="vector", test_scores=tmp_path / "reversed.csv")
    assert reordered.post["nll"] == pytest.approx(result.post["nll"])
    written = []
    for name in ("s.csv", "reversed.csv"):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / name, tmp_path / f"c_{name}")
        written.append(pd.read_csv(tmp_path / f"c_{name}"))
    pd.testing.assert_frame_equal(written[0], written[1][written[0].columns])
    frame.rename(columns={"prob_cat": "prob_cow"}).to_csv(tmp_path / "cow.csv", index=False)
    with pytest.raises(
        InputError,
        match=r"must have the columns of probabilities of the first table, .*'prob_cat'.*got \[.*'prob_cow'",
    ):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "cow.csv", tmp_path / "c.csv")
    with pytest.raises(
        InputError, match="scores must have no calibrated probabilities yet, got a column 'calibrated_"
    ):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "c_s.csv", tmp_path / "twice.csv")


def test_the_correction_of_an_infinite_logit_is_refused_if_it_would_be_nan(tmp_path):
    calibrate_scores({"logits": LOGITS, "label": LABELS}, method="vector", output=tmp_path / "out")
    pd.DataFrame({"logits": [[0.0, 1, 2], [1, 2, -np.inf]]}).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"scores must be finite for vector scaling, got -inf in row 1 of s.parquet"):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "s.parquet", tmp_path / "c.jsonl")


def test_dates_beside_the_scores_are_written_as_they_were(file, tmp_path):
    calibrate_scores(file, output=tmp_path / "out")
    frame = pd.read_csv(file).head(3).assign(day="2024-05-01", when="2024-05-01 12:00:00")
    frame.to_json(tmp_path / "dated.jsonl", orient="records", lines=True)
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "dated.jsonl", tmp_path / "c.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert [(row["day"], row["when"]) for row in rows] == [("2024-05-01", "2024-05-01 12:00:00")] * 3
    with pytest.raises(InputError, match=r"output must be in an existing folder, got .*nowhere"):
        correct_file(tmp_path / "out" / "correction.json", tmp_path / "dated.jsonl", tmp_path / "nowhere" / "c.csv")


@pytest.mark.parametrize("options", some_slow([{"recall": 0.8}, {"new_prior": 0.2}, {}], quick=[{"recall": 0.8}]))
def test_both_names_of_a_yes_no_score_may_be_given(options, tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.random(500)
    table = {"score": scores, "label": np.where(rng.random(500) < scores, "yes", "no")}
    result = calibrate_scores(table, classes=("no", "yes"), output=tmp_path / "out", **options)
    assert result.subsets.labels.name == ["yes"]
    if "new_prior" in options:
        assert result.prior.names == ["yes"]
    assert evaluate_scores(table, classes=("no", "yes")).subsets.labels.name == ["yes"]


def test_columns_that_are_no_scores_are_kept(file, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_focal.scores.reading.csv_files._BLOCK", 20_000)
    calibrate_scores(file, method="temperature", output=tmp_path / "out")
    number = np.arange(2000)
    code = np.where(number < 1500, "007", "1,5 x")  # numbers in the first blocks only
    scores = pd.DataFrame({f"prob_{name}": np.where(number < 1500, i == 0, 1 / 3) for i, name in enumerate(NAMES)})
    scores.astype(object).replace({1.0: "1", 0.0: "0"}).assign(code=code).to_csv(tmp_path / "codes.csv", index=False)
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "codes.csv", tmp_path / "c.csv")
    written = pd.read_csv(tmp_path / "c.csv", dtype={"code": str})
    assert written["code"].tolist() == code.tolist()
    np.testing.assert_allclose(written["calibrated_cat"][1500:], 1 / 3)


# Each cell as a csv file has it, and the value that it stands for.
OTHER_COLUMNS = {
    "number": (["3", "-12", "0"], [3, -12, 0]),
    "long": (["12345678901234567890123", "7", "8"], [12345678901234567890123, 7, 8]),
    "code": (["007", "012", "1"], ["007", "012", "1"]),
    "weight": (["0.25", "-1.5", "1e-7"], [0.25, -1.5, 1e-7]),
    "missing": (["4", "", "6"], [4, None, 6]),
    "flag": (["true", "false", "true"], [True, False, True]),
    "day": (["2024-01-31", "2024-02-01", "2024-02-02"], ["2024-01-31", "2024-02-01", "2024-02-02"]),
    "text": (["a, b", 'say "x"', "two\nlines"], ["a, b", 'say "x"', "two\nlines"]),
    "label": (["1", "2", "3"], [1, 2, 3]),
}


@pytest.mark.parametrize("source", ["csv", "tsv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("target", ["csv", "tsv", "jsonl", "parquet"])
def test_other_columns_keep_their_values_and_types(correction_text, source, target, tmp_path):
    (tmp_path / "correction.json").write_text(correction_text[1], encoding="utf-8")
    scores = {f"logit_{name}": [1.5, -0.5, 0.0] for name in "abc"}
    cells, values = ({name: column[i] for name, column in OTHER_COLUMNS.items()} for i in (0, 1))
    path, output = tmp_path / f"s.{source}", tmp_path / f"c.{target}"
    if source in ("csv", "tsv"):
        frame = pd.DataFrame(scores).astype(str).assign(**cells)
        frame.to_csv(path, index=False, sep="," if source == "csv" else "\t")
    elif source == "parquet":
        pq.write_table(pa.table({**scores, **values, "long": [Decimal(value) for value in values["long"]]}), path)
    else:
        columns = scores | values
        rows = [json.dumps({name: column[row] for name, column in columns.items()}) for row in range(3)]
        path.write_text("\n".join(rows) if source == "jsonl" else f"[{','.join(rows)}]", encoding="utf-8")
    assert correct_file(tmp_path / "correction.json", path, output) == 3
    if target in ("csv", "tsv"):
        with output.open(encoding="utf-8", newline="") as file:
            written = [*csv.DictReader(file, delimiter="," if target == "csv" else "\t")]
        assert {name: [row[name] for row in written] for name in cells} == cells
        assert '"3"' not in output.read_text(encoding="utf-8") and '"number"' not in output.read_text(encoding="utf-8")
        return
    if target == "jsonl":
        written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    else:
        written = pq.read_table(output).to_pylist()
    for name, expected in values.items():
        found = [row[name] for row in written]
        assert found == expected, name
        allowed = (int, Decimal) if name == "long" else type(expected[0])
        assert isinstance(found[0], allowed) and not (name == "number" and isinstance(found[0], bool)), name


def test_a_table_may_have_nothing_but_scores(correction_text, tmp_path):
    (tmp_path / "correction.json").write_text(correction_text[1], encoding="utf-8")
    pd.DataFrame({f"logit_{name}": [1.5, 0.0] for name in "abc"}).to_csv(tmp_path / "s.csv", index=False)
    for suffix in ("csv", "jsonl", "parquet"):
        assert correct_file(tmp_path / "correction.json", tmp_path / "s.csv", tmp_path / f"c.{suffix}") == 2


def test_a_code_in_a_later_block_makes_texts_of_all_codes(correction_text, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_focal.scores.reading.csv_files._BLOCK", 2_000)
    (tmp_path / "correction.json").write_text(correction_text[1], encoding="utf-8")
    codes = [str(number) for number in range(400)] + ["007"]
    frame = pd.DataFrame({f"logit_{name}": np.zeros(401) for name in "abc"})
    frame.assign(code=codes, number=range(401)).to_csv(tmp_path / "s.csv", index=False)
    correct_file(tmp_path / "correction.json", tmp_path / "s.csv", tmp_path / "c.parquet")
    written = pq.read_table(tmp_path / "c.parquet").to_pydict()
    assert written["code"] == codes and written["number"] == [*range(401)]


def test_columns_that_are_no_logits_of_the_model_are_refused_with_the_reason(tmp_path):
    fit = fit_correction(LOGITS, LABELS, "vector")
    write_correction(tmp_path / "correction.json", fit, NAMES)
    pd.DataFrame({"x": [0.4], "y": [0.3], "z": [0.3], "label": ["cat"]}).to_csv(tmp_path / "s.csv", index=False)
    message = "score_column must name the scores among .*; the correction is for logits of a model$"
    with pytest.raises(InputError, match=message):
        correct_file(tmp_path / "correction.json", tmp_path / "s.csv", tmp_path / "c.csv")


def test_corrections_of_several_labels_need_no_labels(tmp_path):
    random = np.random.default_rng(0)
    probabilities = random.random((400, 3))
    labels = (random.random((400, 3)) < probabilities**2).astype(int)
    table = {"probabilities": probabilities.tolist(), "labels": labels.tolist()}
    calibrate_scores(table, method="platt", output=tmp_path / "out")
    correction, rows = tmp_path / "out" / "correction.json", tmp_path / "rows.jsonl"
    pd.DataFrame({"probabilities": table["probabilities"]}).to_json(rows, orient="records", lines=True)
    assert correct_file(correction, rows, tmp_path / "corrected.jsonl") == 400
    found = np.array(pd.read_json(tmp_path / "corrected.jsonl", lines=True)["calibrated"].tolist())
    expected = Correction.load(correction).apply(np.log(probabilities / (1 - probabilities)))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-expected)), atol=1e-8)  # JSON of pandas has 10 decimals
    with pytest.raises(InputError, match=r"output must end in \.jsonl or \.parquet: rows.jsonl has lists"):
        correct_file(correction, rows, tmp_path / "corrected.csv")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_wrong_row_of_a_later_batch_is_named(kind, file, tmp_path, monkeypatch):
    calibrate_scores(file, output=tmp_path / "out")
    monkeypatch.setattr("hf_focal.scores.correction_files.corrected_files._ROWS", 100)
    monkeypatch.setattr("hf_focal.scores.reading.csv_files._BLOCK", 20_000)
    wrong, path = pd.read_csv(file).drop(columns="label"), tmp_path / f"wrong.{kind}"
    wrong.loc[1500, "prob_cat"] = 2.0
    if kind == "csv":
        wrong.to_csv(path, index=False)
    else:
        wrong.to_parquet(path) if kind == "parquet" else wrong.to_json(path, orient="records", lines=True)
    where = {"csv": "line 1502", "jsonl": "line 1501", "parquet": "row 1500"}[kind]
    with pytest.raises(InputError, match=f"scores must hold numbers within .* in {where} of wrong.{kind}"):
        correct_file(tmp_path / "out" / "correction.json", path, tmp_path / "c.csv")
    if kind == "csv":
        wrong.astype(object).replace({"prob_cat": {2.0: "two"}}).to_csv(path, index=False)
        with pytest.raises(InputError, match=r"scores must be a csv file .* invalid value 'two'"):
            correct_file(tmp_path / "out" / "correction.json", path, tmp_path / "c.csv")
    assert not [*tmp_path.glob("c.csv*")]


def test_yes_no_scores_are_corrected_by_slope_and_intercept(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=3000) * 2 - 2
    labels = (rng.random(3000) < 1 / (1 + np.exp(-logits))).astype(int)
    shifted = 1 / (1 + np.exp(-(logits + 2)))  # as a head trained with pos_weight
    table = {"score": shifted, "label": labels}
    result = calibrate_scores(table, method="platt", output=tmp_path / "out")
    assert result.pre["ece"] > 0.15 and result.post["ece"] < 0.03
    pd.DataFrame(table).to_csv(tmp_path / "s.csv", index=False)
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "s.csv", tmp_path / "c.csv")
    calibrated = pd.read_csv(tmp_path / "c.csv")["calibrated"]
    assert calibrated.mean() == pytest.approx(labels.mean(), abs=1e-3)
    assert (calibrated.rank() == pd.Series(shifted).rank()).all()


def test_what_a_classifier_of_scikit_learn_predicts(tmp_path):
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import GaussianNB

    digits = load_digits()
    classifier = GaussianNB().fit(digits.data[:600], digits.target[:600])
    for name, rows in (("validation", slice(600, 1200)), ("test", slice(1200, None))):
        table = pd.DataFrame(classifier.predict_proba(digits.data[rows]), columns=[f"prob_{i}" for i in range(10)])
        table.round(4).assign(label=digits.target[rows]).to_csv(tmp_path / f"{name}.csv", index=False)
    result = calibrate_scores(tmp_path / "validation.csv", test_scores=tmp_path / "test.csv")
    assert result.pre["ece"] > 0.1 > 0.08 > result.post["ece"]
    assert result.post["nll"] < 0.5 * result.pre["nll"]


@pytest.mark.slow
def test_a_change_of_calibration_is_found_and_no_change_is_not():
    now, same = sampled(1500, 2.0, seed=1), sampled(1500, 2.0, seed=2)
    better = sampled(1500, 1.0, seed=3)
    tables = [{"logits": logits, "label": labels} for logits, labels in (now, same, better)]
    assert evaluate_scores(tables[0], reference=tables[1]).drift.p_value > 0.05
    drift = evaluate_scores(tables[0], reference=tables[2]).drift
    assert drift.p_value == 0.001 and drift.now > drift.before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "correction must be a file that calibrate wrote"),
        ("[]", "without its format"),
        ('{"format": "hf_focal correction", "version": 3}', "must have version 1 or 2, got 3"),
        ('{"format": "hf_focal correction", "version": 1}', "must have classes, correction, .* without it"),
    ],
)
def test_corrections_from_elsewhere_are_refused(text, message, file, tmp_path):
    (tmp_path / "correction.json").write_text(text)
    with pytest.raises(InputError, match=message):
        correct_file(tmp_path / "correction.json", file, tmp_path / "out.csv")


OLD_FIT = {
    **{"method": "platt", "chosen": "platt", "reason": "", "before": {"nll": 0.5}, "after": {"nll": 0.4}},
    **{
        "scores": {},
        "changed_predictions": 0,
        "num_samples": 9,
        "num_folds": 5,
        "excess_nll": {},
        "decomposition": {},
    },
    "correction": {"slope": 1.0, "intercept": 0.0, "slopes": [0.5, 2.0], "intercepts": [1.0, -1.0], "method": "platt"},
}


def test_the_file_of_a_trainer_of_version_2_is_read(tmp_path):
    """``calibration.json`` had the numbers of Platt scaling alone; other corrections were in the weights."""
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(OLD_FIT), encoding="utf-8")
    assert Correction.load(path) == Correction.platt([0.5, 2.0], [1.0, -1.0])
    pd.DataFrame({"logit_a": [0.0, 1.0], "logit_b": [2.0, 3.0]}).to_csv(tmp_path / "s.csv", index=False)
    correct_file(path, tmp_path / "s.csv", tmp_path / "c.csv", score_column="logit_")
    corrected = pd.read_csv(tmp_path / "c.csv").filter(like="calibrated").to_numpy()
    np.testing.assert_allclose(corrected, 1 / (1 + np.exp(-np.array([[1.0, 3.0], [1.5, 5.0]]))))
    without = {name: value for name, value in OLD_FIT.items() if name != "correction"} | {"method": "vector"}
    path.write_text(json.dumps(without), encoding="utf-8")
    for read in (Correction.load, read_correction):
        with pytest.raises(InputError, match="it has the scores of a fit, but no A and b: they are in the model's"):
            read(path)


def test_the_command_line(file, tmp_path, capsys):
    given = ["calibrate", "--scores", str(file), "--method", "temperature"]
    assert main([*given, "--output", str(tmp_path / "out")]) == 0
    assert "after, T = " in capsys.readouterr().out
    saved = json.loads((tmp_path / "out" / "correction.json").read_text())
    assert saved["classes"] == NAMES and saved["scores"] == "probabilities"
    arguments = ["apply", str(tmp_path / "out" / "correction.json"), str(file), "--output", str(tmp_path / "c.csv")]
    assert main(arguments) == 0
    assert "2,000 rows with calibrated probabilities" in capsys.readouterr().out
    pd.read_csv(file).head(1500).to_csv(tmp_path / "earlier.csv", index=False)
    given = ["evaluate", "--scores", str(file), "--group", "language", "--reference", str(tmp_path / "earlier.csv")]
    assert main([*given, "--output", str(tmp_path / "compared")]) == 0
    page = (tmp_path / "compared" / "report.html").read_text(encoding="utf-8")
    assert "Reliability diagram of earlier.csv and of s.csv" in page and "Calibration of s<" in page
    printed = capsys.readouterr().out
    assert re.search(r"\| en \| [\d.]+ \[.*\] \| 1,500 \|", printed) and "no significant change" in printed
    assert main(["evaluate", "--scores", str(file), "--task", "causal-lm"]) == 2
    assert "task must not be given with scores" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate"])
    assert "are required: MODEL, --dataset, or --scores" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", str(file)])
    assert "s.csv is not a model: for scores, pass --scores" in capsys.readouterr().err
    assert main(["evaluate", "model", "--dataset", str(file), "--threshold_scores", str(file)]) == 2
    assert "threshold_scores must not be given without scores, got" in capsys.readouterr().err


@pytest.mark.parametrize("size", [1, 3])
def test_the_prior_of_scores_is_shifted(size, tmp_path):
    logits, labels = (LOGITS, LABELS) if size == 3 else (LOGITS[:, :1], (LABELS == 0).astype(int))
    table = {"logits": logits, "label": labels}
    shares = np.bincount(labels) / len(labels)
    train, new = (shares, [0.2, 0.3, 0.5]) if size == 3 else (shares[1], 0.2)
    plain = calibrate_scores(table, output=tmp_path / "plain")
    shifted = calibrate_scores(table, new_prior=new, output=tmp_path / "shifted")
    link = "softmax" if size == 3 else "sigmoid"
    expected = shift_prior(
        Correction.load(tmp_path / "plain" / "correction.json").apply(logits), train, new, link=link
    )
    found = Correction.load(tmp_path / "shifted" / "correction.json").apply(logits)
    if size == 3:
        expected, found = softmax(expected), softmax(found)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert shifted.pre == plain.pre and shifted.post["nll"] > plain.post["nll"]  # these samples have the old shares
    assert "The prior is shifted away from its share in these samples" in summary(shifted)


def test_priors_of_scores_that_cannot_be_are_told():
    with pytest.raises(InputError, match=r"new_prior must be 3 shares between 0 and 1, got \[0.5\]"):
        calibrate_scores({"logits": LOGITS, "label": LABELS}, new_prior=0.5)
    with pytest.raises(
        InputError, match="scores must have samples of every class for a prior shift, got a share of 0"
    ):
        calibrate_scores({"logits": LOGITS, "label": LABELS % 2}, new_prior=[0.2, 0.3, 0.5])


def test_thresholds_hold_and_are_saved_with_the_correction(file, tmp_path, capsys):
    arguments = ["--scores", str(file), "--output", str(tmp_path / "out")]
    assert main(["calibrate", *arguments, "--precision", "0.9"]) == 0
    assert "Thresholds for precision >= 90%" in capsys.readouterr().out
    saved = json.loads((tmp_path / "out" / "correction.json").read_text())
    corrected = Correction.load(tmp_path / "out" / "correction.json").apply(LOGITS)
    value = saved["thresholds"]["values"]["cat"]
    assert value == pytest.approx(fit_correction(LOGITS, LABELS).fit_thresholds(precision=0.9).values[0], rel=1e-6)
    assert saved["thresholds"]["guarantee"] == "precision >= 90% with 95% confidence"
    assert "independent draws" in saved["thresholds"]["conditions"] and saved["thresholds"]["labels"] == NAMES
    answers = [{"label": NAMES[row.argmax()], "score": row.max()} for row in softmax(corrected)]
    given = [apply_thresholds([answer], saved["thresholds"])[0] for answer in answers]
    right = [name == NAMES[label] for name, label in zip(given, LABELS, strict=True) if name is not None]
    assert 100 < len(right) < len(LABELS) and np.mean(right) > 0.9
    card = (tmp_path / "out" / "README.md").read_text()
    assert "The thresholds are in `correction.json`" in card and "pipeline(" not in card


def test_recall_of_several_labels_from_scores(tmp_path):
    labels = np.eye(3, dtype=int)[LABELS]
    result = calibrate_scores({"logits": LOGITS, "labels": labels}, recall=0.8, classes=NAMES, link="sigmoid")
    for label in result.thresholds.labels:
        assert label.recall >= 0.8 and label.value is not None
    with pytest.raises(InputError, match=r"recall must not be given for scores with a softmax, got 0\.8"):
        calibrate_scores({"logits": LOGITS, "label": LABELS}, recall=0.8)
    with pytest.raises(InputError, match="precision must not be given with new_prior"):
        calibrate_scores({"logits": LOGITS, "label": LABELS}, precision=0.9, new_prior=[0.2, 0.3, 0.5])


@pytest.mark.parametrize(("option", "value"), [("f1", True), ("cost", (1.0, 5.0))])
def test_the_best_thresholds_by_f1_and_by_cost(option, value, tmp_path, capsys):
    rng = np.random.default_rng(0)
    logits = rng.normal(-1, 2, 600)
    labels = rng.random(600) < 1 / (1 + np.exp(-logits))
    pd.DataFrame({"logit": logits, "label": labels.astype(int)}).to_csv(tmp_path / "s.csv", index=False)
    options = ["--f1"] if option == "f1" else ["--cost", "1,5"]
    arguments = ["--scores", str(tmp_path / "s.csv"), *options]
    assert main(["calibrate", *arguments, "--output", str(tmp_path / "out")]) == 0
    description = "the largest F1" if option == "f1" else "the smallest cost (1 a false positive, 5 a false negative)"
    assert f"Thresholds for {description}, chosen on" in capsys.readouterr().out
    saved = json.loads((tmp_path / "out" / "correction.json").read_text())["thresholds"]
    fit = fit_correction(logits[:, None], labels[:, None].astype(float), link="sigmoid")
    assert saved["values"]["1"] == pytest.approx(fit.fit_thresholds(**{option: value}).values[0], rel=1e-5)
    assert saved["target"] == option and saved.get("cost") == ([1.0, 5.0] if option == "cost" else None)
    assert description in (tmp_path / "out" / "README.md").read_text()
    shutil.copyfile(tmp_path / "s.csv", tmp_path / "held_out.csv")
    assert main(["evaluate", *arguments, "--threshold_scores", str(tmp_path / "held_out.csv")]) == 0
    assert f"Thresholds for {description}, chosen on" in capsys.readouterr().out


@pytest.fixture(scope="module")
def correction_text(tmp_path_factory):
    """A table of scores of three classes, and its correction.json."""
    folder, (logits, labels) = tmp_path_factory.mktemp("corrected"), sampled(300, 2)
    columns = {f"logit_{name}": column for name, column in zip("abc", logits.T, strict=True)}
    table = pd.DataFrame(columns | {"label": [*map("abc".__getitem__, labels)]})
    calibrate_scores(table, output=folder / "out", method="temperature")
    return table, (folder / "out" / "correction.json").read_text()


@pytest.fixture
def corrected(correction_text, tmp_path):
    """A file of scores of three classes, and its correction.json."""
    table, text = correction_text
    table.to_csv(tmp_path / "scores.csv", index=False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "correction.json").write_text(text)
    return tmp_path / "scores.csv", tmp_path / "out" / "correction.json"


@pytest.mark.parametrize("suffix", some_slow([".csv", ".jsonl", ".parquet"], quick=[".csv"]))
@pytest.mark.parametrize("form", ["classes", "yes or no", "labels"])
def test_decisions_are_those_of_apply_thresholds(form, suffix, tmp_path, capsys):
    goal, table = ["--precision", "0.9"], {f"logit_{name}": LOGITS[:, number] for number, name in enumerate(NAMES)}
    if form == "classes":
        table["label"] = [NAMES[number] for number in LABELS]
    elif form == "labels":
        table |= {f"label_{name}": (number == LABELS).astype(int) for number, name in enumerate(NAMES)}
        goal = ["--recall", "0.8", "--link", "sigmoid"]
    else:
        goal, table = ["--f1"], {"logit": LOGITS[:, 0] - 1, "label": (LABELS == 0).astype(int)}
    pd.DataFrame(table).to_csv(tmp_path / "s.csv", index=False)
    main(["calibrate", "--scores", str(tmp_path / "s.csv"), *goal, "--output", str(tmp_path / "out")])
    correction, written = tmp_path / "out" / "correction.json", tmp_path / f"d{suffix}"
    saved = json.loads(correction.read_text())
    if form == "labels":  # one label without a threshold
        del saved["thresholds"]["values"]["dog"]
        correction.write_text(json.dumps(saved))
    assert main(["apply", str(correction), str(tmp_path / "s.csv"), "--output", str(written)]) == 0
    printed = capsys.readouterr().out
    assert "2,000 rows with calibrated probabilities and decisions" in printed
    said = "No row has a yes to 'dog', because no threshold reached the goal there."
    assert (said in printed) == (form == "labels")
    read = {".csv": pd.read_csv, ".jsonl": lambda path: pd.read_json(path, lines=True), ".parquet": pd.read_parquet}
    rows = read[suffix](written)
    names = saved["thresholds"]["labels"]
    columns = [f"calibrated_{name}" for name in names] if len(names) > 1 else ["calibrated"]
    outputs = [
        [{"label": name, "score": score} for name, score in zip(names, scores, strict=True)]
        for scores in rows[columns].to_numpy().tolist()
    ]
    expected = apply_thresholds(outputs, saved["thresholds"])
    if form == "classes":
        answers = [answer if isinstance(answer, str) else None for answer in rows["decision"]]
        assert answers == expected and 0 < answers.count(None) < len(answers)
    elif form == "yes or no":
        assert rows["decision"].tolist() == [decided == ["1"] for decided in expected]
        assert rows["decision"].nunique() == 2
    else:
        for name in names:
            assert rows[f"decision_{name}"].tolist() == [name in decided for decided in expected], name
        assert not rows["decision_dog"].any() and rows["decision_cat"].any()


@pytest.mark.slow
def test_decisions_need_thresholds_of_the_same_labels_and_free_columns(corrected, tmp_path):
    scores, correction = corrected
    correct_file(correction, scores, tmp_path / "plain.csv")
    assert not [name for name in pd.read_csv(tmp_path / "plain.csv") if name.startswith("decision")]
    saved = json.loads(correction.read_text())
    valid = {"target": "precision", "link": "softmax", "labels": [*"abc"], "values": dict.fromkeys("abc", 0.5)}
    for wrong in (
        *("high", {}, valid | {"values": {"d": 0.5}}, valid | {"values": dict.fromkeys("abc", "0.5")}),
        *(valid | {"values": dict.fromkeys("abc", value)} for value in (True, float("nan"))),
        *(valid | {"labels": [*"abd"]}, valid | {"link": "sigmoid"}, valid | {"values": dict.fromkeys("abc", 1.5)}),
    ):
        correction.write_text(json.dumps(saved | {"thresholds": wrong}))
        with pytest.raises(InputError, match="correction must have thresholds of its own classes or labels"):
            correct_file(correction, scores, tmp_path / "c.csv")
    correction.write_text(json.dumps(saved | {"thresholds": valid | {"values": {}}}))  # no threshold reaches the goal
    correct_file(correction, scores, tmp_path / "none.csv")
    assert pd.read_csv(tmp_path / "none.csv")["decision"].isna().all()
    correction.write_text(json.dumps(saved | {"thresholds": valid}))
    pd.read_csv(scores).assign(decision="mine").to_csv(scores, index=False)
    with pytest.raises(InputError, match=r"scores must have no column for the decisions .*, got a column 'decision'"):
        correct_file(correction, scores, tmp_path / "c.csv")


@pytest.mark.parametrize(
    "changes",
    [
        {"link": "probit"},
        {"classes": None},
        {"classes": ["a", "a", "b"]},
        {"floor": "x"},
        {"correction": None},
        {"correction": {"method": "matrix", "temperature": 1.0, "bias": [0.0] * 3, "matrix": [[1.0, 2.0], [3.0]]}},
        {"correction": {"method": "platt", "slope": 1.0, "intercept": 0.5}},
        {
            "link": "sigmoid",
            "correction": {"method": "platt", "slope": 1, "intercept": 0, "slopes": [1], "intercepts": [0]},
        },
        {"link": "sigmoid", "correction": {"value": 1.0, "values": [1.0, 2.0]}},
    ],
)
def test_a_correction_from_elsewhere_is_refused_in_one_line(corrected, tmp_path, capsys, changes):
    scores, file = corrected
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert main(["apply", str(file), str(scores), "--output", str(tmp_path / "c.csv")]) == 2
    assert capsys.readouterr().err.startswith("hf-focal apply: error: correction must ")
    assert not (tmp_path / "c.csv").exists()


def test_two_processes_that_write_one_file_do_not_mix_their_rows(corrected, tmp_path, monkeypatch):
    scores, file = corrected
    batches, target = corrected_files.score_batches, tmp_path / "c.csv"
    monkeypatch.setattr(corrected_files, "_ROWS", 50)

    def interrupted(*arguments):
        for number, batch in enumerate(batches(*arguments)):
            if number == 2:  # another process writes all of its rows meanwhile
                with monkeypatch.context() as other:
                    other.setattr(corrected_files, "score_batches", batches)
                    other.setattr(os, "getpid", lambda: 1)
                    correct_file(file, scores, target)
            yield batch

    monkeypatch.setattr(corrected_files, "score_batches", interrupted)
    correct_file(file, scores, target)
    written, given = pd.read_csv(target), pd.read_csv(scores)
    assert len(written) == 300 and np.allclose(written["logit_a"], given["logit_a"])
    assert {path.name for path in tmp_path.iterdir()} == {"scores.csv", "out", "c.csv"}


@pytest.mark.slow
def test_rows_of_one_question_are_drawn_together(tmp_path, capsys):
    rows = pd.DataFrame(LOGITS[:500], columns=[f"logit_{name}" for name in NAMES])
    rows["label"] = [NAMES[label] for label in LABELS[:500]]
    rows["question"] = np.arange(500) // 5
    rows["document"] = np.arange(500) // 2
    rows.to_csv(tmp_path / "pairs.csv", index=False)
    options = ["--scores", str(tmp_path / "pairs.csv"), "--precision", "0.8"]
    assert main(["calibrate", *options]) == 0
    shown = capsys.readouterr().out
    assert "have 100 values of 'question': rows with the same value stay together in folds" in shown
    assert "clusters (100 of them)" in shown
    assert main(["calibrate", *options, "--cluster_column", "document"]) == 0
    assert "clusters (250 of them)" in capsys.readouterr().out
    assert main(["calibrate", *options, "--cluster_column", "topic"]) == 2
    assert "cluster_column must be one of" in capsys.readouterr().err
    # A column that leaves too few clusters promises nothing.
    rows.assign(question=np.arange(500) % 3).to_csv(tmp_path / "few.csv", index=False)
    result = calibrate_scores(tmp_path / "few.csv", precision=0.8)
    assert result.thresholds.goal == "precision >= 80%, without a guarantee"
    assert "name what is drawn independently as cluster_column" in result.notes[0]


def test_the_order_of_rows_with_ids_does_not_matter():
    table = {"logits": LOGITS[:300], "label": LABELS[:300], "id": np.arange(300)}
    order = np.random.default_rng(0).permutation(300)
    found, shuffled = (
        calibrate_scores({name: values[rows] for name, values in table.items()}, precision=0.7)
        for rows in (np.arange(300), order)
    )
    assert found.fit.cross_fit.chosen == shuffled.fit.cross_fit.chosen
    for name, scores in found.fit.cross_fit.scores.items():
        assert scores == pytest.approx(shuffled.fit.cross_fit.scores[name])
    assert found.thresholds.labels[0].value == pytest.approx(shuffled.thresholds.labels[0].value)


@pytest.mark.parametrize("method", ["vector", "matrix", "auto"])
def test_a_class_without_calibration_samples_is_named_and_not_driven_out(method):
    cases = Path(__file__).parents[4] / "shared" / "cases"
    if not cases.is_dir():
        pytest.skip("needs the small cases")
    tables = {"scores": cases / "w8_cal_no_c.csv", "test_scores": cases / "w8_test.csv"}
    result = calibrate_scores(**tables, method=method)
    assert result.pre["error"] == pytest.approx(0.4)
    assert result.post["error"] <= result.pre["error"] + 0.02  # a third of the samples are of this class
    assert result.post["nll"] < result.pre["nll"] - 0.1
    assert "no samples, or too few, of 1 of the 3 classes, 'c'" in " ".join(result.notes)


def test_several_labels_hold_together_if_they_shall(capsys, tmp_path):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(600, 3))
    table = {f"logit_{name}": z[:, i] for i, name in enumerate(NAMES)}
    table |= {f"label_{name}": (rng.random(600) < 1 / (1 + np.exp(-z[:, i]))) * 1 for i, name in enumerate(NAMES)}
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    options = ["calibrate", "--scores", str(tmp_path / "labels.csv"), "--recall", "0.8"]
    assert main(options) == 0
    assert "recall >= 80% with 95% confidence, each label by itself" in capsys.readouterr().out
    assert main([*options, "--simultaneous"]) == 0
    assert "recall >= 80% with 95% confidence, all labels together" in capsys.readouterr().out
    assert main(["calibrate", "--scores", str(tmp_path / "labels.csv"), "--simultaneous"]) == 2
    assert "simultaneous needs precision or recall, got none of them" in capsys.readouterr().err
    assert main([*options[:3], "--f1", "--confidence", "0.95"]) == 2
    assert "confidence needs precision or recall or coverage, got f1" in capsys.readouterr().err


def test_the_shape_of_a_correction_does_not_decide_its_link(tmp_path):
    correction = Correction(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -0.5]))
    fit = replace(fit_correction(LOGITS[:, :2], LABELS.clip(max=1), "temperature"), correction=correction)
    write_correction(tmp_path / "correction.json", fit, ("a", "b"))
    pd.DataFrame({"logit_a": [0.0, 1.0], "logit_b": [2.0, 3.0]}).to_csv(tmp_path / "s.csv", index=False)
    correct_file(tmp_path / "correction.json", tmp_path / "s.csv", tmp_path / "c.csv")
    corrected = pd.read_csv(tmp_path / "c.csv").filter(like="calibrated").to_numpy()
    expected = correction.apply(torch.tensor([[0.0, 2.0], [1.0, 3.0]])).softmax(1)
    np.testing.assert_allclose(corrected, expected.numpy())


def test_columns_of_thousands_of_classes_take_seconds(tmp_path):
    size = 6000
    logits = np.random.default_rng(0).normal(size=(20, size))
    frame = pd.DataFrame(logits, columns=[f"logit_c{number}" for number in range(size)])
    frame = frame.assign(label=[f"c{number}" for number in logits.argmax(1)])
    frame.to_csv(tmp_path / "scores.csv", index=False)
    start = time.monotonic()
    assert evaluate_scores(tmp_path / "scores.csv").pre["error"] == 0
    saved = {"format": "hf_focal correction", "version": 2, "link": "softmax", "scores": "logits", "floor": 0.0}
    saved |= {"classes": [*frame.columns[:-1].str.removeprefix("logit_")], "correction": {"temperature": 2.0}}
    (tmp_path / "correction.json").write_text(json.dumps(saved))
    correct_file(tmp_path / "correction.json", tmp_path / "scores.csv", tmp_path / "corrected.csv")
    assert time.monotonic() - start < 20  # one minute if each column is searched for among all, and added alone
    corrected = pd.read_csv(tmp_path / "corrected.csv").filter(like="calibrated_c").to_numpy()
    np.testing.assert_allclose(corrected, torch.softmax(torch.from_numpy(logits) / 2, 1), rtol=1e-9)


@pytest.mark.parametrize(
    ("link", "goal"),
    [("softmax", {"precision": 0.85}), ("sigmoid", {"cost": (1, 20)}), ("sigmoid", {"recall": 0.9, "new_prior": 0.3})],
)
@pytest.mark.parametrize(("factor", "method"), [(12, "none"), (40, "none"), (40, "temperature")])
def test_saturated_probabilities_are_decided_as_the_report_says(link, goal, factor, method, tmp_path):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=6000)
    y = (rng.random(6000) < 1 / (1 + np.exp(-z))).astype(int)
    columns = {"logit": factor * z} if link == "sigmoid" else {"logit_no": 0 * z, "logit_yes": factor * z}
    table = pd.DataFrame({**columns, "label": y if link == "sigmoid" else np.array(["no", "yes"])[y]})
    test = table[3000:]
    test.to_csv(tmp_path / "test.csv", index=False)
    result = calibrate_scores(table[:3000], test_scores=test, method=method, output=tmp_path / "out", **goal)
    (label,) = result.thresholds.labels
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "test.csv", tmp_path / "corrected.csv")
    corrected = pd.read_csv(tmp_path / "corrected.csv")
    if label.value is None:
        assert (factor, method) == (40, "none") and not corrected.decision.notna().any()
        return
    answered = corrected.decision if link == "sigmoid" else corrected.decision.notna()
    right = test.label.to_numpy() == (1 if link == "sigmoid" else corrected.decision)
    reached = answered[y[3000:] == 1] if link == "sigmoid" else answered
    assert (right[answered].mean(), reached.mean()) == pytest.approx((label.precision, label.recall), abs=1e-3)
