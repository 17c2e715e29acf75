"""The fine-tuning experiment, from a tiny encoder to its page."""

import json
import sys

import pytest
import torch
from papers.data.generated_topics import generate_topics
from papers.data.tokenizer_training import train_word_tokenizer
from recipe_modules import import_recipe
from transformers import BertConfig, BertModel

recipe = import_recipe("fine_tuning")
page = import_recipe("fine_tuning_page")


def command(folder):
    files = [f"--{name}_file={folder / name}.parquet" for name in ("train", "test")]
    options = [f"--model={folder / 'encoder'}", "--task=mpqa", *files, f"--output_dir={folder / 'out'}"]
    options += ["--train_samples=100", "--label_noise=0.3", "--losses=cross_entropy,adafocal@1", "--seeds=1,2"]
    return ["fine_tuning.py", *options]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two losses, fine-tuned on few texts with wrong labels."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("fine_tuning")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for seed, (name, size) in enumerate({"train": 160, "test": 60}.items()):
        texts = generate_topics(size, seed=seed)
        texts.to_parquet(folder / f"{name}.parquet")
    tokenizer = train_word_tokenizer(texts["text"][:], 200, 40)
    tokenizer.save_pretrained(folder / "encoder")
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command(folder))
        recipe.main()
        patch.setattr(recipe, "train_one", None)  # finished runs are not trained again
        recipe.main()
    return folder


def test_a_run_is_one_file_with_all_measures(folder):
    runs = [json.loads(path.read_text()) for path in sorted((folder / "out").glob("*/run.json"))]
    assert [(run["loss"], run["seed"]) for run in runs] == [
        ("adafocal@1", 1),
        ("adafocal@1", 2),
        ("cross_entropy", 1),
        ("cross_entropy", 2),
    ]
    for run in runs:
        assert (run["train_samples"], run["calibration_samples"], run["label_noise"]) == (100, 40, 0.3)
        assert run["test"]["nll"]["error"] == run["test"]["before"]["error"]
        assert run["calibration"]["nll"]["nll"] <= run["calibration"]["before"]["nll"]
        assert 0.5 < run["majority_error"] < 1


@pytest.mark.parametrize(
    ("option", "difference"),
    [
        ("learning_rate=5e-3", "learning_rate: 0.0001 there, 0.005 now"),
        ("calibration_samples=20", "calibration_samples: 40 there, 20 now"),
        ("test_samples=50", "test_samples: 60 there, 50 now"),
        ("model_label=other", "model: 'encoder' there, 'other' now"),
    ],
)
def test_a_finished_run_of_other_settings_is_refused(option, difference, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", [*command(folder), f"--{option}"])
    with pytest.raises(ValueError, match=rf"out/mpqa_\S+', which holds a run with other settings \({difference}\)"):
        recipe.main()


def test_the_page_tells_mean_and_deviation_and_keeps_what_is_written_by_hand(folder, monkeypatch):
    monkeypatch.setattr(page, "ROOT", folder)
    monkeypatch.setattr(page, "RUNS", folder / "runs")
    monkeypatch.setattr(page, "PAGE", folder / "page.md")
    page.PAGE.write_text(f"# By hand\n\n{page.MARK}old", encoding="utf-8")
    page.collect(folder / "out")
    page.write_page()
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.startswith(f"# By hand\n\n{page.MARK}\n4 runs") and "old" not in text
    values = [run["test"]["before"]["ece"] for run in page.load_runs() if run["loss"] == "cross_entropy"]
    assert f"| cross_entropy | {page.cell(values)} |" in text
    assert "The 4 runs are models of MPQA.\n\n| Calibration samples" in text
    assert {path.name for path in folder.glob("*.png")} == {"fine_tuning_ece.png", "fine_tuning_samples.png"}


def test_the_rule_is_tested_on_the_task_that_was_left_out(monkeypatch):
    def run(ece):
        return {"test": {"before": {"ece": ece}}, "ece_intervals": {"before": [ece - 0.01, ece + 0.01]}}

    values = {"custrev": (0.01, 0.05), "mpqa": (0.02, 0.06), "sst": (0.03, 0.01)}
    groups = {
        (task, True, 0.0, 3): {"cross_entropy": [run(first)], "flsd53": [run(second)]}
        for task, (first, second) in values.items()
    }
    monkeypatch.setattr(page, "CANDIDATES", ("cross_entropy", "flsd53"))
    table, good, total = page.held_out_tests(groups, "before", "ece")
    assert (good, total) == (2, 3)
    assert "| SST | cross_entropy | SST, 500 | 3.0 | flsd53 | 1.0 | worse |" in table


def test_another_run_of_the_same_name_is_not_taken_for_the_one_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RUNS", tmp_path)
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "a.json").write_text('{"seed": 1, "epochs": 3, "curve": {}}')
    (tmp_path / "out" / "a" / "run.json").write_text('{"seed": 1, "epochs": 3}')
    page.collect(tmp_path / "out")
    (tmp_path / "out" / "a" / "run.json").write_text('{"seed": 1, "epochs": 4}')
    with pytest.raises(ValueError, match="whose epochs differ from those in"):
        page.collect(tmp_path / "out")
