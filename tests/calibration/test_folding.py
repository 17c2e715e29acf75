"""Folding a temperature into classifiers: the figures of the fit, forms of heads, refusals.

`test_round_trip.py` has the families of models, through save_pretrained and back.
"""

import copy
import re
from types import SimpleNamespace

import pytest
import torch
from tiny_classifiers import SEGMENTATION, TINY, build, logits_of
from torch import nn

from hf_focal.calibration import Correction, Temperature, fold_correction
from hf_focal.calibration.calibration_record import folded_temperature


@pytest.mark.parametrize("name", SEGMENTATION)
def test_logits_of_pixels_are_divided_after_a_round_trip(name, tmp_path):
    model = build(name, **SEGMENTATION[name])
    before = logits_of(model)
    assert fold_correction(model, 1.7) is model
    model.save_pretrained(tmp_path)
    reloaded = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits_of(reloaded), before / 1.7, rtol=1e-6, atol=1e-6)
    assert reloaded.config.calibration == {"temperature": 1.7}
    torch.testing.assert_close(before.argmax(1), logits_of(reloaded).argmax(1))


def test_a_fold_is_recorded_and_a_second_one_records_the_product():
    model = build("BertForSequenceClassification", **TINY)
    before = logits_of(model)
    fold_correction(model, Temperature(1.5, "nll", 0.03, 0.02, 0.6, 0.5, 900, 15))
    assert model.config.calibration == {"temperature": 1.5}
    fold_correction(model, Temperature(2.0, "ece", 0.02, 0.01, 0.5, 0.4, 800, 15))
    assert model.config.calibration == {"temperature": 3.0}
    torch.testing.assert_close(logits_of(model), before / 3, rtol=1e-6, atol=1e-6)


class Classifier(nn.Module):
    """A classifier of 4 by 4 images, whose logits `combine` computes from the outputs of its heads."""

    main_input_name = "pixel_values"

    def __init__(self, combine, num_heads=1, problem_type=None):
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(problem_type=problem_type, num_channels=3, image_size=4)
        self.body = nn.Conv2d(3, 6, 1)
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(num_heads))
        self.combine = combine

    def forward(self, pixel_values):
        features = self.body(pixel_values).flatten(2).mT.tanh()
        return self.combine(*(head(features) for head in self.heads))


COMBINED = {
    "one head": (lambda a: a.mean(1), 1),
    "two added, as in VOLO": (lambda a, b: a.mean(1) + 0.5 * b.amax(1), 2),
    "two averaged, as in distilled DeiT": (lambda a, b: (a.mean(1) + b.mean(1)) / 2, 2),
    "pixels": (lambda a: a.mT.unflatten(2, (4, 4)), 1),
}
IMAGES = {"pixel_values": torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(3))}


@pytest.mark.parametrize("form", COMBINED)
def test_all_layers_that_make_the_logits_are_found_by_running_the_model(form):
    model = Classifier(*COMBINED[form])
    with torch.no_grad():
        before = model(**IMAGES)
        torch.testing.assert_close(fold_correction(model, 1.7)(**IMAGES), before / 1.7)
    unused = Classifier(lambda a, b: a.mean(1) + 0 * b.mean(1), 2)
    body, last = unused.body.weight.clone(), unused.heads[1].weight.clone()
    fold_correction(unused, 2.0)
    assert torch.equal(unused.body.weight, body) and torch.equal(unused.heads[1].weight, last)


@pytest.mark.parametrize(
    "combine",
    [lambda a: 5 * torch.tanh(a.mean(1) / 5), lambda a: a.mean(1) + 0.1, lambda a: nn.functional.layer_norm(a, [3])],
    ids=["soft cap", "constant", "norm"],
)
def test_logits_that_are_not_those_of_the_last_layers_are_refused(combine):
    model = Classifier(combine)
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(TypeError, match="proportional to the outputs of its last Linear or Conv2d layers, got Classi"):
        fold_correction(model, 1.7)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert not hasattr(model.config, "calibration")


def test_a_fold_that_does_not_give_the_corrected_logits_is_undone():
    scaling = Correction.vector(torch.ones(3), (1.0, -1.0, 0.5), 1.3)
    averaged = Classifier(*COMBINED["two averaged, as in distilled DeiT"])
    with torch.no_grad():
        expected = scaling.apply(averaged(**IMAGES))
        torch.testing.assert_close(scaling.fold_into(averaged)(**IMAGES), expected)
    # Each of two added heads gets the offset, so together they get it once too often.
    added = Classifier(*COMBINED["two added, as in VOLO"])
    state = copy.deepcopy(added.state_dict())
    with pytest.raises(TypeError, match="Classifier, whose logits on a trial batch were not those expected"):
        scaling.fold_into(added)
    assert all(torch.equal(value, state[key]) for key, value in added.state_dict().items())
    assert not hasattr(added.config, "calibration")


def scaled_classifier(combine, scale, dtype, num_heads=1):
    """A classifier whose logits have the size of `scale`."""
    model = Classifier(combine, num_heads)
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.mul_(scale)
    return model.to(dtype)


SCALES = [(torch.float32, 1e-30), (torch.float32, 1e-6), (torch.float32, 1e6), (torch.bfloat16, 1e-6)]
SCALES += [(torch.bfloat16, 1e6), (torch.float16, 0.1), (torch.float64, 1e-12)]


@pytest.mark.filterwarnings("ignore::hf_focal.calibration.folding.RoundingWarning")
@pytest.mark.parametrize(("dtype", "scale"), SCALES)
def test_a_fold_does_not_depend_on_the_size_of_the_logits(dtype, scale):
    images = {"pixel_values": IMAGES["pixel_values"].to(dtype)}
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}.get(dtype, 5e-2)
    for correction in (Correction.temperature(1.7 * scale), Correction.vector((0.5 / scale,) * 3, (0.1, -1.0, 2.0))):
        model = scaled_classifier(COMBINED["one head"][0], scale, dtype)
        with torch.no_grad():
            expected = correction.apply(model(**images).double())
            correction.fold_into(model, images)
            error = (model(**images).double() - expected).abs().max()
        assert error < tolerance * expected.abs().max()


def test_logits_that_float16_rounds_are_refused():
    images = {"pixel_values": IMAGES["pixel_values"].half()}
    with pytest.raises(
        TypeError, match=r"logits above 0.006 in torch.float16, .* got Classifier .* load it in float32"
    ):
        fold_correction(scaled_classifier(COMBINED["one head"][0], 1e-6, torch.float16), 1.7e-6, images)


@pytest.mark.parametrize(("dtype", "scale"), SCALES)
def test_a_soft_cap_is_refused_whatever_the_size_of_the_logits(dtype, scale):
    images = {"pixel_values": IMAGES["pixel_values"].to(dtype)}
    capped = scaled_classifier(lambda a: 5 * scale * torch.tanh(a.mean(1) / (5 * scale)), scale, dtype)
    with pytest.raises(TypeError, match="proportional to the outputs of its last"):
        fold_correction(capped, 1.7 * scale, images)
    added = scaled_classifier(COMBINED["two added, as in VOLO"][0], scale, dtype, num_heads=2)
    with pytest.raises(TypeError, match="whose logits on a trial batch were not those expected"):
        Correction.vector((0.5 / scale,) * 3, (0.1, -1.0, 2.0)).fold_into(added, images)


def test_a_model_that_runs_on_no_dummy_batch_needs_an_example():
    model = Classifier(lambda a: a.mean(1))
    model.main_input_name = "graphs"
    with pytest.raises(TypeError, match=r"must run on a small batch.* got Classifier: give one as `example`"):
        fold_correction(model, 1.7)
    with torch.no_grad():
        before = model(**IMAGES)
        torch.testing.assert_close(fold_correction(model, 1.7, example=IMAGES)(**IMAGES), before / 1.7)


def test_models_that_neither_classify_nor_generate_are_refused():
    model = build("BertForPreTraining", **TINY)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(TypeError, match="a classifier or a language model, whose output has logits, got BertFor"):
        fold_correction(model, 2.0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not hasattr(model.config, "calibration")


def test_shared_weights_are_refused():
    model = build("BertForSequenceClassification", **TINY)
    model.classifier = nn.Linear(16, 50, bias=False)
    model.classifier.weight = model.bert.embeddings.word_embeddings.weight
    with pytest.raises(TypeError, match=r"shared.*word_embeddings"):
        fold_correction(model, 2.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem_type": "regression"}, "must be a classifier, got problem_type 'regression'"),
        ({"num_labels": 1}, "model must have at least 2 labels, got num_labels 1"),
    ],
)
def test_models_without_a_softmax_are_refused(options, message):
    model = build("BertForSequenceClassification", **TINY, **options)
    before = model.classifier.weight.clone()
    with pytest.raises(ValueError, match=message):
        fold_correction(model, 2.0)
    assert torch.equal(model.classifier.weight, before)


@pytest.mark.parametrize(("dtype", "value"), [(torch.float16, 1e-6), (torch.float32, 1e-39)])
def test_a_temperature_that_makes_weights_infinite_changes_none(dtype, value):
    model = build("BertForSequenceClassification", **TINY).to(dtype)
    before = model.classifier.weight.clone()
    with pytest.raises(ValueError, match=f"correction must keep weights and logits finite in {dtype}, got T"):
        fold_correction(model, value)
    assert torch.equal(model.classifier.weight, before) and not hasattr(model.config, "calibration")


def share_that_changes(before, after, features):
    with torch.no_grad():
        return (before(features).argmax(-1) != after(features).argmax(-1)).double().mean().item()


def test_predictions_that_rounding_changes_are_counted():
    model = build("BertForSequenceClassification", **TINY, num_labels=1000).bfloat16()
    before = copy.deepcopy(model.classifier)
    with pytest.warns(
        UserWarning, match="T = .* in torch.bfloat16 weights changes .*%.* inputs, by rounding: float32 ke"
    ) as w:
        fold_correction(model, 1.3)
    (said,) = re.findall(r"changes (\S+)%", str(w[0].message))
    features = torch.randn(20_000, 16, generator=torch.Generator().manual_seed(7)).bfloat16()
    # Of 1,024 inputs: within five standard deviations.
    share = share_that_changes(before, model.classifier, features)
    assert share > 0 and abs(float(said) / 100 - share) < 5 * (share / 1024) ** 0.5


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, 1.3), (torch.bfloat16, 2.0)])
def test_no_prediction_changes_in_float32_and_by_powers_of_two(dtype, value, recwarn):
    model = build("BertForSequenceClassification", **TINY, num_labels=1000).to(dtype)
    before = copy.deepcopy(model.classifier)
    fold_correction(model, value)
    features = torch.randn(20_000, 16, generator=torch.Generator().manual_seed(7)).to(dtype)
    assert share_that_changes(before, model.classifier, features) == 0 and not recwarn.list


@pytest.mark.parametrize(
    ("calibration", "of_classifier", "of_language_model"),
    [
        (None, None, None),
        ({}, None, None),
        ({"folded": True}, None, None),
        ({"temperature": 2.0}, 2.0, None),
        ({"temperature": 2.0, "folded": True}, 2.0, 2.0),
        ({"temperature": 2.0, "folded": False}, None, None),
    ],
)
def test_which_temperature_is_in_the_weights(calibration, of_classifier, of_language_model):
    assert folded_temperature(calibration, generates=False) == of_classifier
    assert folded_temperature(calibration, generates=True) == of_language_model
