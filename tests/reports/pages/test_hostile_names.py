"""Names of losses, classes, models and sets, whatever they hold, in tables, pages and figures."""

import re
from html import escape

import pytest
import torch
from matplotlib.text import Text
from papers.figures.dynamics_figures import dynamics_figure
from papers.figures.ood_report import detection_table, shift_figure, shift_table
from papers.metrics.ood_metrics import DetectionResult, detection_by_score

from hf_focal import Temperature
from hf_focal.reports import RunResult, comparison_figure, comparison_page, reliability_diagram, results_table
from hf_focal.reports.wording.markdown_tables import columns_table, escaped

NAMES = ["m|x", "a\nb", "<script>alert(1)</script>", "`x` **y**", r"a$\frac$b", "[name](x)", "_x_ é☃ |"]
LABELS = torch.arange(40) % 4
LOGITS = 3.0 * torch.nn.functional.one_hot(LABELS, 4) + torch.linspace(0, 1, 4)


def run_of(name):
    return RunResult.measure(name, Temperature(1.5, "ece", 0.1, 0.05, 1.0, 0.9, 40, 15, False), LOGITS, LABELS)


def detection_of(name):
    entry = {"pre": {"ece": 0.1, "accuracy": 0.5}, "post": {"ece": 0.1, "accuracy": 0.5}}
    shift = {name: [{"severity": 0, **entry}, {"severity": 1, **entry}]}
    detection = detection_by_score(LOGITS, {name: LOGITS.roll(1, 0) / 2}, 1.5)
    return DetectionResult(name, 1.5, detection, shift, in_distribution={})


@pytest.mark.parametrize("name", NAMES)
def test_a_table_keeps_its_rows_and_cells(name):
    detection, run = detection_of(name), run_of(name)
    tables = [
        results_table([run]),
        detection_table([detection]),
        shift_table([detection], name),
        columns_table(["Loss", name], [[name], ["1"]]),
    ]
    for table in tables:
        for block in table.split("\n\n"):
            rows = [re.sub(r"\\.", "", line) for line in block.splitlines()]
            assert len({row.count("|") for row in rows}) == 1 and (rows[0][0] == "|" or len(rows) == 1)
        assert f"| {escaped(name)} |" in table
        assert "<script" not in table.replace("\\<script", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_names_as_they_are(name, tmp_path):
    (tmp_path / "run" / "report").mkdir(parents=True)
    run_of(name).save(tmp_path / "run" / "report" / "metrics.json")
    path = comparison_page([tmp_path / "run"], tmp_path / "page.html", title=name)
    page = " ".join(path.read_text(encoding="utf-8").replace("<wbr>", "").split())
    shown = escape(" ".join(name.split()))
    assert page.count("<script") == 1 and f"<h1>{shown}</h1>" in page and f"<title>{shown}</title>" in page


@pytest.mark.slow
def test_figures_show_dollar_signs_as_they_are(tmp_path):
    name, bins = NAMES[4], run_of("brier").pre_bins
    dynamics = [{"epoch": 1.0, "train_nll": 1.0, "test_nll": 1.0}]
    figures = [
        reliability_diagram(metrics=bins, title=name),
        comparison_figure({name: (bins, bins)}),
        shift_figure([detection_of(name)], name),
        dynamics_figure(dynamics, title=name),
    ]
    for number, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{number}.png", dpi=20)
        assert any(name in text.get_text() for text in figure.findobj(Text)), number
