import re

import numpy as np
import pandas as pd
import pytest

from hf_focal import InputError, calibrate_scores, evaluate_scores, measure, read_scores
from hf_focal.scores import Schema, correct_file
from hf_focal.scores.columns.cluster_columns import cluster_column_of

CLASSES = ("anger", "joy", "fear")
COLUMNS = [f"P(y={name}) [NB v2.1]" for name in CLASSES]
LISTED = {"score_column": ",".join(COLUMNS), "classes": CLASSES, "label_column": "Gold Standard"}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([0.5] * 3, 300)
    labels = [CLASSES[rng.choice(3, p=row)] for row in probabilities]
    # The table has the columns in another order than the user lists them.
    table = pd.DataFrame(probabilities, columns=COLUMNS)[COLUMNS[::-1]]
    return table.assign(**{"Gold Standard": labels})


# Columns with any names, which the user lists together with their classes


def test_listed_columns_are_those_of_the_classes_one_by_one(frame):
    read = read_scores(frame, **LISTED)
    assert read.classes == CLASSES and read.schema.columns == tuple(COLUMNS)
    np.testing.assert_allclose(np.exp(read.logits), frame[COLUMNS])
    assert [CLASSES[number] for number in read.labels] == frame["Gold Standard"].tolist()
    other_order = read_scores(frame, **LISTED | {"score_column": COLUMNS[::-1], "classes": CLASSES[::-1]})
    np.testing.assert_array_equal(other_order.logits, read.logits[:, ::-1])


def test_the_schema_keeps_which_listed_column_is_which_class(frame, tmp_path):
    table = tmp_path / "s.csv"
    frame.to_csv(table, index=False)
    result = calibrate_scores(table, output=tmp_path / "out", test_scores=frame, **LISTED)
    renamed = frame.rename(columns=dict(zip(COLUMNS, [f"prob_{name}" for name in CLASSES], strict=True)))
    expected = evaluate_scores(renamed, label_column="Gold Standard").pre
    streamed = measure(table, **LISTED)
    assert result.pre["nll"] == pytest.approx(expected["nll"])
    assert evaluate_scores(streamed).pre["nll"] == pytest.approx(expected["nll"])
    schema = Schema.from_dict(streamed.schema.to_dict())
    for score_column in (None, COLUMNS[::-1]):
        again = read_scores(frame, schema=schema, score_column=score_column)
        np.testing.assert_allclose(np.exp(again.logits), frame[COLUMNS])
    correct_file(tmp_path / "out" / "correction.json", table, tmp_path / "corrected.csv")
    corrected = evaluate_scores(tmp_path / "corrected.csv", score_column="calibrated_", label_column="Gold Standard")
    assert corrected.pre["nll"] == pytest.approx(result.post["nll"])


def test_listed_columns_that_are_called_as_the_classes_are_matched_by_name(frame):
    frame = frame.rename(columns=dict(zip(COLUMNS, CLASSES, strict=True)))
    read = read_scores(frame, **LISTED | {"score_column": "fear,anger,joy"})
    np.testing.assert_allclose(np.exp(read.logits), frame[[*CLASSES]])


@pytest.mark.parametrize(
    ("columns", "classes", "message"),
    [
        (("P(y=joy)!", "P(y=anger)!"), ("anger", "joy"), r"classes must be .* got 'anger' for 'P\(y=joy\)!', not for"),
        (("Joy", "Anger"), ("anger", "joy"), "classes must be in the order of the columns .* got 'anger' for 'Joy'"),
        (("joy", "x", "anger"), ("anger", "joy", "fear"), "got 'anger' for 'joy', not for 'anger'"),
        (("prob_1", "prob_0"), ("anger", "joy"), "score_column must list numbered columns in ascending order"),
        (("u", "v"), ("joy", "joy"), "classes must be different names"),
        (("u", "v"), ("anger", "joy", "fear"), "classes must name the 2 scores of each sample"),
    ],
)
def test_listed_columns_whose_names_contradict_the_classes_are_refused(columns, classes, message):
    table = {name: [0.5, 1 / 3] for name in columns} | {"label": ["joy", "anger"]}
    with pytest.raises(InputError, match=message):
        read_scores(table, score_column=columns, classes=classes, kind="probabilities")


def test_columns_by_the_beginning_of_their_names_are_no_list(frame):
    with pytest.raises(InputError, match=r"must be the names of the columns .* or list the columns in score_column"):
        read_scores(frame, **LISTED | {"score_column": "P(y="})


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("P(y={}) [NB v2.1]", "P(y=*) [NB v2.1]"),
        ("P(z={})", "P(z=*"),
        ("P(z={})", "P(z="),
        ("{} of model[1]", "* of model[1]"),
        ("m, {}", "m, *"),
    ],
)
def test_a_pattern_names_the_columns_of_all_classes(frame, name, pattern):
    table = frame.set_axis([*(name.format(label) for label in CLASSES[::-1]), "Gold Standard"], axis=1)
    read = read_scores(table, score_column=pattern, label_column="Gold Standard", kind="probabilities")
    assert read.classes == CLASSES[::-1]
    np.testing.assert_allclose(np.exp(read.logits), frame[COLUMNS[::-1]])


@pytest.mark.parametrize("pattern", ["P(x=*)", "P(*=*)", "*P(y=*) [NB v2.1]", "P(y=joy) [NB v2.1]*"])
def test_a_pattern_that_fits_no_column_is_refused(frame, pattern):
    with pytest.raises(
        InputError, match=r"^score_column must be, .* a pattern of them with one \* for the class, got '"
    ):
        read_scores(frame, score_column=pattern, label_column="Gold Standard")


@pytest.mark.parametrize("name", ["P(y={})", "p(Y = {} | x)", "prob[label={}]"])
def test_the_class_of_an_event_is_its_value(frame, name):
    table = frame.set_axis([*(name.format(label) for label in CLASSES[::-1]), "gold"], axis=1)
    assert read_scores(table).classes == CLASSES[::-1]


def test_listed_names_may_have_commas_and_spaces(frame):
    names = ["a, b", "a", " c,  d"]
    table = frame.set_axis([*names, "gold"], axis=1)
    read = read_scores(table, score_column=",".join(names), classes=CLASSES[::-1], kind="probabilities")
    assert read.schema.columns == tuple(names)
    table = frame.set_axis(["a", "b", "a,b", "gold"], axis=1)
    with pytest.raises(InputError, match=r"can be read in two ways, \['a', 'b', 'a,b'\] and \['a,b', 'a'"):
        read_scores(table, score_column="a,b,a,b")


# Tables with unknown names


def test_the_error_for_unknown_columns_shows_the_command(frame):
    frame = frame.rename(columns={column: f"Bayes ({column[4:-11]}) [NB v2.1]" for column in COLUMNS})
    known = "--score_column 'Bayes (*) [NB v2.1]' --label_column"
    frame["Comment"] = [None, *["text"] * 299]
    with pytest.raises(InputError, match=re.escape(f"{known} 'Gold Standard'")):
        read_scores(frame)
    with pytest.raises(InputError, match=re.escape(f"{known} 'Gold Standard'")):
        read_scores(frame, label_column="Gold Standard")
    with pytest.raises(InputError, match=re.escape(known.removesuffix(" --label_column")) + "$"):
        read_scores(frame, needs_labels=False)
    with pytest.raises(InputError, match=r"give --score_column 'P, Q,Q' --label_column NAME$"):
        read_scores({"text": ["x"], "P, Q": [0.5], "Q": [0.5]})
    with pytest.raises(InputError, match=r"give --score_column NAME,NAME --label_column NAME$"):
        read_scores({"text": ["x"]})


def test_the_error_for_unknown_columns_suggests_no_hits_as_scores():
    table = {"acc": [0.0, 1.0] * 20, "target": ["1", "0"] * 20}  # of a log of answers
    with pytest.raises(InputError, match="give --score_column NAME,NAME --label_column target"):
        read_scores(table)
    with pytest.raises(InputError, match="give --score_column belief --label_column target"):
        read_scores(table | {"belief": [0.25, 0.5] * 20})


@pytest.mark.parametrize("prediction", ["pred", ".pred_class", "y.hat", "guess"])
def test_the_error_for_unknown_columns_suggests_no_predictions_as_labels(prediction):
    probabilities = np.random.default_rng(0).dirichlet([1, 1, 1], 60)
    scores = {name: probabilities[:, i] for i, name in enumerate(CLASSES)}
    predicted = {prediction: np.array(CLASSES)[probabilities.argmax(1)]}
    labels = np.array(CLASSES)[np.arange(60) % 3]
    with pytest.raises(InputError, match=r"give --label_column obs, whose values name the columns of scores$"):
        read_scores(predicted | {"obs": labels} | scores)
    with pytest.raises(InputError, match="give --label_column first or --label_column second, whose values name"):
        read_scores(predicted | {"first": labels, "second": labels[::-1]} | scores)
    with pytest.raises(InputError) as refused:
        read_scores(predicted | scores)
    assert "--label_column NAME" in str(refused.value)


def test_a_column_that_is_chosen_for_the_scores_holds_no_predictions():
    weka = {"actual": ["a", "b", "a"], "predicted": ["a", "b", "b"], "prediction": [0.9, 0.8, 0.6]}
    read = read_scores(weka, score_column="prediction", kind="confidence")
    assert read.schema.prediction_column == "predicted" and read.labels.tolist() == [1, 1, 0]


def test_the_errors_for_many_columns_list_only_some():
    table = {f"class {i}": [0.1, 0.2] for i in range(1000)} | {"label": ["class 1", "class 2"]}
    for arguments in ({"score_column": "x"}, {"score_column": "x,y"}, {"label_column": "x"}):
        with pytest.raises(InputError) as refused:
            read_scores(table, **arguments)
        assert len(str(refused.value)) < 600 and "1001 in all" in str(refused.value)


def test_a_missing_column_of_labels_is_not_blamed_on_the_scores(frame):
    with pytest.raises(
        InputError, match=r"^label_column must name a column of .* got 'Glod'; .* --label_column 'Gold Standard'"
    ):
        read_scores(frame, label_column="Glod")
    named = frame.rename(columns=dict(zip(COLUMNS, CLASSES, strict=True)))
    with pytest.raises(InputError, match=r"^label_column must name the labels .* give --label_column 'Gold Standard'"):
        read_scores(named.assign(Comment=None))
    assert read_scores(named, label_column="Gold Standard").classes == CLASSES[::-1]


# Names that people give to columns


@pytest.mark.parametrize(
    "label", [" TRUE LABEL", "True Label", "true-label", "TrueLabel", "Y (true)", "LABEL:", "Gold."]
)
@pytest.mark.parametrize(
    "scores",
    [
        ("Prob. cat", "Prob. dog"),
        ("P (cat)", "P (dog)"),
        (" prob_cat", "prob_dog "),
        ("cat - Prob", "dog - Prob"),
        ("Probability: cat", "Probability: dog"),
    ],
)
def test_case_spaces_and_punctuation_of_names_do_not_matter(label, scores):
    table = {scores[0]: [0.8, 0.3, 0.6], scores[1]: [0.2, 0.7, 0.4], label: ["cat", "dog", "dog"]}
    read = read_scores(table)
    assert read.classes == ("cat", "dog") and read.labels.tolist() == [0, 1, 1]
    np.testing.assert_allclose(np.exp(read.logits), np.stack([table[name] for name in scores], 1))


def test_names_of_confidences_and_predictions_are_normalized_too():
    table = {" Max. Prob": [0.9, 0.6], "Predicted Label:": ["a", "b"], "TRUE LABEL ": ["a", "a"]}
    read = read_scores(table)
    assert read.kind == "confidence" and read.labels.tolist() == [1, 0]
    correct = read_scores({"Confidence": [0.9, 0.6], "Is Correct?": [True, False]})
    assert correct.kind == "confidence" and correct.labels.tolist() == [1, 0]
    yes = read_scores({"Predicted Prob.": [0.9, 0.1, 0.6], "True Label": [1, 0, 0]})
    assert yes.link == "sigmoid" and yes.labels.ravel().tolist() == [1, 0, 0]
    assert cluster_column_of(["Question ID", "text?"], None) == "text?"
    assert cluster_column_of(["QuestionID", "Text", "TEXT"], None) == "QuestionID"


@pytest.mark.parametrize(
    ("labels", "others"),
    [([0, 1, 1], [0.0, 1.0, 1.0]), ([0, 1, 1], ["0", "1", "1"]), ([0, 1, 1], ["no", "yes", "yes"])],
)
def test_two_columns_of_labels_may_hold_the_same(labels, others):
    read = read_scores({"probability": [0.1, 0.8, 0.6], "label": labels, "target": others})
    assert read.labels.ravel().tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "others"),
    [([0, 1, 1], [1, 0, 0]), ([0, 1, 1], ["1", "0", "0"]), ([0, 1, 2], [1, 2, 0]), (["a", "b", "b"], ["b", "a", "a"])],
)
def test_two_columns_of_labels_that_swap_them_are_not_the_same(labels, others):
    with pytest.raises(InputError, match=r"label_column must name the column of labels, since .* differ"):
        read_scores({"logits": [[0.9, 0.2, 0.4]] * 3, "label": labels, "target": others})


def test_the_minus_of_a_class_stays():
    read = read_scores({"logit_-1": [1.0, 0.0], "logit_1": [0.0, 2.0], "label": [-1, 1]})
    assert read.classes == ("-1", "1") and read.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"p": [0.9, 0.1], "Label": [1, 0], "LABEL ": [0, 0]},
            "label_column must name .* differ: give --label_column Label",
        ),
        (
            {"P": [0.9, 0.1], "Predicted Prob.": [0.8, 0.1], "y": [1, 0]},
            "score_column must name one of .* give --score_column P",
        ),
        (
            {"conf": [0.9, 0.6], "Pred": ["a", "b"], "pred.": ["a", "a"], "label": ["a", "b"]},
            r"must not have columns that are called alike, got \['Pred', 'pred.'\]: rename one",
        ),
        (
            {"conf": [0.9, 0.6], "Correct": [1, 0], "correct?": [1, 1]},
            r"correct_column must not have .* give --correct_column Correct",
        ),
        (
            {"P(cat)": [0.9, 0.6], "P( cat)": [0.9, 0.6], "label": ["a", "b"]},
            "score_column must have columns of different",
        ),
        (
            {"a": [0.9, 0.6], "b": [0.1, 0.4], "The Verdict": ["x", "y"]},
            "--score_column a,b --label_column 'The Verdict'$",
        ),
        ({"prob": [0.9, 0.6], "it's true": [1, 0]}, "name another with --label_column 'it'\"'\"'s true'$"),
    ],
)
def test_names_that_leave_a_choice_are_asked_for_with_the_option(table, message):
    with pytest.raises(InputError, match=message):
        read_scores(table)


def test_a_column_whose_name_is_mistyped_is_suggested_as_an_option():
    table = {"Cat Score": [0.9, 0.6], "Dog Score": [0.1, 0.4], "y": ["x", "y"]}
    with pytest.raises(InputError, match=r"got 'Dog Scor': give --score_column 'Cat Score,Dog Score'$"):
        read_scores(table, score_column="Cat Score,Dog Scor")
