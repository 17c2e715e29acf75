"""The experiments on pretrained encoders, with a tiny encoder and made-up samples."""

import json

import numpy as np
import pandas as pd
import pytest
from checkpoints import WORDS, save_encoder
from recipe_modules import flags, import_recipe


@pytest.fixture
def encoders(tmp_path):
    """A folder of encoders."""
    save_encoder(tmp_path / "encoders" / "all-MiniLM-L6-v2", "bert")
    return tmp_path / "encoders"


def texts(count, rng):
    return [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(count)]


def write_task(folder, task, rng, label, splits=("train", "test")):
    (folder / task).mkdir(parents=True)
    for split in splits:
        rows = {"text": texts(60, rng)} | label(60)
        pd.DataFrame(rows).to_parquet(folder / task / f"{split}.parquet")


@pytest.mark.filterwarnings("ignore")
def test_runs_of_fine_tuning_leave_logits_and_are_not_repeated(tmp_path, encoders, monkeypatch, capsys):
    recipe, rng = import_recipe("fine_tuning"), np.random.default_rng(0)
    write_task(tmp_path / "data", "tweet_irony", rng, lambda count: {"label": rng.integers(0, 2, count)})
    settings = {"task": "tweet_irony", "seed": 1, "size": "20", "noise": 0.2}
    plan = [
        recipe.Run(loss=loss, epochs=epochs, **settings) for loss, epochs in (("adafocal@2", 4), ("focal:gamma=2", 1))
    ]
    monkeypatch.setattr(recipe, "plan", lambda block: plan)
    monkeypatch.setattr(recipe, "POOL", 30)
    options = {"data": tmp_path / "data", "encoders": encoders, "output_dir": tmp_path / "out", "blocks": "mpnet"}
    monkeypatch.setattr("sys.argv", ["fine_tuning.py", *flags(options)])
    recipe.main()
    names = (f"mpnet_tweet_irony_{loss}_s1_noise" for loss in ("adafocal_2", "focal_gamma_2"))
    longer, shorter = (tmp_path / "out" / name for name in names)
    with np.load(longer / "logits.npz") as arrays:
        assert arrays["pool_logits_epoch4"].shape == (30, 2) and arrays["test_logits"].dtype == np.float16
        np.testing.assert_array_equal(arrays["test_logits_epoch4"], arrays["test_logits"])
    with np.load(shorter / "logits.npz") as arrays:
        assert "test_logits_epoch1" not in arrays
    record = json.loads((shorter / "run.json").read_text())
    assert (record["train_samples"], record["pool_samples"], record["test_samples"]) == (20, 30, 60)
    assert record["learning_rate"] == 1e-4
    monkeypatch.setattr(recipe, "train_one", None)
    capsys.readouterr()
    recipe.main()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.argv", ["fine_tuning.py", *flags(options), "--bf16"])
    with pytest.raises(
        ValueError, match=r"adafocal_2_s1_noise', which .* other settings \(bf16: False there, True now"
    ):
        recipe.main()


def test_a_failed_run_of_fine_tuning_stops_no_other_and_sets_the_exit_code(tmp_path, monkeypatch, capsys):
    recipe, tried = import_recipe("fine_tuning"), []

    def fail_first(run, *others):
        tried.append(run.seed)
        if len(tried) == 1:
            raise RuntimeError("out of memory")

    monkeypatch.setattr(recipe, "plan", lambda block: [recipe.Run("sst", "flsd53", seed) for seed in (1, 2)])
    monkeypatch.setattr(recipe, "train_one", fail_first)
    options = {"data": tmp_path, "encoders": tmp_path, "output_dir": tmp_path / "out", "blocks": "main"}
    monkeypatch.setattr("sys.argv", ["fine_tuning.py", *flags(options)])
    with pytest.raises(SystemExit, match=r"^failed runs: main_sst_flsd53_s1$"):
        recipe.main()
    assert tried == [1, 2] and "main_sst_flsd53_s1 failed: RuntimeError" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["fine_tuning.py", *flags(options)])
    recipe.main()
    assert tried == [1, 2, 1, 2]


def test_the_blocks_of_fine_tuning_differ_from_the_main_one_in_what_their_names_say():
    runs = {block: list(import_recipe("fine_tuning").plan(block)) for block in import_recipe("fine_tuning").BLOCKS}
    assert {(run.size, run.encoder, run.epochs, run.noise) for run in runs["main"]} == {("few", "minilm", 3, 0.0)}
    assert {run.size for run in runs["more_samples"]} == {"5000"}
    assert {run.encoder for run in runs["mpnet"]} == {"mpnet"}
    assert {(run.epochs, run.noise) for run in runs["long_and_noisy"]} == {(10, 0.0), (3, 0.2)}


@pytest.mark.filterwarnings("ignore")
def test_runs_of_yes_or_no_leave_logits_of_each_split(tmp_path, encoders, monkeypatch):
    recipe, rng = import_recipe("yes_or_no"), np.random.default_rng(0)
    questions = np.array(texts(12, rng))

    def answers(count):
        return {
            "question": questions[np.arange(count) // 5],
            "answer": texts(count, rng),
            "label": rng.integers(0, 2, count),
        }

    write_task(tmp_path / "data", "trec_qa", rng, answers, ("train", "validation", "test"))
    monkeypatch.setattr(recipe, "RUNS", [("trec_qa", "focal:gamma=2", 1)])
    options = {"data": tmp_path / "data", "encoder": encoders / "all-MiniLM-L6-v2", "output_dir": tmp_path / "out"}
    monkeypatch.setattr("sys.argv", ["yes_or_no.py", *flags(options | {"epochs": 1})])
    recipe.main()
    with np.load(tmp_path / "out" / "trec_qa_focal_gamma_2_s1.npz") as arrays:
        settings = json.loads(str(arrays["settings"]))
        assert (settings["loss"], settings["train_samples"]) == (
            "focal:gamma=2",
            45,
        )  # a quarter of the questions is held out
        assert arrays["pool_logits"].shape == arrays["pool_labels"].shape == (15, 1)
        assert len(set(arrays["test_questions"])) == 12
    monkeypatch.setattr(recipe, "train_one", None)
    recipe.main()
    monkeypatch.setattr("sys.argv", ["yes_or_no.py", *flags(options | {"epochs": 2})])
    with pytest.raises(ValueError, match=r"_s1.npz', which holds .* other settings \(epochs: 1 there, 2 now\)"):
        recipe.main()
