import logging

import pytest
from datasets import Dataset, Features, Translation, Value
from papers.data.parallel_corpora import encode_pairs, load_parallel
from papers.data.tokenizer_training import train_bpe_tokenizer

EN = [f"sentence {i}" for i in range(40)]
DE = [f"Satz {i}" for i in range(40)]
LANGUAGES = {"source_lang": "en", "target_lang": "de"}
FEATURES = Features(source=Value("string"), target=Value("string"))


@pytest.fixture
def write(tmp_path):
    """write(name, en=..., de=...): a parquet file of these columns."""

    def write(name, **columns):
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}.parquet")
        return str(tmp_path / f"{name}.parquet")

    return write


def test_columns_named_by_the_languages(write):
    test = write("test", en=["a, b", 'say "c"'], de=["ä", "ß"])
    train = write("train", en=EN, de=DE, other=EN)
    splits = load_parallel(train_file=train, test_file=test, **LANGUAGES)
    assert list(splits) == ["train", "validation", "test"]
    assert all(split.features == FEATURES for split in splits.values())
    assert splits["test"][:] == {"source": ["a, b", 'say "c"'], "target": ["ä", "ß"]}
    back = load_parallel(train_file=train, test_file=test, source_lang="de", target_lang="en")
    assert back["test"][:] == {"source": ["ä", "ß"], "target": ["a, b", 'say "c"']}


def test_translation_feature_of_the_hub(tmp_path):
    features = Features(translation=Translation(languages=["de", "en"]))
    pairs = [{"en": source, "de": target} for source, target in zip(EN, DE, strict=True)]
    dataset = Dataset.from_dict({"translation": pairs}, features=features)
    dataset.to_parquet(tmp_path / "train.parquet")
    dataset.select(range(3)).to_parquet(tmp_path / "test.parquet")
    dataset.select([7, 5]).to_parquet(tmp_path / "validation.parquet")
    splits = load_parallel(dataset_name=str(tmp_path), **LANGUAGES)
    assert splits["train"][:] == {"source": EN, "target": DE}
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [40, 2, 3]
    assert splits["validation"]["target"][:] == [DE[7], DE[5]]


def test_blank_pairs_are_dropped_from_train_alone(write, caplog):
    files = {
        "train_file": write("train", en=["", "a", "b", " \u2028\xa0", "c"], de=["x", "", "y", "z", "w"]),
        "validation_file": write("validation", en=["", "a"], de=["x", " "]),
        "test_file": write("test", en=["", "a", ""], de=["x", "", ""]),
    }
    with caplog.at_level(logging.INFO, "papers"):
        splits = load_parallel(**files, **LANGUAGES)
    assert splits["train"][:] == {"source": ["b", "c"], "target": ["y", "w"]}
    assert splits["validation"][:] == {"source": ["", "a"], "target": ["x", " "]}
    assert splits["test"][:] == {"source": ["", "a", ""], "target": ["x", "", ""]}
    [record] = caplog.records
    assert record.getMessage() == "the training data: dropped 3 of 5 pairs, which have a blank sentence"
    files["train_file"] = write("blank", en=["a", ""], de=["", "b"])
    with pytest.raises(ValueError, match="the training data must have pairs without a blank sentence, got none"):
        load_parallel(**files, **LANGUAGES)


def test_long_training_pairs_are_dropped_without_a_warning_from_the_tokenizer(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    pairs = Dataset.from_dict({"source": ["a b", "a b a b a b", "b"], "target": ["b a", "b", "a b a b a b"]})
    tokenizer = train_bpe_tokenizer(pairs["source"], 20, max_length=4)
    with caplog.at_level(logging.INFO):
        kept = encode_pairs(pairs, tokenizer, 4, cut=False)
    assert tokenizer.batch_decode(kept["input_ids"][:], skip_special_tokens=True) == ["a b"]
    assert [
        record.getMessage() for record in caplog.records if record.name.startswith(("papers", "transformers"))
    ] == ["dropped 2 of 3 training pairs: over max_length"]
    cut = encode_pairs(pairs, tokenizer, 4, cut=True)
    assert [len(ids) for ids in cut["input_ids"]] == [3, 4, 2]
