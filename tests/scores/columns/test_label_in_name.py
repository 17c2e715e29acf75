import numpy as np
import pandas as pd
import pytest

from hf_focal import InputError, read_scores

CLASSES = ("cat", "dog", "bird")


@pytest.fixture(scope="module")
def probabilities():
    return np.random.default_rng(0).dirichlet([0.5] * 3, 300)


@pytest.fixture(scope="module")
def numbers(probabilities):
    rng = np.random.default_rng(1)
    return np.array([rng.choice(3, p=row) for row in probabilities])


@pytest.fixture(scope="module")
def labels(numbers):
    return np.array(CLASSES)[numbers]


def columns(pattern, values, classes=CLASSES):
    return pd.DataFrame(values, columns=[pattern.replace("*", str(name)) for name in classes])


@pytest.mark.parametrize("total", [1, 100])
@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "Predicted Prob. (*)",
            "Predicted Probability of *",
            "y_pred_proba_*",
            "predicted prob.: *",
            "('prob', '*')",
        ),
        *("model_A_prob_*", "gpt4_*_probability", "class_*_prob", "prob_class_*", "score for *"),
        *("conf_*", "confidence (*)", "Prediction *", "output.*"),  # whose sums show what they are
    ],
)
def test_words_beside_the_label_name_scores(probabilities, labels, pattern, total):
    read = read_scores(columns(pattern, probabilities * total).assign(label=labels))
    assert read.classes == CLASSES and any(repr(pattern) in note for note in read.notes)
    np.testing.assert_allclose(np.exp(read.logits), probabilities)
    assert [CLASSES[number] for number in read.labels] == labels.tolist()


@pytest.mark.parametrize("pattern", ["* (%)", "*%", "% *", "*_pct", "prob * (%)", "Prob(*) [%]", "percent *"])
def test_percentages_must_sum_to_100(probabilities, labels, pattern):
    read = read_scores(columns(pattern, (probabilities * 100).round(2)).assign(label=labels))
    assert read.schema.kind == "percentages" and read.classes == CLASSES
    np.testing.assert_allclose(np.exp(read.logits), probabilities, atol=2e-4)
    shares = columns(pattern, probabilities).assign(label=labels)
    with pytest.raises(InputError, match="give --score_column ") as refused:
        read_scores(shares)
    assert pattern in str(refused.value)
    read = read_scores(shares, score_column=pattern, label_column="label")
    assert read.schema.kind == "probabilities" and read.classes == CLASSES


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [("model logit *", "logits"), ("gpt log prob of *", "log-probabilities"), ("my *.score", "logits")],
)
def test_other_kinds(probabilities, labels, pattern, kind):
    read = read_scores(columns(pattern, np.log(probabilities)).assign(label=labels))
    assert read.schema.kind == kind and read.classes == CLASSES


@pytest.mark.parametrize("classes", [(0, 1, 2), (0.0, 1.0, 2.0), ("0", "1", "2"), (True, False, "?")])
def test_labels_of_any_type(probabilities, numbers, classes):
    names = [f"{name:g}" if type(name) is float else str(name) for name in classes]
    size = 2 if classes[0] is True else 3
    values = probabilities[:, :size] / probabilities[:, :size].sum(1, keepdims=True)
    labels = [classes[number % size] for number in numbers]
    read = read_scores(columns("model prob *", values, names[:size]).assign(label=labels))
    np.testing.assert_allclose(np.exp(read.logits), values)
    assert read.labels.tolist() == (numbers % size).tolist()


@pytest.mark.parametrize(
    "pattern",
    [
        *("feature_*", "svm.*", "is_*", "count of *"),  # no words of scores
        *("true_prob_*", "human prob *", "votes_*", "vote share * (%)", "logit_margin of *", "target_output_*"),
        *("Xprob*", "probable_*", "subconf_*"),  # no whole words
    ],
)
def test_what_may_be_something_else_is_asked_for(probabilities, labels, pattern):
    with pytest.raises(InputError, match=r"^(score|label)_column must "):
        read_scores(columns(pattern, probabilities).assign(label=labels))


def test_all_labels_must_be_in_the_names(probabilities, labels):
    for table in (
        columns("Predicted Prob. (*)", probabilities, ("Cat", "dog", "bird")),
        columns("Predicted Prob. (*)", probabilities, ("cats", "dog", "bird")),
        columns("Predicted Prob. (*)", probabilities).rename(columns={"Predicted Prob. (cat)": "Odds (cat)"}),
    ):
        with pytest.raises(InputError, match="score_column must name the scores"):
            read_scores(table.assign(label=labels))


def test_numbers_are_whole(probabilities, numbers):
    table = columns("my prob *", probabilities, ("10", "11", "12")).assign(label=numbers)
    with pytest.raises(InputError, match=r"give --score_column 'my prob \*' --label_column label$"):
        read_scores(table)


def test_several_patterns_are_asked_for(probabilities, labels):
    table = pd.concat([columns("A_prob_*", probabilities), columns("B_prob_*", probabilities[::-1])], axis=1)
    with pytest.raises(
        InputError, match=r"one of the patterns \['A_prob_\*', 'B_prob_\*'\] .* --score_column 'A_prob_\*'"
    ):
        read_scores(table.assign(label=labels))
    read = read_scores(table.assign(label=labels), score_column="B_prob_*")
    np.testing.assert_allclose(np.exp(read.logits), probabilities[::-1])


def test_columns_of_classes_without_a_label_and_of_statistics(probabilities, labels):
    rest = np.full((300, 1), 0.5)
    values = np.hstack([probabilities / 2, rest])
    for pattern, total in (("Predicted Prob. (*)", 1), ("* (%)", 100)):
        read = read_scores(columns(pattern, values * total, (*CLASSES, "fish")).assign(label=labels))
        assert read.classes == (*CLASSES, "fish")
        read = read_scores(
            columns(pattern, np.hstack([probabilities, rest]) * total, (*CLASSES, "max")).assign(label=labels)
        )
        assert read.classes == CLASSES


def test_known_names_come_first(probabilities, labels):
    table = pd.concat([columns("A_prob_*", probabilities[::-1]), columns("prob_*", probabilities)], axis=1)
    np.testing.assert_allclose(np.exp(read_scores(table.assign(label=labels)).logits), probabilities)


def test_several_labels(probabilities):
    hot = (np.random.default_rng(2).random((300, 3)) < 0.4).astype(int)
    probabilities = probabilities[:, ::-1] ** 0.7
    table = columns("Predicted Prob. (*)", probabilities).join(columns("label_*", hot))
    read = read_scores(table)
    assert read.link == "sigmoid" and read.classes == CLASSES
    np.testing.assert_array_equal(read.labels, hot)
    np.testing.assert_allclose(1 / (1 + np.exp(-read.logits)), probabilities, atol=1e-9)


def test_a_column_of_labels_with_another_name_is_found_by_its_values(probabilities, labels):
    table = columns("Predicted Prob. (*)", probabilities).assign(Species=labels)
    with pytest.raises(InputError, match=r"give --label_column Species, whose values name the columns of scores$"):
        read_scores(table)
    assert read_scores(table, label_column="Species").classes == CLASSES
