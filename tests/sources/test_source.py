"""A source of one's own through `evaluate` and `calibrate`, as the guide shows it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from documented import ROOT, examples_of, run_example
from own_source import CLASSES, Own, sampled

from hf_focal import (
    CalibrationMetrics,
    Correction,
    InputError,
    Scores,
    Source,
    calibrate,
    calibrate_scores,
    evaluate,
    fit_correction,
)
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.sources.source import as_source

GUIDE = ROOT / "docs" / "guides" / "own_source.md"


def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logits, labels = sampled(600, 0)
    rows = [{"question": i, "answer": "ABC"[label]} for i, label in enumerate(labels.tolist())]
    log_p = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    names = {"ask": lambda i: dict(zip("ABC", log_p[i].tolist(), strict=True))}
    names |= {"held_out": rows[:300], "test": rows[300:]}
    for example in examples_of(GUIDE):
        run_example(example, GUIDE, names)
    metrics = CalibrationMetrics()
    metrics.update(log_p[300:], labels[300:])
    assert names["again"].pre == pytest.approx(metrics.compute(), rel=1e-12)
    fit = fit_correction(log_p[:300], labels[:300])
    np.testing.assert_allclose(names["correction"].apply(log_p[300:301]), fit.correction.apply(log_p[300:301]))
    assert names["result"].post["nll"] < names["result"].pre["nll"]
    assert (tmp_path / "corrected" / "report.html").exists() and (tmp_path / "corrected" / "README.md").exists()


def test_it_is_corrected_as_a_table_of_the_same_scores(tmp_path):
    (logits, labels), (others, of_others) = sampled(500, 1), sampled(500, 2)
    names = np.array(CLASSES)
    tables = [
        {**{f"logit_{name}": z[:, i] for i, name in enumerate(CLASSES)}, "label": names[y]}
        for z, y in ((logits, labels), (others, of_others))
    ]
    given = {"precision": 0.6, "new_prior": None, "num_bins": 10}
    mine = calibrate(Own(), (logits, labels), test=(others, of_others), output=tmp_path / "mine", **given)
    table = calibrate_scores(tables[0], test_scores=tables[1], output=tmp_path / "table", **given)
    assert mine.pre == pytest.approx(table.pre, rel=1e-12, nan_ok=True)
    assert mine.post == pytest.approx(table.post, rel=1e-12, nan_ok=True) and mine.temperature == table.temperature
    assert mine.thresholds.labels == table.thresholds.labels
    first, second = (json.loads((tmp_path / name / "correction.json").read_text()) for name in ("mine", "table"))
    assert first == {name: second[name] for name in first} and second.keys() - first.keys() == {"schema"}
    loaded = [Correction.load(tmp_path / name / "correction.json") for name in ("mine", "table")]
    assert loaded[0] == loaded[1] and not loaded[0].is_identity
    assert [*map(str, next_steps(mine))] == ["correct its logits: `Correction.load('correction.json').apply(logits)`"]
    (step,) = map(str, next_steps(evaluate(Own(), (logits, labels))))
    assert step.startswith("fit a correction: `calibrate(source, held_out")


@pytest.mark.slow
def test_groups_drift_and_thresholds_on_other_data():
    (logits, labels), other = sampled(400, 3), sampled(400, 4)
    groups = np.where(np.arange(400) % 4 == 0, "de", "en")
    source = SimpleNamespace(link="softmax", classes=CLASSES, scores=lambda data: data)
    scores, others = Scores(logits, labels, classes=CLASSES, groups=groups), Scores(*other, classes=CLASSES)
    result = evaluate(source, scores, reference=others, precision=0.5, threshold_data=others)
    assert sorted(result.subsets.groups.name) == ["de", "en"]
    assert 0 < result.drift.p_value <= 1
    (threshold,) = result.thresholds.labels
    assert threshold.name == "confidence" and threshold.precision >= 0.5


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SimpleNamespace(link="softmax", classes=()), "source must have link, classes, and scores"),
        (SimpleNamespace(link="logit", classes=(), scores=None), "source must have the link 'softmax' or 'sigmoid'"),
        (SimpleNamespace(link="softmax", classes=(), scores=len), "must return hf_focal.Scores.* got a int"),
        (
            SimpleNamespace(link="softmax", classes=("a", "b", "c", "d"), scores=lambda data: Scores(*data)),
            "a score for each of its 4 classes, got 3",
        ),
        (
            SimpleNamespace(link="sigmoid", classes=CLASSES, scores=lambda data: Scores(*data)),
            "scores with its link, 'sigmoid', got 'softmax'",
        ),
        *(
            (SimpleNamespace(link="softmax", classes=CLASSES, scores=lambda data, part=part: part(*data)), message)
            for part, message in [
                (
                    lambda logits, labels: Scores(logits.tolist(), labels),
                    r"an array of logits \(N, K\) .*, got a list",
                ),
                (
                    lambda logits, labels: Scores(logits[:, 0], labels),
                    r"of one or more samples, got the shape \(50,\)",
                ),
                (lambda logits, labels: Scores(logits[:0], labels[:0]), r"samples, got the shape \(0, 3\)"),
            ]
        ),
    ],
)
def test_one_line_for_what_is_wrong(source, message):
    with pytest.raises(InputError, match=message):
        evaluate(source, sampled(50, 0))


class Named(Source):
    name = None

    def scores(self, data):
        return data


def test_an_object_becomes_a_source_with_its_name():
    source = as_source(SimpleNamespace(link="sigmoid", classes=["spam"], scores=len, name="mine"))
    assert (source.link, source.classes, source.name) == ("sigmoid", ("spam",), "mine")
    assert source.scores([1, 2]) == 2
    assert as_source(source) is source and isinstance(source, Source)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SimpleNamespace(link="softmax"), "source must have link, classes, and .* without classes"),
        (SimpleNamespace(link="relu", classes=(), scores=len), "source must have the link .*, got 'relu'"),
        (SimpleNamespace(link="softmax", classes=(), scores=len, name=3), "source must have a name .* text, got 3"),
        (Named(), "source must have a name that is a text, got None"),
    ],
)
def test_an_object_that_is_no_source(given, message):
    with pytest.raises(InputError, match=message):
        as_source(given)
