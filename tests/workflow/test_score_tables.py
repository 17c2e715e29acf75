"""`evaluate_scores` and `calibrate_scores` are `evaluate` and `calibrate` of a table."""

import subprocess
import sys

import numpy as np
import pytest

from hf_focal import InputError, calibrate, calibrate_scores, evaluate, evaluate_scores


def table(seed):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(200, 2))
    labels = (logits + rng.gumbel(size=(200, 2))).argmax(1)
    return {"logit_no": logits[:, 0], "logit_yes": logits[:, 1], "label": np.array(["no", "yes"])[labels]}


def test_they_take_the_same_way():
    assert evaluate_scores(table(0)).pre == evaluate(scores=table(0)).pre
    fitted = calibrate_scores(table(0), test_scores=table(1), precision=0.6)
    again = calibrate(scores=table(0), test=table(1), precision=0.6, method="auto")
    assert (fitted.pre, fitted.post, fitted.thresholds) == (again.pre, again.post, again.thresholds)


def test_a_threshold_that_says_yes_to_nearly_all_samples_has_a_note():
    rng = np.random.default_rng(0)
    logits = rng.normal(2, 1, 500)
    scores = {"logit": logits, "label": rng.random(500) < 1 / (1 + np.exp(-logits))}
    for goal, advice in (({"precision": 0.6}, "a higher precision"), ({"recall": 0.99}, "a lower recall")):
        for result in (
            calibrate_scores(scores, classes=["ham", "spam"], **goal),
            evaluate_scores(scores, threshold_scores={**scores}, **goal),
        ):
            (note,) = [note for note in result.notes if "says yes to" in note]
            assert "of the samples that it was chosen on, 8" in note and note.endswith(f"so ask for {advice}")
    assert not any("says yes to" in note for note in calibrate_scores(scores, precision=0.9).notes)
    assert not any("says yes to" in note for note in calibrate_scores(table(0), precision=0.6).notes)


@pytest.mark.parametrize(("shift", "end"), [(3, "100%"), (-3, "none")])
def test_a_threshold_of_the_least_cost_is_compared_with_constant_answers(shift, end, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=2000)
    scores = {"logit": logits, "label": rng.random(2000) < 1 / (1 + np.exp(-logits))}
    calibration, test = ({name: values[part::2] for name, values in scores.items()} for part in (0, 1))
    test["logit"] = (test["logit"] + 5 * shift) if shift < 0 else test["logit"] + shift
    options = {"classes": ["ham", "spam"], "cost": (1, 2)}
    result = calibrate_scores(calibration, test_scores=test, method="none", output=tmp_path / "out", **options)
    (label,) = result.thresholds.labels
    yes, hits = test["logit"] >= np.log(label.value / (1 - label.value)), test["label"]
    assert label.cost == pytest.approx(np.mean(1 * (yes & ~hits) + 2 * (~yes & hits)))
    assert (label.cost_of_yes, label.cost_of_no) == pytest.approx((np.mean(~hits), 2 * np.mean(hits)))
    loaded = result.load(tmp_path / "out" / "report" / "metrics.json")
    assert repr(loaded.thresholds) == repr(result.thresholds)  # a precision may be NaN
    line = f"The mean cost of a sample is {label.cost:.4g}; it would be {label.cost_of_yes:.4g} for always yes"
    assert line in repr(result) and line in (tmp_path / "out" / "report" / "table.md").read_text()
    assert "cost of yes always" in (tmp_path / "out" / "report.html").read_text()
    assert (
        f"| cost of no always |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n| spam | {label.value:.4g} |"
        in ((tmp_path / "out" / "README.md").read_text())
    )
    (note,) = [note for note in result.notes if "says yes to" in note]
    assert f"the threshold of 'spam' says yes to {end}" in note and "of the test samples, 5" in note, note
    assert "check the costs" in note


def test_many_thresholds_that_say_yes_to_nearly_all_samples_share_a_note():
    rng = np.random.default_rng(0)
    logits = rng.normal(2, 1, (500, 5))
    scores = {"logits": [*logits], "label": [*(rng.random((500, 5)) < 1 / (1 + np.exp(-logits))).astype(int)]}
    result = calibrate_scores(scores, classes=[*"abcde"], recall=0.95)
    (note,) = [note for note in result.notes if "yes to" in note]
    assert note == (
        "the thresholds of 5 of 5 labels, such as 'a', say yes to nearly all of the samples that it was chosen on"
    )


def test_errors_name_their_arguments():
    with pytest.raises(InputError, match="threshold_scores must be given with coverage, got None"):
        evaluate_scores(table(0), coverage=0.5)
    with pytest.raises(InputError, match="threshold_scores needs precision, recall, coverage, f1, or cost"):
        evaluate_scores(table(0), threshold_scores=table(1))


@pytest.mark.slow  # neighbor: test_what_an_import_leaves_alone
@pytest.mark.parametrize("module", ["hf_focal.workflow", "hf_focal.workflow.score_tables"])
def test_the_way_of_tables_imports_no_transformers(module):
    code = f"import sys, {module}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in modules
    assert not {"transformers", "datasets", "hf_focal.trainer"}.intersection(modules)


@pytest.mark.parametrize("command", [evaluate_scores, calibrate_scores])
def test_an_unknown_argument_is_refused(command):
    table = {"logits": [[2.0, 0.0], [0.0, 1.0]] * 20, "label": [0, 1, 1, 1] * 10}
    for name in ("test", "lable_column", "source", "arguments", "onnx"):
        with pytest.raises(TypeError, match=rf"{command.__name__}\(\) got an unexpected keyword argument '{name}'"):
            command(table, **{name: table})


def test_texts_stay_out_of_the_page_if_asked(tmp_path):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 2)), rng.integers(2, size=200)
    table = {"logits": logits, "label": labels, "words": [f"secret {row}" for row in range(200)]}
    for command, hidden in ((evaluate_scores, False), (evaluate_scores, True), (calibrate_scores, True)):
        folder = tmp_path / f"{command.__name__} {hidden}"
        command(table, text_column="words", no_examples=hidden, output=folder)
        assert ("secret" in (folder / "report.html").read_text(encoding="utf-8")) != hidden
