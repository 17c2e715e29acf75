"""`evaluation_pass`: which batches are measured, and which metrics are logged under which names."""

import pytest
import torch
from torch import nn

from hf_focal import InputError
from hf_focal.trainer.evaluation_pass import EvaluationPass, add_metrics


def test_the_first_pass_of_the_evaluated_model_is_measured():
    model, batch = nn.Linear(1, 2), {"labels": torch.tensor([0, 1])}
    current = EvaluationPass(object())
    current.begin_batch(model, batch)
    assert current.batch_to_measure(nn.Linear(1, 2), batch) is None  # another model, such as a teacher
    with pytest.raises(TypeError, match="compute_loss of Mine must call"):
        current.end_batch("Mine")
    current.begin_batch(model, batch)
    assert current.batch_to_measure(model, batch) is batch
    assert current.batch_to_measure(model, batch) is None
    current.end_batch("Mine")
    with pytest.raises(InputError, match="the dataset to measure must have a column"):
        current.begin_batch(model, {"input_ids": torch.tensor([0])})


def test_labels_are_optional_only_in_predictions():
    predictions, unlabeled = EvaluationPass(object(), labels_optional=True), {"input_ids": torch.tensor([0])}
    predictions.begin_batch(nn.Linear(1, 2), unlabeled)
    predictions.end_batch("Mine")
    assert EvaluationPass(object()).labels_required and not EvaluationPass().labels_required


def test_nothing_is_measured_between_passes():
    idle, batch = EvaluationPass(), {"labels": torch.tensor([0])}
    idle.begin_batch(nn.Linear(1, 2), batch)
    assert idle.batch_to_measure(nn.Linear(1, 2), batch) is None
    idle.end_batch("Mine")


def test_metrics_of_the_user_keep_their_names(caplog):
    returned = {"eval_loss": 3.0, "eval_error": 0.5, "eval_ece": 0.1, "eval_bleu": 20.0}
    add_metrics(returned, {"eval_loss": 1.0, "eval_error": 0.25, "eval_ece": 0.1, "eval_nll": 2.0}, "eval")
    assert returned == {
        "eval_loss": 1.0,
        "eval_error": 0.5,
        "eval_ece": 0.1,
        "eval_bleu": 20.0,
        "eval_built_in_error": 0.25,
        "eval_nll": 2.0,
    }
    assert caplog.text.count("logged as built_in_error") == 0 and "eval_built_in_error" in caplog.text
    untouched = {"eval_loss": 3.0}
    add_metrics(untouched, {}, "eval")
    assert untouched == {"eval_loss": 3.0}


def test_the_user_may_not_take_the_name_of_a_hidden_metric():
    for returned in ({"eval_ece": 0.5, "eval_built_in_ece": 0.6}, {"eval_built_in_ece": 0.6}):
        with pytest.raises(
            InputError, match="compute_metrics must not return 'built_in_ece', which is the name of the"
        ):
            add_metrics(returned, {"eval_ece": 0.1}, "eval")
    returned = {"eval_built_in_bleu": 20.0}
    add_metrics(returned, {"eval_ece": 0.1}, "eval")
    assert returned == {"eval_built_in_bleu": 20.0, "eval_ece": 0.1}


@pytest.mark.parametrize("value", [{"accuracy": 0.5}, None, "n/a", [0.5, 0.6], [[0.5], [0.6, 0.7]]], ids=str)
def test_what_the_user_calls_as_a_metric_may_be_no_number(value, caplog):
    returned = {"eval_accuracy": value}
    add_metrics(returned, {"eval_accuracy": 0.25}, "eval")
    assert returned == {"eval_accuracy": value, "eval_built_in_accuracy": 0.25}
    assert f"compute_metrics returned accuracy = {value}, but the metric of that name is 0.25" in caplog.text
