"""The recipe for 20 Newsgroups, on tiny networks and generated texts."""

import sys
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from papers.data.generated_topics import generate_topics
from recipe_modules import REPORT, NoTrainer, flags, import_recipe
from topic_files import write_csv
from transformers import AutoModelForSequenceClassification, AutoTokenizer

recipe = import_recipe("newsgroups")
HEADER = "Organization: secretword\n\n"


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    values = {
        "output_dir": folder,
        "text_column": "body",
        "label_column": "topic",
        "validation_size": 30,
        "max_length": 40,
        "vocab_size": 300,
        "embedding_size": 8,
        "num_filters": 8,
        "num_layers": 1,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 32,
        "learning_rate": "1e-2",
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return recipe.main(flags(values))


@pytest.fixture
def files(tmp_path):
    """Files of posts with headers; the arguments that name them."""
    sizes = {"train": 90, "test": 50}
    return {
        f"{name}_file": write_csv(tmp_path / f"{name}.csv", size, seed, HEADER)
        for seed, (name, size) in enumerate(sizes.items())
    }


def frequent_word():
    """The most frequent word of the training file."""
    words = " ".join(generate_topics(90, seed=0, num_topics=3)["text"]).split()
    return Counter(words).most_common(1)[0][0]


def test_headers_are_stripped(files, tmp_path):
    (result,) = run(tmp_path / "stripped", **files, strip="headers")
    assert (result.pre["num_samples"], result.true_calibration_error) == (50, None)
    assert "secretword" not in AutoTokenizer.from_pretrained(tmp_path / "stripped").get_vocab()
    run(tmp_path / "whole", **files)
    assert "secretword" in AutoTokenizer.from_pretrained(tmp_path / "whole").get_vocab()


@pytest.mark.parametrize("rate", [None, 0])
def test_word_vectors_are_where_the_network_starts(rate, files, tmp_path):
    word = frequent_word()
    (tmp_path / "vectors.txt").write_text(f"{word} {' '.join('12345678')}\n")
    options = {"embeddings_file": tmp_path / "vectors.txt", "embedding_learning_rate": rate}
    run(tmp_path / "out", **files, **options, learning_rate=0.1 if rate == 0 else 1e-9)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    number = AutoTokenizer.from_pretrained(tmp_path / "out").get_vocab()[word]
    vector = network.get_input_embeddings().weight[number]
    torch.testing.assert_close(vector, torch.arange(1.0, 9), rtol=1e-4 if rate is None else 0, atol=0)


def test_what_is_refused_before_training(files, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    bare = {key: write_csv(tmp_path / f"bare_{key}.csv", 30, i) for i, key in enumerate(("train_file", "test_file"))}
    (tmp_path / "nan.txt").write_text(f"{frequent_word()} 1 2 3 4 5 6 7 nan\n")
    problems = [
        (bare | {"validation_size": 3, "strip": "headers"}, "strip must be 'none' .* 27 of the 27 texts of train"),
        ({"strip": "headers,foot"}, "strip must name some of headers, footers, quotes, or be 'none', got 'foot'"),
        (
            {"embeddings_file": tmp_path / "nan.txt"},
            r"nan\.txt, line 1 must hold finite values, got '1 2 3 4 5 6 7 nan'",
        ),
        ({"embedding_learning_rate": -1}, r"embedding_learning_rate must be at least 0, got -1\.0"),
        ({"model_name_or_path": "bert-base-uncased"}, "model_name_or_path must be 'gp_cnn', got 'bert-base-uncased'"),
    ]
    for options, message in problems:
        with pytest.raises(ValueError, match=message):
            run(tmp_path / "out", **files | options)
    assert not (tmp_path / "out").exists()


def test_the_random_split_pools_both_files(tmp_path, monkeypatch, capsys):
    posts = Dataset.from_dict(
        {"text": [f"From: me\n\npost {number}" for number in range(5000)], "label": [0, 1] * 2500}
    )
    for name, part in (("train", range(3000)), ("test", range(3000, 5000))):
        posts.select(part).to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / "train.parquet"), str(tmp_path / "test.parquet")]
    monkeypatch.setattr(sys, "argv", ["split_newsgroups.py", *files, "--output_dir", str(tmp_path / "random")])
    import_recipe("split_newsgroups").main()
    assert capsys.readouterr().out == "train: 101 posts\nvalidation: 900 posts\ntest: 3999 posts\n"
    splits = {
        name: Dataset.from_parquet(str(tmp_path / "random" / f"{name}.parquet"))
        for name in ("train", "validation", "test", "test_body")
    }
    bodies = splits.pop("test_body")
    order = np.random.default_rng(0).permutation(5000)
    assert splits["test"]["text"][:] == [f"From: me\n\npost {number}" for number in order[:3999]]
    assert bodies["text"][:] == [f"post {number}" for number in order[:3999]]
    assert bodies["label"][:] == splits["test"]["label"][:]
    assert sorted(text for split in splits.values() for text in split["text"]) == sorted(posts["text"])


@pytest.mark.slow
def test_real_newsgroups(real_data, tmp_path):
    files = {}
    for split, size in (("train", 2000), ("test", 1000)):
        files[f"{split}_file"] = tmp_path / f"{split}.parquet"
        posts = Dataset.from_parquet(str(real_data / "newsgroups" / f"{split}.parquet"), cache_dir=str(tmp_path))
        posts.shuffle(seed=0).select(range(size)).to_parquet(files[f"{split}_file"])
    sizes = {
        "text_column": "text",
        "label_column": "label",
        "max_length": 20,
        "vocab_size": 500,
        "embedding_size": 4,
        "num_filters": 4,
        "validation_size": 500,
    }
    options = {"strip": "headers,footers,quotes", "max_steps": 2, "eval_strategy": "no", "save_strategy": "no"}
    (result,) = run(tmp_path / "out", **files, **sizes, **options)
    assert result.pre["num_samples"] == 1000
    assert {path.name for path in (tmp_path / "out" / "report").iterdir()} == REPORT
    bins = result.pre_bins
    assert bins.count.sum() == 1000
    assert np.nansum(bins.count * bins.accuracy) / 1000 == pytest.approx(result.pre["accuracy"], abs=1e-12)
