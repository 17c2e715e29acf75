"""`FocalTrainer.fit_correction`: what is fitted, measured, saved and told on the card."""

import copy
import json

import numpy as np
import pytest
import torch
import trained_models
from datasets import Dataset, concatenate_datasets, load_dataset
from language_models import build, texts
from tiny_models import EVAL, BagOfWords, Stream, logits_of, rows, tensors, tiny_bert, trainer_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_focal import Correction, Temperature, calibrate_model, fold_correction
from hf_focal.calibration import CalibrationFit
from hf_focal.calibration.affine_scaling import fit_vector_scaling
from hf_focal.reports.results.result_sections import CrossFit
from hf_focal.scores.correction_files.correction_json import read_correction
from hf_focal.tasks.heads import Head

MANY = rows(200, seed=3)


def scaled_trainer(tmp_path, method="vector"):
    """A model whose classes need other biases than it has, and labels that its logits tell something about."""
    model = tiny_bert()
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    chances = (logits_of(model, MANY) + torch.tensor([1.0, 0, 0, -1])).softmax(1)
    labels = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    for row, label in zip(MANY, labels.tolist(), strict=True):
        row["labels"] = label
    trainer = trainer_of(tmp_path, model, eval_dataset=MANY)
    return trainer, trainer.fit_correction(method=method)


def test_it_is_the_fit_of_the_collected_logits_and_later_evaluations_measure_it(tmp_path):
    trainer, fit = scaled_trainer(tmp_path)
    logits, labels = logits_of(trainer.model, MANY), tensors(MANY)[1]
    expected = fit_vector_scaling(logits, labels)
    torch.testing.assert_close(fit.correction.A, expected.A, rtol=0, atol=1e-6)
    assert trainer.fit is fit and fit.temperature is None and fit.dataset is MANY
    metrics = trainer.evaluate(EVAL)
    corrected = torch.nn.functional.cross_entropy(expected.apply(logits_of(trainer.model, EVAL)), tensors(EVAL)[1])
    assert metrics["eval_nll_corrected"] == pytest.approx(float(corrected), rel=1e-5)
    assert {"eval_accuracy_corrected", "eval_smooth_ece", "eval_aurc"} <= metrics.keys()
    fold_correction(trainer.model, fit.correction)
    folded = trainer.evaluate(EVAL)
    assert folded["eval_nll"] == pytest.approx(float(corrected), rel=1e-5) and "eval_nll_corrected" not in folded
    assert trainer.fit is None


def test_data_without_labels_are_told(tmp_path):
    unlabeled = [row | {"labels": -100} for row in EVAL]
    with pytest.raises(ValueError, match="labels must have one that is not ignore_index -100, got none"):
        trainer_of(tmp_path, eval_dataset=unlabeled).fit_correction()


def test_it_is_saved_in_the_weights_and_told_on_the_card(tmp_path):
    trainer, fit = scaled_trainer(tmp_path, "matrix")
    expected = fit.correction.apply(logits_of(trainer.model, EVAL).double()).softmax(-1)
    trainer.save_calibrated()
    loaded = type(trainer.model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits_of(loaded, EVAL).double().softmax(-1), expected, rtol=0, atol=1e-6)
    assert loaded.config.calibration["method"] == "matrix"
    saved = read_correction(tmp_path / "correction.json")
    assert saved.correction == fit.correction
    assert json.loads((tmp_path / "correction.json").read_text())["num_samples"] == 200
    assert (saved.link, saved.classes) == ("softmax", [*loaded.config.id2label.values()])
    trainer.create_model_card(test_dataset=EVAL)
    card = (tmp_path / "README.md").read_text()
    assert "corrected by matrix scaling, which is folded into the weights" in card
    assert f"It changes {fit.changed_predictions} of 200 predictions" in card
    gain, rest = fit.decomposition()["nll"]
    assert f"| NLL | {fit.before['nll']:.3f} | {fit.after['nll']:.3f} | {gain:.3f} | {rest:.3f} |" in card
    assert "No temperature was fitted" not in card and "name: Accuracy before matrix scaling" in card
    assert "refinement" in (tmp_path / "report" / "table.md").read_text()


def test_a_temperature_is_the_trainers_temperature(tmp_path):
    trainer, fit = scaled_trainer(tmp_path, "temperature")
    assert trainer.fit is fit and fit.temperature.value == fit.correction.T
    assert trainer.fit_temperature(objective="nll").value == pytest.approx(fit.correction.T, rel=1e-9)
    assert not trainer.fit.is_cross_fitted and trainer.fit.dataset is MANY


def test_pixels_and_vocabularies_are_refused(tmp_path, monkeypatch):
    trainer = trainer_of(tmp_path)
    monkeypatch.setattr(trainer, "head", Head.PIXELS)
    with pytest.raises(ValueError, match=r"must classify samples or words, got Head.PIXELS: use fit_temperature"):
        trainer.fit_correction()


@pytest.mark.parametrize(
    ("model", "head", "classes"),
    [
        (tiny_bert, Head.CLASSES, ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"]),
        (BagOfWords, Head.CLASSES, []),
        (lambda: build("gpt2"), Head.NEXT_TOKENS, []),
    ],
)
def test_correction_json_names_the_classes_if_there_are_any(model, head, classes, tmp_path):
    data = [row for row in texts(40) if len(row["input_ids"]) == 6] if head.generates else EVAL
    trainer = trainer_of(tmp_path, model(), train_dataset=None, eval_dataset=data)
    trainer.fit_temperature()
    assert trainer.head is head and (trainer.fit.curves is not None) == head.generates
    trainer.save_calibrated()
    assert read_correction(tmp_path / "correction.json").classes == classes
    assert Correction.load(tmp_path / "correction.json") == trainer.fit.correction


def test_a_fit_from_elsewhere_is_measured_and_ends_with_training(tmp_path):
    trainer = trainer_of(tmp_path, max_steps=1)
    trainer.fit = CalibrationFit.from_temperature(Temperature(2.0))
    assert trainer.evaluate(EVAL)["eval_temperature"] == 2
    trainer.model.config.calibration = {"temperature": 3.0, "folded": False}  # in the config, not in the weights
    assert trainer.fit.correction.T == 2
    trainer.train()
    assert trainer.fit is None and "eval_nll_corrected" not in trainer.evaluate(EVAL)


@pytest.mark.parametrize("method", [pytest.param("temperature", marks=pytest.mark.slow), "vector"])
def test_finish_keeps_the_fit_unless_another_is_asked_for(method, tmp_path, capsys):
    trainer, _ = scaled_trainer(tmp_path)
    if method == "temperature":
        trainer.fit_temperature()
    fit = trainer.fit
    result = trainer.finish(EVAL)
    assert trainer.fit is fit and fit.method == method and str(fit) in capsys.readouterr().out
    assert result.fit.cross_fit == (CrossFit(**fit.to_dict()) if method == "vector" else None)
    assert Correction.load(tmp_path / "correction.json") == fit.correction
    trainer.finish(EVAL, method="matrix")
    assert trainer.fit.method == Correction.load(tmp_path / "correction.json").method == "matrix"
    trainer.fit = None
    trainer.finish(EVAL)
    assert trainer.fit.reason  # "auto", with more than two classes


def test_finish_fits_a_temperature_to_a_stream_whose_size_is_not_known(tmp_path):
    trainer, stream = trainer_of(tmp_path), Stream(list(EVAL))
    trainer.calibration_dataset = stream
    trainer.finish(rows(30, seed=5))
    assert trainer.fit.method == "temperature" and trainer.fit.temperature.num_samples == len(stream.samples)


def test_a_temperature_that_is_not_cross_fitted_says_what_it_is(tmp_path):
    trainer, _ = scaled_trainer(tmp_path)
    temperature = trainer.fit_temperature()
    assert str(trainer.fit) == str(temperature)
    saved = json.loads(json.dumps(trainer.fit.to_dict()))
    assert saved["after"] == {"nll": temperature.nll_after, "ece": temperature.ece_after}
    assert saved["before"]["nll"] - saved["after"]["nll"] == pytest.approx(saved["decomposition"]["nll"][0])


def test_a_later_temperature_leaves_no_earlier_fit_in_the_folder(tmp_path):
    trainer, _ = scaled_trainer(tmp_path)
    trainer.save_calibrated()
    (tmp_path / "calibration.json").write_text("{}")  # of version 0.2
    trainer.fit_temperature(MANY)
    trainer.save_calibrated()
    assert Correction.load(tmp_path / "correction.json") == trainer.fit.correction
    assert Temperature.load(tmp_path / "temperature.json") == trainer.fit.temperature
    assert not (tmp_path / "calibration.json").exists()


def _by_hand(trainer):
    with torch.no_grad():
        trainer.model.classifier.weight.mul_(3)


def _by_data(trainer):
    trainer.model.classifier.weight.data.mul_(3)


def _by_loading(trainer):
    trainer.model.load_state_dict({name: 2 * weights for name, weights in trainer.model.state_dict().items()})


def _by_another_model(trainer):
    trainer.model = tiny_bert()


@pytest.mark.parametrize("change", [_by_hand, _by_data, _by_loading, _by_another_model])
def test_a_fit_ends_with_the_weights_that_it_was_fitted_to(change, tmp_path, caplog):
    trainer, _ = scaled_trainer(tmp_path, "temperature")
    assert "eval_nll_corrected" in trainer.evaluate(EVAL)
    change(trainer)
    assert "eval_nll_corrected" not in trainer.evaluate(EVAL) and trainer.fit is None
    trainer.save_calibrated()
    assert not (tmp_path / "correction.json").exists()
    assert "calibration" not in json.loads((tmp_path / "config.json").read_text())
    assert caplog.text.count("weights have changed since the correction was fitted") == 1


def test_a_fit_outlasts_evaluations_saving_and_another_place_of_the_weights(tmp_path, caplog):
    trainer, fit = scaled_trainer(tmp_path, "temperature")
    trainer.evaluate(EVAL)
    trainer.predict(EVAL)
    trainer.save_calibrated()
    trainer.model = copy.deepcopy(trainer.model)
    trainer.save_model(str(tmp_path / "other"))
    trainer.model.load_state_dict(copy.deepcopy(trainer.model.state_dict()))
    assert trainer.fit is fit and "weights have changed" not in caplog.text


def test_the_same_rows_get_the_correction_of_calibrate_model(tmp_path):
    """With texts in four rows each, vector scaling would only seem better than a temperature."""
    case = trained_models.build("texts", tmp_path)
    data = [load_dataset("parquet", data_files=str(file), split="train") for file in (case.validation, case.test)]
    repeated, test = (concatenate_datasets([part.select(range(60))] * 4) for part in data)
    files = [str(tmp_path / f"{name}4.parquet") for name in ("validation", "test")]
    for file, part in zip(files, (repeated, test), strict=True):
        part.to_parquet(file)
    expected = calibrate_model(case.folder, files[0], test_dataset=files[1], **case.options)
    tokenizer, model = AutoTokenizer.from_pretrained(case.folder), AutoModelForSequenceClassification
    model = model.from_pretrained(case.folder)
    names = repeated.features["label"].names

    def encoded(part):
        numbers = [model.config.label2id[name] for name in names]
        return [tokenizer(row["premise"], row["hypothesis"]) | {"labels": numbers[row["label"]]} for row in part]

    trainer = trainer_of(tmp_path, model, eval_dataset=encoded(repeated), processing_class=tokenizer)
    fit = trainer.fit_correction()
    assert pytest.approx(expected.temperature.value, rel=1e-4) == fit.correction.T
    assert len(np.unique(fit.clusters)) == 60
    result = trainer.report(encoded(test), no_examples=True)
    assert result.pre_intervals["ece"] == pytest.approx(expected.pre_intervals["ece"], abs=0.01)
    assert result.data.num_clusters == expected.data.num_clusters == 60
    together = "samples with the same value stay together in folds, for thresholds, and for intervals"
    for name, note in zip(("validation", "test"), result.notes, strict=True):
        assert note == f"the 240 samples of the {name} data have 60 values of 'input_ids': {together}"
    assert trainer.measure(encoded(test))[0].num_clusters == 60


def test_few_different_inputs_are_no_clusters(tmp_path):
    repeated = rows(9, seed=3) * 20
    fit = trainer_of(tmp_path, eval_dataset=repeated).fit_correction(method="temperature")
    assert fit.clusters is None and "name what is drawn independently as clusters" in fit.cluster_notes[0]
    assert trainer_of(tmp_path, eval_dataset=MANY).fit_correction(method="temperature").cluster_notes == ()


def test_inputs_of_a_stream_and_of_a_transform_are_found_too(tmp_path):
    repeated = rows(50, seed=3) * 4
    columns = {"number": range(200)}
    transformed = Dataset.from_dict(columns).with_transform(
        lambda batch: {name: [repeated[i][name] for i in batch["number"]] for name in repeated[0]}
    )
    for data in (repeated, Stream(repeated), transformed):
        trainer = trainer_of(tmp_path, eval_dataset=data, remove_unused_columns=False)
        fit = trainer.fit_correction(method="temperature")
        assert len(np.unique(fit.clusters)) == 50
