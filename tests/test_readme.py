"""The README's Python examples run."""

import pytest
from documented import ROOT, classifier, examples_of, run_example
from transformers import AutoModelForSequenceClassification

README = ROOT / "README.md"
EXAMPLES = examples_of(README)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = classifier()
    run_example(example, README, names)
    if "save_calibrated" in example:
        saved = AutoModelForSequenceClassification.from_pretrained("out")
        assert saved.config.calibration["temperature"] == names["temperature"].value
    if "reliability_diagram" in example:
        assert (tmp_path / "reliability.png").stat().st_size > 0


def test_readme_has_its_examples():
    assert len(EXAMPLES) == 3
