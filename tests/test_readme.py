"""The README's Python examples run, and what it links to exists."""

import re

import pytest
from documented import ROOT, classifier, examples_of, run_example
from transformers import AutoModelForSequenceClassification

from hf_focal.cli.main import main

README = ROOT / "README.md"
EXAMPLES = examples_of(README)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = classifier()
    run_example(example, README, names)
    if "save_calibrated" in example:
        saved = AutoModelForSequenceClassification.from_pretrained("out")
        assert saved.config.calibration["temperature"] == names["trainer"].fit.temperature.value
        assert main(["report", "out"]) == 0
        assert "ECE" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_links_exist():
    targets = re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8"))
    assert len(targets) > 15
    for target in targets:
        path, _, heading = target.partition("#")
        assert (ROOT / path).is_file(), target
        titles = re.findall(r"^#+ (.*)", (ROOT / path).read_text(encoding="utf-8"), re.M) if heading else []
        assert not heading or heading in {re.sub(r"\W+", "-", title.lower()).strip("-") for title in titles}, target
