"""What reports and cards call a file or folder."""

import pytest

from hf_focal.utils.path_names import path_name


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
