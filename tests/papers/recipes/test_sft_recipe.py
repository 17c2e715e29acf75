"""The SFT experiment, from generated sentences to its page."""

import json
import sys

import pytest
import torch
from datasets import Dataset
from recipe_modules import import_recipe

page = import_recipe("sft_page")


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


def test_the_page_tells_mean_and_deviation_and_keeps_what_is_written_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    for loss in ("cross_entropy", "focal:gamma=1"):
        for seed in (1, 2):
            figures = {"num_samples": 1000, "error": 0.5, "nll": seed, "brier": 0.6, "ece": 0.01 * seed}
            run = {
                "loss": loss,
                "seed": seed,
                "temperature": 1.5,
                "cpu_seconds": 1800,
                "train_samples": 2000,
                "epochs": 9,
            }
            run |= dict.fromkeys(("train", "before", "after"), figures)
            folder = tmp_path / "out" / f"{loss.replace(':', '_')}_s{seed}"
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps(run))
    page.collect(tmp_path / "out")
    page.PAGE.write_text(
        "# By hand\n\n<!-- What follows is written by recipes/papers/sft_page.py. -->\nold", encoding="utf-8"
    )
    page.write_page()
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.startswith("# By hand\n\n") and "old" not in text
    assert "\n\n## 2,000 training sentences, 9 epochs\n\n| Loss |" in text
    assert "4 runs, 2.0 hours" in text and "seeds 1, 2" in text
    assert "| cross_entropy | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.50 ± 0.71 | 1.50 ± 0.71 |" in text
