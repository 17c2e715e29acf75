"""The guide on large data: each of its pages of code, with its engine on local workers, and the commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from documented import ROOT, examples_of

from hf_focal import calibrate_scores
from hf_focal.cli.main import main
from hf_focal.reports import RunResult
from hf_focal.scores.reading import table_batches

GUIDE = ROOT / "docs" / "guides" / "large_data.md"
NAMES = ("no", "maybe", "yes")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Validation and test rows in three files each, and the result of correcting them at once."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(0)
    for name in ("validation", "test"):
        (folder / name).mkdir()
        for part in range(3):
            logits = 3 * random.standard_normal((400, 3))
            labels = (logits / 1.8 + random.gumbel(size=logits.shape)).argmax(1)
            rows = pd.DataFrame(logits, columns=[f"logit_{name}" for name in NAMES])
            rows.assign(label=np.array(NAMES)[labels]).to_parquet(folder / name / f"part-{part}.parquet")
    return folder, calibrate_scores(folder / "validation", test_scores=folder / "test")


def check(result, expected):
    """Measured figures are equal; on so few rows, the folds, which depend on the order, decide what auto chooses."""
    for name in ("ece", "nll", "brier", "accuracy", "num_samples"):
        assert result.pre[name] == pytest.approx(expected.pre[name], abs=1e-9)
        assert result.post[name] == pytest.approx(expected.post[name], abs=0.02)
    assert result.fit.cross_fit.num_samples == expected.fit.cross_fit.num_samples


def run_page(import_of_engine, folders, tmp_path):
    """Run the page of code of an engine, in a copy of the folders, as a script."""
    (page,) = [example for example in examples_of(GUIDE) if import_of_engine in example]
    folder, expected = folders
    for name in ("validation", "test"):
        (tmp_path / name).mkdir()
        for part in (folder / name).glob("*.parquet"):
            (tmp_path / name / part.name).write_bytes(part.read_bytes())
    (tmp_path / "page.py").write_text(page, encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert not done.returncode, done.stderr[-2000:]
    check(RunResult.load(tmp_path / "calibrated" / "report" / "metrics.json"), expected)
    assert json.loads((tmp_path / "calibrated" / "correction.json").read_text())["classes"] == [*NAMES]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["from concurrent.futures import", "from datasets import load_dataset"])
def test_pages_that_need_no_engine(engine, folders, tmp_path):
    run_page(engine, folders, tmp_path)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["import ray", "import dask", "from pyspark.sql import"])
def test_pages_with_an_engine(engine, folders, tmp_path):
    pytest.importorskip(engine.split()[1].partition(".")[0])
    if "pyspark" in engine and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    run_page(engine, folders, tmp_path)


@pytest.mark.full
def test_frames_of_polars(folders):
    polars = pytest.importorskip("polars")
    folder, _ = folders
    expected = calibrate_scores(folder / "test")
    frame = polars.read_parquet(folder / "test" / "*.parquet")
    for given in (frame, polars.scan_parquet(folder / "test" / "*.parquet")):
        check(calibrate_scores(given), expected)


def test_commands_of_the_guide(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_batches, "MOST_ROWS", 1000)
    (block,) = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    evaluate, calibrate = (line.removeprefix("$ hf-focal ") for line in block.strip().splitlines())
    monkeypatch.chdir(folders[0])
    for command in (evaluate.replace("scores/part", "test/part"), calibrate):
        words = shlex.split(command)
        words[-1] = str(tmp_path / words[-1])
        assert main(words) == 0
    printed = capsys.readouterr().out
    assert "On the 1,200 samples of part-*.parquet" in printed
    assert "note: part-*.parquet is measured in batches" in printed
    assert "On the 1,200 samples of test" in printed
