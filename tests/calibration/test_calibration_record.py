"""The entries of a configuration that hold for probabilities go when these change; shifts of the prior add up."""

import copy
import json
import warnings

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification

from hf_focal import Correction, FocalTrainer, FocalTrainingArguments, Temperature, fold_correction, shift_prior
from hf_focal.calibration.calibration_record import CONFIG_ENTRIES, calibration_record

SIZES = {"vocab_size": 99, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
THRESHOLDS = {"target": "precision", "goal": 0.9, "link": "softmax", "values": {"LABEL_0": 0.8, "LABEL_1": 0.8}}
IDS = torch.arange(1, 13).view(3, 4)


def model_of(num_labels=2, **config):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SIZES, num_labels=num_labels, **config)).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    return model


def logits_of(model):
    with torch.no_grad():
        return model(IDS).logits.double()


def model_with_entries(**config):
    model = model_of(**config)
    model.config.thresholds = copy.deepcopy(THRESHOLDS)
    model.config.prior_shift = {"train_prior": [0.5, 0.5], "new_prior": [0.2, 0.8]}
    return model


@pytest.mark.parametrize("change", [lambda m: fold_correction(m, 5.0), lambda m: fold_correction(m, Temperature(2))])
def test_a_fold_removes_the_entries_of_earlier_probabilities(change):
    model = model_with_entries()
    with pytest.warns(UserWarning, match=r"config.thresholds and config.prior_shift no longer hold and are removed"):
        change(model)
    assert not any(hasattr(model.config, name) for name in CONFIG_ENTRIES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change(model)  # there is nothing left to remove


def test_a_fold_that_changes_nothing_or_fails_removes_nothing():
    model = model_with_entries()
    fold_correction(model, 1.0)
    with pytest.raises(ValueError):
        fold_correction(model, Correction.platt(2.0, 0.5))  # the model has a softmax
    assert model.config.thresholds == THRESHOLDS and model.config.prior_shift["new_prior"] == [0.2, 0.8]


def test_training_removes_the_entries_of_earlier_probabilities(tmp_path):
    model = model_with_entries()
    model.config.calibration = {"temperature": 2.0}
    data = Dataset.from_dict({"input_ids": IDS.tolist(), "labels": [0, 1, 0]})
    args = FocalTrainingArguments(str(tmp_path), max_steps=1, report_to="none", save_strategy="no", use_cpu=True)
    with pytest.warns(UserWarning, match="config.thresholds and config.prior_shift no longer hold"):
        FocalTrainer(model_init=lambda: model, args=args, train_dataset=data).train()
    assert not any(hasattr(model.config, name) for name in ("calibration", *CONFIG_ENTRIES))


def test_a_second_shift_is_recorded_with_the_first():
    model = model_of()
    before = logits_of(model)
    shift_prior(model, [0.5, 0.5], [0.1, 0.9])
    model.config.thresholds = THRESHOLDS
    with pytest.warns(UserWarning, match=r"so config\.thresholds no longer hold"):
        shift_prior(model, [0.1, 0.9], [0.3, 0.7])
    assert model.config.prior_shift["train_prior"] == pytest.approx([0.5, 0.5])
    assert model.config.prior_shift["new_prior"] == pytest.approx([0.3, 0.7])
    assert not hasattr(model.config, "thresholds") and not hasattr(model.config, "calibration")
    expected = shift_prior(before, [0.5, 0.5], [0.3, 0.7], link="softmax").softmax(1)
    torch.testing.assert_close(logits_of(model).softmax(1), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("num_labels", "first", "second"),
    [(2, ([0.5, 0.5], [0.1, 0.9]), ([0.4, 0.6], [0.3, 0.7])), (1, (0.5, 0.1), (0.4, 0.3))],
)
def test_shifts_that_do_not_follow_each_other_are_told_and_recorded_as_they_are(num_labels, first, second):
    problem = "multi_label_classification" if num_labels == 1 else None
    model = model_of(num_labels, problem_type=problem)
    before = logits_of(model)
    shift_prior(model, *first)
    with pytest.warns(UserWarning, match="the model was already shifted to the shares"):
        shift_prior(model, *second)
    shares = model.config.prior_shift
    link = "sigmoid" if num_labels == 1 else "softmax"
    expected, found = shift_prior(before, shares["train_prior"], shares["new_prior"], link=link), logits_of(model)
    if link == "softmax":
        expected, found = expected.softmax(1), found.softmax(1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_refused_shift_keeps_the_earlier_one():
    model = model_of()
    shift_prior(model, [0.5, 0.5], [0.1, 0.9])
    shares = copy.deepcopy(model.config.prior_shift)
    model.classifier.bias = None
    with pytest.raises(TypeError, match="a head with a bias"):
        shift_prior(model, [0.1, 0.9], [0.5, 0.5])
    assert model.config.prior_shift == shares


@pytest.mark.parametrize("folded", [True, False])
def test_a_recorded_slope_and_intercept_follow_a_shift(folded):
    model = model_of(1, problem_type="multi_label_classification")
    platt, before = Correction.platt(0.7, -0.4), logits_of(model)
    if folded:
        fold_correction(model, platt)
    else:
        model.config.calibration = calibration_record(platt, folded=False)
    shift_prior(model, 0.5, 0.1)
    total = shift_prior(platt.apply(before), 0.5, 0.1)
    found = logits_of(model)
    record = model.config.calibration
    assert record["b"] == pytest.approx(-0.4 + torch.logit(torch.tensor(0.1)).item(), abs=1e-6)
    if not folded:
        found = Correction.from_dict(record).apply(found)
    torch.testing.assert_close(found, total, rtol=0, atol=1e-5)
    assert json.loads(model.config.to_json_string())["prior_shift"]["new_prior"] == pytest.approx([0.1])
