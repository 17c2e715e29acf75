"""The exact text of the Markdown tables."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from hf_focal import Temperature
from hf_focal.reports import RunResult, markdown_table, results_table

CROSS_ENTROPY = {
    "loss": "cross_entropy",
    "pre": {"error": 0.2345, "nll": 1.23456, "ece": 0.101, "adaece": 0.1, "classwise_ece": 0.0125, "mce": 0.3},
    "post": {"error": 0.2345, "nll": 0.98765, "ece": 0.021, "adaece": 0.02, "classwise_ece": 0.0105, "mce": 0.1},
    "temperature": 2.0,
}
FOCAL = {
    "loss": "focal:gamma=3",
    "pre": {"error": 0.23, "nll": 0.95, "ece": 0.03, "adaece": 0.029, "classwise_ece": 0.0115, "mce": 0.08},
    "post": {"error": 0.23, "nll": 0.94, "ece": 0.02101, "adaece": 0.025, "classwise_ece": 0.011, "mce": 0.12},
    "temperature": 1.1,
}
HEAD = "| Loss | Error % | NLL | ECE % | AdaECE % | classwise ECE % | MCE % | T |\n"
RULE = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"


def test_best_of_each_column_is_bold_before_and_after_apart():
    assert markdown_table([CROSS_ENTROPY, FOCAL]) == (
        HEAD + RULE + "| cross_entropy | 23.45 | 1.235 → 0.988 | 10.10 → **2.10** | 10.00 → **2.00** | "
        "1.25 → **1.05** | 30.00 → **10.00** | 2.00 |\n"
        "| focal:gamma=3 | **23.00** | **0.950** → **0.940** | **3.00** → **2.10** | **2.90** → 2.50 | "
        "**1.15** → 1.10 | **8.00** → 12.00 | 1.10 |\n"
    )


def test_one_run_is_no_competition():
    line = (
        "| cross_entropy | 23.45 | 1.235 → 0.988 | 10.10 → 2.10 | 10.00 → 2.00 | 1.25 → 1.05 | 30.00 → 10.00 | 2.00 |"
    )
    assert markdown_table([CROSS_ENTROPY]) == HEAD + RULE + line + "\n"
    assert "**" not in markdown_table([CROSS_ENTROPY, FOCAL], bold_best=False)


def test_intervals_and_the_true_error():
    row = FOCAL | {
        "intervals": {"ece": (0.0251, 0.0349)},
        "post_intervals": {"ece": (0.01, 0.03)},
        "true_calibration_error": (0.04, 0.002),
    }
    title, _, last, other = markdown_table([row, CROSS_ENTROPY]).splitlines()
    assert title.endswith("| MCE % | true ECE % | T |")
    assert "| **3.00** [2.51, 3.49] → 2.10 [1.00, 3.00] |" in last  # the other's 2.10 is in the interval
    assert last.endswith("| 4.00 → 0.20 | 1.10 |")
    assert other.endswith("| – → – | 2.00 |")


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
    title, _, no, yes, majority, *notes = results_table(runs).replace("**", "").splitlines()
    share = f"{100 * labels.double().mean():.2f}"
    assert title.startswith("| Loss | Error % | macro-F1 % | AUROC % | NLL |")
    assert no.startswith(f"| cross_entropy | {share} |") and majority.startswith(f"| (majority class) | {share} |")
    assert any(note.startswith("Note: cross_entropy predicts one class for 100.0 %") for note in notes)
    assert not any(note.startswith("Note: brier predicts") for note in notes)
    scores = useful[:, 1] - useful[:, 0]
    assert f"| {100 * roc_auc_score(labels, scores):.2f} |" in yes


def test_a_temperature_that_harms_is_told():
    labels = torch.arange(200) % 2
    logits = torch.nn.functional.one_hot(labels ^ (torch.arange(200) % 10 == 0)).float() * 2.2
    temperature = Temperature(4.0, "ece", 0.1, 0.1, 1.0, 1.0, 30, 15)
    run = RunResult.measure("cross_entropy", temperature, logits, labels)
    assert "Note: T increases both ECE and NLL of cross_entropy" in results_table([run])


def test_what_a_run_lacks_is_a_dash():
    row = {"loss": "brier", "pre": {"error": 0.5, "nll": float("nan"), "ece": 0.1, "adaece": 0.1, "mce": 0.2}}
    assert markdown_table([row]).splitlines()[-1] == "| brier | 50.00 | – | 10.00 | 10.00 | – | 20.00 | – |"


def test_no_runs_is_an_error():
    with pytest.raises(ValueError, match="at least one run"):
        markdown_table([])
