"""The comparison page: what its HTML says, that it needs nothing but itself, and how a real browser shows it."""

import base64
import contextlib
import hashlib
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from browser import Browser, needs_browser
from matplotlib.image import imread
from papers.runs.translation_results import TranslationResult

from hf_focal import Temperature
from hf_focal.metrics import CalibrationMetrics, ReliabilityBins
from hf_focal.reports import RunResult, comparison_page, results_table
from hf_focal.reports.results.result_sections import ConfusedPair, Confusion
from hf_focal.reports.wording.markdown_tables import label_table
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.reports.wording.text_summary import summary
from hf_focal.reports.wording.verdicts import verdict

VOID = {"meta", "link", "input", "wbr", "br"}
NASTY = '<b onclick="x">&amp;</b>|a | b|</td>**'
HISTORY = [{"epoch": 1.0, "gammas": [1.2, -0.9, 2.0], "edges": [0, 0.3, 0.6, 1]}]
LABELS = torch.arange(60) % 3


def logits_of(seed, scale=3.0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(60, 3, generator=draw) * scale + 4 * torch.nn.functional.one_hot(LABELS, 3)


def run_of(loss="flsd53", seed=0, **details):
    temperature = Temperature(1.3, "ece", 0.1, 0.05, 0.9, 0.8, num_samples=60, num_bins=5)
    return RunResult.measure(loss, temperature, logits_of(seed), LABELS, 5, details=details)


def translation_of(loss="focal:gamma=1", bleu=(26.31, 26.21)):
    bins = ReliabilityBins(np.linspace(0, 1, 3), np.array([2, 3]), np.array([0.4, 0.9]), np.array([0.5, 0.7]))
    return TranslationResult(
        name=loss,
        loss=loss,
        temperature=Temperature(1.2, "ece", 0.1016, 0.0259, 2.0, 1.9, num_samples=5, num_bins=2),
        pre={"ece": 0.1016, "nll": 2.0, "nll_incorrect": math.nan, "bleu": bleu[0]},
        post={"ece": 0.0259, "nll": 1.9, "bleu": bleu[1]},
        bleu={0.8: 25.0, 1.0: bleu[0], 1.2: bleu[1]},
        signature="nrefs:1|tok:13a",
        validation_ece={0.8: 0.2, 1.0: 0.1, 1.2: 0.03, 1.4: 0.05},
        pre_bins=bins,
        post_bins=bins,
        details={},
    )


def save(result, folder):
    folder.mkdir(parents=True, exist_ok=True)
    result.save(folder / "metrics.json")
    return folder


class Page(HTMLParser):
    """Checks that tags are closed, and gathers the tables' rows, the images, the headings and all text."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.rows, self.text = [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += f"**{data}**" if "strong" in self.open else data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def cells(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [line[2:-2].split(" | ") for line in lines]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A page with every kind of section."""
    folder = tmp_path_factory.mktemp("page")
    save(run_of("flsd53"), folder / "runs" / "b" / "report")
    save(run_of("adafocal:bins=3", 1, gamma_history=HISTORY), folder / "runs" / "a" / "report")
    save(translation_of(), folder / "mt")
    save(translation_of("cross_entropy", (27.0, 26.0)), folder / "mt2" / "report")
    path = comparison_page(
        [folder / "runs", folder / "mt", str(folder / "mt2"), folder / "runs" / "b"],
        folder / "new" / "page.html",
        "Runs & more",
    )
    return path


HEADINGS = ["Verdict", "Reliability"]


def headings(page):
    return re.findall("<h2>(.*?)</h2>", page.source)


def numbers(row):
    """The numbers of each cell, the best in stars."""
    return [sorted(re.findall(r"[*\d.]*\d[*\d.]*", cell)) for cell in row]


def test_the_tables_are_those_of_the_reports(everything):
    page = Page(everything)
    translations = [translation_of(), translation_of("cross_entropy", (27.0, 26.0))]
    tables = [[run_of("adafocal:bins=3", 1), run_of("flsd53")], translations]  # of two test sets
    expected = [row for runs in tables for row in cells(results_table(runs))]
    assert [numbers(row[1:]) for row in page.rows] == [numbers(row[1:]) for row in expected]
    assert [row[0] for row in page.rows] == [row[0] for row in expected]
    assert page.rows[0] == expected[0] and page.rows[0][:3] == ["Loss", "ECE %", "T"]
    assert any("**" in cell for row in page.rows for cell in row)
    assert [row[-1] for row in page.rows[-2:]] == ["26.31 → **26.21**", "**27.00** → 26.00"]
    assert "<p>On 60 samples of 3 classes, 20 of each; measured 2" in page.source


def test_runs_on_different_test_sets_are_not_ranked(tmp_path):
    save(run_of("flsd53", measured_on="dataset 'a.csv'", date="2026-01-05"), tmp_path / "a")
    save(run_of("brier", 1, measured_on="test_dataset 'a.csv'", date="2026-01-07"), tmp_path / "b")
    save(run_of("focal:gamma=1", 2, measured_on="dataset 'c.csv'"), tmp_path / "c")
    page = Page(comparison_page([tmp_path], tmp_path / "page.html"))
    assert len(page.of("table")) == 2
    names = ["Loss", "flsd53", "brier", "(majority class)", "Loss", "focal:gamma=1", "(majority class)"]
    assert [row[0] for row in page.rows] == names
    assert not any("**" in cell for row in page.rows[4:] for cell in row)
    assert "On 'a.csv'; 60 samples of 3 classes, 20 of each; measured 2026-01-05 to 2026-01-07." in page.text
    assert {"Results, test set 1", "Results, test set 2"} <= set(page.text)


def test_a_model_that_was_only_measured_is_no_loss(tmp_path):
    save(run_of("reviews", model="reviews", fitted_on="dataset 'held_out.csv'"), tmp_path / "a")
    alone = Page(comparison_page([tmp_path / "a"], tmp_path / "page.html"))
    save(run_of("flsd53", 1), tmp_path / "b")
    both = Page(comparison_page([tmp_path / "a", tmp_path / "b"], tmp_path / "page.html"))
    assert both.rows[0][0] == "Model"
    assert "Calibration of reviews" in alone.text  # and not "trained with reviews"
    for page in (alone, both):
        assert any(re.search("(, on|fitted on|samples of) (dataset )?'held_out.csv'.$", text) for text in page.text)
    alone, both = (" ".join("".join(page.text).split()) for page in (alone, both))
    assert "on the validation data" not in alone
    assert ", on the validation data." in both and "the best of each side is highlighted" in both


def test_the_pictures_are_drawn_and_described(everything):
    page = Page(everything)
    images = [image for image in page.of("svg") if "aria-label" in image]
    # Two diagrams a run, one γ, and all runs before and after their corrections.
    assert len(images) == 2 * 4 + 1 + 2
    assert len({image["aria-label"] for image in images}) == len(images)
    ece = 100 * run_of("flsd53").pre["ece"]
    label = f"Reliability diagram of flsd53. Before temperature scaling: ECE {ece:.2f}%"
    assert label in {image["aria-label"] for image in images}
    fixed = set(re.findall("#[0-9a-f]{6}", page.source[page.source.index("<body>") :]))
    assert not {"#000000", "#ffffff", "#0072b2", "#d55e00", "#009e73", "#b3b3b3"} & fixed  # too dark for dark mode
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#(.*?)\)|xlink:href=\"#(.*?)\"", page.source)) <= {
        pair for name in ids for pair in ((name, ""), ("", name))
    }


def test_the_page_needs_nothing_else(everything):
    page = Page(everything)
    assert "http:" not in page.source and page.source.count("https:") == page.source.count('<a href="https:')
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = page.of("meta")[2]["content"]
    assert policy.startswith("default-src 'none'; ") and policy.endswith(f"script-src 'sha256-{digest}'")
    for tag, attributes in page.tags:
        for name in ("src", "href"):
            assert tag == "a" or attributes.get(name, "data:").startswith("data:")
    assert "@import" not in page.source and "url(" not in page.source.replace("url(#", "")


def test_the_page_is_accessible(everything):
    page = Page(everything)
    assert page.of("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.of("meta")
    assert all(header["scope"] in ("col", "row") for header in page.of("th"))
    assert len(page.of("caption")) == len(page.of("table")) == 2
    assert [tag for tag, _ in page.tags].count("h1") == 1
    text = "".join(page.text)
    assert text.count("Runs & more") == 2  # the title and the heading
    for heading in ("Results", "Reliability diagrams", "γ over training"):
        assert f">{heading}" in page.source


def test_a_page_has_only_the_sections_that_it_has_something_for(tmp_path):
    page = Page(comparison_page([save(run_of(), tmp_path / "run")], tmp_path / "page.html"))
    assert headings(page) == [*HEADINGS, "Answering only when confident", "Confusion matrix", "Correction"]
    assert "Calibration of run, trained with flsd53" in page.text
    assert run_of().temperature.num_samples == 60
    assert any(text.startswith("T is fitted on 60 samples: with fewer than 500, it can make") for text in page.text)
    # Two diagrams, those of three classes before and after, and the risk-coverage curves.
    assert len([image for image in page.of("svg") if "aria-label" in image]) == 2 + 2 * 3 + 1
    assert "bootstrap interval" in "".join(page.text)
    tokens = Page(comparison_page([save(translation_of(), tmp_path / "tokens")], tmp_path / "tokens.html"))
    assert headings(tokens) == [*HEADINGS, "Correction"]
    assert "bootstrap interval" not in "".join(tokens.text)


def test_the_page_of_one_run_has_its_numbers(tmp_path):
    run = run_of(
        model="m", task="text-classification", notes=[], measured_on="dataset 'a.csv'", fitted_on="dataset 'b.csv'"
    )
    page = Page(comparison_page([save(run, tmp_path / "run")], tmp_path / "page.html"))
    shown = {row[0]: row[1:] for row in page.rows}
    for title, key in (("NLL", "nll"), ("Brier score", "brier")):
        (values,) = [row for name, row in shown.items() if name.startswith(title)]
        assert values == [f"{side[key]:.3f}" for side in (run.pre, run.post)]
    (values,) = [row for name, row in shown.items() if name.startswith("AURC")]
    assert values == [f"{100 * side['aurc']:.2f}" for side in (run.pre, run.post)]
    predicted = logits_of(0).argmax(1)
    for label in range(3):
        counts = predicted[label == LABELS].bincount(minlength=3)
        share = 100 * counts[label] / counts.sum()
        assert shown[str(label)] == [*map(str, counts.tolist()), f"{share:.1f}"]
    text = " ".join("".join(page.text).split())
    assert all(sentence in text for sentence in verdict(run)) and all(s in summary(run) for s in verdict(run))
    assert [step for step in next_steps(run) if step.commands] and "hf-focal calibrate m --dataset" in text


def test_the_page_of_many_classes_has_the_most_frequent_errors(tmp_path):
    labels = torch.arange(2000) % 40
    logits = torch.nn.functional.one_hot(labels, 40).float()
    logits[labels == 7] = torch.nn.functional.one_hot(torch.tensor(8), 40).float()
    logits[0] = torch.nn.functional.one_hot(torch.tensor(39), 40).float()
    metrics = CalibrationMetrics()
    metrics.update(4 * logits, labels)
    names = [f"class {index}" for index in range(40)]
    run = RunResult.from_metrics("m", None, metrics, None, label_names=names)
    pairs = [ConfusedPair("class 7", "class 8", 50, 50), ConfusedPair("class 0", "class 39", 1, 50)]
    assert run.subsets.confusion == Confusion(pairs=pairs)
    assert len(run.subsets.risk_coverage.before.answered) <= 100
    page = Page(comparison_page([save(run, tmp_path / "run")], tmp_path / "page.html"))
    assert page.rows[-2:] == [["class 7", "class 8", "50", "100.0"], ["class 0", "class 39", "1", "2.0"]]


def test_the_page_of_several_labels_has_the_table_of_the_card(tmp_path):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 3, generator=generator)
    labels = (torch.rand(300, 3, generator=generator) < logits.sigmoid()).long()
    for names in (["a", "b", "c"], ["relevant"]):
        metrics = CalibrationMetrics(link="sigmoid")
        metrics.update(logits[:, : len(names)], labels[:, : len(names)])
        run = RunResult.from_metrics("m", None, metrics, None, details={"model": "m"}, label_names=names)
        page = Page(comparison_page([save(run, tmp_path / names[0])], tmp_path / "page.html"))
        if len(names) > 1:
            expected = {row[0]: sorted(row) for row in cells(label_table(run))}
            shown = {row[0]: sorted(row) for row in page.rows if row[0] in expected}
            assert shown == {name: [cell.strip() for cell in row] for name, row in expected.items()}
            assert run.subsets.confusion is None
        else:
            counts = [[((logits[:, 0] >= 0) == j)[labels[:, 0] == i].sum().item() for j in (0, 1)] for i in (0, 1)]
            assert run.subsets.confusion == Confusion(["not relevant", "relevant"], counts)


def test_text_is_escaped(tmp_path):
    save(replace(run_of(), name=NASTY), tmp_path / "x")
    save(replace(translation_of(), name=NASTY + "2", signature=NASTY), tmp_path / "y")
    page = Page(comparison_page([tmp_path / name for name in "xy"], tmp_path / "page.html", title="</title>$sections"))
    assert "b" not in {tag for tag, _ in page.tags}
    assert not any("onclick" in attributes for _, attributes in page.tags)
    assert page.rows[1][0] == NASTY
    assert len(page.rows[0]) == len(page.rows[1])
    assert any(NASTY in image.get("aria-label", "") for image in page.of("svg"))
    assert "</title>$sections" in page.text


def test_runs_of_one_loss_are_told_apart(tmp_path):
    for name in ("one", "two"):
        save(run_of(), tmp_path / name / "report")
    save(run_of(), tmp_path / "other" / "two")
    save(run_of("brier"), tmp_path / "other" / "one")
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "other", tmp_path / "two"]
    page = Page(comparison_page(folders, tmp_path / "page.html"))
    names = [row[0] for row in page.rows if row[0] not in ("Loss", "(majority class)")]
    root = tmp_path.name
    expected = [f"flsd53 ({root}/one)", f"flsd53 ({root}/two)", "brier", "flsd53 (other/two)"]
    assert names == expected


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folders must hold at least one run's folder, got none"):
        comparison_page([], tmp_path / "page.html")
    good = save(run_of(), tmp_path / "good")
    for name in ("empty", "missing"):
        with pytest.raises(ValueError, match=rf"{name}, which has no metrics\.json"):
            (tmp_path / "empty").mkdir(exist_ok=True)
            comparison_page([good, tmp_path / name], tmp_path / "page.html")
    for text in ("{}", "[]", "no JSON", '{"bleu": 1}', "3"):
        (tmp_path / "empty" / "metrics.json").write_text(text)
        with pytest.raises(ValueError, match=r"empty.metrics\.json must be what a report writes"):
            comparison_page([tmp_path / "empty"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.full
@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_page(everything, tmp_path):
    with contextlib.closing(Browser(tmp_path / "profile")) as browser:
        for width, scheme in ((390, "light"), (1280, "dark")):
            requests, complaints = browser.show(everything, width, scheme)
            assert [url for url in requests if not url.startswith("data:")] == [everything.as_uri()]
            assert complaints == []
            assert browser.value("document.querySelectorAll('svg[aria-label]').length") == 11
            assert browser.value("window.innerWidth") == width
            assert browser.value("document.documentElement.scrollWidth") <= width
            # Only tables and wide pictures scroll, each in a box of its own that is no wider than the page.
            for selector in ("svg", ".scroll", "h1", "h2", "h3", "p"):
                elements = (
                    f"[...document.querySelectorAll('{selector}')].filter(e => !e.parentElement.closest('.scroll'))"
                )
                right = browser.value(f"Math.max(...{elements}.map(e => e.getBoundingClientRect().right))")
                assert 0 < right <= width
            color = browser.value("getComputedStyle(document.body).backgroundColor")
            assert (color == "rgb(255, 255, 255)") == (scheme == "light")
            assert browser.value("getComputedStyle(document.querySelector('svg text')).fill") != color
            # What people come for is visible without scrolling.
            title = "document.querySelectorAll('thead th')[2]"
            assert browser.value(f"{title}.textContent") == "T"
            assert browser.value(f"{title}.getBoundingClientRect().right") < width - 16
            wide = "document.querySelector('.pictures svg').getBoundingClientRect().width"
            before = browser.value(wide)
            browser.value("document.querySelector('.pictures label input').click()")
            assert browser.value(wide) > before or width < 600  # where it has the whole width already
            sort = "document.querySelectorAll('thead button')[1].click()"
            names = "[...document.querySelector('tbody').rows].map(row => row.cells[0].textContent)"
            best, *_, last = browser.value(f"{sort}, {names}")
            assert (best, last) == ("flsd53", "(majority class)")
            worst, *_, last = browser.value(f"{sort}, {names}")
            assert (worst, last) == ("adafocal:bins=3", "(majority class)")
            browser.screenshot(tmp_path / f"{width}.png")
            assert imread(tmp_path / f"{width}.png").std() > 0.05
        alone = comparison_page([save(run_of(gamma_history=HISTORY), tmp_path / "run")], tmp_path / "alone.html")
        for width, scheme in ((390, "dark"), (1280, "light")):
            _, complaints = browser.show(alone, width, scheme)
            assert complaints == [] and browser.value("document.querySelectorAll('svg[aria-label]').length") == 10
            assert browser.value("window.innerWidth") == width  # a page that is too wide is shown smaller
            assert browser.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("measured_on", ["dataset 'a.csv'", "test_dataset 'b.csv'"])
def test_values_on_the_data_of_the_fit_are_called_optimistic(tmp_path, measured_on):
    save(run_of(fitted_on="dataset 'a.csv'", measured_on=measured_on), tmp_path / "run")
    page = comparison_page([tmp_path / "run"], tmp_path / "page.html")
    assert ("so the values after it are optimistic" in page.read_text(encoding="utf-8")) is ("a.csv" in measured_on)
