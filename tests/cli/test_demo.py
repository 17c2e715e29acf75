"""The demo, on few texts."""

from transformers import AutoModelForSequenceClassification

from hf_focal.cli.demo import run_demo
from hf_focal.cli.main import main
from hf_focal.reports import RunResult


def test_the_demo_trains_corrects_and_reports(tmp_path, capsys, monkeypatch):
    results = []
    monkeypatch.setattr("hf_focal.cli.demo.run_demo", lambda output_dir: results.extend(run_demo(output_dir, 60, 1)))
    assert main(["demo", "--output_dir", str(tmp_path)]) == 0
    assert [result.loss for result in results] == ["cross_entropy", "flsd53"]
    printed = capsys.readouterr().out
    assert "Guessing one of the 4 topics has an error of 75%" in printed and f"Written to {tmp_path}" in printed
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"table.md", "comparison.png"}
    for result in results:
        folder = tmp_path / result.loss
        assert RunResult.load(folder / "report" / "metrics.json").post["ece"] == result.post["ece"]
        saved = AutoModelForSequenceClassification.from_pretrained(folder)
        assert saved.config.calibration["temperature"] == result.temperature.value
        assert saved.config.label2id == {name: number for number, name in saved.config.id2label.items()}
        assert (folder / "README.md").is_file()
