"""Tables of scores: every format, every way to name the columns, and one error for each wrong row."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset

from hf_focal import InputError, apply_thresholds, calibrate_scores, evaluate_scores, read_scores

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0], [1.5, 0.25, 3.0], [-1.0, 0.0, 1.0]])
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = np.array([0, 1, 2, 0])
COLUMNS = {f"prob_{name}": PROBABILITIES[:, i] for i, name in enumerate("abc")}


def write(path, columns):
    """Write columns to a file in the format of its name."""
    kind = path.suffix[1:]
    frame = pd.DataFrame({name: [*values] for name, values in columns.items()})
    if kind in ("csv", "tsv"):
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "npz":
        np.savez(path, **columns)
    else:
        frame.to_json(path, orient="records", lines=kind == "jsonl", double_precision=15)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_a_column_for_each_class_in_every_format(kind, tmp_path):
    file = write(tmp_path / f"scores.{kind}", COLUMNS | {"label": ["a", "b", "c", "a"]})
    table = read_scores(file)
    assert (table.kind, table.link, table.classes) == ("logits", "softmax", ("a", "b", "c"))
    np.testing.assert_allclose(table.logits, np.log(PROBABILITIES), rtol=1e-9)
    np.testing.assert_array_equal(table.labels, LABELS)


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet", "npz"])
def test_a_list_for_each_sample(kind, tmp_path):
    table = read_scores(write(tmp_path / f"scores.{kind}", {"logits": LOGITS, "label": LABELS}))
    np.testing.assert_array_equal(table.logits, LOGITS)
    np.testing.assert_array_equal(table.labels, LABELS)


def test_what_a_trainer_predicts_and_tables_in_memory(tmp_path):
    np.savez(tmp_path / "predictions.npz", predictions=LOGITS.astype(np.float32), label_ids=LABELS)
    arrays = {"logits": LOGITS, "label": LABELS}
    lists = {"logits": LOGITS.tolist(), "label": LABELS.tolist()}
    tensors = {"logits": torch.tensor(LOGITS), "label": torch.tensor(LABELS)}
    for given in (
        tmp_path / "predictions.npz",
        arrays,
        lists,
        tensors,
        pd.DataFrame(lists),
        pa.table(lists),
        Dataset.from_dict(lists),
    ):
        table = read_scores(given)
        np.testing.assert_allclose(table.logits, LOGITS)
        np.testing.assert_array_equal(table.labels, LABELS)


@pytest.mark.parametrize("labels", [[1, 0, 1], [True, False, True], [1.0, 0.0, 1.0], ["yes", "no", "yes"]])
def test_one_score_is_of_a_yes_no_model(labels):
    table = read_scores({"prob": [0.9, 0.2, 0.5], "label": labels}, classes=["no", "yes"])
    assert table.link == "sigmoid"
    np.testing.assert_allclose(table.logits[:, 0], np.log([9, 0.25, 1]))
    np.testing.assert_array_equal(table.labels[:, 0], [1, 0, 1])
    assert read_scores({"score": [3.0, -1.0], "label": [1, 0]}).logits[0] == 3  # outside [0, 1]: logits
    message = r"classes must say .* positive one, got \['ham', 'spam'\]: name it last, as in --classes ham,spam if"
    with pytest.raises(InputError, match=message):
        read_scores({"prob": [0.9, 0.2], "label": ["spam", "ham"]})


@pytest.mark.parametrize("labels", [("yes", "no"), ("Yes", "no"), ("YES", "NO"), ("True", "False"), ("true", "FALSE")])
def test_yes_and_true_are_the_positive_class(labels):
    table = {"prob": [0.9, 0.2], "label": labels}
    read = read_scores(table)
    np.testing.assert_array_equal(read.labels[:, 0], [1, 0])
    assert read.classes in (labels[::-1], ())
    again = read_scores({"prob": [0.2], "label": labels[1:]}, schema=read.schema)
    np.testing.assert_array_equal(again.labels, [[0]])


@pytest.mark.parametrize("labels", [[[0, 1, 1], [1, 0, 0]], [["b", "c"], ["a"]], [[1, 2], [0]]])
def test_several_labels(labels):
    table = read_scores({"probabilities": [[0.1, 0.7, 0.8], [0.6, 0.2, 0.3]], "labels": labels}, classes="abc")
    assert table.link == "sigmoid"
    np.testing.assert_array_equal(table.labels, [[0, 1, 1], [1, 0, 0]])
    np.testing.assert_allclose(1 / (1 + np.exp(-table.logits)), [[0.1, 0.7, 0.8], [0.6, 0.2, 0.3]])


def test_a_column_for_each_of_several_labels(tmp_path):
    text = "prob_a,prob_b,label_b,label_a\n0.9,0.8,1,1\n0.2,0.7,0,\n"
    (tmp_path / "s.csv").write_text(text)
    table = read_scores(tmp_path / "s.csv")
    assert table.link == "sigmoid"
    np.testing.assert_array_equal(table.labels, [[1, 1], [np.nan, 0]])
    (tmp_path / "s.csv").write_text(text.replace("0.7,0", "0.7,2"))
    with pytest.raises(InputError, match=r"must hold 0 or 1 for each label, got 2 in 'label_b' in line 3 of s\.csv"):
        read_scores(tmp_path / "s.csv")
    with pytest.raises(
        InputError, match=r"label_column must hold 0 or 1 for each label, got yes in 'label_a' in row 0"
    ):
        read_scores({"prob_a": [0.5], "prob_b": [0.2], "label_a": ["yes"], "label_b": [True]})


def test_integers_that_are_names_of_classes():
    table = read_scores({"prob_1": [0.9, 0.2], "prob_5": [0.1, 0.8], "label": [1, 5]})
    np.testing.assert_array_equal(table.labels, [0, 1])
    with pytest.raises(InputError, match=r"label_column must hold names of classes, got .*'3'"):
        read_scores({"prob_1": [0.9], "prob_5": [0.1], "label": [3]})


def test_rounded_probabilities_are_taken_with_a_note():
    rng = np.random.default_rng(0)
    given = rng.dirichlet(np.ones(10), 500)
    table = read_scores({"probabilities": given.round(3), "label": rng.integers(10, size=500)})
    assert table.floor == 0.0005
    assert [note.partition(",")[0] for note in table.notes] == [
        f"{(given.round(3) < 0.0005).any(1).sum()} rows of scores have probabilities below 5e-04",
        f"the probabilities of scores are rounded to 3 decimals: {500 - len(np.unique(given.round(3).max(1)))} "
        "confidences are tied",
    ]
    labels = np.zeros(500, int)
    for decimals, floor in ((3, 0.0005), (6, 5e-7), (12, 1e-12)):
        rounded = given.round(decimals)
        for probabilities in (rounded, rounded.astype(np.float32), rounded.astype(np.float32).astype(float)):
            assert read_scores({"probabilities": probabilities, "label": labels}).floor == floor
    assert not read_scores({"probabilities": given, "label": labels}).notes


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("csv", [0.5, 0.2, 0.1], "probabilities whose sum is 1 within .* got 0.5, 0.2, 0.1 in line 4 of scores.csv"),
        ("csv", [-0.5, 0.5, 1.0], r"numbers within \[0, 1\] in each row, got -0.5, 0.5, 1 in line 4"),
        ("csv", [0.5, 0.5, 1.5], r"numbers within \[0, 1\] in each row, got 0.5, 0.5, 1.5 in line 4"),
        ("csv", [None, 0.5, 0.5], "finite numbers in each row, got nan, 0.5, 0.5 in line 4"),
        ("tsv", [np.inf, 0.5, 0.5], "finite numbers in each row, got inf, 0.5, 0.5 in line 4"),
        ("jsonl", [0.5, 0.2, 0.1], "in line 3 of scores.jsonl"),
        ("parquet", [0.5, 0.2, 0.1], "in row 2 of scores.parquet"),
    ],
)
def test_a_wrong_row_is_named(kind, row, message, tmp_path):
    rows = [*PROBABILITIES[:2].tolist(), row, PROBABILITIES[3].tolist()]
    columns = {name: [own[i] for own in rows] for i, name in enumerate(COLUMNS)}
    with pytest.raises(InputError, match=f"^scores must hold {message}" if "in each row" in message else message):
        read_scores(write(tmp_path / f"scores.{kind}", columns | {"label": [*"abca"]}))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1.0], "label": [0]}, {}, r"^score_column must name the scores among the columns \['a', 'label'\]"),
        ({"logits": [[1.0, 2.0]]}, {}, "^label_column must name a column"),
        ({"logits": [[1.0, 2.0]], "label": [2]}, {}, "^label_column must hold 0 to 1 or names, got 2 in row 0"),
        ({"logits": [[1.0, 2.0]], "label": [0.5]}, {}, "^label_column must hold whole numbers or names, got 0.5"),
        (
            {"logits": [[1.0, 2.0]], "label": ["x"]},
            {},
            "got 'x' in 'label' in row 0 of scores: the scores have no names: give classes",
        ),
        ({"logits": [[1.0, 2.0], [1.0]], "label": [0, 0]}, {}, "must hold 2 numbers in each list, .* got 1 in row 1"),
        ({"logits": [b"a"], "label": [0]}, {}, "^score_column must hold numbers, got binary in 'logits'"),
        ({"logits": [[1.0, np.nan]], "label": [0]}, {}, "must hold numbers, not NaN in each row, got 1, nan in row 0"),
        ({"logits": [[-np.inf] * 2], "label": [0]}, {}, "logits with a finite maximum in each row, got -inf, -inf"),
        ({"logits": [], "label": []}, {}, "^scores must have rows, got none"),
        ({"logits": [[1.0], None], "label": [0, 0]}, {}, "must hold 1 numbers in each list, .* got 0 in row 1"),
        ({"logits": [[1.0, 2.0]], "label": [0]}, {"classes": ["a"]}, "^classes must name the 2 scores of each sample"),
        ({"logits": [[1.0, 2.0]], "label": [0]}, {"group": "g"}, "^group must be one of"),
        ({"logits": [[1.0, 2.0]], "label": [0]}, {"kind": "odds"}, "^kind must be 'logits', 'probabilities'"),
        (
            {"confidence": [1.5], "correct": [1]},
            {},
            r"must hold numbers within \[0, 1\] in each row, got 1.5 in row 0",
        ),
    ],
)
def test_wrong_tables_get_one_error_that_names_it(columns, options, message):
    with pytest.raises(InputError, match=message):
        read_scores(columns, **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0.4,x,a", "score_column must hold numbers, got 'x' in 'prob_b' in line 3 of s.csv"),
        ("0.4,0.6,c", "label_column must hold names of classes, got 'c' in 'label' in line 3 of s.csv"),
        ("0.4,0.6,", "label_column must hold names of classes, got '' in 'label' in line 3 of s.csv"),
        ("0.4,0.6", "scores must be a csv file with a column for each part, .* Expected 3 columns, got 2"),
    ],
)
def test_a_wrong_line_of_a_text_file_is_named(rows, message, tmp_path):
    (tmp_path / "s.csv").write_text(f"prob_a,prob_b,label\n0.5,0.5,a\n{rows}\n")
    with pytest.raises(InputError, match=message):
        read_scores(tmp_path / "s.csv")


def test_blank_lines_and_quoted_line_breaks_count_as_lines(tmp_path):
    text = 'prob_a,prob_b,text,label\n\n0.5,0.5,"one\n\ntwo",a\n\n0.4,0.2,three,a\n'
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(InputError, match=r"in line 7 of s\.csv"):
        read_scores(tmp_path / "s.csv")
    (tmp_path / "s.jsonl").write_text('{"probs": [0.5, 0.5], "label": 0}\n\n{"probs": [0.4, 0.2], "label": 0}\n')
    with pytest.raises(InputError, match=r"in line 3 of s\.jsonl"):
        read_scores(tmp_path / "s.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("confidence,correct\n0.5,1\n0.6,2\n", "correct_column must hold true or false, or 1 or 0, got 2 in line 3"),
        ("confidence,correct\n0.5,true\n0.6,\n", "correct_column must hold .* got None in line 3"),
        ("confidence,correct\n0.5,1\n,1\n", "scores must hold numbers within .* got nan in line 3"),
        ("prob_a,prob_a,label\n0.5,0.5,a\n", "score_column must have columns with different names"),
        ("score,label\n0.5,1\n0.4,2\n", "label_column must hold 0 to 1 or names, got 2 in line 3"),
        ("prob_a,prob_b,label\n", "scores must have rows, got none in s.csv"),
    ],
)
def test_other_wrong_files(text, message, tmp_path):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_scores(tmp_path / "s.csv")


def test_arrays_in_npy_files(tmp_path):
    table = pd.DataFrame({f"logit_{name}": LOGITS[:, i] for i, name in enumerate("abc")}).assign(label=LABELS)
    np.save(tmp_path / "scores.npy", table.to_records(index=False))
    read = read_scores(tmp_path / "scores.npy", classes="abc")
    np.testing.assert_array_equal(read.logits, LOGITS)
    np.testing.assert_array_equal(read.labels, LABELS)
    np.save(tmp_path / "scores.npy", LOGITS)
    np.testing.assert_array_equal(read_scores(tmp_path / "scores.npy", needs_labels=False).logits, LOGITS)
    with pytest.raises(InputError, match=r"label_column must name a column of scores\.npy"):
        read_scores(tmp_path / "scores.npy")


def test_files_that_cannot_be_read(tmp_path):
    for name, text, message in (
        ("scores.txt", "", "must end in .csv"),
        ("none.csv", None, "must be an existing file"),
        ("scores.json", "{", "must be a json file"),
        ("scores.parquet", "text", "must be a parquet file"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            read_scores(tmp_path / name)
    (tmp_path / "scores.json").write_text(json.dumps({"logits": LOGITS.tolist(), "label": LABELS.tolist()}))
    assert len(read_scores(tmp_path / "scores.json").logits) == 4  # columns instead of records
    pq.write_table(
        pa.table({"logits": pa.array(LOGITS.tolist(), pa.list_(pa.float32())), "label": LABELS}),
        tmp_path / "scores.parquet",
    )
    assert read_scores(tmp_path / "scores.parquet").logits.dtype == np.float32


def test_numbered_columns_stand_for_the_places_of_the_given_classes():
    table = {"prob_1": [0.9, 0.4], "prob_0": [0.1, 0.6], "label": ["dog", "cat"]}
    read = read_scores(table, classes=("cat", "dog"))
    np.testing.assert_allclose(np.exp(read.logits), [[0.1, 0.9], [0.6, 0.4]])
    assert read.labels.tolist() == [1, 0]


def test_decimals_are_those_of_all_rows():
    scores = np.r_[np.ones(1000), np.linspace(0.99, 0.0001, 3000).round(4)]
    table = {"score": scores, "label": (scores > 0.5).astype(int)}
    shuffled = {name: np.random.default_rng(0).permutation(values) for name, values in table.items()}
    read = read_scores(table)
    assert read.floor == read_scores(shuffled).floor == 5e-5
    assert "rounded to 4 decimals" in " ".join(read.notes)


def test_predicted_classes_are_no_scores():
    table = {"prob_0": [0.9, 0.4], "prob_1": [0.1, 0.6], "predictions": [0, 1], "label": [0, 1]}
    assert read_scores(table).logits.shape == (2, 2)
    with pytest.raises(InputError, match="score_column must name the scores, since predictions has no lists"):
        read_scores({"predictions": [0, 1], "label": [0, 1]})
    assert read_scores({"predictions": [[0.5, 1.0]], "label": [0]}).kind == "logits"


def test_a_missing_list_of_labels_is_named():
    with pytest.raises(InputError, match="label_column must have no missing labels, got one in row 1"):
        read_scores({"logits": [[0.5, 1.0]] * 2, "labels": [[0], None]})


@pytest.mark.parametrize("kind", ["probabilities", "percentages"])
def test_decisions_are_not_probabilities_rounded_to_no_decimal(kind, tmp_path):
    scores, labels = np.repeat([1.0, 1, 1, 1, 0], 8), np.repeat([0, 0, 1, 1, 1], 8)
    scores = scores * (100 if kind == "percentages" else 1)
    pd.DataFrame({"score": scores, "label": labels}).to_csv(tmp_path / "decisions.csv", index=False)
    result = evaluate_scores(tmp_path / "decisions.csv", kind=kind)
    # 32 samples say 1, and half of them are; 8 say 0, and none of them are.
    assert result.pre["ece"] == pytest.approx(0.8 * 0.5 + 0.2 * 1, abs=0.006)
    assert any("0 and 1 only, which are decisions rather than probabilities" in note for note in result.notes)


def test_a_threshold_of_yes_or_no_is_that_of_yes(tmp_path):
    random = np.random.default_rng(0)
    p = random.beta(1, 3, size=600)
    labels = (random.random(600) < p).astype(int)
    result = calibrate_scores({"probability": p, "label": labels}, recall=0.8, output=tmp_path / "out")
    assert [label.name for label in result.thresholds.labels] == ["1"]
    thresholds = json.loads((tmp_path / "out" / "correction.json").read_text())["thresholds"]
    assert apply_thresholds([[{"label": "1", "score": 0.9}], [{"label": "1", "score": 0.01}]], thresholds) == [
        ["1"],
        [],
    ]


def test_a_log_probability_that_an_api_does_not_return_is_refused():
    rows = [{"yes": -0.1, "no": -9999.0}, {"yes": -2.0, "no": -0.15}]
    with pytest.raises(InputError, match=r"must hold logarithms .* got -0\.1, -9999 in row 0 .* do not return"):
        read_scores({"logprobs": rows, "label": ["no", "no"]})


def test_probabilities_of_yes_have_no_sum():
    halves = np.random.default_rng(0).random(40).astype(np.float16).astype(float).tolist()
    labels = [0, 1] * 20
    (note,) = read_scores({"probability": halves, "label": labels}, kind="probabilities").notes
    assert note.endswith("are numbers of half precision")
    decisions = read_scores({"probability": [1.0, 1.0, 0.0, 0.0] * 10, "label": labels}, kind="probabilities")
    of_both = read_scores({"probabilities": [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]] * 10, "label": labels})
    assert not any("precision" in note for note in decisions.notes)
    np.testing.assert_allclose(np.ptp(decisions.logits), np.ptp(of_both.logits[:, 1] - of_both.logits[:, 0]))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_groups_have_the_same_names_in_every_format(kind, tmp_path):
    file = write(tmp_path / f"s.{kind}", COLUMNS | {"label": LABELS, "g": [1, 2, 1, 2]})
    assert read_scores(file, group="g", classes="abc").groups.tolist() == ["1", "2", "1", "2"]
    file = write(tmp_path / f"m.{kind}", COLUMNS | {"label": LABELS, "g": [1, None, 1, 2]})
    with pytest.raises(InputError, match=r"group must have no missing values, got one in (line [23]|row 1) of m"):
        read_scores(file, group="g", classes="abc")


def test_columns_of_rows_by_their_index_are_joined_by_it(tmp_path):
    columns = {"prob_a": {"0": 0.9, "1": 0.2, "2": 0.4}, "prob_b": {"0": 0.1, "1": 0.8, "2": 0.6}}
    file = tmp_path / "s.json"
    file.write_text(json.dumps(columns | {"label": {"2": "a", "1": "b", "0": "b"}}))
    assert read_scores(file).labels.tolist() == [1, 1, 0]
    file.write_text(json.dumps(columns | {"label": {"2": "a", "1": "b", "3": "b"}}))
    with pytest.raises(InputError, match="expected the same index in all columns, got another one in 'label'"):
        read_scores(file)


def test_a_test_set_in_a_file_of_the_same_name_is_one_of_its_own(tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("a", "b"):
        logits = 3 * rng.normal(size=(400, 3))
        labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        (tmp_path / folder).mkdir()
        columns = {f"logit_{name}": logits[:, i] for i, name in enumerate("abc")}
        write(tmp_path / folder / "scores.csv", columns | {"label": np.array([*"abc"])[labels]})
    files = (tmp_path / folder / "scores.csv" for folder in ("a", "b"))
    result = calibrate_scores(next(files), test_scores=next(files), method="temperature", output=tmp_path / "out")
    assert result.has_own_test_data and "optimistic" not in (tmp_path / "out" / "report.html").read_text()
    assert not calibrate_scores(tmp_path / "a" / "scores.csv", method="temperature").has_own_test_data
