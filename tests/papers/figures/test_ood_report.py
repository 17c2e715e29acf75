"""Report of out-of-distribution detection: files, tables and contents of figures."""

import csv
import json
import math
from dataclasses import replace

import pytest
from matplotlib.image import imread
from papers.figures.ood_report import detection_table, shift_table, write_detection_report
from papers.metrics.ood_metrics import DetectionResult

SIDES, KINDS = ("pre", "post"), ("entropy", "confidence")


def measured(auroc, **values):
    return {"auroc": auroc, "aupr_out": 0.7, "aupr_in": 0.8, "fpr95": 0.5} | values


def shift_of(ece, accuracy):
    """ECE halves with the temperature; both grow worse by a tenth a severity."""
    return [
        {
            "severity": s,
            "pre": {"ece": ece + 0.1 * s, "accuracy": accuracy - 0.1 * s, "nll": 1.0 + s, "s99_accuracy": math.nan},
            "post": {"ece": (ece + 0.1 * s) / 2, "accuracy": accuracy - 0.1 * s, "nll": 0.9 + s},
        }
        for s in range(6)
    ]


def result_of(loss, temperature, aurocs, ece=0.05, **values):
    """A run with the AUROC by entropy (before, after), that by confidence 1% below."""
    sides = dict(zip(SIDES, aurocs, strict=True))
    detection = {side: {"entropy": measured(a), "confidence": measured(a - 0.01)} for side, a in sides.items()}
    result = DetectionResult(
        loss=loss,
        temperature=temperature,
        detection={"svhn": detection},
        shift={"contrast": shift_of(ece, 0.9)},
        in_distribution={"pre": {"error": 0.06, "ece": ece, "nll": 0.3}, "post": {"ece": ece / 5, "nll": 0.25}},
    )
    return replace(result, **values)


CROSS_ENTROPY = result_of("cross_entropy", 2.0, (0.9, 0.95), ece=0.08)
FOCAL = result_of("focal:gamma=3", 1.1, (0.93, 0.9345))
RESULTS = [CROSS_ENTROPY, FOCAL]


def test_a_saved_result_has_null_for_nan(tmp_path):
    sides = {side: {"ece": 0.1 + 0.2, "s99_accuracy": math.nan, "error": 0, "nll": 1} for side in SIDES}
    result = replace(CROSS_ENTROPY, in_distribution=sides)
    write_detection_report(tmp_path, [result])
    (values,) = json.loads((tmp_path / "detection.json").read_text(), parse_constant=pytest.fail)
    assert values["shift"]["contrast"][0]["pre"]["s99_accuracy"] is None
    assert values["in_distribution"]["pre"] == sides["pre"] | {"s99_accuracy": None}
    assert values["detection"] == result.detection


def test_the_detection_table():
    head = (
        "| Loss | T | AUROC % (entropy) | AUROC % (confidence) | FPR@95% (entropy) | AUPR-out % (entropy) | "
        "AUPR-in % (entropy) |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    same = "**50.00** → **50.00** | **70.00** → **70.00** | **80.00** → **80.00** |\n"
    assert detection_table(RESULTS) == (
        f"## svhn\n\n{head}"
        f"| cross_entropy | 2.00 | 90.00 → **95.00** | 89.00 → **94.00** | {same}"
        f"| focal:gamma=3 | 1.10 | **93.00** → 93.45 | **92.00** → 92.45 | {same}"
    )


def test_the_shift_table():
    cross_entropy, focal = (
        replace(run, shift={"contrast": [run.shift["contrast"][severity] for severity in (0, 5)]}) for run in RESULTS
    )
    head = "| Loss | severity 0 | severity 5 |\n| --- | ---: | ---: |\n"
    assert shift_table([cross_entropy, focal], "contrast") == (
        f"## contrast: ECE %\n\n{head}"
        "| cross_entropy | 8.00 → 4.00 | 58.00 → 29.00 |\n"
        "| focal:gamma=3 | **5.00** → **2.50** | **55.00** → **27.50** |\n"
        f"\n## contrast: accuracy %\n\n{head}"
        "| cross_entropy | **90.00** | **40.00** |\n"
        "| focal:gamma=3 | **90.00** | **40.00** |\n"
    )


def test_the_report(tmp_path):
    folder = tmp_path / "new" / "report"
    results = [
        replace(run, detection=run.detection | {"cifar-10-c/noise:5": run.detection["svhn"]}) for run in RESULTS
    ]
    paths = write_detection_report(folder, results)
    names = ["table.md", "shift_contrast.png", "shift.csv"]
    assert [path.name for path in paths] == [*names, "detection.json"]
    assert sorted(folder.iterdir()) == sorted(paths)
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert text.startswith("## In distribution\n\n| Loss | ECE % | T | Error % | NLL |")
    assert "| cross_entropy | 8.00 → 1.60 | 2.00 | **6.00** | **0.3000** → **0.2500** |" in text
    assert text.endswith(f"|\n\n{detection_table(results)}\n{shift_table(results, 'contrast')}")
    assert imread(folder / "shift_contrast.png").std() > 0.1

    text = (folder / "shift.csv").read_text(encoding="utf-8")
    assert text.startswith("loss,corruption,severity,when,ece,accuracy,nll,s99_accuracy\n") and "\r" not in text
    rows = list(csv.DictReader(text.splitlines()))
    keys = [(run.loss, "contrast", str(s), side) for run in RESULTS for s in range(6) for side in SIDES]
    assert [(row["loss"], row["corruption"], row["severity"], row["when"]) for row in rows] == keys
    for row in rows:
        shift = {run.loss: run for run in RESULTS}[row["loss"]].shift["contrast"]
        expected = shift[int(row["severity"])][row["when"]]
        for key in ("ece", "accuracy", "nll"):
            assert float(row[key]) == expected[key]
        assert row["s99_accuracy"] == ""  # NaN, or not measured
