"""Predictions, confidence tables, and the figure of examples."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from papers.figures.prediction_examples import Predictions, choose_examples, confidence_table, examples_figure

from hf_focal import Temperature
from hf_focal.reports import RunResult

NUM, CLASSES = 500, 5
LABELS = torch.arange(NUM) % CLASSES
NAMES = [
    "airplane",
    "aquarium_fish",
    "$x_1$ and $x_2$",
    "Staffordshire bullterrier",
    "WWWWWWWWWWWWW: of many, many words",
]
LONG = "label_smoothing:alpha=0.05,convention=paper"


def temperature_of(value):
    return Temperature(value, "ece", 0.1, 0.1, 1.0, 1.0, num_samples=NUM, num_bins=15)


def logits_of(seed, dtype=torch.float32):
    logits = 2 * torch.randn(NUM, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (logits + 2 * torch.nn.functional.one_hot(LABELS, CLASSES)).to(dtype)


def runs_of(*names):
    return {name: Predictions.of(logits_of(seed), LABELS, temperature_of(2.0)) for seed, name in enumerate(names)}


def pictures(count, height=8, width=8):
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in [*axes.texts, axes.title] if text.get_text()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_confidences_are_softmax_before_and_after_the_temperature(dtype):
    logits = logits_of(0, dtype)
    run = Predictions.of(logits, LABELS, temperature_of(2.5))
    assert [getattr(run, field.name).dtype for field in fields(run)] == [np.int64, np.int64, np.float32, np.float32]
    exact = logits.double()
    np.testing.assert_array_equal(run.label, LABELS)
    np.testing.assert_array_equal(run.prediction, exact.argmax(1))
    np.testing.assert_allclose(run.before, exact.softmax(1).amax(1), rtol=1e-6)
    np.testing.assert_allclose(run.after, (exact / 2.5).softmax(1).amax(1), rtol=1e-6)
    np.testing.assert_array_equal(run.correct, exact.argmax(1) == LABELS)


def test_the_table_has_s99_and_the_confidence_of_right_and_wrong():
    logits = torch.tensor([[9.0, 0, 0], [9.0, 0, 0], [1.0, 0, 0], [0, 2.0, 0]])
    labels = torch.tensor([0, 1, 0, 0])
    result = RunResult.measure("brier", temperature_of(2.0), logits, labels)
    none_wrong = RunResult.measure("focal:gamma=3", temperature_of(2.0), logits[2:3], labels[2:3])
    old = replace(result, pre={"s99": 0.5}, post={})
    (first, wrong_first, second, last), (cool, wrong_cool, mild, late) = (
        (100 * (logits / t).softmax(1).amax(1)).tolist() for t in (1, 2)
    )
    assert confidence_table([result, none_wrong, old]) == (
        "| Loss | S99 % | accuracy of S99 % | confidence if correct % | confidence if wrong % |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        f"| brier | 50.00 → 0.00 | 50.00 → – | {(first + second) / 2:.2f} → {(cool + mild) / 2:.2f} | "
        f"{(wrong_first + last) / 2:.2f} → {(wrong_cool + late) / 2:.2f} |\n"
        f"| focal:gamma=3 | 0.00 → 0.00 | – → – | {second:.2f} → {mild:.2f} | – → – |\n"
        "| brier | 50.00 → – | – → – | – → – | – → – |\n"
    )


def test_examples_are_right_or_wrong_in_every_run():
    runs = runs_of("a", "b", "c")
    right, wrong = choose_examples(runs, count=6, seed=3)
    assert all(run.correct[right].all() and not run.correct[wrong].any() for run in runs.values())
    for rows in (right, wrong):
        assert all(type(row) is int for row in rows)
        assert rows == sorted(set(rows)) and len(rows) == 6
    assert choose_examples(runs, count=6, seed=3) == (right, wrong)
    assert choose_examples(runs, count=6, seed=4) != (right, wrong)


def test_the_figure_says_what_each_run_predicts(tmp_path):
    path = tmp_path / "examples.png"
    label, before, after = (
        np.array([0, 1, 0, 1]),
        np.array([0.876, 0.9999, 0.5, 0.612]),
        np.array([0.714, 0.93, 0.4, 0.5]),
    )
    before, after = before.astype(np.float32), after.astype(np.float32)
    runs = {
        "brier": Predictions(label, np.array([0, 0, 1, 1]), before, after),
        LONG: Predictions(label, np.array([1, 0, 1, 0]), after, after / 2),
    }
    images = pictures(3)
    figure = examples_figure(torch.from_numpy(images), ["cat", "aquarium_fish"], runs, [3, 0, 1], path)
    assert texts(figure) == [
        "Above: true label\nBelow: predicted label\nand its confidence,\nbefore → after T",
        *("aquarium fish", "cat", "aquarium fish"),
        *("brier", "✓ aquarium fish\n61 → 50%", "✓ cat\n88 → 71%", "✗ cat\n100 → 93%"),
        "label_smoothing: alpha=0.05,\nconvention=paper",
        *("✗ cat\n50 → 25%", "✗ aquarium fish\n71 → 36%", "✗ cat\n93 → 46%"),
    ]
    written = [text for axes in figure.axes for text in axes.texts]
    right, wrong = ({text.get_color() for text in written if text.get_text().startswith(sign)} for sign in "✓✗")
    assert len(right) == len(wrong) == 1 and right != wrong
    for (shown,), image in zip([axes.images for axes in figure.axes[1:4]], images, strict=True):
        np.testing.assert_array_equal(shown.get_array(), image)
        assert shown.get_interpolation() == "nearest"
    assert imread(path).std() > 0.1
