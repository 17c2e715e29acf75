"""Folding corrections into classifiers, saved and loaded again, and the record of all that was folded."""

import pytest
import torch
import transformers
from tiny_classifiers import IMAGE, TINY, build, logits_of

from hf_focal import Correction, Temperature, fold_correction
from hf_focal.calibration.affine_scaling import fit_bias_correction, fit_matrix_scaling, fit_vector_scaling
from hf_focal.calibration.calibration_record import folded_temperature

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
    assert fold_correction(model, scaling) is model
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits_of(loaded).double().softmax(-1), expected, rtol=0, atol=1e-6)
    assert Correction.from_dict(loaded.config.calibration) == scaling
    assert folded_temperature(loaded.config.calibration, generates=False) is None


def test_pixels_are_corrected():
    sizes = {"hidden_sizes": [8] * 4, "depths": [1] * 4, "decoder_hidden_size": 8}
    model = build("SegformerForSemanticSegmentation", **sizes)
    scaling = correction(fit_matrix_scaling)
    expected = scaling.apply(logits_of(model).double().movedim(1, -1)).softmax(-1)
    corrected = logits_of(fold_correction(model, scaling)).double().movedim(1, -1).softmax(-1)
    torch.testing.assert_close(corrected, expected, rtol=0, atol=1e-6)


def test_a_bias_without_a_place_is_told():
    model = build("LlamaForSequenceClassification", **TINY)
    scaling = correction(fit_vector_scaling)
    before = logits_of(model).double()
    with pytest.warns(UserWarning, match="head of LlamaForSequenceClassification has no bias, .* fit with bias=False"):
        fold_correction(model, scaling)
    expected = (scaling.apply(before) - scaling.b).softmax(-1)
    torch.testing.assert_close(logits_of(model).double().softmax(-1), expected, rtol=0, atol=1e-6)
    recorded = Correction.from_dict(model.config.calibration)
    torch.testing.assert_close(recorded.apply(before).softmax(-1), expected, rtol=0, atol=1e-12)


def test_a_temperature_is_folded_as_ever():
    model, other = (build("BertForSequenceClassification", **TINY) for _ in range(2))
    fold_correction(other, Temperature(1.7))
    torch.testing.assert_close(logits_of(fold_correction(model, 1.7)), logits_of(other))
    assert model.config.calibration == {"temperature": 1.7}


@pytest.mark.parametrize(
    "folded",
    [
        (Correction.platt(2.0, -1.0), Correction.temperature(1.0)),
        (Correction.platt(2.0, -1.0), Correction.temperature(4.0)),
        (Correction.platt(2.0, -1.0), Correction.temperature((1.0, 2.0, 4.0))),
        (Correction.platt((1.0, 2.0, 3.0), (1.0, 0.0, -1.0)), Correction.temperature(0.5)),
        (Correction.temperature(2.0), Correction.temperature(0.75)),
        (Correction.temperature((0.5, 2.0, 1.0)), Correction.platt(0.5, 0.25), Correction.platt(2.0, [0, 1, 2])),
    ],
)
def test_the_record_is_of_all_that_was_folded(folded):
    several = {"num_labels": 3, "problem_type": "multi_label_classification"}
    model = build("BertForSequenceClassification", **TINY, **several)
    before = expected = logits_of(model)
    for correction in folded:
        fold_correction(model, correction)
        expected = correction.apply(expected)
    torch.testing.assert_close(logits_of(model), expected)
    torch.testing.assert_close(Correction.from_dict(model.config.calibration).apply(before), expected)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_the_record_of_a_softmax_is_the_composition_too(order, tmp_path):
    fits = [correction(fit) for fit in (fit_bias_correction, fit_vector_scaling, fit_matrix_scaling)]
    model = build("BertForSequenceClassification", **TINY, num_labels=3)
    before = logits_of(model).double()
    expected = before
    for number in order:
        fold_correction(model, fits[number])
        fold_correction(model, 1.25)
        expected = fits[number].apply(expected) / 1.25
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    recorded = Correction.from_dict(loaded.config.calibration).apply(before)
    torch.testing.assert_close(recorded, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(logits_of(loaded).double().softmax(-1), expected.softmax(-1), rtol=0, atol=1e-5)


def test_a_temperature_of_1_leaves_no_record():
    assert not hasattr(fold_correction(build("BertForSequenceClassification", **TINY), 1.0).config, "calibration")


def test_the_record_of_a_map_that_is_not_known_stays_so():
    """Version 0.2 recorded no A and b of vector scaling that was folded."""
    model = build("BertForSequenceClassification", **TINY, num_labels=3)
    model.config.calibration = {"method": "vector", "nll_before": 1.0, "nll_after": 0.9, "num_samples": 300}
    fold_correction(model, 1.0)
    assert model.config.calibration["num_samples"] == 300
    fold_correction(model, 1.5)
    assert model.config.calibration == {"method": "vector"}


def test_models_that_it_does_not_fit_are_refused():
    scaling = correction(fit_vector_scaling)
    four = build("BertForSequenceClassification", **TINY, num_labels=4)
    with pytest.raises(ValueError, match="correction must have the model's 4 classes, got one of 3"):
        fold_correction(four, scaling)
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, pad_token_id=0))
    with pytest.raises(TypeError, match="must be a classifier for vector scaling, got LlamaForCausalLM"):
        fold_correction(llama, scaling)
    for name, options in (
        ("BertForSequenceClassification", {"num_labels": 3, "problem_type": "multi_label_classification"}),
        ("BertForQuestionAnswering", {}),
    ):
        with pytest.raises(
            TypeError, match=f"model must have one softmax over classes for vector scaling, got {name}"
        ):
            fold_correction(build(name, **TINY, **options), scaling)
    half = build("BertForSequenceClassification", **TINY).half()
    half.classifier.weight.data[:] = torch.tensor([6e4, -6e4, 0.0])[:, None]
    before = half.classifier.weight.clone()
    scaling = Correction.vector(10 * scaling.A, scaling.b)
    with pytest.raises(ValueError, match=r"correction must keep weights and logits finite in torch\.float16"):
        fold_correction(half, scaling)
    assert torch.equal(half.classifier.weight, before)
