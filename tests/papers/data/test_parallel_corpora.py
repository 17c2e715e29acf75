import logging

import pytest
from datasets import Dataset, Features, Translation, Value
from papers.data.parallel_corpora import encode_pairs, load_pairs, load_parallel, select_pairs
from papers.data.tokenizer_training import train_bpe_tokenizer

EN = [f"sentence {i}" for i in range(40)]
DE = [f"Satz {i}" for i in range(40)]
LANGUAGES = {"source_lang": "en", "target_lang": "de"}
FEATURES = Features(source=Value("string"), target=Value("string"))


@pytest.fixture
def write(tmp_path):
    """write(name, en=..., de=...): a file of these columns, or a text file of each where the name has no suffix."""

    def write(name, **columns):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if not path.suffix:
            for language, lines in columns.items():
                text = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
                path.with_name(f"{path.name}.{language}").write_bytes(text)
            return path
        dataset = Dataset.from_dict(columns)
        {".csv": dataset.to_csv, ".json": dataset.to_json, ".parquet": dataset.to_parquet}[path.suffix](path)
        return path

    return write


def mappings(en, de):
    return [{"en": source, "de": target} for source, target in zip(en, de, strict=True)]


@pytest.mark.parametrize("name", ["t.csv", "t.json", "corpus/t"])
def test_columns_named_by_the_languages(write, name):
    test = write(name, en=["a, b", 'say "c"'], de=["ä", "ß"])
    train = write("train.parquet", en=EN, de=DE, other=EN)
    splits = load_parallel(train_file=train, test_file=test, **LANGUAGES)
    assert list(splits) == ["train", "validation", "test"]
    assert all(split.features == FEATURES for split in splits.values())
    assert splits["test"][:] == {"source": ["a, b", 'say "c"'], "target": ["ä", "ß"]}
    back = load_parallel(train_file=str(train), test_file=str(test), source_lang="de", target_lang="en")
    assert back["test"][:] == {"source": ["ä", "ß"], "target": ["a, b", 'say "c"']}


def test_translation_feature_of_the_hub(tmp_path):
    features = Features(translation=Translation(languages=["de", "en"]))
    dataset = Dataset.from_dict({"translation": mappings(EN, DE)}, features=features)
    assert select_pairs("split", dataset, "en", "de")[:] == {"source": EN, "target": DE}
    dataset.to_parquet(tmp_path / "train.parquet")
    dataset.select(range(3)).to_parquet(tmp_path / "test.parquet")
    dataset.select([7, 5]).to_parquet(tmp_path / "validation.parquet")
    splits = load_parallel(dataset_name=str(tmp_path), **LANGUAGES)
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [40, 2, 3]
    assert splits["validation"]["target"][:] == [DE[7], DE[5]]


def test_lines_of_text_files(write):
    for en, lines in (
        (b"one\r\ntwo", ["one", "two"]),
        (b"one\n\n", ["one", ""]),
        ("o\u2028n\x85e\x0b\x1c\ntw\ro\n".encode(), ["o\u2028n\x85e\x0b\x1c", "tw\ro"]),
        (" one \n\ttwo\n".encode("utf-8-sig"), [" one ", "\ttwo"]),
    ):
        pairs = load_pairs("train_file", write("corpus/train", en=en, de=["a", "b"]), "en", "de")
        assert pairs[:] == {"en": lines, "de": ["a", "b"]}


def test_blank_pairs_are_dropped_from_train_alone(write, caplog):
    train = write("corpus/train", en=["", "a", "b", " \u2028\xa0", "c"], de=["x", "", "y", "z", "w"])
    rest = write("corpus/rest", en=["", "a"], de=["x", " "])
    with caplog.at_level(logging.INFO, "papers"):
        splits = load_parallel(
            train_file=train,
            validation_file=rest,
            test_file=write("test.parquet", en=["", "a", ""], de=["x", "", ""]),
            **LANGUAGES,
        )
    assert splits["train"][:] == {"source": ["b", "c"], "target": ["y", "w"]}
    assert splits["validation"][:] == {"source": ["", "a"], "target": ["x", " "]}
    assert splits["test"][:] == {"source": ["", "a", ""], "target": ["x", "", ""]}
    [record] = caplog.records
    assert record.getMessage() == "the training data: dropped 3 of 5 pairs, which have a blank sentence"


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("t", {"en": b"", "de": b""}, "test_file.* must have rows, got none"),
        (
            "t",
            {"en": ["a", "b"], "de": ["c"]},
            "test_file must have equally many lines in each language, got {'en': 2, 'de': 1} in .*t'",
        ),
        ("t", {"en": ["a"], "de": "ß".encode("latin-1")}, "test_file must be UTF-8 text, got .*t.de': 'utf-8' codec"),
    ],
)
def test_bad_test_file(write, name, columns, message):
    train = write("train.csv", en=EN, de=DE)
    with pytest.raises(ValueError, match=message):
        load_parallel(train_file=train, test_file=write(name, **columns), **LANGUAGES)


def test_bad_arguments(write, tmp_path):
    train = write("train.csv", en=EN, de=DE)
    lone = write("corpus/lone", en=["a"])
    blank = write("corpus/blank", en=["a", ""], de=["", "b"])
    for arguments, error, message in [
        (
            {"train_file": "train.txt"},
            FileNotFoundError,
            "train_file must end in .*, or be the beginning of two text files, got "
            "'train.txt': there is no 'train.txt.en'",
        ),
        ({"train_file": lone}, FileNotFoundError, "train_file must .* got .*lone': there is no .*lone.de'"),
        ({"train_file": blank}, ValueError, "the training data must have pairs without a blank sentence, got none"),
    ]:
        with pytest.raises(error, match=message):
            load_parallel(**{**LANGUAGES, "test_file": train, **arguments})


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
