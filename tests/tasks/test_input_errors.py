"""One-line errors of what a user names."""

import pytest

from hf_focal import InputError
from hf_focal.tasks.dataset_loading import load_one_split
from hf_focal.tasks.input_errors import as_input_errors


def test_what_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "ragged").mkdir()
    (tmp_path / "ragged" / "test.csv").write_text("text,label\na,x\nb,y,z\n")
    for name, split, message in (
        (tmp_path / "none.xlsx", "test", "dataset must be an existing folder or a Hub id, got '.*none.xlsx'$"),
        (tmp_path / "ragged", "test", "dataset '.*ragged' cannot be loaded: .*Expected 2 fields in line 3, saw 3"),
    ):
        with pytest.raises(InputError, match=message), as_input_errors("dataset", str(name)):
            load_one_split("dataset", str(name), split)


def test_every_error_of_loading_is_one_of_the_user():
    message = r"^dataset 'x.csv' cannot be loaded: ZeroDivisionError: division by zero$"
    with pytest.raises(InputError, match=message), as_input_errors("dataset", "x.csv"):
        _ = 1 / 0
    with pytest.raises(InputError, match=r"^text_column must be x$"), as_input_errors("dataset", "x.csv"):
        raise InputError("text_column", "must be x")
    with pytest.raises(InputError, match=r"^model 'x' cannot be loaded: one two$"), as_input_errors("model", "x"):
        raise ValueError("one\n  two")
    message = r"^model 'x' cannot be loaded: no file named model.safetensors in x$"
    with pytest.raises(InputError, match=message), as_input_errors("model", "x"):
        raise OSError("Error no file named model.safetensors in x")
