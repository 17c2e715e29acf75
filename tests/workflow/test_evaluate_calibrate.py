"""The arguments of `evaluate` and `calibrate`, whatever gives the scores."""

import re
import shutil

import pytest
import trained_models
from own_source import Own, sampled

from hf_focal import AfterMeasurementError, GoalNotReachedError, InputError, calibrate, evaluate


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 0.9}, "threshold_data must be given with precision"),
        ({"confidence": 0.9}, "confidence needs precision or recall or coverage, got none of them"),
        ({"threshold_data": sampled()}, "threshold_data needs precision, .* f1, or cost, got none of them"),
        ({"recall": 0.9, "threshold_data": sampled()}, "recall must not be given for scores with a softmax, got 0.9"),
        ({"f1": True, "threshold_data": sampled()}, "f1 must not be given for scores with a softmax, got True: it is"),
        ({"save_scores": "s.csv"}, r"save_scores must end in \.parquet"),
    ],
)
def test_arguments_of_evaluate_that_exclude_each_other(options, message):
    with pytest.raises(InputError, match=message):
        evaluate(Own(), sampled(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"push_to_hub": "me/model"}, "push_to_hub must not be given for 'Own'"),
        ({"private": True}, "push_to_hub must be given if private is, got None"),
        ({"no_examples": True, "publish_examples": True}, "publish_examples must not be given with no_examples"),
        ({"objective": "ece", "method": "vector"}, "objective must be 'nll' for method 'vector', got 'ece'"),
        ({"objective": "ece", "precision": 0.5}, "objective must be 'nll' with precision, got 'ece'"),
        ({"method": "isotonic"}, "method must be one of none, temperature, .*, got 'isotonic'"),
        ({"per_label": True, "method": "vector"}, "per_label must come with objective 'nll' and method 'temperature'"),
        ({"precision": 0.5, "new_prior": 0.5}, "precision must not be given with new_prior: .* in dataset, got 0.5"),
        ({"cost": (1, 5), "new_prior": 0.5}, r"cost must not be given with new_prior: .* in dataset, got \(1, 5\)"),
        ({"objective": "ece", "f1": True}, "objective must be .nll. with f1, got .ece."),
    ],
)
def test_arguments_of_calibrate_that_exclude_each_other(options, message):
    with pytest.raises(InputError, match=message):
        calibrate(Own(), sampled(), **options)


@pytest.mark.parametrize("function", [evaluate, calibrate])
@pytest.mark.parametrize(
    ("source", "named"), [("a/model", "objective_of_t"), (None, "arguments"), (None, "source_lang")]
)
def test_an_argument_that_no_source_has_is_refused_by_the_function(function, source, named):
    given = {"source": source, "data": "d.csv"} if source else {"scores": {"logits": [[0.0, 1.0]], "label": [0]}}
    message = rf"^{function.__name__}\(\) got an unexpected keyword argument '{named}'"
    with pytest.raises(TypeError, match=message):
        function(**given, **{named: 1})


def test_an_error_after_the_measurement_is_no_error_of_the_input():
    scores = {"logits": [[0.1, 0.0], [0.0, 0.1]] * 20, "label": [0, 1, 1, 0] * 10}
    with pytest.raises(AfterMeasurementError) as caught:
        evaluate(scores=scores, precision=0.99, threshold_data=scores)
    assert not isinstance(caught.value, InputError) and "\n" not in str(caught.value)


def test_a_threshold_that_no_data_show_keeps_the_figures():
    with pytest.raises(GoalNotReachedError, match=r"coverage must be one .* with 95% confidence, got 0.99") as caught:
        evaluate(Own(), sampled(), coverage=0.99, threshold_data=sampled(20, 1))
    assert caught.value.result.pre["num_samples"] == 50
    assert caught.value.result.thresholds.labels[0].value is None


def test_a_model_is_corrected_by_the_validation_split_and_measured_on_the_test_split(tmp_path):
    texts = trained_models.build("texts", tmp_path / "model")
    (tmp_path / "data").mkdir()
    for split, file in (("train", texts.train), ("validation", texts.train), ("test", texts.test)):
        shutil.copyfile(file, tmp_path / "data" / f"{split}.parquet")
    source = (str(texts.folder), str(tmp_path / "data"))
    measured = evaluate(*source, output=tmp_path / "measured", **texts.options)
    corrected = calibrate(*source, test=str(tmp_path / "data"), output=tmp_path / "corrected", **texts.options)
    assert measured.data.measured_on == "split 'test' of data 'data'"
    assert corrected.data.measured_on == "split 'test' of test 'data'"
    assert corrected.fit.fitted_on == "split 'validation' of data 'data'"
    # The next steps on the page are commands, as after `evaluate_model`.
    page = re.sub("</?span>", "", (tmp_path / "measured" / "report.html").read_text())
    assert f"hf-focal calibrate {texts.folder} --dataset {tmp_path / 'data'}" in page
