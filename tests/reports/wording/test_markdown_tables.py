"""The exact text of the Markdown tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from hf_focal import CalibrationMetrics, Correction, Temperature, fit_temperature
from hf_focal.metrics import ReliabilityBins
from hf_focal.reports import RunResult, results_table
from hf_focal.reports.results.result_sections import CrossFit, FitSection
from hf_focal.reports.wording.markdown_tables import label_table, results_columns, rows_table

BINS = ReliabilityBins(np.array([0.0, 1.0]), np.array([0]), np.array([np.nan]), np.array([np.nan]))
COLUMNS = ("error", "nll", "ece", "adaece", "classwise_ece", "mce")


def run_of(loss, temperature, pre, post):
    fitted = Temperature(temperature, "nll", 0.1, 0.1, 1.0, 1.0, 1000, 15)
    pre, post = (dict(zip(COLUMNS, values, strict=True)) for values in (pre, post))
    return RunResult(loss, fitted, pre, post, BINS, BINS)


CROSS_ENTROPY = run_of(
    "cross_entropy", 2.0, (0.2345, 1.23456, 0.101, 0.1, 0.0125, 0.3), (0.2345, 0.98765, 0.021, 0.02, 0.0105, 0.1)
)
FOCAL = run_of(
    "focal:gamma=3", 1.1, (0.23, 0.95, 0.03, 0.029, 0.0115, 0.08), (0.23, 0.94, 0.02101, 0.025, 0.011, 0.12)
)
HEAD = "| Loss | ECE % | T | Error % | NLL | AdaECE % | Classwise ECE % | MCE % |\n"
RULE = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"


def test_a_table_of_rows():
    table = rows_table(["Loss", "ECE %", "chosen"], [["`brier`", "1.0", "T"]], ["chosen"])
    assert table == "| Loss | ECE % | chosen |\n| --- | ---: | --- |\n| `brier` | 1.0 | T |\n"


def test_best_of_each_column_is_bold_before_and_after_apart():
    assert results_table([CROSS_ENTROPY, FOCAL]) == (
        HEAD + RULE + "| cross_entropy | 10.10 → **2.10** | 2.00 | 23.45 | 1.235 → 0.988 | 10.00 → **2.00** | "
        "1.25 → **1.05** | 30.00 → **10.00** |\n"
        "| focal:gamma=3 | **3.00** → **2.10** | 1.10 | **23.00** | **0.950** → **0.940** | **2.90** → 2.50 | "
        "**1.15** → 1.10 | **8.00** → 12.00 |\n"
    )


def test_one_run_is_no_competition():
    line = (
        "| cross_entropy | 10.10 → 2.10 | 2.00 | 23.45 | 1.235 → 0.988 | 10.00 → 2.00 | 1.25 → 1.05 | 30.00 → 10.00 |"
    )
    assert results_table([CROSS_ENTROPY]) == HEAD + RULE + line + "\n"


def test_intervals_and_the_true_error():
    run = replace(
        FOCAL,
        pre_intervals={"ece": (0.0251, 0.0349)},
        post_intervals={"ece": (0.01, 0.03)},
        true_calibration_error=(0.04, 0.002),
    )
    title, _, last, other = results_table([run, CROSS_ENTROPY]).splitlines()
    assert title.endswith("| MCE % | true ECE % |")
    assert "| **3.00** [2.51, 3.49] → 2.10 [1.00, 3.00] |" in last  # the other's 2.10 is in the interval
    assert last.endswith("| 4.00 → 0.20 |")
    assert other.endswith("| – → – |")


def test_a_model_of_one_answer_is_named_beside_the_majority_class():
    torch.manual_seed(0)
    labels = (torch.rand(1000) < 0.05).long()
    always_no = torch.tensor([[3.0, 0.0]]) + 0.01 * torch.randn(1000, 2)
    useful = torch.nn.functional.one_hot(labels) * 2.0 + torch.randn(1000, 2)
    temperature = Temperature(2.0, "nll", 0.1, 0.1, 1.0, 1.0, 1000, 15)
    runs = [
        RunResult.measure(name, temperature, logits, labels)
        for name, logits in (("cross_entropy", always_no), ("brier", useful))
    ]
    parts = results_table(runs).replace("**", "").split("\n\n")
    warnings = [part for part in parts if part.startswith("Warning")]
    table = next(part for part in parts if part.startswith("| Loss"))
    title, _, no, yes, majority = table.splitlines()
    share = f"{100 * labels.double().mean():.2f}"
    assert title.startswith("| Loss | ECE % | T | Error % | Macro F1 % | AUROC % | NLL |")
    assert f"| 2.00 | {share} |" in no and majority.startswith(f"| (majority class) | – | – | {share} |")
    assert warnings[0].startswith(
        "Warning: cross_entropy is not shown to be right more often than always answering '0'"
    )
    assert warnings[1].startswith("Warning: cross_entropy never predicts '1'")
    assert not any("never" in warning or "right" in warning for warning in warnings if "brier" in warning)
    scores = useful[:, 1] - useful[:, 0]
    assert f"| {100 * roc_auc_score(labels, scores):.2f} |" in yes


def test_a_temperature_that_harms_is_told():
    labels = torch.arange(200) % 2
    logits = torch.nn.functional.one_hot(labels ^ (torch.arange(200) % 10 == 0)).float() * 2.2
    temperature = Temperature(4.0, "ece", 0.1, 0.1, 1.0, 1.0, 30, 15)
    run = RunResult.measure("cross_entropy", temperature, logits, labels)
    table = results_table([run, run])
    assert "Note: T increases both ECE and NLL of cross_entropy" in table
    assert table.count("Note: T is fitted on 30 samples: with fewer than 500, it can make calibration worse;") == 1


@pytest.mark.parametrize(("size", "reason", "warned"), [(100, "it", False), (99, "it", True), (100, "", True)])
def test_a_temperature_that_auto_chose_needs_fewer_samples(size, reason, warned):
    labels = torch.arange(200) % 2
    logits = 2.2 * torch.nn.functional.one_hot(labels).float()
    scores, parts = {"nll": 1.0, "brier": 0.5, "ece": 0.1}, {"nll": [0.0, 1.0], "brier": [0.0, 0.5]}
    sizes = {"changed_predictions": 0, "num_samples": size, "num_folds": 5, "decomposition": parts}
    fit = CrossFit("temperature", "temperature", reason, scores, scores, **sizes)
    run = RunResult.measure("scores", Temperature(1.5, "nll", 0.2, 0.1, 1.0, 0.9, size, 15), logits, labels)
    table = results_table([replace(run, fit=replace(run.fit, cross_fit=fit))])
    assert ("100 are enough only for the method auto" in table) == warned


def test_what_a_run_lacks_is_a_dash():
    pre = {"error": 0.5, "nll": float("nan"), "ece": 0.1, "adaece": 0.1, "mce": 0.2}
    unfitted = Temperature.unfitted(pre | {"num_samples": 5}, 15)
    run = RunResult("brier", unfitted, pre, pre, BINS, BINS)
    other = replace(run, pre=pre | {"classwise_ece": 0.3})
    table = results_table([run, other]).replace("**", "")
    assert "| brier | 10.00 | – | 50.00 | – | 10.00 | – | 20.00 |" in table.splitlines()
    alone = results_table([run]).splitlines()  # without the column of what no run has
    assert "Classwise" not in alone[0] and alone[-1] == "| brier | 10.00 | – | 50.00 | – | 10.00 | 20.00 |"
    without = {"error": 0.5}
    assert results_table([replace(run, pre=without, post=without)]).splitlines()[0] == "| Loss | T | Error % |"


def test_labels_with_their_errors_and_temperatures(tmp_path):
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(400, 3, generator=generator) - torch.tensor([0.0, 2, 4])
    y = (torch.rand(z.shape, generator=generator) < torch.sigmoid(z / 2)).int()
    fitted = fit_temperature(z, y, "nll", link="sigmoid", per_label=True)
    before, after = CalibrationMetrics(link="sigmoid"), CalibrationMetrics(link="sigmoid")
    before.update(z, y)
    after.update(fitted.correction.apply(z), y)
    result = RunResult.from_metrics("brier", fitted, before, after, label_names=["a", "b", "c"])
    result.save(tmp_path / "metrics.json")
    own, eces = before.per_label(), after.per_label()["ece"]
    for run in (result, RunResult.load(tmp_path / "metrics.json")):
        assert run.temperature == fitted and run.link == "sigmoid"
        assert f"after T = {min(fitted.values):.3g} to {max(fitted.values):.3g}: " in run.describe()
        lines = label_table(run).splitlines()
        assert lines[0] == "| Label | frequency % | ECE % | F1 % | T |"
        for label, name in enumerate("abc"):
            assert lines[2 + label] == (
                f"| {name} | {100 * own['frequency'][label]:.2f} | {100 * own['ece'][label]:.2f} → "
                f"{100 * eces[label]:.2f} | {100 * own['f1'][label]:.1f} | {fitted.values[label]:.2f} |"
            )
        (worst,) = label_table(run, most=1).splitlines()[2:]
        assert worst == lines[2 + int(own["ece"].argmax())]
        title, _, row = results_table([run]).splitlines()
        assert "| Macro ECE % |" in title and "classwise" not in title
        assert f"| {min(fitted.values):.2f} to {max(fitted.values):.2f} |" in row
        assert next(iter(run.subsets.worst_labels)) == worst.split(" | ")[0].removeprefix("| ")
    bins = result.subsets.worst_labels["a"][1]
    assert bins.count.sum() == 400 and bins.accuracy == pytest.approx(after.bins(0).accuracy, nan_ok=True)


def test_decisions_that_the_correction_changes_have_both_values():
    logits, labels = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.5, 0.0]]), torch.tensor([0, 1, 1, 1])
    shift = Correction.vector((1.0, 1.0), (-0.6, 0.6))
    run = RunResult.measure("flsd53", shift, logits, labels, details={"calibration": {"method": "vector"}})
    columns = results_columns([run])
    assert "".join(columns["Error %"][0]) == "50.00 → 0.00"
    cooled = RunResult.measure("flsd53", Temperature(2.0, "nll", num_samples=4), logits, labels)
    assert "".join(results_columns([cooled])["Error %"][0]) == "50.00"


def test_a_column_of_other_corrections_than_temperatures_is_not_called_t():
    scores = {"nll": 1.0, "brier": 0.5, "ece": 0.1}
    fit = CrossFit("matrix", None, None, scores, scores, None, 0, 9, decomposition={"nll": [0, 1], "brier": [0, 1]})
    unfitted = replace(FOCAL.temperature, objective="none")
    matrix = replace(FOCAL, name="other", temperature=unfitted, fit=FitSection(cross_fit=fit))
    columns = results_columns([CROSS_ENTROPY, matrix])
    assert "T" not in columns and columns["correction"] == ["T = 2.00", "matrix"]
    assert results_columns([CROSS_ENTROPY])["T"] == ["2.00"]
