"""Notes on rows, of which there may be one."""

import numpy as np
import pytest

from hf_focal import evaluate_scores, read_scores
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.scores.values.value_notes import fill_in


@pytest.mark.parametrize(("rows", "text"), [(1, "1 row of s.csv has x"), (2000, "2,000 rows of s.csv have x")])
def test_verbs_follow_the_number_of_rows(rows, text):
    assert fill_in("{rows} of {data_name} {have} x", rows, "s.csv") == text


def test_one_row_of_a_table_is_one():
    table = {"prob_a": [1.0, 0.25, 0.5], "prob_b": [0.0, 0.75, 0.5], "label": ["a", "b", "a"]}
    notes = read_scores(table, floor=1e-3).notes
    assert "1 row of scores has probabilities below 1e-03, which are taken as 1e-03" in notes
    logits = {"logits": [[-1e9, 2.0], [0.5, 1.0]], "label": [1, 0]}
    assert read_scores(logits).notes == ("the logit -1e+09 in 1 row of scores is taken as -inf: a masked class",)


def test_probabilities_of_one_are_said_to_be_lower():
    table = {"confidence": [100, 100, 95, 70], "correct": [1, 0, 1, 0]}
    options = {"score_column": "confidence", "label_column": "correct", "kind": "percentages"}
    scores = read_scores(table, **options)
    assert "2 rows of scores have probabilities above 0.995, which are taken as 0.995" in scores.notes
    assert 1 / (1 + np.exp(-scores.logits[0, 0])) == pytest.approx(0.995, abs=1e-4)


def test_the_error_of_confidences_is_said_not_to_be_the_share_of_wrong_answers():
    table = {"confidence": [0.9, 0.6, 0.8, 0.4] * 10, "correct": [1, 0, 1, 0] * 10}
    result = evaluate_scores(table, score_column="confidence", label_column="correct")
    assert result.link == "sigmoid" and "of the answers are right" in result.describe()
    assert "the error is how often it is wrong to accept the answers with a confidence above ½ and no others" in (
        result.notes
    )
    assert "to accept answers with a known precision" in " ".join(map(str, next_steps(result)))


def test_lists_without_numbers_are_refused():
    with pytest.raises(ValueError, match="score_column must hold numbers in each list, got an empty one in row 0"):
        read_scores({"logits": [[], []], "label": [0, 1]})
