"""The page of a command names the user's files with their folders; what may be published does not."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hf_focal import InputError, calibrate_scores, evaluate, evaluate_scores
from hf_focal.reports import output_folder
from hf_focal.workflow import run_evaluation


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    logits = 4 * rng.normal(size=(200, 2)) + np.eye(2)[labels]
    folder = tmp_path / "my data"
    folder.mkdir()
    for name in ("fit", "test"):
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    return folder


def test_the_next_steps_on_the_page_keep_folders(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate_scores("my data/test.npz", output="measured", num_bins=10)
    page = " ".join((tmp_path / "measured" / "report.html").read_text(encoding="utf-8").split())
    words = page.replace("<span>", "").replace("</span>", "").replace("&#39;", "'")
    assert "--test_scores 'my data/test.npz'" in words and "--num_bins 10" in words
    assert "put the folders before" not in words
    calibrate_scores("my data/fit.npz", output="results/fitted")
    page = (tmp_path / "results" / "fitted" / "report.html").read_text(encoding="utf-8")
    assert "my" in page and "data/fit.npz" in page
    for folder in ("measured", "results/fitted"):
        assert "my data" not in json.dumps(json.loads((tmp_path / folder / "report" / "metrics.json").read_text()))


@pytest.mark.parametrize("output", ["", "a\0b", "x" * 300])
def test_a_name_that_no_folder_can_have_is_refused(table, output):
    with pytest.raises(InputError, match=r"^output must be the name of a folder, got "):
        evaluate_scores(str(table / "test.npz"), output=output)


def test_a_folder_that_this_process_writes_to_is_refused(table, tmp_path):
    def again(result):
        with pytest.raises(InputError, match="nothing else is writing to"):
            calibrate_scores(str(table / "test.npz"), output=tmp_path / "out")

    calibrate_scores(str(table / "fit.npz"), output=tmp_path / "out", on_result=again)
    assert (tmp_path / "out" / "correction.json").is_file()


@pytest.mark.parametrize("command", [evaluate_scores, calibrate_scores])
def test_a_full_disk_is_told_before_anything_is_measured(command, table, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, free=10_000))
    with pytest.raises(
        InputError, match=r"^output must be a folder with room .*: about 0.5 MB are needed, 0.0 MB are"
    ):
        command(str(table / "fit.npz"), output=tmp_path / "out", on_result=pytest.fail)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, free=0))
    command(str(table / "fit.npz"), output=tmp_path / "out")


@pytest.mark.parametrize("command", [evaluate_scores, calibrate_scores])
@pytest.mark.parametrize("step", ["write_report", "comparison_page"])
def test_ctrl_c_leaves_nothing_that_is_half_written(command, step, table, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        (tmp_path / "out" / "report").mkdir(exist_ok=True)
        (tmp_path / "out" / "report" / "table.md").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(output_folder, step, interrupted)
    (tmp_path / "out").mkdir()  # which is the user's, and stays
    with pytest.raises(KeyboardInterrupt):
        command(str(table / "fit.npz"), output=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        evaluate(scores=str(table / "fit.npz"), output=tmp_path / "out", save_scores=tmp_path / "out" / "s.parquet")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["s.parquet"]  # which is whole


def test_ctrl_c_leaves_no_new_folder(table, tmp_path):
    def interrupt(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_scores(str(table / "fit.npz"), output=tmp_path / "new" / "out", on_result=interrupt)
    with pytest.raises(InputError, match="output must be a folder to write in"):
        calibrate_scores(str(table / "fit.npz"), output=tmp_path / "new" / ("x" * 300) / "out")
    with pytest.raises(InputError, match="output must not lead through a folder that does not exist"):
        calibrate_scores(str(table / "fit.npz"), output=tmp_path / "new" / ".." / "out")
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_read(table, tmp_path, monkeypatch):
    monkeypatch.setattr(output_folder.os, "access", lambda path, mode: Path(path) != tmp_path)  # tests may run as root
    monkeypatch.setattr(run_evaluation, "samples_of_evaluation", None)
    with pytest.raises(
        InputError, match=r"save_scores must be in a folder that can be written to, got '.*s\.parquet'"
    ):
        evaluate(scores=str(table / "fit.npz"), save_scores=tmp_path / "s.parquet")
