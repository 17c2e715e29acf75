"""Generated sentences with a tag for each word."""

import re
from collections import Counter

import pytest
from papers.data.generated_tags import TAG_NAMES, generate_tags, write_tags
from recipe_modules import flags, import_recipe

from hf_focal.reports import RunResult


def test_tags_are_as_frequent_as_documented():
    rows = generate_tags(4000, seed=3)
    counts = Counter(TAG_NAMES[tag] for tags in rows["tags"] for tag in tags)
    total = counts.total()
    assert counts["O"] / total == pytest.approx(0.85, abs=0.01)
    assert counts["B-PER"] / total == pytest.approx(0.05, abs=0.005)
    assert counts["B-EVENT"] / total == pytest.approx(0.0012, abs=0.0006)
    assert set(counts) == set(TAG_NAMES)


def test_sentences_are_well_formed():
    rows = generate_tags(300)
    assert {len(words) for words in rows["tokens"]} == set(range(8, 25))
    for words, tags in zip(rows["tokens"], rows["tags"], strict=True):
        assert len(words) == len(tags)
        for before, tag in zip([0, *tags], tags, strict=False):
            if TAG_NAMES[tag].startswith("I-"):  # goes on with what has begun
                assert TAG_NAMES[before][2:] == TAG_NAMES[tag][2:]


def test_the_same_seed_draws_the_same_sentences():
    assert generate_tags(5, seed=1)[:] == generate_tags(5, seed=1)[:] != generate_tags(5, seed=2)[:]


@pytest.mark.slow
def test_a_tagger_is_trained_on_the_files(tmp_path, monkeypatch, capsys):
    write_tags(tmp_path, (150, 40, 150))
    files = {f"{name}_file": tmp_path / f"{name}.parquet" for name in ("train", "validation", "test")}
    options = {"model_name_or_path": tmp_path / "encoder", "output_dir": tmp_path / "out", "learning_rate": 0.01}
    options |= {"num_train_epochs": 2, "per_device_train_batch_size": 20, "save_strategy": "no", "use_cpu": "true"}
    monkeypatch.setattr("sys.argv", ["token_classification.py", *flags(files | options), "--loss", "class_balanced"])
    import_recipe("../token_classification").main()
    result = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    assert result.pre["num_samples"] == sum(map(len, generate_tags(150, seed=44)["tags"]))
    assert re.search(r"^B-EVENT: accuracy [\d.]+%$", capsys.readouterr().out, re.MULTILINE)
