"""The page of one run: its slider, class picker, sorting, and samples in a browser, its size, and what it escapes."""

import contextlib
import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from browser import Browser, needs_browser

from hf_focal import InputError, calibrate_scores, evaluate_scores
from hf_focal.reports import RunResult
from hf_focal.reports.pages.charts import reliability_chart
from hf_focal.scores.analysis.example_selection import find_examples
from hf_focal.sources.source import Data, Samples
from hf_focal.sources.table import TableSource

EVIL = "<img src=x onerror=alert(1)></script><script>document.title='hacked'</script>"


def table_of(size, classes, seed=0, texts=True):
    """Overconfident logits with names and texts that are HTML."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(size, classes)) * 2
    shares = np.exp(logits / 2)
    labels = (shares.cumsum(1) > rng.random((size, 1)) * shares.sum(1, keepdims=True)).argmax(1)
    names = [EVIL if index == 1 else f"class {index}" for index in range(classes)]
    table = pd.DataFrame(logits.round(4), columns=[f"logit_{name}" for name in names])
    table["label"] = [names[label] for label in labels]
    table["language"] = rng.choice(["en", "de"], size)
    if texts:
        table["message"] = [f"{number}: {EVIL}" for number in range(size)]
    return table


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a table of ten classes that was measured."""
    folder = tmp_path_factory.mktemp("measured")
    table_of(600, 10).to_csv(folder / "scores.csv", index=False)
    evaluate_scores(str(folder / "scores.csv"), group="language", text_column="message", output=folder / "out")
    return folder


def test_the_samples_are_those_of_an_independent_computation():
    table = table_of(300, 10)
    source, data = TableSource(text_column="message"), Data("scores", table)
    scores = source.read(data)
    examples = find_examples(scores, partial(source.inputs, Samples(data, scores)))
    odds = np.exp(scores.logits)
    shares = odds / odds.sum(1, keepdims=True)
    predicted, confidence = shares.argmax(1), shares.max(1)
    wrong = np.flatnonzero(predicted != scores.labels)
    right = np.flatnonzero(predicted == scores.labels)
    for shown, rows in (
        (examples.mistakes, wrong[np.argsort(-confidence[wrong])][:20]),
        (examples.least_confident, right[np.argsort(confidence[right])][:20]),
    ):
        assert [example.input for example in shown] == table["message"].to_numpy()[rows].tolist()
        assert [example.label for example in shown] == table["label"].to_numpy()[rows].tolist()
        assert [example.prediction for example in shown] == [scores.classes[number] for number in predicted[rows]]
        np.testing.assert_allclose([example.before for example in shown], confidence[rows])
        assert {example.after for example in shown} == {None}


def test_samples_without_texts_have_the_numbers_of_their_rows(tmp_path):
    table = table_of(100, 3, texts=False)
    evaluate_scores(table, output=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert re.search('<th scope="row">row [0-9]+</th>', page)
    assert "To see texts" not in page and "--text_column language" in page  # the only column of texts


def test_the_page_says_how_to_show_texts_that_a_table_has(tmp_path):
    table = table_of(100, 3).assign(answer="a text", prediction="m1", id=range(100), extra='["json"]')
    for name, options, hints in (
        ("two", {"group": "language"}, ["To see texts here, name their column with --text_column: &#39;message&#39;"]),
        ("one", {"group": "language", "cluster_column": "answer"}, ["here, add --text_column message"]),
        ("none", {"text_column": "message"}, []),
    ):
        evaluate_scores(table, output=tmp_path / name, **options)
        page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
        assert [hint for hint in hints if hint in page] == hints and page.count("To see ") == len(hints), name


@pytest.mark.parametrize("text_column", ["message", pytest.param(None, marks=pytest.mark.slow)])
def test_samples_are_in_no_file_that_is_published(tmp_path, text_column):
    table = table_of(300, 3)
    table["id"] = [f"secret {number}" for number in range(len(table))]
    shown = "message" if text_column else "secret"
    calibrate_scores(table, output=tmp_path / "out", text_column=text_column)
    files = {
        path.name: path.read_text(encoding="utf-8", errors="ignore")
        for path in tmp_path.rglob("*.*")
        if path.is_file()
    }
    marks = ("document.title=", "secret ") if shown == "secret" else ("0: &lt;img",)
    assert any(mark in files["report.html"] for mark in marks) and "mistakes" in files["report.html"]
    others = [name for name, text in files.items() if name != "report.html" and ("secret" in text or ": <img" in text)]
    assert others == [] and "examples.html" not in files
    calibrate_scores(table, output=tmp_path / "without", text_column=text_column, no_examples=True)
    assert "most confident mistakes" not in (tmp_path / "without" / "report.html").read_text(encoding="utf-8")
    calibrate_scores(table, output=tmp_path / "asked", text_column=text_column, publish_examples=True)
    assert "most confident mistakes" in (tmp_path / "asked/report/examples.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="publish_examples must not be given with no_examples"):
        calibrate_scores(table, no_examples=True, publish_examples=True)


@pytest.mark.slow
def test_a_wrong_column_of_texts_is_told_before_anything_is_measured(tmp_path):
    table = table_of(100, 3)
    with pytest.raises(InputError, match=r"text_column must be one of .*, got 'body'"):
        evaluate_scores(table, text_column="body", output=tmp_path / "out", on_result=lambda result: pytest.fail())
    assert not (tmp_path / "out").exists()
    calibrate_scores(table.drop(columns="message"), test_scores=table, text_column="message", output=tmp_path / "out")
    assert EVIL[:5] not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_nothing_in_names_and_texts_is_markup(measured):
    page = (measured / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 1 and "<img src=x" not in page
    assert "&lt;img src=x onerror" in page


@pytest.mark.slow
def test_the_page_is_small(measured, tmp_path):
    assert (measured / "out" / "report.html").stat().st_size < 300_000
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(20_000, 1000)).astype(np.float32)
    labels = np.where(rng.random(20_000) < 0.6, logits.argmax(1), rng.integers(1000, size=20_000))
    evaluate_scores({"logits": logits, "label": labels}, output=tmp_path / "out", kind="logits")
    page = tmp_path / "out" / "report.html"
    assert page.stat().st_size < 3_000_000 and page.read_text(encoding="utf-8").count("<tr data-grid") == 1000
    assert (tmp_path / "out" / "report" / "metrics.json").stat().st_size < 1_000_000


def test_the_bins_of_the_classes_add_up_to_all(measured, tmp_path):
    result = RunResult.load(measured / "out" / "report" / "metrics.json")
    classes = result.subsets.classes
    bins = classes.bins(classes.before, [*range(10)])
    np.testing.assert_array_equal(sum(group.count for group in bins), result.pre_bins.count)
    hits = sum(np.nan_to_num(group.count * group.accuracy) for group in bins)
    np.testing.assert_allclose(hits, np.nan_to_num(result.pre_bins.count * result.pre_bins.accuracy))
    curve = result.subsets.risk_coverage.before
    assert curve.confidence == sorted(curve.confidence, reverse=True)
    groups = result.subsets.groups
    assert [round(group.ece(), 9) for (group,) in groups.bins] == [round(ece, 9) for ece in groups.ece_before]


def test_rare_labels_have_logarithmic_axes():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 2)) + np.log([0.5, 0.005])
    labels = (rng.random((3000, 2)) < 1 / (1 + np.exp(-logits))).astype(int)
    result = evaluate_scores(
        {
            "logit_often": logits[:, 0],
            "logit_rare": logits[:, 1],
            "label_often": labels[:, 0],
            "label_rare": labels[:, 1],
        },
        label_column="label_",
    )
    classes = result.subsets.classes
    assert classes.grid == [0, 1] and classes.num_samples == labels.sum(0).tolist()
    (rare,) = classes.bins(classes.before, [1])
    assert (rare.count > 0).sum() >= 4 and rare.count.sum() == 3000
    p = 1 / (1 + np.exp(-logits[:, 1]))
    expected = [((p > low) & (p <= high)).sum() for low, high in zip(rare.edges, rare.edges[1:], strict=False)]
    np.testing.assert_array_equal(rare.count, expected)
    assert reliability_chart(rare, "sigmoid", "rare").count('class="point"') == (rare.count > 0).sum()


def test_a_result_is_shown_as_its_verdict(measured):
    result = RunResult.load(measured / "out" / "report" / "metrics.json")
    assert "Overconfident: says" in repr(result) and "| ECE %" in repr(result) and "RunResult(" not in repr(result)
    view = result._repr_html_()
    assert view.count('role="img"') == 1 and "Overconfident: says" in view and EVIL not in view
    assert json.dumps(repr(result))


@pytest.mark.full
@pytest.mark.slow
@needs_browser
def test_a_browser_chooses_sorts_and_picks(measured, tmp_path):
    page = measured / "out" / "report.html"
    run = RunResult.load(measured / "out" / "report" / "metrics.json")
    curve, size = run.subsets.risk_coverage.before, 600
    with contextlib.closing(Browser(tmp_path / "profile")) as browser:
        for width, scheme in ((1280, "light"), (390, "dark")):
            requests, complaints = browser.show(page, width, scheme)
            assert [url for url in requests if not url.startswith("data:")] == [page.as_uri()] and complaints == []
            assert browser.value("document.title") == "Calibration of scores"
            assert browser.value("document.documentElement.scrollWidth") <= width
            # The legend has a mark for each kind, and a table that goes on beyond the edge says so.
            assert browser.value("document.querySelectorAll('.legend .key').length") == 8
            widths = "[...document.querySelectorAll('.key')].every((key) => key.getBoundingClientRect().width === 24)"
            assert browser.value(widths)
            sides = (
                "[...document.querySelectorAll('.sideways')].map((hint) => [!hint.hidden, hint.nextElementSibling])"
            )
            sides = browser.value(f"{sides}.map(([told, box]) => [told, box.scrollWidth > box.clientWidth + 1])")
            assert all(told == is_wide for told, is_wide in sides)
            assert width != 390 or any(told for told, _ in sides)
            if width == 1280:
                assert browser.value("document.querySelector('.tall:has([data-edges])').clientWidth") >= 360
                assert browser.value("document.querySelector('.run svg').clientWidth") >= 340
            # A long word of code breaks within its box.
            code = "hf_focal.apply_thresholds(classifier(inputs,top_k=None),classifier.model.config)"
            browser.value(f"document.querySelector('section code span').textContent = {code!r}")
            right = "document.querySelector('{}').getBoundingClientRect().right"
            assert browser.value(right.format("section code span")) <= browser.value(right.format("section li"))
            # The slider shows the points of the curve, and a command that asks for their coverage.
            for point in (0, len(curve.answered) // 2, len(curve.answered) - 1):
                browser.value(f"slider.value = {point}; slider.dispatchEvent(new Event('input'))")
                shown = {
                    name: browser.value(f"document.querySelector('#at-{name}').textContent")
                    for name in ("threshold", "answered", "coverage", "precision", "recall")
                }
                answered, errors = curve.answered[point], curve.errors[point]
                assert float(shown["threshold"]) == pytest.approx(curve.confidence[point], rel=1e-3)
                assert shown["answered"] == f"{answered} of {size}"
                shares = answered / size, 1 - errors / answered, (answered - errors) / size
                for name, share in zip(("coverage", "precision", "recall"), shares, strict=True):
                    assert float(shown[name].rstrip("%")) == pytest.approx(100 * share, abs=0.051)
                command = browser.value("document.querySelector('#command').textContent")
                found = re.fullmatch(
                    r"hf-focal evaluate --scores \S+ --threshold_scores held_out.csv .*--coverage ([\d.]+)", command
                )
                assert answered / size - 1e-4 <= float(found[1]) <= answered / size
            # The picker draws the bins of a class.
            assert browser.value("document.querySelectorAll('#pick option').length") == 11
            name = browser.value("pick.value = 2, pick.onchange(), table.tBodies[0].rows[2].cells[0].textContent")
            index = run.subsets.classes.name.index(name)
            (bins,) = run.subsets.classes.bins(run.subsets.classes.before, [index])
            assert browser.value("document.querySelectorAll('#picked .bin').length") == (bins.count > 0).sum()
            drawn = browser.value("document.querySelector('#picked .ece').textContent")
            assert drawn == f"ECE {100 * bins.ece():.1f}%, {bins.count.sum()} predictions"
            assert browser.value("document.querySelector('#of').textContent") == name
            hits = round(np.nansum(bins.count * bins.accuracy))
            browser.value("slider.value = slider.max; slider.dispatchEvent(new Event('input'))")
            precision = browser.value("document.querySelector('#at-precision').textContent")
            assert precision == f"{100 * hits / bins.count.sum():.1f}%"
            browser.value("pick.value = '', pick.onchange()")
            # Sorting by the name, and by a number.
            names = "[...table.tBodies[0].rows].map(row => row.cells[0].textContent)"
            titles = browser.value("[...table.tHead.rows[0].cells].map(cell => cell.textContent)")
            sort = f"table.tHead.rows[0].cells[{titles.index('predictions')}].firstChild.click()"
            counts = f"[...table.tBodies[0].rows].map(row => +row.cells[{titles.index('predictions')}].textContent)"
            assert browser.value(f"{sort}, {counts}") == sorted(browser.value(counts))
            assert browser.value(f"{sort}, {counts}") == sorted(browser.value(counts), reverse=True)
            in_order = browser.value(f"table.tHead.rows[0].cells[0].firstChild.click(), {names}")
            assert in_order[1:] == sorted(in_order[1:]) or in_order == sorted(in_order)
            # A mark says below the picture what it stands for.
            hover = (
                "document.querySelector('figure g.bin .tip').dispatchEvent(new Event('pointerover', {bubbles: true}))"
            )
            assert "predictions, mean" in browser.value(f"{hover}, document.querySelector('output.hover').textContent")
        # Without JavaScript, what cannot work is hidden, and all else is there.
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        _, complaints = browser.show(page, 1280)
        assert complaints == []
        browser.call("DOM.enable")
        root = browser.call("DOM.getDocument", depth=0)["root"]["nodeId"]

        def height(selector):
            node = browser.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
            with contextlib.suppress(KeyError):
                return browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"]
            return 0

        assert height("#slider") == height("#pick") == 0
        for selector in (".headline", "svg.chart", "table[data-edges]", ".examples", "#threshold table", ".pair svg"):
            assert height(selector) > 20, selector
        pdf = browser.call("Page.printToPDF")["data"]
        assert len(pdf) > 50_000


@pytest.mark.full
@pytest.mark.slow
@needs_browser
def test_the_slider_of_one_logit_moves_without_a_table_of_classes(tmp_path):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=500)
    table = pd.DataFrame({"logit": logits, "label": (rng.random(500) < 1 / (1 + np.exp(-logits))).astype(int)})
    evaluate_scores(table, kind="logits", output=tmp_path / "out")
    with contextlib.closing(Browser(tmp_path / "profile")) as browser:
        _, complaints = browser.show(tmp_path / "out" / "report.html", 1280)
        assert complaints == []
        assert browser.value("document.querySelector('#of').textContent") == "all labels"
        browser.value("slider.value = slider.max; slider.dispatchEvent(new Event('input'))")
        assert (
            browser.value("document.querySelector('#at-precision').textContent") == f"{100 * table.label.mean():.1f}%"
        )
        assert browser.value("document.querySelector('#command').textContent").startswith("hf-focal evaluate")


@pytest.mark.slow
@needs_browser
def test_all_columns_of_many_classes_fit_and_numbers_of_small_axes_are_short(tmp_path):
    table = table_of(1500, 77, texts=False)
    names = {name: f"card_payment_fee_{number}" for number, name in enumerate(table.columns[:77])}
    table["label"] = table["label"].map(lambda label: names[f"logit_{label}"])
    table = table.rename(columns={name: f"logit_{new}" for name, new in names.items()})
    calibrate_scores(table, output=tmp_path / "out", method="temperature")
    page = tmp_path / "out" / "report.html"
    with contextlib.closing(Browser(tmp_path / "profile")) as browser:
        browser.show(page, 1280)
        # Both sizes are in whole pixels.
        hidden = browser.value(
            "(of => of.scrollWidth - of.clientWidth)(document.querySelector('[aria-label=Classes]'))"
        )
        assert hidden <= 1
        ticks = browser.value("[...document.querySelectorAll('.small .tick')].map(tick => tick.textContent)")
    assert ticks and max(map(len, ticks)) <= 4


def test_the_page_of_several_labels_counts_its_samples(tmp_path):
    logits = 2 * np.random.default_rng(0).normal(size=(90, 3))
    table = {f"logit_{name}": logits[:, number] for number, name in enumerate("abc")}
    table |= {f"label_{name}": (logits[:, number] > 0).astype(int) for number, name in enumerate("abc")}
    evaluate_scores(table, output=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "90 samples with 3 labels; measured" in page and "pale: fewer than 30 labels, so chance moves" in page
    assert "which are published only if you ask for it with <code><span>--publish_examples</span></code>" in page
