"""Files and folders are what they are called: no path is a pattern, and none is looked for on the Hub."""

import json
import re

import pytest
from datasets import Dataset

from hf_focal import InputError, load_splits
from hf_focal.tasks.dataset_loading import DatasetLocation, dataset_location, load_file, load_one_split

PIXEL = {"bytes": b"one", "path": None}
# A name, and files that it would stand for as a pattern.
NAMES = {
    "train[1].csv": ["train1.csv"],
    "q?.csv": ["qq.csv", "qa.csv"],
    "*.csv": ["all.csv"],
    "folder[0-9]/rows.csv": ["folder1/rows.csv"],
    "a#b%20c ä.csv": [],
    "{a,b}.csv": ["a.csv", "b.csv"],
    ".hidden.csv": [],
    "__special__/rows.csv": [],
}


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"text,label\n{value},0\n", encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_that_of_one_file(name, tmp_path, monkeypatch):
    for other in NAMES[name]:
        write(tmp_path / other, f"of {other}")
    write(tmp_path / name, "asked for")
    assert load_one_split("dataset", str(tmp_path / name))["text"][:] == ["asked for"]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name, "written anew")
    assert load_one_split("dataset", name)["text"][:] == ["written anew"]


@pytest.mark.parametrize(("name", "other"), [("a::b.csv", "a"), ("$NAME.csv", "expanded.csv")])
def test_a_part_of_a_name_is_no_file(name, other, tmp_path, monkeypatch):
    monkeypatch.setenv("NAME", "expanded")
    write(tmp_path / other, "other")
    write(tmp_path / name, "asked for")
    with pytest.raises(
        ValueError, match=rf"dataset must be a file without .* in its path, .* got .*{re.escape(name)}"
    ):
        load_one_split("dataset", str(tmp_path / name))


def test_a_pattern_is_no_file(tmp_path):
    write(tmp_path / "train1.csv", "other")
    with pytest.raises(FileNotFoundError, match=r"dataset must be an existing file, got .*train\[1\]"):
        load_one_split("dataset", str(tmp_path / "train[1].csv"))


ROWS = {
    "text-classification": {"text": ["a", "b"] * 4, "label": [0, 1] * 4},
    "image-classification": {"image": [PIXEL] * 8, "label": [0, 1] * 4},
    "semantic-segmentation": {"image": [PIXEL] * 8, "mask": [PIXEL] * 8},
    "token-classification": {"tokens": [["a", "b"]] * 8, "tags": [["x", "y"]] * 8},
    "translation": {"source": ["a"] * 8, "target": ["b"] * 8},
}


@pytest.mark.parametrize(
    ("task", "ending"), [*((task, "JSONL") for task in ROWS), ("image-classification", "parquet")]
)
def test_every_task_reads_the_file_that_is_named(task, ending, tmp_path):
    rows = Dataset.from_dict(ROWS[task])
    for name, part in ((f"train[1].{ending}", rows), (f"train1.{ending}", rows.select([0, 1]))):
        if ending == "parquet":
            part.to_parquet(tmp_path / name)
        else:
            lines = [{key: "a.png" if value == PIXEL else value for key, value in row.items()} for row in part]
            (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    splits, _ = load_splits(
        task, train_file=tmp_path / f"train[1].{ending}", test_file=tmp_path / f"train1.{ending}", validation_size=2
    )
    assert {name: len(split) for name, split in splits.items()} == {"train": 6, "validation": 2, "test": 2}


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_a_suffix_may_have_capitals(ending, hub, tmp_path, monkeypatch):
    rows = Dataset.from_dict({"text": ["a, b", "NA"], "label": [0, 1]})
    kind, options = {"jsonl": ("json", {}), "tsv": ("csv", {"sep": "\t"})}.get(ending, (ending, {}))
    getattr(rows, f"to_{kind}")(tmp_path / f"patients.{ending.upper()}", **options)
    monkeypatch.chdir(tmp_path)
    loaded = load_one_split("dataset", f"patients.{ending.upper()}")
    assert loaded["text"][:] == ["a, b", "NA"] and loaded["label"][:] == [0, 1]
    assert hub.requests == []


@pytest.mark.parametrize("name", ["patients.txt", "team/patients", "patients.csv"])
def test_no_path_that_exists_is_asked_of_the_hub(name, hub, tmp_path, monkeypatch):
    write(tmp_path / name, "secret")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"dataset_name must be a Hub id or a folder, got the file '{name}'"):
        load_splits("text-classification", dataset_name=name)
    for named in (name, f"{name}:default:train"):
        if named != "patients.csv":  # which is a file of rows
            with pytest.raises(ValueError, match=r"dataset must (end in .csv|be a Hub id or a folder, got the file)"):
                load_one_split("dataset", named)
    assert hub.requests == []


def test_a_folder_is_read_whatever_it_is_called(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "csv" / "test.csv", "of the folder")  # not all that is csv here
    write(tmp_path / "other.csv", "of another")
    assert load_one_split("dataset", "csv")["text"][:] == ["of the folder"]
    write(tmp_path / "data1" / "test.csv", "of another")
    write(tmp_path / "data[1]" / "test.csv", "of the folder")
    write(tmp_path / "::b" / "test.csv", "of the folder")
    for name in ("data[1]", "::b"):
        with pytest.raises(
            ValueError, match=rf"dataset must be a folder without .* in its path, .*{re.escape(name)}'"
        ):
            load_one_split("dataset", name)
    assert hub.requests == []


def test_a_file_that_changed_is_read_anew(tmp_path):
    file = tmp_path / "rows.csv"
    write(file, "first")
    first = load_file("train_file", file)
    assert load_file("train_file", file).cache_files == first.cache_files  # prepared once
    write(file, "second")
    assert load_file("train_file", file)["text"][:] == ["second"] and first["text"][:] == ["first"]


def test_places():
    assert dataset_location("dataset", "glue:sst2:dev", None, "test") == DatasetLocation("glue", "sst2", "dev")
    assert dataset_location("dataset", "glue:sst2", "train", "test") == DatasetLocation("glue", "sst2", "train")
    assert dataset_location("dataset", "imdb", None, "test") == DatasetLocation("imdb", "", "test")
    file = dataset_location("dataset", "rows.csv", None, "test")
    assert file.path.endswith("/rows.csv") and file.split == ""
    with pytest.raises(InputError, match=r"got the file 'rows.csv'"):
        dataset_location("dataset", "rows.csv", "test", "test")


def test_a_folder_may_have_colons(tmp_path):
    folder = tmp_path / "C:data"
    folder.mkdir()
    (folder / "test.csv").write_text("text,label\na,0\nb,1\n")
    for name in (str(folder), f"{folder}::test", f"{folder}:default:test"):
        assert dataset_location("dataset", name, None, "test").path == str(folder)
        assert load_one_split("dataset", name)["text"][:] == ["a", "b"]
    assert dataset_location("dataset", f"{folder}:default", None, "test") == DatasetLocation(
        str(folder), "default", "test"
    )


def test_splits_are_loaded_from_files_and_the_digits(tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("words,label\nA small text.,1\nAnother.,0\n")
    assert load_one_split("out", str(file))["words"][:] == ["A small text.", "Another."]
    assert len(load_one_split("out", "digits")) == 500
    with pytest.raises(FileNotFoundError, match="out must be an existing file"):
        load_one_split("out", str(tmp_path / "none.csv"))
    with pytest.raises(ValueError, match="out must be a file, or a dataset"):
        load_one_split("out", "a:b:c:d")
    with pytest.raises(
        ValueError, match="the split of out 'digits' must be one of train, validation, test, got 'dev'"
    ):
        load_one_split("out", "digits", "dev")
