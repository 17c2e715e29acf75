"""The commands of the guide on calibrating a trained model, run on a tiny model, and the figures it shows."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import trained_models
from datasets import load_dataset

from hf_focal.cli.main import main
from hf_focal.reports import RunResult

ROOT = Path(__file__).parents[1]
DOCS, RECORDS = ROOT / "docs", ROOT / "recipes" / "papers" / "records"
GUIDE = (DOCS / "guides" / "calibrate_existing.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n\$ hf-focal (.*?)\n\n(.*?)```", GUIDE, flags=re.DOTALL)

LOSSES = ("cross_entropy", "flsd53")


@pytest.fixture
def as_in_the_guide(tmp_path, monkeypatch):
    """A tiny model and its files under the names in the guide."""
    case = trained_models.build("texts", tmp_path)
    case.folder.rename(tmp_path / "newsgroups_bert")
    (tmp_path / "newsgroups").mkdir()
    for file, name in ((case.validation, "calibration"), (case.test, "test")):
        posts = load_dataset("parquet", data_files=str(file), split="train").rename_column("premise", "text")
        posts.to_parquet(tmp_path / "newsgroups" / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)


def shape(printed: str) -> list[str]:
    """Printed lines without numbers, column widths, the choice by auto, and the notes on the data.

    The verdict and the next steps depend on the results, so only whether a verdict is there is kept.
    """
    printed = re.sub(r"^(Over|Under|Neither).*(\n.+)*", "VERDICT", printed, flags=re.MULTILINE)
    printed = re.sub(r"^(Next: .*\n?)+", "", printed, flags=re.MULTILINE).rstrip()
    printed = re.sub(r"^T = .* \(.*lowest NLL\): .*\n\n", "", printed, flags=re.MULTILINE)  # if auto chose T
    printed = re.sub(r"^A temperature alone.*\n", "", printed, flags=re.MULTILINE)  # if auto chose T, there is none
    printed = re.sub(r" at \d+% strength", "", printed)
    printed = re.sub(r" over [\d,]+ clusters|^note: .* stay together in folds.*\n", "", printed, flags=re.MULTILINE)
    of_classes = r"(temperature|bias|vector|matrix)( scaling| correction)?( of \d+ classes)?"
    printed = re.sub(rf"T = [\d.]+( and an offset for each of \d+ classes)?|{of_classes}", "CORRECTION", printed)
    printed = re.sub(r"Chosen by auto: CORRECTION,? .*", "REASON", printed)
    lines = [re.sub(r"[\d.,]+", "N", line) for line in printed.splitlines()]
    return [re.sub(r"[ -]+", " ", line) for line in lines if not line.startswith(("note: N", "warning: "))]


@pytest.mark.slow
@pytest.mark.usefixtures("as_in_the_guide")
def test_the_commands_print_what_the_guide_shows(capsys):
    assert [line.split()[0] for line, _ in CONSOLE] == ["evaluate", "calibrate", "evaluate"]
    capsys.readouterr()
    for line, shown in CONSOLE:
        assert main(shlex.split(line.replace("\\\n", " "))) == 0
        assert shape(capsys.readouterr().out.strip()) == shape(shown.strip())
    (use,) = re.findall(r"```python\n(from transformers import pipeline.*?)```", GUIDE, flags=re.DOTALL)
    exec(compile(use, "guide", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["newsgroups_bert", "newsgroups_calibrated"]


def test_the_figures_come_from_one_run():
    (before,) = re.findall(r"\| ECE % +\| ([\d.]+) \[", CONSOLE[0][1])
    ((also_before, after),) = re.findall(r"\| ECE % +\| ([\d.]+) \[.*?\] +\| ([\d.]+) \[", CONSOLE[1][1])
    (also_after,) = re.findall(r"\| ECE % +\| ([\d.]+) \[", CONSOLE[2][1])
    assert (before, after) == (also_before, also_after)
    assert f"falls from {float(before):.1f}% to {float(after):.1f}%" in " ".join(GUIDE.split())


def test_the_figures_from_a_csv_to_the_hub_are_those_of_the_committed_runs():
    page = (DOCS / "guides" / "csv_to_hub.md").read_text(encoding="utf-8")
    runs = [RunResult.load(RECORDS / "csv_to_hub" / f"{loss}.json") for loss in LOSSES]
    sides = [(m, i["ece"]) for run in runs for m, i in ((run.pre, run.pre_intervals), (run.post, run.post_intervals))]
    for metrics, (low, high) in sides:
        ece = f"{100 * metrics['ece']:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
        assert f"| {ece} | {metrics['nll']:.3f} | {100 * metrics['error']:.2f} |" in page
    for run in runs:
        assert f"\n{run.temperature}\n" in page


def test_the_figures_of_300_rows_are_those_of_the_committed_runs():
    page = (DOCS / "guides" / "csv_to_hub.md").read_text(encoding="utf-8")
    runs = json.loads((RECORDS / "csv_to_hub" / "300_rows.json").read_text(encoding="utf-8"))
    by_setting = {(run["training_texts"], run["loss"], run["learning_rate"]): run for run in runs}
    text = " ".join(page.partition("## With 300 rows")[2].split())

    def change(name, before, after):
        return f"from {100 * before[name]:.1f} to {100 * after[name]:.1f}%"

    for rate in (1e-4, 5e-5):
        most, fewest = (by_setting[size, "cross_entropy", rate]["before"] for size in (270, 100))
        assert change("error", most, fewest) in text
    for loss in ("cross_entropy", "flsd53"):
        run = by_setting[270, loss, 5e-5]
        assert change("ece", run["before"], run["after"]) in text


@pytest.mark.full
def test_an_image_classifier_of_timm(tmp_path, monkeypatch, capsys):
    timm, images = pytest.importorskip("timm"), pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18", num_classes=3).state_dict(), "checkpoint.pth")
    random = np.random.default_rng(0)
    for split in ("validation", "test"):
        for name in ("cat", "dog", "owl"):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(0, 255, (32, 32, 3), dtype=np.uint8)
                images.fromarray(pixels).save(folder / f"{number}.png")
    (block, line) = re.findall(r"```python\n(import timm.*?)```\n\n```\nhf-focal (.*?)\n", GUIDE, flags=re.DOTALL)[0]
    names: dict = {}
    exec(compile(block, "guide", "exec"), names)
    pixels = torch.randn(2, 3, 224, 224)
    logits = names["wrapped"].eval()(pixel_values=pixels).logits
    torch.testing.assert_close(logits, names["network"].eval()(pixels))
    assert main(shlex.split(line)) == 0
    assert "24 samples" in capsys.readouterr().out
    assert (tmp_path / "calibrated_animals" / "model.safetensors").is_file()
