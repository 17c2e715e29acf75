"""What results say first, and when a correction is called better: of models that are wrong in known ways."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_text_summary import DETAILS, result_of

from hf_focal import CalibrationMetrics, Correction, Temperature, calibrate_scores, evaluate_scores
from hf_focal.command_lines import RunCommands
from hf_focal.hub import CardModel, model_card
from hf_focal.reports import RunResult, comparison_page, results_table, write_report
from hf_focal.reports.results.result_sections import CrossFit, LabelThreshold, ThresholdSection
from hf_focal.reports.wording.correction_effects import is_better_calibrated, lost_recall
from hf_focal.reports.wording.headlines import headline_of
from hf_focal.reports.wording.markdown_tables import Best, parts, results_columns
from hf_focal.reports.wording.model_warnings import is_no_better_than_guessing, warnings_of
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.reports.wording.text_summary import summary
from hf_focal.reports.wording.verdicts import correction_verdict, verdict
from hf_focal.scores.name_vocabulary import CORRECT

FITTED = Temperature(1.5, "nll", 0.1, 0.05, 0.9, 0.8, num_samples=500, num_bins=15)


def measured(logits, labels, link="softmax", temperature=None, names=(), **details):
    before, after = (CalibrationMetrics(link=link) for _ in range(2))
    before.update(logits, labels)
    after.update(logits if temperature is None else temperature.correction.apply(logits), labels)
    after = None if temperature is None else after
    return RunResult.from_metrics("m", temperature, before, after, details=DETAILS | details, label_names=names)


def rare(informative: bool, size: int = 500):
    """Logits of two classes that never predict the second one, which 4% of the samples have."""
    rng = np.random.default_rng(0)
    labels = (np.arange(size) % 25 == 0).astype(int)
    first = 3 + rng.normal(size=size) * 0.3 - informative * labels
    return np.stack([first, 0 * first], 1), labels


def text_of_card(result):
    return str(model_card(result, CardModel("org/m", "text-classification")))


def test_a_model_that_never_predicts_the_rare_class_is_told_first_everywhere(tmp_path):
    logits, labels = rare(informative=False)
    result = measured(logits, labels, temperature=FITTED, names=("ham", "spam"), fitted_on="dataset 'other.csv'")
    assert result.pre["macro_recall"] == 0.5 and is_no_better_than_guessing(result)
    first, second = warnings_of(result)[:2]
    assert first.startswith(
        "m is not shown to be right more often than always answering 'ham': an error of 4.0% against"
    )
    assert "AUROC" in first and "choose a threshold" not in first and "mean recall of the classes is 50.0%" in first
    assert second == "m never predicts 'spam' (4.0% of the samples)"
    lines = summary(result).splitlines()
    assert lines[1] == f"warning: {first}" and lines[2] == f"warning: {second}"
    assert "macro recall %" in summary(result) and "| AUROC %" in summary(result)
    assert not is_better_calibrated(result) and "improves the calibration" not in " ".join(verdict(result))
    card = text_of_card(result)
    assert card.index("never predicts") < card.index("## Use") and "improves the calibration" not in card
    write_report(tmp_path / "report", result)
    assert (tmp_path / "report" / "table.md").read_text(encoding="utf-8").startswith("Warning: m is not shown")
    page = comparison_page([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.index("never predicts") < page.index('class="lead"')
    assert "before its calibration" in str(next_steps(result)[0])


def test_the_ranking_of_such_a_model_may_be_worth_a_threshold():
    (first, *_) = warnings_of(measured(*rare(informative=True)))
    assert "so its ranking is useful: choose a threshold" in first


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_chance_is_no_better_than_the_majority_class(classes):
    """By a test at a level of 5%, which random models pass in about 5% of the draws."""
    rng, passed = np.random.default_rng(0), 0
    for _ in range(200):
        labels = rng.integers(classes, size=200)
        passed += not is_no_better_than_guessing(measured(rng.normal(size=(200, classes)), labels))
    assert passed <= 25
    logits = rng.normal(size=(200, classes)) + 3 * np.eye(classes)[labels]
    assert not is_no_better_than_guessing(measured(logits, labels)) and not warnings_of(measured(logits, labels))


def test_one_logit_and_labels_have_base_rates_too():
    logits, labels = rare(informative=False)
    one = measured(logits[:, 1:] - logits[:, :1], labels[:, None], "sigmoid", names=("spam",))
    assert "always answering 'not spam'" in warnings_of(one)[0] and "'spam'" in warnings_of(one)[1]
    several = measured(np.full((500, 2), -3.0), np.stack([labels, labels[::-1]], 1), "sigmoid")
    assert warnings_of(several)[0].startswith("m is not shown to be right more often than always giving each label's")


def test_auto_is_not_advised_again():
    labels = np.tile([[1], [0], [0], [0]], (200, 1))
    result = measured(np.tile([[-3.0], [-5.0]], (400, 1)), labels, "sigmoid", FITTED, fitted_on="dataset 'other.csv'")
    assert any(warning.endswith("(method 'platt' or 'auto')") for warning in warnings_of(result))
    chosen = CrossFit(method="temperature", chosen="temperature", reason="it lowers the cross-fitted NLL")
    by_auto = replace(result, fit=replace(result.fit, cross_fit=chosen))
    told = warnings_of(by_auto)
    assert any("auto chose T alone" in warning for warning in told) and "or 'auto'" not in " ".join(told)


def test_an_nll_above_the_base_rates_is_told():
    logits = torch.tensor([[3.0], [3.0], [-3.0], [-3.0]]).repeat(50, 1)
    labels = torch.tensor([[1], [0], [1], [0]]).repeat(50, 1)
    warning = warnings_of(measured(logits, labels, "sigmoid"))[-1]
    assert warning.startswith(
        "m has an NLL of 1.549, more than the 0.693 of always giving the frequency of each label"
    )
    assert warning.endswith("fit a slope and an intercept (method 'platt' or 'auto')")
    assert warnings_of(measured(torch.where(labels == 1, 2.0, -2.0), labels, "sigmoid")) == []
    softmax = warnings_of(measured(torch.cat([logits, -logits], 1), labels[:, 0]))[-1]
    assert "more than the 0.693 of always giving the frequency of each class: fit a correction" in softmax


def fit_of(method, correction=None, **scores):
    same = {"nll": 0.5, "brier": 0.3, "ece": 0.1}
    fit = {"method": method, "before": same, "after": same | scores, "num_samples": 100, "changed_predictions": 0}
    fit["decomposition"] = {"nll": [0.0, 0.5], "brier": [0.0, 0.3]}
    return fit | ({} if correction is None else {"correction": correction.to_dict(), "description": "d"})


def test_what_was_done_is_not_advised_again_and_the_number_is_labeled():
    logits = torch.tensor([[3.0], [3.0], [-3.0], [-3.0]]).repeat(50, 1)
    labels = torch.tensor([[1], [0], [1], [0]]).repeat(50, 1)
    fit = fit_of("platt", Correction.platt(2.0, 0.5))
    done = measured(logits, labels, "sigmoid", calibration=fit, fitted_on="dataset 'other.csv'")
    warning = next(text for text in warnings_of(done) if "NLL" in text)
    assert "an NLL of 1.549 after Platt scaling" in warning and "was fitted on data unlike these" in warning
    assert "fit a slope" not in warning
    none = measured(logits, labels, "sigmoid", calibration=fit_of("none"))
    assert "no correction clearly lowered the cross-fitted NLL" in warnings_of(none)[-1]
    earlier = measured(logits, labels, "sigmoid", was_calibrated=True)
    assert "the correction in its weights was fitted on data unlike these" in warnings_of(earlier)[-1]


def test_a_slope_of_logits_that_hardly_vary_is_told():
    rng = np.random.default_rng(0)
    labels = (rng.random((500, 1)) < 0.3).astype(int)
    logits = 0.01 * (labels + rng.normal(size=labels.shape))
    platt = Correction.platt(188.0, -1.0)
    before, after = (CalibrationMetrics(link="sigmoid") for _ in range(2))
    before.update(logits, labels)
    after.update(platt.apply(logits), labels)
    details = DETAILS | {"calibration": fit_of("platt", platt)}
    result = RunResult.from_metrics("m", None, before, after, details=details)
    assert "The slope of 188 is unusually large, which suggests that the logits barely vary" in warnings_of(result)[-1]
    assert "an AUROC of" in warnings_of(result)[-1]


def changed(pre, post, intervals=None):
    result = result_of(1.3, fitted_on="dataset 'other.csv'")
    intervals = intervals or ({}, {})
    result = replace(result, pre=result.pre | pre, post=result.pre | post)
    return replace(result, pre_intervals=intervals[0], post_intervals=intervals[1])


def test_what_does_not_change_is_not_better():
    same = changed({"ece": 0.04371, "nll": 0.52301}, {"ece": 0.04369, "nll": 0.52299})
    assert verdict(same)[1] == (
        "Temperature scaling makes no measurable difference: on the 2,000 samples of dataset 'rows.csv', the ECE "
        "stays at 4.37% and the NLL at 0.523."
    )
    larger = changed({"ece": 0.04369, "nll": 0.52299}, {"ece": 0.04371, "nll": 0.52301})
    assert "no measurable difference" in verdict(larger)[1] and "increases both" not in " ".join(verdict(larger))
    slightly = changed({"ece": 0.0437, "nll": 0.524}, {"ece": 0.0436, "nll": 0.523})
    assert not is_better_calibrated(slightly) and "improves the calibration" not in verdict(slightly)[1]
    clearly = changed({"ece": 0.0437, "nll": 0.524}, {"ece": 0.0136, "nll": 0.503})
    assert is_better_calibrated(clearly)


@pytest.mark.parametrize(
    ("post", "said"),
    [
        ({"ece": 0.151, "nll": 1.177}, "NLL 1.342 -> 1.177, ECE 7.1% -> 15.1%: better by NLL, worse by ECE"),
        ({"ece": 0.02, "nll": 1.5}, "NLL 1.342 -> 1.500, ECE 7.1% -> 2.0%: better by ECE, worse by NLL"),
    ],
)
def test_a_trade_is_in_the_headline(post, said):
    result = changed({"ece": 0.071, "nll": 1.342}, post)
    assert said in headline_of(result) and said in result.describe() and said in summary(result)
    assert said in text_of_card(result) and not is_better_calibrated(result)
    assert "improves the calibration" not in correction_verdict(result, "s", "samples")


def test_a_trade_on_the_rows_of_the_fit_is_that_of_cross_fitting():
    logits, labels = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 3
    fit = fit_of("matrix", nll=0.4, ece=0.2)
    result = measured(logits, labels, calibration=fit, fitted_on="dataset 'rows.csv'")
    expected = "cross-fitted, NLL 0.500 -> 0.400, ECE 10.0% -> 20.0%: better by NLL, worse by ECE"
    assert expected in headline_of(result)


def test_the_ece_of_a_model_that_is_wrong_more_often_is_not_bold():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=2000)
    good = rng.normal(size=(2000, 3)) + 6 * np.eye(3)[labels] * (rng.random((2000, 1)) < 0.9)
    worse = np.full((2000, 3), 0.0) + 1e-6 * rng.normal(size=(2000, 3))  # chance, and calibrated
    runs = [replace(measured(z, labels), name=name) for name, z in (("good", 3 * good), ("chance", worse))]
    columns = results_columns(runs)
    assert runs[1].pre["ece"] < runs[0].pre["ece"]
    assert not any(isinstance(part, Best) for cell in columns["ECE %"] for part in parts(cell))
    assert "**" not in results_table(runs).splitlines()[-1].split("|")[2]
    better = replace(measured(good, labels), name="better")
    assert any(isinstance(part, Best) for cell in results_columns([runs[0], better])["ECE %"] for part in parts(cell))


def test_a_correction_that_costs_right_answers_says_so():
    logits, labels = rare(informative=True)
    result = measured(logits, labels, temperature=FITTED, fitted_on="dataset 'other.csv'")
    assert not any("raises the error" in line for line in verdict(result))
    worse = replace(result, post=result.post | {"error": result.pre["error"] + 0.019})
    assert (
        verdict(worse)[-1]
        == "It also raises the error by 1.9 percentage points. The method 'temperature' changes no prediction."
    )
    yes_or_no = measured(
        logits[:, 1:] - logits[:, :1], labels[:, None], "sigmoid", FITTED, fitted_on="dataset 'other'"
    )
    yes_or_no = replace(yes_or_no, pre=yes_or_no.pre | {"micro_f1": 0.6}, post=yes_or_no.post | {"micro_f1": 0.4})
    assert "the micro F1 falls from 60.0% to 40.0%: choose another threshold" in verdict(yes_or_no)[-1]


def corrected_by(value, link="softmax", size=2000, own_test_data=True, **details):
    """Scores of a calibrated model whose temperature was wrongly fitted to 90 samples."""
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(size, 2, generator=random)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=random).flatten()
    if link == "sigmoid":
        logits = logits[:, 1:]
        labels = torch.bernoulli(logits.sigmoid(), generator=random)
    fitted = replace(FITTED, value=value, num_samples=90)
    source = "dataset 'other.csv'" if own_test_data else DETAILS["measured_on"]
    return measured(logits, labels, link, fitted, fitted_on=source, **details)


@pytest.mark.parametrize(("value", "kind"), [(6.0, "underconfident"), (0.2, "overconfident")])
def test_what_a_correction_leaves_is_told_with_what_may_help(value, kind):
    result = corrected_by(value)
    told = verdict(result)[-1]
    says, right = (f"{100 * result.post[name]:.0f}%" for name in ("confidence", "accuracy"))
    assert f"After T, the model is {kind} on average: it says {says} and is right {right}" in told
    assert told.endswith("Fitting to more than these 90 samples, like those in use, may help; so may the method auto.")
    assert f"the model is {kind}" in text_of_card(result)
    assert f"the model is {kind}" in " ".join(verdict(corrected_by(value, own_test_data=False)))


def test_what_a_correction_leaves_is_told_only_as_far_as_the_interval_shows_it():
    assert "still" not in " ".join(verdict(corrected_by(1.02)))
    assert "still" not in " ".join(verdict(corrected_by(1.5, size=40)))
    labels = verdict(corrected_by(5.0, "sigmoid"))[-1]
    assert "After T, its probabilities are right on average, but not at every level: the ECE is still" in labels
    assert "than these 90 labels, like" in labels
    half = measured(torch.full((2000, 1), 0.6), (torch.arange(2000) % 20 < 11).float()[:, None], "sigmoid", FITTED)
    assert "After T, its probabilities are still too high on average. The ECE is 4.87%" in " ".join(verdict(half))
    only_t = verdict(corrected_by(6.0, task="multiple-choice"))[-1]
    assert only_t.endswith("like those in use, may help.")
    logits, wrong = torch.full((500, 1), -2.0), torch.ones(500, 1)
    warned = measured(logits, wrong, "sigmoid", replace(FITTED, value=1.5), fitted_on="dataset 'other.csv'")
    assert "mean probability" in " ".join(warnings_of(warned))
    assert "still" not in " ".join(verdict(warned))  # the warning says it


def scores_that_are_right_on_average(is_calibrated, size=2000):
    """Probabilities and outcomes; half of the probabilities are too low, and half too high, unless calibrated."""
    rng = np.random.default_rng(0)
    true = rng.beta(2, 4, size)
    outcomes = (rng.random(size) < true).astype(int)
    factor = 1 if is_calibrated else np.where(np.arange(size) % 2, 0.4, 1.6)
    return np.clip(true * factor, 0.001, 0.999), outcomes


def test_probabilities_are_called_right_only_if_their_ece_may_be_small():
    headlines = []
    for is_calibrated in (True, False):
        scores, outcomes = scores_that_are_right_on_average(is_calibrated)
        result = evaluate_scores({"prob": scores, "label": outcomes})
        assert (result.pre_intervals["ece"][0] > 0.02) is not is_calibrated
        headlines.append(headline_of(result).partition(":")[0])
    assert headlines == ["Probabilities right on average", "Probabilities right on average, but not at every level"]


def test_confidences_are_called_right_only_if_their_ece_may_be_small():
    headlines = []
    for is_calibrated in (True, False):
        scores, outcomes = scores_that_are_right_on_average(is_calibrated)
        headlines.append(headline_of(evaluate_scores({"confidence": scores, "correct": outcomes})).partition(":")[0])
    right = "Neither over- nor underconfident on average"
    assert headlines == [right, f"{right}, but not calibrated at every level"]


@pytest.mark.parametrize("column", [*CORRECT, "Correct"])
def test_answers_are_right_where_labels_apply(column):
    scores, outcomes = scores_that_are_right_on_average(True)
    options = {"score_column": "prob", "label_column": column}
    result = evaluate_scores({"prob": scores, column: outcomes}, **options)
    assert headline_of(result).endswith("% of the answers are right.")
    warnings = warnings_of(evaluate_scores({"prob": scores / 3, column: outcomes}, **options))
    assert "of the answers are right: " in " ".join(warnings)
    assert headline_of(evaluate_scores({"prob": scores, "label": outcomes})).endswith("of the labels apply.")


def test_the_model_of_a_table_has_no_name_but_where_runs_are_compared(tmp_path):
    table = {"logits": np.tile([[3.0, 0.0]], (100, 1)), "label": np.arange(100) % 10 // 9}
    result = evaluate_scores(table)
    assert warnings_of(result)[0].startswith("The model is not shown to be right more often than")
    assert warnings_of(result, "run 1")[0].startswith("run 1 is not shown")
    assert "Warning: The model" in results_table([result])
    assert f"Warning: {result.name} is not shown" in results_table([result, result])


def changed_by(correction, logits, labels, link="softmax", names=(), method="platt", **details):
    """The result of a correction that may change predictions."""
    before, after = (CalibrationMetrics(link=link) for _ in range(2))
    before.update(logits, labels)
    after.update(correction.apply(torch.as_tensor(logits)), labels)
    details = DETAILS | {"calibration": fit_of(method, correction), "fitted_on": "dataset 'other.csv'"} | details
    return RunResult.from_metrics("m", None, before, after, details=details, label_names=names)


def reranker(size=2000):
    """Logits (N, 1) that are often right about one sample in five, which is relevant."""
    rng = np.random.default_rng(0)
    labels = (np.arange(size) % 5 == 0).astype(int)[:, None]
    return 2.0 * labels + rng.normal(size=labels.shape) - 1.5, labels


def test_what_the_correction_did_is_not_said_of_the_model():
    logits, labels = reranker()
    result = changed_by(Correction.platt(0.1, -2.0), logits, labels, "sigmoid", ("relevant",))
    error, never = warnings_of(result, "the model")[:2]
    assert error.startswith(
        "After the correction, the model is not shown to be right more often than always answering 'not relevant': an "
        f"error of 20.0% against 20.0%; before it, the error was {100 * result.pre['error']:.1f}%; its recall is 0.0%"
    )
    predicted = (logits >= 0).mean()
    expected = f"never predicts 'relevant', which it predicted for {100 * predicted:.1f}% of the samples before"
    assert never == f"After the correction, the model {expected}"
    assert "lowers the recall of 'relevant' from" in " ".join(verdict(result))
    given = {"scores": "a.csv", "test_scores": "b.csv", "output": "out"}
    steps = [*map(str, next_steps(result, RunCommands("calibrate", given)))]
    assert "--recall 0.8" in steps[0] and "--test_scores b.csv --output out_2 --method temperature`" in steps[1]
    assert "before its calibration" not in " ".join(steps)


def test_what_is_wrong_with_the_model_itself_is_said_of_it():
    logits, labels = reranker()
    result = changed_by(Correction.platt(0.1, -2.0), logits - 9, labels, "sigmoid", ("relevant",))
    error, never = warnings_of(result, "the model")[:2]
    assert error.startswith("The model is not shown to be right") and "before it" not in error
    assert never == "The model never predicts 'relevant' (20.0% of the samples)"


def test_a_label_that_only_the_correction_silences():
    logits, labels = (np.tile(column, (1, 2)) for column in reranker())
    shift = torch.tensor([-9.0, 0.0])
    result = changed_by(Correction.platt(torch.ones(2), shift), logits, labels, "sigmoid", ("a", "b"))
    (told,) = [text for text in warnings_of(result) if "correctly predicts" in text]
    assert told.startswith("After the correction, m never correctly predicts 'a' at a probability of ½, and did so")


def four_classes(size=1000):
    """Logits and labels of classes, of which the last one has 10% of the samples, and is often right."""
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=size, p=(0.4, 0.3, 0.2, 0.1))
    return 3 * np.eye(4)[labels] + rng.normal(size=(size, 4)), labels


def test_a_class_that_loses_its_recall_is_named_and_a_temperature_is_offered():
    logits, labels = four_classes()
    names = ("anger", "joy", "sadness", "optimism")
    result = changed_by(Correction.bias(1.0, [0, 0, 0, -3.0]), logits, labels, names=names, method="bias")
    ((name, before, after),) = lost_recall(result)
    (told,) = [line for line in verdict(result) if "lowers the recall" in line]
    assert name == "optimism" and before - after > 0.3
    assert f"of 'optimism' from {100 * before:.1f}% to {100 * after:.1f}%. The method 'temperature'" in told
    run = RunCommands("calibrate", {"scores": "a.csv", "test_scores": "b.csv", "output": "out"})
    assert any(str(step).endswith("--output out_2 --method temperature`") for step in next_steps(result, run))
    slight = changed_by(Correction.bias(1.0, [0, 0, 0, -0.1]), logits, labels, names=names, method="bias")
    assert not lost_recall(slight) and not any("--method" in str(step) for step in next_steps(slight, run))
    few = changed_by(Correction.bias(1.0, [0, 0, 0, -3.0]), logits[:30], labels[:30], names=names, method="bias")
    assert (labels[:30] == 3).sum() < 5 and not lost_recall(few)  # which chance may explain


def test_changes_of_classes_are_saved(tmp_path):
    logits, labels = four_classes()
    result = changed_by(Correction.bias(1.0, [0, 0, 0, -3.0]), logits, labels, method="bias")
    result.save(tmp_path / "metrics.json")
    assert lost_recall(RunResult.load(tmp_path / "metrics.json")) == lost_recall(result) != []


def test_thresholds_are_advised_only_if_there_are_any():
    logits, labels = reranker()
    pair = np.tile(logits, (1, 2)), np.tile(labels, (1, 2))
    result = changed_by(Correction.platt(torch.ones(2), torch.full((2,), -0.5)), *pair, "sigmoid", ("a", "b"))
    result = replace(result, pre=result.pre | {"micro_f1": 0.6}, post=result.post | {"micro_f1": 0.4})
    missing = [LabelThreshold(name, None, "too few positives", math.nan, math.nan) for name in "ab"]
    section = ThresholdSection("precision >= 80%", None, "sigmoid", "dataset 'other.csv'", missing)
    told = verdict(replace(result, thresholds=section))[-1]
    assert "below instead" not in told and told.endswith("The method 'temperature' changes no prediction.")


def test_an_error_that_the_correction_changes_is_said_to_be_that_after_it():
    logits, labels = reranker()
    worse = changed_by(Correction.platt(1.0, -0.2), logits + 2, labels, "sigmoid", ("relevant",))
    before, after = (100 * side["error"] for side in (worse.pre, worse.post))
    told = warnings_of(worse, "m")[0]
    assert told.startswith(
        "After the correction, m is wrong more often than always answering 'not relevant': an error"
    )
    assert f"of {after:.1f}% against 20.0%; before it, too, the error was {before:.1f}%" in told


def chosen_vector(scores, pre_ece=(0.05, 0.1), post_ece=(0.06, 0.2), post=0.15):
    """A vector scaling that lowers the NLL, with the cross-fitted (NLL, ECE) of each correction that was tried."""
    logits, labels = four_classes(200)
    result = changed_by(Correction.bias(0.5, [0, 0, 0, 0.0]), logits, labels, method="bias")
    tried = {name: {"nll": nll, "brier": 0.5, "ece": ece} for name, (nll, ece) in scores.items()}
    fit = replace(result.fit.cross_fit, before=tried["none"], after=tried["vector"], scores=tried)
    return replace(
        result,
        fit=replace(result.fit, cross_fit=replace(fit, method="vector")),
        pre=result.pre | {"ece": 0.08, "nll": 1.0},
        post=result.post | {"ece": post, "nll": 0.8},
        pre_intervals={"ece": pre_ece},
        post_intervals={"ece": post_ece},
    )


def steps_for_ece(result):
    run = RunCommands("calibrate", {"scores": "a.csv", "test_scores": "b.csv", "output": "out"})
    return [str(step) for step in next_steps(result, run) if "if the ECE matters" in str(step)]


def test_another_correction_is_offered_if_the_ece_rises_and_one_is_shown_to_lower_it():
    none, vector = (1.1, 0.0734), (0.9, 0.1329)
    (told,) = steps_for_ece(chosen_vector({"none": none, "temperature": (1.0, 0.05), "vector": vector}))
    assert (
        "correct with temperature scaling, whose cross-fitted ECE is 5.00% in the place of 13.29%: `hf-focal" in told
    )
    assert told.endswith("--output out_2 --method temperature`")
    (told,) = steps_for_ece(chosen_vector({"none": none, "temperature": (1.0, 0.155), "vector": vector}))
    assert "use the model without this correction: its cross-fitted ECE is 7.34%, with the correction 13.29%" in told
    assert steps_for_ece(chosen_vector({"none": none, "vector": (0.9, 0.05)})) == []
    assert steps_for_ece(chosen_vector({"none": none, "vector": vector}, post=0.07)) == []  # it falls on test data
    beyond = chosen_vector({"none": none, "vector": (0.9, 0.05)}, post_ece=(0.11, 0.2))
    (told,) = steps_for_ece(beyond)
    assert "on these test data" in told


def test_a_temperature_that_is_shown_to_be_worse_is_not_advised():
    logits, labels = reranker()
    result = changed_by(Correction.platt(0.1, -2.0), logits, labels, "sigmoid", ("relevant",))
    fit = result.fit.cross_fit
    before, after = {"nll": 0.6433, "brier": 0.2, "ece": 0.18}, {"nll": 0.6084, "brier": 0.2, "ece": 0.2183}
    fit = replace(fit, before=before, scores={"temperature": after})
    run = RunCommands("calibrate", {"scores": "a.csv", "test_scores": "b.csv", "output": "out"})
    steps = " ".join(map(str, next_steps(replace(result, fit=replace(result.fit, cross_fit=fit)), run)))
    assert "--method temperature" not in steps
    told = "use it without a correction: a temperature alone, cross-fitted, changes the ECE from 18.00% to 21.83%"
    assert f"to keep the model's own predictions, {told}" in steps
    assert "changes no prediction" not in " ".join(verdict(replace(result, fit=replace(result.fit, cross_fit=fit))))


@pytest.mark.parametrize(("shift", "word"), [(0.0, "is underconfident"), (-1.0, "is still underconfident")])
def test_still_is_said_of_what_the_correction_did_not_cause(shift, word):
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 2, generator=random)
    labels = torch.multinomial((logits * (1 - shift)).softmax(-1), 1, generator=random).flatten()
    result = measured(logits, labels, "softmax", replace(FITTED, value=6.0), fitted_on="dataset 'other.csv'")
    assert f"After T, the model {word} on average" in " ".join(verdict(result))


@pytest.mark.parametrize(
    ("size", "p", "expected"),
    [
        (20, 0.95, "neither over- nor underconfident"),  # 20 of 20 right: p = 0.36
        (400, 0.95, "underconfident"),
    ],
)
def test_a_model_that_is_always_right_is_underconfident_only_beyond_chance(size, p, expected):
    logits = torch.tensor([[math.log(p / (1 - p)), 0.0]]).repeat(size, 1)
    assert headline_of(measured(logits, torch.zeros(size, dtype=torch.long))).lower().startswith(expected)


def overconfident(size, seed, shares=None):
    """A table of overconfident logits; with `shares`, each class has such a share of the rows."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(20 * size, 3))
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(1)
    rows = np.arange(size)
    if shares is not None:
        rows = np.concatenate([np.flatnonzero(labels == k)[: round(size * share)] for k, share in enumerate(shares)])
    return {"logits": logits[rows], "label": labels[rows]}


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_test_data_with_the_old_shares_do_not_blame_a_prior_shift(link, tmp_path):
    new = [0.1, 0.2, 0.7]
    old_test, new_test = overconfident(600, 1), overconfident(600, 2, new)
    table = overconfident(600, 0)
    if link == "sigmoid":
        tables = table, old_test, new_test
        table, old_test, new_test = ({"logit": part["logits"][:, 0], "label": part["label"] == 0} for part in tables)
        new = [0.1]
    plain = calibrate_scores(table, test_scores=old_test, method="temperature")
    result = calibrate_scores(table, test_scores=old_test, method="temperature", new_prior=new)
    text = " ".join(verdict(result))
    assert "so they do not show what the shift gains" in text
    assert not any(word in text for word in ("Nothing shows", "bias correction", "raises", "lowers", "worse by"))
    assert f"after {plain.correction_title(3)} and a prior shift" in text
    assert result.temperature == plain.temperature and result.temperature.is_fitted
    result.save(tmp_path / "metrics.json")
    saved = RunResult.load(tmp_path / "metrics.json")
    assert saved.temperature.value == plain.temperature.value and verdict(saved) == verdict(result)
    # With the new shares, the test data show what the correction does.
    result = calibrate_scores(table, test_scores=new_test, method="temperature", new_prior=new)
    text = " ".join(verdict(result))
    title = f"the correction ({result.correction_title(3)})"
    assert title in text.replace("The", "the") and "do not show" not in text
    assert result.method != "temperature" and result.prior.test_prior == pytest.approx(new, abs=0.01)


def test_numbers_that_differ_beyond_noise_are_never_told_as_equal(tmp_path):
    labels = torch.arange(300) % 3
    logits = 20 * torch.nn.functional.one_hot(torch.cat([labels[:1] + 1, labels[1:]]), 3).double()  # one is wrong
    result = measured(logits, labels)
    assert headline_of(result) == "Overconfident: says 100.0%, right 99.7%."
    assert headline_of(result) in text_of_card(result) and headline_of(result) in " ".join(verdict(result))
    corrected = measured(logits, labels, temperature=replace(FITTED, value=1.1))
    assert "says 100.0%, right 99.7%; after T = 1.1: says 100.0%" in headline_of(corrected)
    same = measured(torch.tensor([[2.0, 0.0]]).repeat(100, 1), (torch.arange(100) % 8 == 0).long())
    assert headline_of(same) == "Neither over- nor underconfident on average: says 88%, right 87%."
    rare = measured(torch.full((10**6, 1), -7.6), (torch.arange(10**6) % 1700 == 0).float()[:, None], "sigmoid")
    assert headline_of(rare).startswith("Probabilities too low: 0.05% on average, and 0.06% ")


def test_what_a_correction_leaves_has_numbers_that_differ():
    result = corrected_by(6.0)
    post = result.post | {"confidence": 0.6412, "accuracy": 0.6439, "num_samples": 10**6}
    assert "says 64.1% and is right 64.4% of the time" in " ".join(verdict(replace(result, post=post)))


def test_an_error_that_is_larger_than_that_of_the_majority_is_not_told_as_equal():
    labels = np.arange(20_000) % 25 == 0
    logits = np.stack([np.full(20_000, 2.0), np.zeros(20_000)], 1)
    logits[1:9] = 0.0, 2.0  # none of which is of the second class
    (first, *_) = warnings_of(measured(logits, labels.astype(int)))
    assert first.startswith("m is wrong more often than always answering '0': an error of 4.04% against 4.00%")
