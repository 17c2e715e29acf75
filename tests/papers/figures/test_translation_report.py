"""The report of a translation run: what is saved and read back, the exact table and CSV, and what the figure holds."""

import csv
import json
import math
import random
from dataclasses import fields, replace

import numpy as np
import pytest
from matplotlib.image import imread
from papers.figures.translation_report import (
    temperature_curves,
    translation_table,
    write_curves_csv,
    write_translation_report,
)
from papers.runs.translation_results import TranslationResult

from hf_focal import LossConfig, Temperature
from hf_focal.metrics import ReliabilityBins

GRID = (np.arange(1, 101) / 10).tolist()
EDGES = np.linspace(0, 1, 4)
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"


def bins(accuracy):
    return ReliabilityBins(EDGES, np.array([0, 3, 5]), np.array([np.nan, 0.55, 0.9]), np.array([np.nan, *accuracy]))


def result_of(loss, temperature, ece, bleu, nll=(2.0, 1.9), more_bleu=(), **values):
    """A run with the (before, after) of ECE, NLL and BLEU, and a made-up curve of ECE with its minimum at T."""
    curve = {t: ece[1] + 0.3 * abs(math.log(t / temperature)) for t in GRID}
    fitted = Temperature(temperature, "ece", *ece, *nll, num_samples=8, num_bins=3)
    result = TranslationResult(
        name=loss,
        loss=loss,
        temperature=fitted,
        pre={"ece": ece[0], "nll": nll[0], "nll_incorrect": math.nan},
        post={"ece": ece[1], "nll": nll[1], "nll_incorrect": math.nan},
        bleu={1.0: bleu[0], temperature: bleu[1], **dict(more_bleu)},
        signature=SIGNATURE,
        validation_ece=curve,
        pre_bins=bins([0.2, 0.7]),
        post_bins=bins([0.5, 0.9]),
        details={"epochs": 2, "beams": 4},
    )
    return replace(result, **values)


# Table 3 of Mukhoti et al. 2020; NLL and the temperatures besides T are made up.
CROSS_ENTROPY = result_of("cross_entropy", 1.2, (0.1016, 0.0259), (26.31, 26.21), more_bleu={0.5: 25.0, 1.6: 25.5})
SMOOTHING = result_of("label_smoothing:alpha=0.1", 1.0, (0.0325, 0.0325), (26.33, 26.33), (2.5, 2.5))
FOCAL = result_of("focal:gamma=1", 1.0, (0.0169, 0.0169), (26.39, 26.39), (2.0, 2.0), more_bleu={1.4: 26.0})
RESULTS = [CROSS_ENTROPY, SMOOTHING, FOCAL]


def lines_of(axes):
    """(curve, marker of the fitted T) of each run."""
    return list(zip(axes.lines[::2], axes.lines[1::2], strict=True))


def points(line):
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_a_saved_result_reads_back_equal_nan_included(tmp_path):
    draw = random.Random(0)
    curve = {draw.uniform(0.1, 10): draw.random() for _ in range(50)}
    result = replace(CROSS_ENTROPY, bleu={1.0: 26.31, 1 / 3: math.nan, 1.2: 0.1 + 0.2}, validation_ece=curve)
    result.save(tmp_path / "metrics.json")
    values = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert values["pre"]["nll_incorrect"] is None
    again = TranslationResult.load(tmp_path / "metrics.json")
    for field in fields(TranslationResult):
        mine, loaded = getattr(result, field.name), getattr(again, field.name)
        if field.name.endswith("_bins"):
            for array in ("edges", "count", "confidence", "accuracy"):
                np.testing.assert_array_equal(getattr(loaded, array), getattr(mine, array))
                assert getattr(loaded, array).dtype == getattr(mine, array).dtype
        elif field.name in ("pre", "post", "bleu"):
            assert loaded == pytest.approx(mine, rel=0, abs=0, nan_ok=True)
            assert list(loaded) == list(mine)
        else:
            assert loaded == mine
    assert translation_table([again]) == translation_table([result])


def test_the_table_is_the_papers():
    assert translation_table(RESULTS) == (
        "| Loss | ECE % (T) | NLL | BLEU |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| cross_entropy | 10.16 → 2.59 (1.20) | **2.000** → **1.900** | 26.31 → 26.21 |\n"
        "| label_smoothing:alpha=0.1 | 3.25 → 3.25 (1.00) | 2.500 → 2.500 | 26.33 → 26.33 |\n"
        "| focal:gamma=1 | **1.69** → **1.69** (1.00) | **2.000** → 2.000 | **26.39** → **26.39** |\n"
        f"\nBLEU: `{SIGNATURE}`\n"
    )


def test_the_curves_are_the_measured_ones_where_bleu_was_measured(tmp_path):
    figure = temperature_curves(RESULTS, tmp_path / "curves.png")
    above, below = figure.axes
    for result, (curve, fitted) in zip(RESULTS, lines_of(above), strict=True):
        assert points(curve) == result.bleu
        assert points(fitted) == {result.temperature.value: result.bleu[result.temperature.value]}
    for result, (curve, fitted) in zip(RESULTS, lines_of(below), strict=True):
        assert points(curve) == {t: 100 * result.validation_ece[t] for t in GRID if 0.5 <= t <= 1.6}
        assert points(fitted) == {result.temperature.value: 100 * result.temperature.ece_after}
        small = {curve.get_xdata()[i] for i in curve.get_markevery()}
        assert small == set(result.bleu) - {result.temperature.value}
    for axes in (above, below):
        low, high = axes.get_xlim()
        assert 0.4 < low < 0.5 and 1.6 < high < 1.7
    assert below.get_ylim()[0] == 0
    assert (above.get_ylabel(), below.get_ylabel()) == ("Test BLEU", "Validation ECE, %")
    assert below.get_xlabel().startswith("Temperature")
    assert imread(tmp_path / "curves.png").std() > 0.1


def test_the_csv_has_every_temperature_once_and_what_was_not_measured_is_empty(tmp_path):
    off_grid = replace(FOCAL, bleu={1.05: 26.1, 1.0: 26.39, 2.0: math.nan})
    write_curves_csv(tmp_path / "curves.csv", [CROSS_ENTROPY, off_grid])
    text = (tmp_path / "curves.csv").read_text(encoding="utf-8")
    assert text.startswith("loss,temperature,bleu,validation_ece\ncross_entropy,0.1,,") and "\r" not in text
    rows = list(csv.DictReader(text.splitlines()))
    for result in (CROSS_ENTROPY, off_grid):
        mine = [row for row in rows if row["loss"] == result.loss]
        assert [float(row["temperature"]) for row in mine] == sorted({*GRID, *result.bleu})
        bleu = {float(row["temperature"]): float(row["bleu"]) for row in mine if row["bleu"]}
        ece = {float(row["temperature"]): float(row["validation_ece"]) for row in mine if row["validation_ece"]}
        assert bleu == {t: value for t, value in result.bleu.items() if t != 2.0}
        assert ece == result.validation_ece


def test_the_report_of_a_run(tmp_path):
    folder = tmp_path / "new" / "report"
    paths = write_translation_report(folder, CROSS_ENTROPY)
    diagrams = ["reliability_before.png", "reliability_after.png"]
    names = ["table.md", "loss.yaml", *diagrams, "curves.png", "curves.csv", "metrics.json"]
    assert [path.name for path in paths] == names
    assert sorted(folder.iterdir()) == sorted(paths)
    assert (folder / "table.md").read_text(encoding="utf-8") == translation_table([CROSS_ENTROPY])
    assert LossConfig.parse(str(folder / "loss.yaml")) == LossConfig.parse("cross_entropy")
    assert TranslationResult.load(folder / "metrics.json").bleu == CROSS_ENTROPY.bleu
    for name in (*diagrams, "curves.png"):
        assert imread(folder / name).std() > 0.1
