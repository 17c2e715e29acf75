"""The sets of logits in `benchmarks/text_logits`, and `benchmarks/text_corrections.py` on one of them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FOLDER = BENCHMARKS / "text_logits"
MIB = 2**20


@pytest.fixture(scope="module", autouse=True)
def benchmarks():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def test_files_are_small_and_each_has_a_row():
    from text_logits.load import sets

    files = list(FOLDER.glob("logits/*.npz"))
    assert sorted(file.stem for file in files) == sorted(sets().index)
    assert sum(file.stat().st_size for file in files) <= 12e6
    assert max(file.stat().st_size for file in files) <= MIB


def test_logits_are_those_that_the_table_describes():
    from text_logits.load import load, sets

    for name, row in sets().iterrows():
        logits = load(name)
        assert logits.validation_logits.shape == (row["validation_rows"], row["classes"])
        assert logits.test_logits.shape == (row["test_rows"], row["classes"])
        assert max(row["validation_rows"], row["test_rows"]) <= 2000
        for part, labels in (
            (logits.validation_logits, logits.validation_labels),
            (logits.test_logits, logits.test_labels),
        ):
            assert np.isfinite(part).all() and len(labels) == len(part)
            assert 0 <= labels.min() <= labels.max() < row["classes"]
        wide, labels = torch.from_numpy(logits.test_logits).double(), torch.from_numpy(logits.test_labels)
        assert float((wide.argmax(1) != labels).double().mean()) == pytest.approx(row["test_error"], abs=1e-5)
        assert float(cross_entropy(wide, labels)) == pytest.approx(row["test_nll"], abs=1e-5)


def test_offsets_of_classes_are_found():
    import text_corrections

    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    off = logits / 0.5 + torch.tensor([1.0, -1.0, 0.0])
    corrected = text_corrections.bias_scaling(off, labels)(off)
    true = logits - logits.mean(1, keepdim=True)
    assert (corrected.log_softmax(1) - true.log_softmax(1)).abs().mean() < 0.05
    few = text_corrections.bias_scaling(off[:10], labels[:10])(off[:1])
    assert few.isfinite().all()


def test_comparison_of_corrections(tmp_path, monkeypatch, capsys):
    import text_corrections

    name = text_corrections.sets().query("classes == 2 and shift == ''").index[0]
    monkeypatch.setattr(text_corrections, "SIZES", (50, 100))
    monkeypatch.setattr(text_corrections, "DRAWS", 2)
    monkeypatch.setattr(text_corrections, "RIVAL", "vector")
    arguments = ["text_corrections.py", "--output", str(tmp_path), "--sets", name, "--methods"]
    monkeypatch.setattr(sys, "argv", [*arguments, "none", "temperature", "vector"])
    text_corrections.main()
    monkeypatch.setattr(sys, "argv", [*arguments, "bias"])  # adds to what is there
    text_corrections.main()
    rows = text_corrections.pd.read_csv(tmp_path / f"{name}.csv")
    assert len(rows) == 2 * 2 * 4
    uncorrected = rows[rows["method"] == "none"]
    assert (uncorrected["above_none"] == 0).all()
    assert uncorrected["nll"].to_numpy() == pytest.approx(text_corrections.sets().loc[name, "test_nll"], abs=1e-4)
    summary = text_corrections.pd.read_csv(tmp_path / "summary.csv").set_index(["test", "samples", "method"])
    assert summary.loc[("like validation", 50, "none"), "harm_rate"].startswith("0.0000")
    assert summary.loc[("like validation", 100, "vector"), "win_rate_against_vector"].startswith("0.5000")


def test_export_to_calarena(tmp_path):
    h5py = pytest.importorskip("h5py")
    script = FOLDER / "export_calarena.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    from text_logits.load import load, sets

    with h5py.File(tmp_path / "text-binary.h5") as file:
        assert sum(len(models) for models in file.values()) == (sets()["classes"] == 2).sum()
        name = sets().query("classes == 2 and shift == ''").index[0]
        task = sets().loc[name, "task"]
        group = file[task][name.replace(f"-{task}", "", 1)]
        logits = load(name)
        assert (group["labels_cal"][:] == logits.validation_labels).all()
        z = logits.test_logits.astype(float)
        assert group["probas_test"][:] == pytest.approx(1 / (1 + np.exp(z[:, 0] - z[:, 1])), abs=1e-6)
