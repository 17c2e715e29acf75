"""The sets of logits in `benchmarks/text_logits`, and `benchmarks/studies/text_corrections.py` on one of them."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_focal import InputError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FOLDER = BENCHMARKS / "text_logits"
MIB = 2**20


def test_files_are_small_and_each_has_a_row():
    from benchmarks.text_logits.load import sets

    files = list(FOLDER.glob("logits/*.npz"))
    assert sorted(file.stem for file in files) == sorted(sets().index)
    assert sum(file.stat().st_size for file in files) <= 12e6
    assert max(file.stat().st_size for file in files) <= MIB


def test_logits_are_those_that_the_table_describes():
    from benchmarks.text_logits.load import load, sets

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


class Letters:
    """A tokenizer with a token for each letter."""

    def __call__(self, texts, add_special_tokens):
        return {"input_ids": [list(map(ord, text)) for text in texts]}

    def apply_chat_template(self, turns, add_generation_prompt, tokenize):
        return f"user: {turns[0]['content']} assistant:"


def test_a_label_follows_a_plain_prompt_after_a_space_and_begins_an_answer(monkeypatch):
    from benchmarks.text_logits import prompts

    prompt, first = prompts.label_prompt(Letters(), "tweet_irony", "chat")
    assert prompt.startswith("user: Is this tweet ironic?") and first == [ord("n"), ord("y")]
    assert prompts.filled("{pair} {text}", "a {pair}", "b") == "b a {pair}"
    with pytest.raises(ValueError, match="first tokens of the labels must all be different"):
        prompts.label_prompt(Letters(), "tweet_irony", "plain")  # both begin with the space


def test_a_run_that_fails_stops_no_other_and_sets_the_exit_code(tmp_path, monkeypatch, capsys):
    from benchmarks.text_logits import make

    tried = []

    def fail_first(run, *folders):
        tried.append(run.name)
        if len(tried) == 1:
            raise RuntimeError("out of memory")

    runs = [make.Run("probe", "minilm", task) for task in ("sst", "mpqa")]
    monkeypatch.setattr(make, "plan", lambda: iter(runs))
    monkeypatch.setattr(make, "make", fail_first)
    monkeypatch.setattr("sys.argv", ["make.py", "--data", str(tmp_path), "--models", str(tmp_path)])
    with pytest.raises(SystemExit, match=f"^failed runs: {runs[0].name}$"):
        make.main()
    assert tried == [run.name for run in runs] and "out of memory" in capsys.readouterr().out


@pytest.mark.slow
def test_comparison_of_corrections(tmp_path, monkeypatch):
    from benchmarks.studies import text_corrections

    name = text_corrections.sets().query("classes == 2 and shift == ''").index[0]
    arguments = ["text_corrections.py", "--sets", name, "--samples", "50", "100", "--processes", "1"]
    arguments += ["--parquet", str(tmp_path / "cells.parquet"), "--methods"]
    monkeypatch.setattr(sys, "argv", [*arguments, "none", "temperature", "vector"])
    text_corrections.main()
    monkeypatch.setattr(sys, "argv", [*arguments, "bias", "auto_0.2", "vector"])  # replaces what is there
    text_corrections.main()
    rows = pd.read_parquet(tmp_path / "cells.parquet")
    assert len(rows) == (3 + 10) * 5 and not rows["failed"].any()
    assert (rows["above_none"][rows["method"] == "none"] == 0).all()
    assert rows.groupby(["samples", "draw"], observed=True)["method"].nunique().eq(5).all()
    one_of_them = rows.pivot(index=["samples", "draw"], columns="method", values="above_none")
    chosen = one_of_them["auto_0.2"]
    from_temperature, of_vector = one_of_them["temperature"], one_of_them["vector"]
    assert ((abs(chosen - from_temperature) < 1e-6) | (abs(chosen - of_vector) < 1e-6)).all()


def test_a_probability_of_0_counts_as_a_small_one(monkeypatch):
    from benchmarks.common.correction_draws import Split
    from benchmarks.studies import text_corrections

    split = Split(torch.zeros(4, 2, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    certain = torch.tensor([0.0, -torch.inf], dtype=torch.float64)
    monkeypatch.setitem(text_corrections.METHODS, "certain", lambda logits, labels: lambda others: certain + others)
    found = text_corrections.measure_draw("certain", split, split)
    assert found["above_none"] == pytest.approx(math.log(1e4) / 2 - math.log(2))


def test_a_method_that_refuses_samples_leaves_them_uncorrected_and_a_fault_is_no_refusal(monkeypatch):
    from benchmarks.common.correction_draws import Split
    from benchmarks.studies import text_corrections

    def raising(error):
        def fit(logits, labels):
            raise error

        return fit

    split = Split(torch.zeros(4, 2, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    monkeypatch.setitem(text_corrections.METHODS, "bias", raising(InputError("labels", "be of both classes")))
    found = text_corrections.measure_draw("bias", split, split)
    assert found["failed"] and found["above_none"] == 0
    monkeypatch.setitem(text_corrections.METHODS, "bias", raising(TypeError("a fault")))
    with pytest.raises(TypeError):
        text_corrections.measure_draw("bias", split, split)
    monkeypatch.setitem(text_corrections.METHODS, "svs", raising(TypeError("a refusal of another library")))
    assert text_corrections.measure_draw("svs", split, split)["failed"]


@pytest.mark.slow
def test_a_random_tenth_of_the_committed_figures_is_what_the_methods_give():
    from benchmarks.common.correction_draws import read_splits
    from benchmarks.studies import text_corrections

    rows = pd.read_parquet(BENCHMARKS / "results" / "text_corrections" / "cells.parquet")
    rows = rows[rows["method"].isin(text_corrections.OWN)].astype({"method": str}).sample(frac=0.1)
    for name, part in rows.groupby("set", observed=True):
        validation, test = read_splits(name)
        for row in part.itertuples():
            found = text_corrections.measure_draw(row.method, validation.draw(row.samples, row.draw), test)
            assert found["above_none"] == pytest.approx(row.above_none, abs=1e-4), row
            assert found["failed"] == row.failed


@pytest.mark.slow
def test_export_to_calarena(tmp_path):
    h5py = pytest.importorskip("h5py")
    command = [sys.executable, "-m", "benchmarks.text_logits.export_calarena", tmp_path]
    subprocess.run(command, check=True, cwd=BENCHMARKS.parent)
    from benchmarks.text_logits.load import load, sets

    with h5py.File(tmp_path / "text-binary.h5") as file:
        assert sum(len(models) for models in file.values()) == (sets()["classes"] == 2).sum()
        name = sets().query("classes == 2 and shift == ''").index[0]
        task = sets().loc[name, "task"]
        group = file[task][name.replace(f"-{task}", "", 1)]
        logits = load(name)
        assert (group["labels_cal"][:] == logits.validation_labels).all()
        z = logits.test_logits.astype(float)
        assert group["probas_test"][:] == pytest.approx(1 / (1 + np.exp(z[:, 0] - z[:, 1])), abs=1e-6)
