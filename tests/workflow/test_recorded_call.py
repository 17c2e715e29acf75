"""The next steps on a page name what a call of Python was given, as its command takes it."""

import numpy as np
import pytest

from hf_focal.calibration.threshold_goal import ThresholdGoal
from hf_focal.sources.source import Data
from hf_focal.workflow.recorded_call import recorded_call
from hf_focal.workflow.settings import CalibrationSettings, EvaluationSettings
from hf_focal.workflow.source_arguments import SourceArguments, source_arguments

NONE = Data("reference", None)


def evaluation(threshold_data=NONE, **settings):
    return EvaluationSettings(reference=NONE, threshold_data=threshold_data, **settings)


def table(scores, **options):
    return SourceArguments(data=Data("scores", scores), options=options)


def model_on(data, **options):
    return SourceArguments(source="m", data=data, options=options)


def test_defaults_are_left_out_and_the_options_of_the_data_come_last():
    assert recorded_call(table("a.csv"), evaluation()) == {"scores": "a.csv"}
    settings = evaluation(num_bins=3, output="out", on_result=print)
    recorded = recorded_call(table("a.csv", group="g"), settings)
    assert [*recorded.items()] == [("scores", "a.csv"), ("num_bins", 3), ("output", "out"), ("group", "g")]
    model = model_on(Data("dataset", "d"), max_length=8, batch_size=4, task=None)
    recorded = recorded_call(model, CalibrationSettings(test=NONE, num_bins=15, output="out"))
    expected = {"model": "m", "dataset": "d", "batch_size": 4, "output": "out", "max_length": 8}
    assert [*recorded.items()] == [*expected.items()]
    assert recorded_call(model_on(Data("dataset", "d"), batch_size=16), evaluation()) == {"model": "m", "dataset": "d"}


def test_the_default_method_of_tables_and_of_models_differ():
    settings = CalibrationSettings(test=NONE, method="auto")
    assert "method" not in recorded_call(table("a.csv"), settings)
    model = model_on(Data("dataset", "d"))
    assert recorded_call(model, settings)["method"] == "auto"


@pytest.mark.parametrize("confidence", [0.95, float("0.95")])
def test_a_goal_is_named_by_its_target(confidence):
    goal = ThresholdGoal("precision", 0.9, confidence)
    settings = evaluation(Data("threshold_scores", "t.csv"), goal=goal)
    recorded = recorded_call(table("a.csv"), settings)
    assert recorded == {"scores": "a.csv", "precision": 0.9, "threshold_scores": "t.csv"}
    settings = CalibrationSettings(test=NONE, goal=ThresholdGoal("recall", 0.8, 0.9, simultaneous=True))
    assert recorded_call(table("a.csv"), settings) == {
        **{"scores": "a.csv", "recall": 0.8, "confidence": 0.9, "simultaneous": True}
    }


def test_splits_are_named_and_a_dataset_is_named_once():
    model = model_on(Data("dataset", "d", "dev"))
    settings = CalibrationSettings(test=Data("test_dataset", "d", "test"))
    assert recorded_call(model, settings) == {"model": "m", "dataset": "d", "split": "dev", "test_split": "test"}
    settings = CalibrationSettings(test=Data("test_dataset", "d"))  # its default split
    assert recorded_call(model, settings)["test_dataset"] == "d"
    goal = ThresholdGoal("precision", 0.9)
    recorded = recorded_call(model, evaluation(Data("threshold_dataset", "d"), goal=goal))
    assert recorded == {"model": "m", "dataset": "d", "split": "dev", "precision": 0.9}


def test_tables_in_memory_and_objects_have_no_names():
    for scores in (np.zeros(3), {"logits": [[0.0, 1.0]], "label": [0]}, [{"logits": [0.0, 1.0], "label": 0}]):
        assert recorded_call(table(scores), evaluation()) is None
    settings = CalibrationSettings(test=NONE, new_prior=np.array([0.2, 0.8]))
    assert recorded_call(table("a.csv"), settings) is None
    assert recorded_call(SourceArguments(source=print, data=Data("data", [1])), evaluation()) is None


def test_the_data_of_evaluate_and_calibrate_have_the_names_of_the_command():
    goal, threshold_data = ThresholdGoal("precision", 0.9), Data("threshold_data", "t.csv", None, "validation")
    model = source_arguments("evaluate", "m", "d.csv", None, {"max_length": 8}, "test")
    assert recorded_call(model, evaluation(threshold_data, goal=goal)) == {
        **{"model": "m", "dataset": "d.csv", "precision": 0.9, "threshold_dataset": "t.csv", "max_length": 8}
    }
    table_ = source_arguments("calibrate", None, None, "a.csv", {}, "validation")
    settings = CalibrationSettings(test=Data("test", "t.csv"))
    assert recorded_call(table_, settings) == {"scores": "a.csv", "test_scores": "t.csv"}
    assert recorded_call(model, settings)["test_dataset"] == "t.csv"


def test_a_folder_stands_for_a_list_of_files():
    options = {"label_map": {"x": "y"}}
    assert recorded_call(table(["a.csv", "b.csv"], **options), evaluation()) == {"scores": "FOLDER", **options}


def test_no_command_takes_names_with_commas():
    assert recorded_call(table("a.csv", classes=("a,b", "c")), evaluation()) is None
    arguments = {"classes": ("a", "c"), "floor": 1e-6}
    assert recorded_call(table("a.csv", **arguments), evaluation()) == {"scores": "a.csv", **arguments}
