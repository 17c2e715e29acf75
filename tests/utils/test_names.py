"""Names of data that are read again, and what a path is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_focal.utils.names import DataName, path_name


@given(st.text(), st.none() | st.text())
def test_a_name_and_its_split_are_read_back(name, split):
    data = DataName("test_dataset", name, split)
    assert DataName.parse(str(data)) == data


def test_names_have_the_form_that_results_show():
    assert str(DataName("dataset", "a.csv")) == "dataset 'a.csv'"
    assert str(DataName("dataset", "org/d", "dev")) == "split 'dev' of dataset 'org/d'"
    assert DataName.parse('dataset "it\'s.csv"') == ("dataset", "it's.csv", None)


@pytest.mark.parametrize("text", ["june.csv", "", "scores", "dataset 'a'b'", "dataset '\\x'", "split 'a' of b"])
def test_other_texts_are_no_names(text):
    assert DataName.parse(text) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("out/reviews", "reviews"),
        ("runs/nli/model", "nli/model"),
        ("./nli/checkpoint-500/", "nli/checkpoint-500"),
        ("nli\\best_model", "nli/best_model"),
        ("model", "model"),
        ("../model", "model"),
        ("~/model", "model"),
        ("/home/me/model", "model"),
        ("C:\\me\\model", "model"),
        ("nli/model.csv", "model.csv"),
        ("remodel/models", "models"),
    ],
)
def test_a_name_that_says_nothing_has_the_folder_that_was_typed_before_it(path, name):
    assert path_name(path) == name


def test_the_current_folder_has_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "reviews" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "reviews")
    assert path_name(".") == "reviews" and path_name("model/..") == "reviews"
