"""What columns mean is decided by their names, once: the same figures from each form of a table, or one error."""

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from slow_variants import some_slow

from hf_focal import InputError, calibrate_scores, evaluate_scores, measure, read_scores
from hf_focal.cli.main import main
from hf_focal.scores import Schema, correct_file

RANDOM = np.random.default_rng(0)
LOGITS = (RANDOM.normal(size=(120, 3)) * 2).round(5)
LABELS = (LOGITS / 2 + RANDOM.gumbel(size=LOGITS.shape)).argmax(1)
PROBABILITIES = softmax(LOGITS, 1)
NLL = -log_softmax(LOGITS, 1)[np.arange(120), LABELS].mean()
ERROR = (LOGITS.argmax(1) != LABELS).mean()
NAMES = [*"abc"]
NAMED = [NAMES[label] for label in LABELS]
YES = LOGITS[:, 0] - LOGITS[:, 1]
IS_YES = LABELS == 0
P_YES = 1 / (1 + np.exp(-YES))
YES_ERROR, YES_NLL = ((YES > 0) != IS_YES).mean(), np.logaddexp(0, np.where(IS_YES, -YES, YES)).mean()


def columns_of(values, pattern="prob_{}", names=NAMES):
    return {pattern.format(name): values[:, i] for i, name in enumerate(names)}


def check_figures(table, nll=NLL, error=ERROR, tolerance=2e-3, **options):
    result = evaluate_scores(table, **options)
    assert result.pre["error"] == pytest.approx(error, abs=1e-9)
    assert result.pre["nll"] == pytest.approx(nll, abs=tolerance)
    return result


# Labels by name


@pytest.mark.parametrize("order", [[True, False], [False, True]])
@pytest.mark.parametrize("form", some_slow(["csv", "frame", "lower case"], quick=["csv"]))
def test_booleans_are_names(order, form, tmp_path):
    names = [str(name) for name in order]
    columns = {f"prob_{name}": P_YES if name == "True" else 1 - P_YES for name in names}
    table = pd.DataFrame({**columns, "label": IS_YES})
    if form == "lower case":
        table["label"] = np.where(IS_YES, "true", "false")
    if form == "csv":
        table.to_csv(tmp_path / "s.csv", index=False)
        table = tmp_path / "s.csv"
    check_figures(table, YES_NLL, YES_ERROR)
    result = calibrate_scores(table, output=tmp_path / "out")
    assert result.post["error"] == pytest.approx(YES_ERROR, abs=0.1)
    pd.DataFrame(columns).to_csv(tmp_path / "new.csv", index=False)
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "new.csv", tmp_path / "c.csv")
    calibrated = pd.read_csv(tmp_path / "c.csv")["calibrated_True"]
    assert np.corrcoef(calibrated, P_YES)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("123", LABELS + 1.0),
        ("123", [f"{label + 1}.0" for label in LABELS]),
        ("201", (LABELS - 1) % 3),  # shuffled numbers
        (["007", "008", "009"], [f"00{label + 7}" for label in LABELS]),
        (["007", "008", "009"], LABELS + 7),
        (["2020-01-01", "2021-01-01", "2022-01-01"], pd.to_datetime([f"202{label}-01-01" for label in LABELS])),
        ("abc", pd.Categorical(NAMED, categories=[*"cba"])),
        (["LABEL_0", "LABEL_1", "LABEL_2"], LABELS),
    ],
)
@pytest.mark.parametrize("kind", ["frame", "csv", "jsonl", "parquet"])
def test_labels_are_matched_by_name_whatever_their_type(names, labels, kind, tmp_path):
    table = pd.DataFrame(columns_of(PROBABILITIES, names=names)).assign(label=labels)
    path = tmp_path / f"s.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True, date_format="iso", double_precision=15)
        if hasattr(labels, "year"):
            pytest.skip("pandas writes the time of day")
    elif kind == "parquet":
        table.to_parquet(path)
    check_figures(table if kind == "frame" else path)


def test_class_labels_of_a_dataset_are_names(tmp_path):
    features = Features({f"prob_{name}": Value("float64") for name in NAMES} | {"label": ClassLabel(names=[*"cab"])})
    labels = [[*"cab"].index(name) for name in NAMED]
    data = Dataset.from_dict({**columns_of(PROBABILITIES), "label": labels}, features=features)
    check_figures(data)
    data.to_parquet(tmp_path / "s.parquet")
    check_figures(tmp_path / "s.parquet")
    data.to_csv(tmp_path / "s.csv")  # only numbers are left of the names
    with pytest.raises(
        InputError, match=r"label_column must hold names of classes, .* \['a', 'b', 'c'\], the labels \["
    ):
        read_scores(tmp_path / "s.csv")
    unnamed = Dataset.from_dict(
        {"logits": LOGITS.tolist(), "label": LABELS},
        features=Features({"logits": [Value("float64")], "label": ClassLabel(names=NAMES)}),
    )
    assert check_figures(unnamed).notes == []
    assert read_scores(unnamed).classes == ("a", "b", "c")
    with pytest.raises(InputError, match=r"classes are .*'x', 'y', 'z'.*the labels .*'a'"):
        read_scores(unnamed, classes="xyz")


def test_names_for_numbered_scores_are_asked_for_with_classes():
    table = {
        **{str(i): column for i, column in enumerate(PROBABILITIES.T)},
        "label": [*map("abc".__getitem__, LABELS)],
    }
    with pytest.raises(
        InputError, match=r"classes are \['0', '1', '2'\], .* such as the classes_ of scikit-learn, give cl"
    ):
        read_scores(table, score_column="0,1,2")
    check_figures(table, score_column="0,1,2", classes="abc")


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(float), LABELS + 1, [*map(str, LABELS)], LABELS == 1])
def test_numbers_are_not_taken_as_places_of_named_columns(labels):
    table = {**columns_of(PROBABILITIES), "label": labels}
    with pytest.raises(InputError, match=r"label_column must hold names of classes, .*'a', 'b', 'c'\], the labels \["):
        read_scores(table)
    if set(map(float, labels)) == {0.0, 1.0, 2.0}:
        check_figures(table, classes="abc")  # the user says which number is which
        shuffled = {name: table[name] for name in ("prob_c", "prob_a", "prob_b", "label")}
        check_figures(shuffled, classes="abc")


@pytest.mark.parametrize("several", [False, True])
def test_texts_of_numbers_are_not_taken_as_places_among_more_than_ten_classes(several):
    """scikit-learn sorts such classes as texts: 0, 1, 10, 11, 2."""
    order = sorted(map(str, range(12)))
    p = np.random.default_rng(0).dirichlet(np.ones(12), 40)
    number = np.arange(40) % 12
    nll = -np.log(p[np.arange(40), number]).mean()
    text = [[str(i)] if several else str(i) for i in number]
    table = {"probabilities": list(p[:, [int(name) for name in order]]), "label": text}
    with pytest.raises(
        InputError, match=r"numbers, got the text '0' .* texts may be sorted 0, 1, 10, 2 .*: give classes"
    ):
        evaluate_scores(table, link="softmax")
    assert evaluate_scores(table, classes=tuple(order), link="softmax").pre["nll"] == pytest.approx(nll)
    assert evaluate_scores({"probabilities": list(p), "label": number}).pre["nll"] == pytest.approx(nll)
    few = p[:, :10] / p[:, :10].sum(1, keepdims=True)  # both orders are the same
    assert evaluate_scores({"probabilities": list(few), "label": [str(i % 10) for i in range(40)]}).pre["nll"] > 0


def test_one_score_is_that_of_the_class_in_its_name():
    for positive, own in ((1, P_YES), (0, 1 - P_YES)):
        check_figures({f"prob_{positive}": own, "label": IS_YES.astype(int)}, YES_NLL, YES_ERROR)
    check_figures({"prob_no": 1 - P_YES, "label": np.where(IS_YES, "yes", "no")}, YES_NLL, YES_ERROR)
    read = read_scores({"prob_no": 1 - P_YES, "label": np.where(IS_YES, "yes", "no")})
    assert read.classes == ("yes", "no") and read.score_names == ("no",)
    with pytest.raises(InputError, match="must hold the class of the scores, 'spam', or one other in 'label', got"):
        read_scores({"prob_spam": P_YES, "label": IS_YES.astype(int)})
    with pytest.raises(InputError, match="classes must end with the class of the scores, 'no'"):
        read_scores({"prob_no": P_YES, "label": np.where(IS_YES, "yes", "no")}, classes=("no", "yes"))


# Kind and link


@pytest.mark.slow
def test_the_kind_is_fixed_with_the_first_table(tmp_path):
    rows = (YES >= 0) & (YES <= 1)
    assert rows.sum() > 10
    first = {"score": YES, "label": IS_YES.astype(int)}
    test = {"score": YES[rows], "label": IS_YES[rows].astype(int)}
    expected = np.logaddexp(0, np.where(IS_YES[rows], -YES[rows], YES[rows])).mean()
    assert calibrate_scores(first, test_scores=test).pre["nll"] == pytest.approx(expected)
    assert evaluate_scores(test, kind="logits", reference=first).pre["nll"] == pytest.approx(expected)
    with pytest.raises(InputError, match=r"kind must be given for 'score' in scores: neither .* \(0\."):
        evaluate_scores(test)
    with pytest.raises(InputError, match="test_scores must hold numbers within"):
        calibrate_scores(test, kind="probabilities", test_scores=first)


def test_a_correction_of_logits_is_not_applied_to_probabilities(tmp_path):
    named = {"label": NAMED}
    calibrate_scores({**columns_of(LOGITS, "logit_{}"), **named}, output=tmp_path / "out")
    correction = tmp_path / "out" / "correction.json"
    saved = json.loads(correction.read_text())
    schema = Schema.from_dict(saved["schema"])
    assert (schema.kind, schema.link, schema.classes) == ("logits", "softmax", ("a", "b", "c"))
    assert schema.columns == ("logit_a", "logit_b", "logit_c") and schema.label_columns == ("label",)
    pd.DataFrame(columns_of(PROBABILITIES)).to_csv(tmp_path / "p.csv", index=False)
    message = r"scores must have the columns of logits of the first table, .*'logit_a'.* got \['prob_a'"
    with pytest.raises(InputError, match=message):
        correct_file(correction, tmp_path / "p.csv", tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"score_column must be the logits of .* got columns of probabilities"):
        correct_file(correction, tmp_path / "p.csv", tmp_path / "c.csv", score_column="prob_")
    pd.DataFrame(columns_of(LOGITS[:, ::-1], "raw_{}", names=NAMES[::-1])).to_csv(tmp_path / "r.csv", index=False)
    correct_file(correction, tmp_path / "r.csv", tmp_path / "c.csv", score_column="raw_")
    renamed = pd.read_csv(tmp_path / "c.csv")
    pd.DataFrame(columns_of(LOGITS, "logit_{}")).to_csv(tmp_path / "l.csv", index=False)
    for schema in (saved, {key: value for key, value in saved.items() if key != "schema"}):  # also of version 0.2
        correction.write_text(json.dumps(schema))
        correct_file(correction, tmp_path / "l.csv", tmp_path / "d.csv")
        found = pd.read_csv(tmp_path / "d.csv")
        (tmp_path / "d.csv").unlink()
        for name in NAMES:
            np.testing.assert_allclose(found[f"calibrated_{name}"], renamed[f"calibrated_{name}"], atol=1e-12)
    correction.write_text(json.dumps(saved | {"schema": saved["schema"] | {"kind": "probabilities"}}))
    with pytest.raises(InputError, match=r"correction must be .* got a schema of other scores"):
        correct_file(correction, tmp_path / "l.csv", tmp_path / "e.csv")
    correction.write_text(json.dumps(saved | {"schema": saved["schema"] | {"columns": []}}))
    with pytest.raises(InputError, match=r"correction must be .* expected names of columns and classes"):
        correct_file(correction, tmp_path / "l.csv", tmp_path / "e.csv")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logit_d": YES}, "must have the scores of .* got also 'logit_d'"),
        ({"logit_a": None}, "must have the columns of logits .* without .*'logit_a'"),
        ({"label": LABELS}, "label_column must hold names of classes"),
        ({"label": None, "target": NAMED}, "label_column must name a column of test_scores"),
    ],
)
def test_another_table_must_fit(changes, message):
    table = {**columns_of(LOGITS, "logit_{}"), "label": NAMED}
    test = {name: values for name, values in (table | changes).items() if values is not None}
    with pytest.raises(InputError, match=message):
        calibrate_scores(table, test_scores=test)
    schema = read_scores(table).schema
    with pytest.raises(InputError, match="kind must not be given with schema"):
        read_scores(table, schema=schema, kind="logits")


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_logarithms_of_probabilities(link, tmp_path):
    if link == "softmax":
        check_figures({**columns_of(log_softmax(LOGITS, 1), "logprob_{}"), "label": NAMED}, tolerance=1e-9)
    else:
        table = {"log_prob": -np.logaddexp(0, -YES), "label": IS_YES}
        check_figures(table, YES_NLL, YES_ERROR, 1e-9)
        with pytest.raises(InputError, match="logarithms of probabilities, which are at most 0, in each row, got"):
            read_scores({"log_prob": YES, "label": IS_YES})
        with pytest.raises(InputError, match="kind must be given for 'score'"):  # logits, or logarithms?
            read_scores({"score": -np.logaddexp(0, -YES), "label": IS_YES})


@pytest.mark.parametrize(("decimals", "tolerance"), [(6, 1e-4), (1, 0.01)])
def test_percentages(decimals, tolerance):
    table = {**columns_of((100 * PROBABILITIES).round(decimals), "score_{}"), "label": NAMED}
    result = check_figures(table, tolerance=tolerance)
    assert "taken as percentages: each row sums to 100" in result.notes[0]
    assert read_scores(table).schema.kind == "percentages"
    with pytest.raises(InputError, match="percentages whose sum is 100"):
        calibrate_scores(table, test_scores={**columns_of(PROBABILITIES, "score_{}"), "label": NAMED})
    with pytest.raises(
        InputError, match=r"numbers within \[0, 1\] .*; if they are percentages, give --kind percentages"
    ):
        read_scores({"prob": 100 * P_YES, "label": IS_YES})
    check_figures({"prob": 100 * P_YES, "label": IS_YES}, YES_NLL, YES_ERROR, 1e-6, kind="percentages")


def test_percentages_after_a_table_of_probabilities_are_not_asked_for_a_kind():
    schema = read_scores({"prob": P_YES, "label": IS_YES}).schema
    with pytest.raises(
        InputError, match=r"within \[0, 1\], like the first table, .*; if .* percentages, divide them by 100$"
    ):
        read_scores({"prob": 100 * P_YES, "label": IS_YES}, schema=schema)
    schema = read_scores({"confidence": CONFIDENCE, "is_correct": [1, 0, 1, 0]}).schema
    with pytest.raises(
        InputError, match=r"'confidence' is taken as the confidence of .*, like that of the first table$"
    ):
        read_scores({"confidence": 100 * CONFIDENCE, "is_correct": [1, 0, 1, 0]}, schema=schema)


def test_open_kinds_are_asked_for_unless_the_values_decide():
    label = {"label": NAMED}
    assert read_scores({**columns_of(PROBABILITIES, "score_{}"), **label}).schema.kind == "probabilities"
    assert read_scores({**columns_of(LOGITS, "score_{}"), **label}).schema.kind == "logits"
    for values in (np.abs(LOGITS), PROBABILITIES**2, PROBABILITIES * 500):
        with pytest.raises(InputError, match="kind must be given for 'score_a', 'score_b', 'score_c' in scores"):
            read_scores({**columns_of(values, "score_{}"), **label})
    uniform = np.linspace(0, 1, 1000)
    read = read_scores({"score": uniform, "label": (uniform > 0.4).astype(int)})
    assert read.schema.kind == "probabilities" and "many are near 0 and 1, none beyond" in read.notes[0]


def test_one_hot_labels():
    hot = np.eye(3, dtype=int)[LABELS]
    check_figures({"probabilities": PROBABILITIES, "labels": hot})
    table = {"logits": LOGITS, "labels": hot}
    with pytest.raises(InputError, match="link must be given for scores, whose labels are lists: each row has one"):
        read_scores(table)
    check_figures(table, link="softmax")
    assert read_scores(table, link="sigmoid").labels.shape == (120, 3)
    check_figures({**columns_of(PROBABILITIES), **columns_of(hot, "label_{}")})
    hot[0] = [1, 1, 0]
    with pytest.raises(InputError, match="some rows have several labels, but their scores sum to 1"):
        read_scores({"probabilities": PROBABILITIES, "labels": hot})
    with pytest.raises(InputError, match=r"must hold one class in each row with link softmax, got .* in row 0"):
        read_scores({"logits": LOGITS, "labels": hot}, link="softmax")


@pytest.mark.parametrize("labels", [LABELS[:, None], LABELS[:, None].astype(float), [[name] for name in NAMED]])
def test_labels_of_shape_n_by_1_are_numbers_of_classes(labels, tmp_path):
    named = isinstance(labels, list)
    read = read_scores({"logits": LOGITS, "labels": labels}, classes="abc" if named else ())
    assert read.link == "softmax"
    np.testing.assert_array_equal(read.labels, LABELS)


# Confidences


@pytest.mark.parametrize("columns", [("label", "prediction"), ("gold_label", "label"), ("y_true", "y_pred")])
@pytest.mark.parametrize("name", ["score", "confidence", "max_prob"])
def test_scores_of_the_predicted_class_are_confidences(columns, name):
    true, predicted = columns
    table = {true: NAMED, predicted: [NAMES[i] for i in LOGITS.argmax(1)], name: PROBABILITIES.max(1)}
    result = evaluate_scores(table)
    expected = evaluate_scores({"logits": LOGITS, "label": LABELS})
    assert result.pre["ece"] == pytest.approx(expected.pre["ece"], abs=1e-9)
    assert result.pre["error"] == pytest.approx(ERROR) and "nll" not in result.pre
    table[predicted] = LOGITS.argmax(1)
    with pytest.raises(InputError, match=r"must have the values of the predictions: the labels .* the predictions"):
        evaluate_scores(table)


def test_predictions_of_two_classes_show_what_the_score_is():
    confidence, predicted = np.maximum(P_YES, 1 - P_YES), (P_YES > 0.5).astype(int)
    top = {"label": IS_YES.astype(int), "prediction": predicted, "score": confidence}
    assert evaluate_scores(top).pre["error"] == pytest.approx(YES_ERROR)
    check_figures({"y_true": IS_YES.astype(int), "y_pred": predicted, "y_prob": P_YES}, YES_NLL, YES_ERROR)
    check_figures({"y_true": IS_YES.astype(int), "y_pred": predicted, "y_prob": 1 - P_YES}, YES_NLL, YES_ERROR)
    with pytest.raises(InputError, match=r"kind must be given for 'score' .* neither the score of the predicted"):
        read_scores({**top, "score": RANDOM.permutation(P_YES)})
    del top["prediction"]
    for name in ("score", "prob"):
        with pytest.raises(
            InputError, match=f"kind must be given for '{name}' in scores: all scores are from 0.5 to 1"
        ):
            read_scores({"label": top["label"], name: confidence})


@pytest.mark.parametrize("pair", [("yes", "no"), ("True", "false"), ("1", "0"), (1.0, 0.0), (True, False), ("T", "F")])
def test_what_correct_may_hold(pair, tmp_path):
    correct = LOGITS.argmax(1) == LABELS
    table = pd.DataFrame(
        {"score": PROBABILITIES.max(1), "correct": [pair[0] if right else pair[1] for right in correct]}
    )
    assert evaluate_scores(table).pre["error"] == pytest.approx(ERROR)
    table.to_csv(tmp_path / "s.csv", index=False)
    assert evaluate_scores(tmp_path / "s.csv").pre["error"] == pytest.approx(ERROR)


# Columns


@pytest.mark.parametrize("extra", ["margin", "range", "entropy"])
@pytest.mark.parametrize("pattern", ["logit_{}", "{}_score"])
def test_statistics_with_the_prefix_are_no_classes(extra, pattern):
    table = {**columns_of(LOGITS, pattern), pattern.format(extra): np.abs(YES), "label": NAMED}
    result = check_figures(table, tolerance=1e-9)
    assert f"'{pattern.format(extra)}' of scores, which no label names, is not read" in result.notes[0]
    with pytest.raises(InputError, match=f"classes must be given, since .*'{extra}'"):
        read_scores(table, needs_labels=False)
    assert read_scores(table, needs_labels=False, classes="abc").logits.shape == (120, 3)
    absent = {**columns_of(LOGITS, pattern), "label": ["a" if name == "c" else name for name in NAMED]}
    read = read_scores(absent)
    assert read.classes == ("a", "b", "c") and read.notes[-1] == "no row of scores has the label 'c'"
    table = {**columns_of(PROBABILITIES), "prob_spread": np.abs(YES), "label": NAMED}
    check_figures(table)


@pytest.mark.parametrize(
    "pattern", ["{}", "{}_prob", "P({})", "p_{}", "Proba_{}", "prob.{}", "prob[{}]", "probability {}", "probs_{}"]
)
def test_names_of_columns_of_classes(pattern):
    table = {"text": ["x"] * 120, "id": np.arange(120), **columns_of(PROBABILITIES, pattern), "label": NAMED}
    read = read_scores(table)
    assert read.classes == ("a", "b", "c") and read.schema.kind == "probabilities"
    check_figures(table)
    if pattern == "{}":
        check_figures(table, score_column="a,b,c")
        check_figures(table, score_column=["c", "b", "a"])
        logits = {**columns_of(LOGITS, pattern), "label": NAMED}
        check_figures(logits)
        with pytest.raises(InputError, match=r"score_column must name the columns of scores, .* the columns .*'id'"):
            read_scores(logits | {"id": np.arange(120)})


def test_a_prefix_that_is_a_bracket():
    check_figures({**columns_of(PROBABILITIES, "P({})"), "label": NAMED}, score_column="P(")


@pytest.mark.parametrize("name", ["y_true", "true_label", "gold_label", "target", "Label"])
def test_names_of_columns_of_labels(name):
    check_figures({"logits": LOGITS, name: LABELS})
    with pytest.raises(InputError, match=r"label_column must name a column .* known names are label, "):
        read_scores({"logits": LOGITS, "klass": LABELS})


def test_two_columns_of_labels_must_agree():
    check_figures({"logits": LOGITS, "label": NAMED, "label_id": LABELS}, classes="abc")
    with pytest.raises(
        InputError, match=r"label_column must name the column of labels, since .*'label', 'target'.*differ"
    ):
        read_scores({"logits": LOGITS, "label": LABELS, "target": LOGITS.argmax(1)})


# Pipelines


def pipeline_rows(names=NAMES):
    pairs = [[{"label": name, "score": p} for name, p in zip(names, row, strict=True)] for row in PROBABILITIES]
    return [sorted(row, key=lambda pair: -pair["score"]) for row in pairs]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv", "dataset"])
def test_outputs_of_a_pipeline(form, tmp_path):
    frame = pd.DataFrame({"scores": pipeline_rows(), "label": NAMED})
    path = tmp_path / f"s.{form}"
    if form == "jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    elif form == "parquet":
        frame.to_parquet(path)
    elif form == "csv":
        frame.to_csv(path, index=False)
    check_figures(Dataset.from_pandas(frame) if form == "dataset" else path)
    if form == "jsonl":
        calibrate_scores(path, method="temperature", output=tmp_path / "out")
        correct_file(tmp_path / "out" / "correction.json", path, tmp_path / "c.jsonl")
        written = [json.loads(line) for line in (tmp_path / "c.jsonl").open()]
        assert [[pair["label"] for pair in row["scores"]] for row in written[:3]] == [
            [pair["label"] for pair in row] for row in pipeline_rows()[:3]
        ]
        assert all(max("abc", key=lambda c: row[f"calibrated_{c}"]) == row["scores"][0]["label"] for row in written)
    with pytest.raises(InputError, match=r"must hold the score of each class .* in row 1 of scores: .*top_k=None"):
        read_scores({"scores": [row[: 3 - (i == 1)] for i, row in enumerate(pipeline_rows())], "label": NAMED})


@pytest.mark.parametrize("other", ["0.5", "[1]", "{'a': 'x'}", "{[]: 1}", "{1: 0.5}", "{'a': [1]}", "(" * 300])
def test_mappings_beside_other_values_are_refused(other, tmp_path):
    pd.DataFrame({"scores": ["{'a': 0.9}", other], "label": ["a", "a"]}).to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(
        InputError, match=f"must hold labels with scores.*got.*{re.escape(other)}.* in line 3 of s.csv"
    ):
        read_scores(tmp_path / "s.csv")


def test_outputs_of_other_pipelines():
    pairs = pipeline_rows()
    table = {"labels": [[pair["label"] for pair in row] for row in pairs], "y_true": NAMED}
    check_figures(table | {"scores": [[pair["score"] for pair in row] for row in pairs]})  # zero-shot
    for top in ([row[:1] for row in pairs], [row[0] for row in pairs]):
        result = evaluate_scores({"output": top, "label": NAMED})
        assert result.pre["error"] == pytest.approx(ERROR) and "nll" not in result.pre
    check_figures({"scores": pipeline_rows(["LABEL_0", "LABEL_1", "LABEL_2"]), "label": LABELS})


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("name", ["scores", "logprobs", "top_logprobs"])
def test_mappings_of_classes_to_scores(name, form, tmp_path):
    values = PROBABILITIES if name == "scores" else np.log(PROBABILITIES)
    mappings = [dict(zip(NAMES, row, strict=True)) for row in values.tolist()]
    path = tmp_path / f"s.{form}"
    frame = pd.DataFrame({name: mappings, "label": NAMED})
    if form == "jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        frame.to_csv(path, index=False)
    check_figures(path)
    check_figures(path, score_column=name)
    del mappings[1][NAMES[2]]
    with pytest.raises(InputError, match=f"got none of '{NAMES[2]}' in '{name}' in row 1 of scores: an API that"):
        read_scores({name: mappings, "label": NAMED})


def test_tokens_that_differ_in_spaces_share_the_probability_of_a_class():
    rows = [{"yes": -0.5, " yes": -1.2, "no": -3.0}] * 20  # as an API lists its tokens
    with pytest.raises(InputError, match="got 'yes', ' yes' in 'top_logprobs', which differ in spaces only: add up"):
        read_scores({"top_logprobs": rows, "label": ["yes"] * 20})
    spaced = [{" yes": -0.5, " no": -0.9}] * 20
    assert read_scores({"top_logprobs": spaced, "label": [" yes"] * 20}).num_classes == 2


# Precision and very large numbers


@pytest.mark.parametrize("form", ["float16", "bfloat16", "csv"])
def test_probabilities_in_half_precision(form, tmp_path):
    if form == "bfloat16":
        import torch

        given = {"probabilities": torch.tensor(PROBABILITIES).bfloat16(), "label": LABELS}
    else:
        given = {**columns_of(PROBABILITIES.astype(np.float16)), "label": NAMED}
    if form == "csv":
        pd.DataFrame(given).to_csv(tmp_path / "s.csv", index=False)
        given = tmp_path / "s.csv"
    check_figures(given, error=pytest.approx(ERROR, abs=0.02), tolerance=0.01)
    wrong = {**columns_of(PROBABILITIES * np.r_[0.999, np.ones(119)][:, None]), "label": NAMED}
    with pytest.raises(InputError, match="sum is 1 within 1e-05"):
        read_scores(wrong)


@pytest.mark.parametrize("mask", [np.finfo(np.float32).min, np.finfo(np.float16).min, -1e9, -1e4])
def test_classes_that_are_masked_by_a_number(mask):
    masked = LOGITS.copy()
    rows = (LABELS != 2) & (np.arange(120) % 2 == 0)
    masked[rows, 2] = mask
    by_number = calibrate_scores({"logits": masked, "label": LABELS}).post
    masked[rows, 2] = -np.inf
    by_infinity = calibrate_scores({"logits": masked, "label": LABELS}).post
    for name in ("nll", "ece", "error", "brier"):
        assert by_number[name] == by_infinity[name]
    assert not np.isinf(read_scores({"logits": LOGITS * 1e5, "label": LABELS}).logits).any()


@pytest.mark.parametrize("scale", some_slow([1e20, 1e30, 1e200], quick=[1e30]))
@pytest.mark.parametrize("calibration", ["auto", "matrix"])
def test_very_large_logits(scale, calibration):
    found = calibrate_scores({"logits": LOGITS * scale, "label": LABELS}, method=calibration)
    chosen = found.fit.cross_fit  # a smaller strength would leave a part of the large logits
    assert chosen.strength == 1
    expected = calibrate_scores({"logits": LOGITS, "label": LABELS}, method=chosen.chosen)
    assert found.post["nll"] == pytest.approx(expected.post["nll"], abs=1e-6)


# Files


def test_line_breaks_in_quoted_texts_of_a_large_file(tmp_path):
    repeats = 200
    frame = pd.DataFrame({**columns_of(np.tile(PROBABILITIES, (repeats, 1))), "label": NAMED * repeats})
    frame["text"] = ['one line\nanother "line"\n\nand a third, of many words' * 3] * len(frame)
    frame.to_csv(tmp_path / "s.csv", index=False)
    assert (tmp_path / "s.csv").stat().st_size > 2 << 20
    check_figures(tmp_path / "s.csv")
    calibrate_scores(tmp_path / "s.csv", method="temperature", output=tmp_path / "out")
    correct_file(tmp_path / "out" / "correction.json", tmp_path / "s.csv", tmp_path / "c.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "c.csv")[["label", "text"]], frame[["label", "text"]])


@pytest.mark.parametrize("write", [lambda row: str([*map(float, row)]), str, lambda row: repr(np.float64(row))])
def test_lists_that_pandas_wrote_as_text(write, tmp_path):
    pd.DataFrame({"probs": map(write, PROBABILITIES), "label": LABELS}).to_csv(tmp_path / "s.csv", index=False)
    check_figures(tmp_path / "s.csv")
    several = pd.DataFrame({"probs": ["[0.1, 0.9]", "[0.8, 0.7]"], "labels": ["['b']", "['a', 'b']"]})
    several.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(read_scores(tmp_path / "t.csv", classes="ab").labels, [[0, 1], [1, 1]])
    several.assign(probs="[0.1, x]").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match="score_column must hold numbers, got 'x' in 'probs' in line 2"):
        read_scores(tmp_path / "t.csv", classes="ab")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "prob_a;prob_b;label\n0.5;0.5;a\n", "separated by commas, got semicolons in .* sep=','"),
        ("s.csv", "prob_a\tprob_b\tlabel\n0.5\t0.5\ta\n", "separated by commas, got tabs in .* name it .tsv"),
        ("s.tsv", "prob_a,prob_b,label\n0.5,0.5,a\n", "separated by tabs, got commas in"),
        ("s.csv", "prob_größe,prob_x,label\n0.5,0.5,x\n".encode("latin-1"), "must be in UTF-8, got .*Latin-1"),
        ("s.csv", "prob_a,prob_b,label\n0.5,0.5,größe\n".encode("latin-1"), "must be in UTF-8, got .*Latin-1"),
        ("s.csv", "prob_a,prob_b,label\n0.5,0.5,a\n".encode("utf-16"), "must be in UTF-8, got UTF-16"),
        ("s.json", '{"probs": [[1, 0]], "label": ["größe"]}'.encode("latin-1"), "must be in UTF-8, got"),
        ("s.json", "[[0.2, 0.8], [0.6, 0.4]]", "expected a list of records, or a list .* got a list of lists"),
        ("s.json", "3", "expected a list of records"),
        ("s.json", "[]", "expected a list of records"),
    ],
)
def test_files_in_another_form_are_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_scores(tmp_path / name)


@pytest.mark.parametrize("orient", ["columns", "list", "lines", "records"])
def test_forms_of_json(orient, tmp_path):
    frame = pd.DataFrame({**columns_of(PROBABILITIES), "label": NAMED})
    if orient == "list":
        (tmp_path / "s.json").write_text(json.dumps(frame.to_dict("list")))
    else:
        lines = {"orient": "records", "lines": True} if orient == "lines" else {"orient": orient}
        frame.to_json(tmp_path / "s.json", double_precision=15, **lines)
    check_figures(tmp_path / "s.json")


def test_the_command_takes_kind_and_link(tmp_path, capsys):
    hot = [[float(label == name) for name in NAMES] for label in NAMED]
    frame = pd.DataFrame({"scores": LOGITS.tolist(), "labels": hot})
    frame.to_json(tmp_path / "s.jsonl", orient="records", lines=True)
    assert main(["evaluate", "--scores", str(tmp_path / "s.jsonl")]) == 2
    assert "link must be given for s.jsonl" in capsys.readouterr().err
    assert main(["evaluate", "--scores", str(tmp_path / "s.jsonl"), "--link", "softmax", "--kind", "logits"]) == 0
    assert f"{100 * ERROR:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize("pattern", ["prob_{}", "pairs"])
def test_lists_of_zero_and_one_have_no_order_beside_named_columns(pattern):
    columns = {"scores": pipeline_rows(NAMES)} if pattern == "pairs" else columns_of(PROBABILITIES)
    columns["label"] = [*np.eye(3, dtype=int)[LABELS]]
    with pytest.raises(InputError, match=r"label_column must hold names of .* whose order is unknown: give classes"):
        read_scores(pd.DataFrame(columns))
    check_figures(pd.DataFrame(columns), classes=tuple(NAMES))


@pytest.mark.parametrize("name", ["scores", "answers"])
def test_outputs_of_pipelines_may_be_named(name):
    check_figures(pd.DataFrame({name: pipeline_rows(NAMES), "label": NAMED}), score_column=name)


@pytest.mark.slow
def test_reading_imports_neither_transformers_nor_datasets():
    code = "import sys, hf_focal; hf_focal.read_scores({'logits': [[1.0, 2.0]], 'label': [0]})\n"
    code += "print({'transformers', 'datasets'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# Properties

_RENAMED = st.lists(
    st.one_of(
        st.text("abcxyz_ -.1", min_size=1, max_size=6).filter(lambda text: text.strip() == text),
        st.sampled_from(["true", "False", "TRUE", "0", "1", "2", "3", "007", "1.0", "max", "2021-01-01", "é", "p_x"]),
    ),
    min_size=3,
    max_size=3,
    unique=True,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.one_of(_RENAMED, st.permutations(["0", "1", "2"]), st.permutations(NAMES)),
    order=st.permutations(range(5)),
    pattern=st.sampled_from(["prob_{}", "logit_{}", "{}", "score_{}", "{}_prob", "P({})", "lists", "pairs"]),
    labels=st.sampled_from(["name", "int", "float", "bool", "ClassLabel", "categorical", "one-hot", "column", "text"]),
    form=st.sampled_from(["frame", "csv", "jsonl", "parquet", "dataset", "npz"]),
    data=st.data(),
)
def test_the_figures_are_the_same_or_the_table_is_refused(names, order, pattern, labels, form, data, tmp_path):
    form = "dataset" if labels == "ClassLabel" else form  # files have no such feature
    values = LOGITS if pattern == "logit_{}" else PROBABILITIES
    if pattern == "lists":
        columns = {"probs": [*values]}
    elif pattern == "pairs":
        columns = {"scores": pipeline_rows(names)}
    else:
        columns = columns_of(values, pattern, names)
    named = [names[label] for label in LABELS]
    label_names = data.draw(st.permutations(names))
    numbers = [float(name) if name.replace(".", "").isdigit() else None for name in names]
    own = {
        "name": named,
        "text": [f"{name} " for name in named],
        "categorical": pd.Categorical(named, categories=label_names),
        "ClassLabel": [label_names.index(name) for name in named],
        "one-hot": [*np.eye(3, dtype=int)[LABELS]],
        "column": LABELS[:, None].tolist(),
        "bool": (LABELS == 1),
    }.get(labels, LABELS.astype(labels) if labels in ("int", "float") else None)
    if labels in ("int", "float") and None not in numbers and len({*numbers}) == 3:
        own = np.array(numbers)[LABELS].astype(labels)  # the numbers are the names
    if labels == "one-hot" and {*names} == {"0", "1", "2"}:
        own = [*np.eye(3, dtype=int)[[int(name) for name in named]]]
    if labels == "column" and {*names} == {"0", "1", "2"}:
        own = [[int(name)] for name in named]
    columns |= {"label": own, "id": np.arange(120)}
    keys = [key for _, key in sorted(zip(order, columns, strict=False))] if len(columns) <= 5 else [*columns]
    frame = pd.DataFrame({key: columns[key] for key in keys if key in columns})
    path = tmp_path / f"table.{form}"
    path.unlink(missing_ok=True)
    table, options = path, {}
    try:
        if form == "csv":
            frame.to_csv(path, index=False)
        elif form == "jsonl":
            frame.to_json(path, orient="records", lines=True, double_precision=15)
        elif form == "parquet":
            frame.to_parquet(path)
        elif form == "npz":
            arrays = {key: np.stack([*frame[key]]) if key in ("probs",) else frame[key].to_numpy() for key in frame}
            np.savez(path, **{k: v.astype(str) if v.dtype == object else v for k, v in arrays.items()})
        elif form == "dataset":
            table = Dataset.from_pandas(frame)
            if labels == "ClassLabel":
                table = table.cast_column("label", ClassLabel(names=label_names))
        else:
            table = frame
    except (ValueError, TypeError, pa.ArrowException):
        return  # it cannot be written so
    if pattern == "lists":
        options["classes"] = names
    try:
        result = evaluate_scores(table, **options)
    except InputError as error:
        # What has to be read is read.
        if (
            labels in ("name", "categorical")
            and pattern in ("prob_{}", "P({})")
            and form in ("frame", "csv", "parquet")
        ):
            hard = any(name in ("max", "TRUE", "true", "False", "1.0") or not name.isalnum() for name in names)
            assert hard, error
        return
    if labels == "bool":
        assert not {"b"} & {frame["label"].dtype.kind} or {name.lower() for name in names} & {
            "true",
            "false",
            "0",
            "1",
        }
        return
    if "error" in result.pre and "nll" in result.pre and result.data.task == "scores":
        assert result.pre["error"] == pytest.approx(ERROR, abs=1e-9)
        assert result.pre["nll"] == pytest.approx(NLL, abs=5e-3)


@pytest.mark.parametrize("names", [NAMES, ["0", "1", "2"], ["2", "0", "1"], ["x", "true", "b c"]])
@pytest.mark.parametrize("form", some_slow(["csv", "parquet", "jsonl"], quick=["csv"]))
def test_every_order_of_columns_gives_the_same_scores(names, form, tmp_path):
    frame = pd.DataFrame({**columns_of(PROBABILITIES, names=names), "label": [names[i] for i in LABELS]})
    for seed in range(4):
        shuffled = frame[np.random.default_rng(seed).permutation(frame.columns)]
        path = tmp_path / f"{seed}.{form}"
        if form == "csv":
            shuffled.to_csv(path, index=False)
        elif form == "parquet":
            pq.write_table(pa.Table.from_pandas(shuffled), path)
        else:
            shuffled.to_json(path, orient="records", lines=True, double_precision=15)
        check_figures(path)


# Confidences of other kinds than probabilities

CONFIDENCE = np.array([0.9, 0.6, 0.8, 0.3])
OTHER_KINDS = {"percentages": 100 * CONFIDENCE, "log-probabilities": np.log(CONFIDENCE)}


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize(
    "answers",
    [
        {"is_correct": ["yes", "No", "yes", "no"]},
        {"Is_Correct": ["true", "false", "TRUE", "False"]},
        {"is_correct": [1, 0, 1, 0]},
        {"correct": [True, False, True, False], "label": ["a", "b", "c", "d"]},
        {"prediction": ["a", "b", "c", "d"], "label": ["a", "c", "c", "a"]},
        {"answer": ["a", "b", "c", "d"], "gold": ["a", "c", "c", "a"]},
    ],
)
def test_confidences_may_be_percentages_or_log_probabilities(kind, answers, tmp_path):
    pd.DataFrame({"confidence": OTHER_KINDS[kind], **answers}).to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(InputError, match=f"'confidence' is taken as the confidence .*, give --kind {kind}$"):
        read_scores(tmp_path / "s.csv")
    read = read_scores(tmp_path / "s.csv", kind=kind)
    np.testing.assert_allclose(read.confidences, CONFIDENCE)
    assert read.labels.tolist() == [True, False, True, False]
    schema = Schema.from_dict(read.schema.to_dict())
    np.testing.assert_allclose(read_scores(tmp_path / "s.csv", schema=schema).confidences, CONFIDENCE)
    measured = measure(tmp_path / "s.csv", kind=kind)
    assert evaluate_scores(measured).pre["confidence"] == pytest.approx(CONFIDENCE.mean())


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize(
    "others", [{}, {"answer": "a"}, {"answer": "a", "gold": "b"}, {"prediction": "a", "label": "b"}]
)
def test_confidences_with_hits_as_labels_are_scores_of_being_right(kind, others):
    hits = np.tile([True, False], len(CONFIDENCE) // 2)
    columns = {name: np.full(len(CONFIDENCE), value) for name, value in others.items()}
    table = {"confidence": OTHER_KINDS[kind], "correct": hits, **columns}
    read = read_scores(table, score_column="confidence", label_column="correct", kind=kind)
    assert read.link == "sigmoid" and read.labels.ravel().tolist() == hits.tolist()
    np.testing.assert_allclose(1 / (1 + np.exp(-read.logits.ravel())), CONFIDENCE)


def test_a_column_of_log_probabilities_says_so_by_its_name():
    read = read_scores({"logprob": OTHER_KINDS["log-probabilities"], "is_correct": ["yes", "no", "yes", "no"]})
    np.testing.assert_allclose(read.confidences, CONFIDENCE)
    with pytest.raises(InputError, match=r"at most 0, in each row, got 0.9 .*, give --kind probabilities"):
        read_scores({"logprob": CONFIDENCE, "is_correct": [1, 0, 1, 0]})


def test_percentages_none_of_which_is_above_1_get_a_note():
    table = {"confidence": CONFIDENCE, "is_correct": ["yes", "no"] * (len(CONFIDENCE) // 2)}
    scores = read_scores(table, kind="percentages")
    assert "is taken as percentages, but none is above 1%: if it holds probabilities, leave" in scores.notes[0]
    assert not read_scores(table | {"confidence": OTHER_KINDS["percentages"]}, kind="percentages").notes


def test_percentages_of_being_right_are_calibrated_with_the_options_of_the_error():
    table = {"confidence": np.tile(OTHER_KINDS["percentages"], 30), "is_correct": np.tile(["yes", "no"], 60)}
    with pytest.raises(InputError, match="--label_column is_correct --kind percentages"):
        calibrate_scores(table, kind="percentages")
    assert calibrate_scores(table, kind="percentages", label_column="is_correct").link == "sigmoid"


def test_a_text_of_several_labels_is_a_list_where_each_part_is_a_class(tmp_path):
    rng = np.random.default_rng(0)
    hot = rng.random((300, 3)) < 0.4
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["logit_cat", "logit_dog", "logit_emu"])
    names = np.array(["cat", "dog", "emu"])
    table["label"] = ["|".join(names[row]) for row in hot]
    table.to_csv(tmp_path / "s.csv", index=False)
    scores = read_scores(tmp_path / "s.csv")
    assert scores.link == "sigmoid" and scores.classes == ("cat", "dog", "emu")
    np.testing.assert_array_equal(scores.labels, hot)
    # The schema says that labels are several, so that other tables need no row with two.
    few = table[hot.sum(1) < 2]
    again = read_scores(few, schema=scores.schema)
    np.testing.assert_array_equal(again.labels, hot[hot.sum(1) < 2])
    with pytest.raises(InputError, match="label_column must hold names of classes, got ''"):
        read_scores(few)


def test_an_answer_is_the_prediction_of_a_confidence_only():
    table = {"answer": ["Paris", "Rome"], "gold": ["Paris", "Oslo"], "confidence": [0.9, 0.6]}
    scores = read_scores(table)
    assert scores.schema.prediction_column == "answer" and scores.labels.tolist() == [1, 0]
    pairs = {"answer": ["a text", "another"], "gold": [1, 0], "probability": [0.3, 0.6]}
    assert read_scores(pairs).link == "sigmoid"
    with pytest.raises(InputError, match="first add a column correct that says whether 'answer' equals 'gold'"):
        calibrate_scores(table)


def test_one_hot_labels_beside_numbers_in_another_order_are_refused():
    table = {"probs": [*PROBABILITIES], "label": [*np.eye(3, dtype=int)[LABELS]]}
    with pytest.raises(InputError, match="which may be in this order or in that of the numbers"):
        evaluate_scores(table, classes=["0", "2", "1"])
    assert evaluate_scores(table, classes=["0", "1", "2"]).pre["error"] == pytest.approx(ERROR, abs=1e-9)


@pytest.mark.parametrize("num_labels", [1, 3])
def test_predictions_of_a_sigmoid_within_0_and_1_need_a_kind(num_labels, tmp_path, capsys):
    p = 1 / (1 + np.exp(-LOGITS[:, :num_labels]))
    labels = (RANDOM.random(p.shape) < p).astype(int)
    labels = labels[:, 0] if num_labels == 1 else labels
    np.savez(tmp_path / "s.npz", predictions=p, label_ids=labels)
    assert main(["evaluate", "--scores", str(tmp_path / "s.npz")]) == 2
    error = capsys.readouterr().err
    assert (
        "kind must be given for 'predictions' in s.npz, whose values are all within [0, 1]: give --kind prob" in error
    )
    table = {"predictions": p, "label_ids": labels}
    wrong = (p > 0.5) != labels.reshape(p.shape)
    assert 1 - evaluate_scores(table, kind="probabilities").pre["accuracy"] == pytest.approx(wrong.mean())
    assert evaluate_scores(table, kind="logits").pre["num_samples"] == 120
    assert not evaluate_scores({"predictions": LOGITS[:, :num_labels], "label_ids": labels}).notes


@pytest.mark.parametrize("columns", [{"predictions": PROBABILITIES}, columns_of(PROBABILITIES, "logit_{}")])
@pytest.mark.parametrize("kind", [None, "logits"])
def test_probabilities_of_a_softmax_are_no_logits(columns, kind):
    labels = LABELS if "predictions" in columns else NAMED
    with pytest.raises(InputError, match=r"kind must not be logits for '.*whose rows sum to 1 .*: give --kind prob"):
        evaluate_scores(columns | {"label": labels}, kind=kind)
    assert evaluate_scores(columns | {"label": labels}, kind="probabilities").pre["nll"] == pytest.approx(NLL)


def test_scores_that_sum_to_1_beyond_0_and_1_need_a_kind():
    margin = 3 * YES
    table = {"score_no": 1 - margin, "score_yes": margin, "label": np.where(IS_YES, "yes", "no")}
    with pytest.raises(InputError, match=r"kind must be given for .*each row sums to 1 .* but some are negative\. If"):
        read_scores(table)
    assert read_scores(table, kind="logits").schema.kind == "logits"
    assert "some are negative" in read_scores(table | {"score_no": 0.5 - margin}).notes[0]


FASTTEXT = np.minimum(RANDOM.uniform(0.55, 1.05, 300), 1.00001).round(6)


@pytest.mark.parametrize("scale", [1, 100])
def test_confidences_slightly_above_1_are_taken_as_1_with_a_note(scale):
    answers = np.where(np.arange(300) % 3, "a", "b")
    if scale == 1:
        scores = read_scores({"prediction": answers, "label": answers[::-1], "probability": FASTTEXT})
    else:
        table = {"confidence": scale * FASTTEXT, "correct": answers == answers[::-1]}
        scores = read_scores(table, kind="percentages", score_column="confidence")
    np.testing.assert_allclose(scores.confidences, np.minimum(FASTTEXT, 1), rtol=1e-12)
    number = (FASTTEXT > 1).sum()
    assert f"{number} rows of scores have confidences slightly above 1, which are taken as 1" in scores.notes
    assert not any("slightly" in note for note in read_scores({"confidence": [0.5, 1.0], "correct": [1, 1]}).notes)


def test_probabilities_of_yes_slightly_above_1_are_taken():
    labels = RANDOM.random(300) < FASTTEXT
    logits = read_scores({"probability": FASTTEXT, "label": labels}, kind="probabilities").logits
    assert np.isfinite(logits).all() and logits.max() == pytest.approx(np.log(1 / 5e-7), rel=1e-3)


def test_confidences_too_far_above_1_are_refused_with_the_bound_and_without_percentages():
    table = {"prediction": ["a", "b"] * 3, "label": ["a"] * 6, "probability": [0.6, 1.01, 0.7, 0.8, 0.9, 0.95]}
    with pytest.raises(InputError, match=r"since some are above 1 \(up to 1\.01\), nor that of one of two classes"):
        read_scores(table)
    with pytest.raises(InputError, match=r"numbers within \[0, 1\] in each row, got 1\.01 in row 1") as error:
        read_scores(table, kind="confidence")
    assert "percentages" not in str(error.value)
    with pytest.raises(InputError, match=r"numbers within \[0, 1\]") as error:
        read_scores({"probability": table["probability"], "label": [0, 1] * 3}, kind="probabilities")
    assert "percentages" not in str(error.value)
    with pytest.raises(InputError, match="if it holds percentages, give --kind percentages"):
        read_scores({"confidence": [60.0, 99.0], "correct": [1, 1]})
