"""Folding vector and matrix scaling into classifiers, saved and loaded again."""

import pytest
import torch
import transformers
from test_folding import IMAGE, TINY, build, logits_of

from hf_focal import (
    LabelTemperatures,
    PlattScaling,
    Temperature,
    correction_from_dict,
    fit_matrix_scaling,
    fit_vector_scaling,
    fold_calibration,
    fold_temperature,
)
from hf_focal.calibration.corrections import folded_temperature

MODELS = {
    "BertForSequenceClassification": TINY,
    "DeiTForImageClassificationWithTeacher": IMAGE | {"intermediate_size": 16},
    "LlamaForSequenceClassification": TINY,
}


def correction(fit, num_classes=3, **options):
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(300) % num_classes
    logits = torch.randn(300, num_classes, generator=generator) * torch.linspace(0.5, 2, num_classes)
    logits[torch.arange(300), labels] += 1.5
    logits[:, 0] += 1
    return fit(logits, labels, **options)


@pytest.mark.parametrize("fit", [fit_vector_scaling, fit_matrix_scaling])
@pytest.mark.parametrize("name", MODELS)
def test_the_loaded_model_is_corrected(name, fit, tmp_path):
    model = build(name, **MODELS[name])
    scaling = correction(fit, bias="Llama" not in name)
    expected = scaling.apply(logits_of(model).double()).softmax(-1)
    assert fold_calibration(model, scaling) is model
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits_of(loaded).double().softmax(-1), expected, rtol=0, atol=1e-6)
    assert loaded.config.calibration == scaling.summary()
    assert folded_temperature(loaded.config.calibration, generates=False) is None


def test_pixels_are_corrected():
    sizes = {"hidden_sizes": [8] * 4, "depths": [1] * 4, "decoder_hidden_size": 8}
    model = build("SegformerForSemanticSegmentation", **sizes)
    scaling = correction(fit_matrix_scaling)
    expected = scaling.apply(logits_of(model).double().movedim(1, -1)).softmax(-1)
    corrected = logits_of(fold_calibration(model, scaling)).double().movedim(1, -1).softmax(-1)
    torch.testing.assert_close(corrected, expected, rtol=0, atol=1e-6)


def test_a_bias_without_a_place_is_told():
    model = build("LlamaForSequenceClassification", **TINY)
    scaling = correction(fit_vector_scaling)
    before = logits_of(model).double()
    with pytest.warns(UserWarning, match="head of LlamaForSequenceClassification has no bias, .* fit with bias=False"):
        fold_calibration(model, scaling)
    expected = (scaling.apply(before) - scaling.bias).softmax(-1)
    torch.testing.assert_close(logits_of(model).double().softmax(-1), expected, rtol=0, atol=1e-6)


def test_a_temperature_is_folded_as_ever():
    model, other = (build("BertForSequenceClassification", **TINY) for _ in range(2))
    torch.testing.assert_close(logits_of(fold_calibration(model, 1.7)), logits_of(fold_temperature(other, 1.7)))
    assert model.config.calibration == {"temperature": 1.7}


@pytest.mark.parametrize(
    "folded",
    [
        (PlattScaling(2.0, -1.0), Temperature(1.0)),
        (PlattScaling(2.0, -1.0), Temperature(4.0)),
        (PlattScaling(2.0, -1.0), LabelTemperatures(4.0, values=(1.0, 2.0, 4.0))),
        (PlattScaling(2.0, -1.0, slopes=(1.0, 2.0, 3.0), intercepts=(1.0, 0.0, -1.0)), Temperature(0.5)),
        (Temperature(2.0), Temperature(0.75)),
        (LabelTemperatures(1.5, values=(0.5, 2.0, 1.0)),),
    ],
)
def test_the_record_is_of_all_that_was_folded(folded):
    several = {"num_labels": 3, "problem_type": "multi_label_classification"}
    model = build("BertForSequenceClassification", **TINY, **several)
    before = expected = logits_of(model)
    for correction in folded:
        fold_calibration(model, correction)
        expected = correction.apply(expected)
    torch.testing.assert_close(logits_of(model), expected)
    torch.testing.assert_close(correction_from_dict(model.config.calibration).apply(before), expected)


def test_a_temperature_of_1_leaves_no_record():
    assert not hasattr(fold_temperature(build("BertForSequenceClassification", **TINY), 1.0).config, "calibration")


def test_a_temperature_over_vector_scaling_keeps_its_record():
    model = build("BertForSequenceClassification", **TINY, num_labels=3)
    fold_calibration(model, correction(fit_vector_scaling))
    fold_temperature(model, 1.0)
    assert model.config.calibration["num_samples"] > 0
    fold_temperature(model, 1.5)
    assert model.config.calibration == {"method": "vector"}


def test_models_that_it_does_not_fit_are_refused():
    scaling = correction(fit_vector_scaling)
    four = build("BertForSequenceClassification", **TINY, num_labels=4)
    with pytest.raises(ValueError, match="correction must have the model's 4 classes, got one of 3"):
        fold_calibration(four, scaling)
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, pad_token_id=0))
    with pytest.raises(TypeError, match="must be a classifier for vector scaling, got LlamaForCausalLM"):
        fold_calibration(llama, scaling)
    for name, options in (
        ("BertForSequenceClassification", {"num_labels": 3, "problem_type": "multi_label_classification"}),
        ("BertForQuestionAnswering", {}),
    ):
        with pytest.raises(
            TypeError, match=f"model must have one softmax over classes for vector scaling, got {name}"
        ):
            fold_calibration(build(name, **TINY, **options), scaling)
    half = build("BertForSequenceClassification", **TINY).half()
    half.classifier.weight.data[:] = torch.tensor([6e4, -6e4, 0.0])[:, None]
    before = half.classifier.weight.clone()
    scaling.matrix.mul_(10)
    with pytest.raises(ValueError, match=r"correction must keep weights and logits finite in torch\.float16"):
        fold_calibration(half, scaling)
    assert torch.equal(half.classifier.weight, before)
