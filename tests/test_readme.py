"""The README's Python examples run as they stand."""

import pytest
from documented import ROOT, classifier, examples_of, run_example, translator
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

README = ROOT / "README.md"
EXAMPLES = examples_of(README)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = translator() if "Seq2Seq" in example else classifier()
    run_example(example, README, names)
    if "gamma_heatmap" in example:
        assert (tmp_path / "gamma.png").stat().st_size > 0
    if "save_calibrated" in example:
        auto = AutoModelForSeq2SeqLM if "Seq2Seq" in example else AutoModelForSequenceClassification
        saved = auto.from_pretrained("out")
        assert saved.config.calibration["temperature"] == names["temperature"].value
    if "reliability_diagram" in example:
        assert (tmp_path / "reliability.png").stat().st_size > 0


def test_readme_has_its_examples():
    assert len(EXAMPLES) == 6
