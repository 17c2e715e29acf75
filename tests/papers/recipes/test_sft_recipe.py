"""The SFT experiment, from generated sentences to its runs."""

import json
import sys

import pytest
import torch
from datasets import Dataset
from recipe_modules import import_recipe


def sentences(count, seed):
    """Chains of words in which each word has three likely successors."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        steps = torch.randint(1, 4, (8,), generator=generator).cumsum(0) % 12
        rows.append(" ".join("bdfgklmnprst"[step] + "a" for step in steps))
    return Dataset.from_dict({"de": rows})


@pytest.mark.full
def test_a_run_is_one_file_with_all_figures(tmp_path, monkeypatch):
    pytest.importorskip("trl")
    recipe = import_recipe("sft")
    for seed, (name, count) in enumerate({"train": 240, "calibration": 60, "test": 50}.items()):
        sentences(count, seed).to_parquet(tmp_path / f"{name}.parquet")
    options = [f"--{name}_file={tmp_path / name}.parquet" for name in ("train", "calibration", "test")]
    options += ["--losses=cross_entropy,label_smoothing:alpha=0.1", "--train_samples=200", "--epochs=4"]
    options += ["--vocab_size=40", "--hidden_size=16", "--learning_rate=0.02", f"--output_dir={tmp_path / 'out'}"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *options])
    recipe.main()
    monkeypatch.setattr(recipe, "train_one", None)  # finished runs are not trained again
    recipe.main()
    monkeypatch.setattr(sys, "argv", ["sft.py", *options, "--epochs=5"])
    with pytest.raises(ValueError, match=r"cross_entropy_200_s1', which .* other settings \(epochs: 4 there, 5 now\)"):
        recipe.main()
    runs = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("*/run.json"))]
    assert [run["loss"] for run in runs] == ["cross_entropy", "label_smoothing:alpha=0.1"]
    for run in runs:
        assert run["train_samples"] == 200
        assert run["before"]["num_samples"] > 50 * 8  # the first word and the end are predicted, too
        assert run["after"]["error"] == run["before"]["error"] < 0.9
        assert run["before"]["nll"] < 3  # of 40 tokens
    assert runs[0]["after"]["nll"] < runs[0]["before"]["nll"] + 0.02
