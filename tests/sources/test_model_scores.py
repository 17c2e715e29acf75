"""What scores of a model keep, and which errors they leave as they are."""

import pytest
import trained_models

from hf_focal import InputError
from hf_focal.sources.model_opening import open_model
from hf_focal.sources.source import Data
from hf_focal.trainer import FocalTrainer


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return trained_models.build("texts", tmp_path_factory.mktemp("texts"))


def test_two_data_sets_have_notes_of_their_own_and_change_nothing_of_the_source(texts):
    options = {**texts.options, "max_length": 6}
    source, data = open_model(texts.folder, 15, **options), Data("data", str(texts.test))
    before = {*vars(source)}
    first, second = source.read(data), source.read(Data("reference", str(texts.train)))
    assert [part.notes[0].partition("texts of ")[2].partition(" are")[0] for part in (first, second)] == [
        "data 'test.parquet'",
        "reference 'train.parquet'",
    ]
    assert source.notes(None, {}) == []
    assert {*vars(source)} - before <= {"encoder", "max_length"}  # the model is not loaded to read data


@pytest.mark.parametrize("error", [ValueError, RuntimeError, OSError])
def test_an_error_while_the_model_runs_is_no_error_of_the_user(texts, error, monkeypatch):
    def broken(*_):
        raise error("a bug")

    source = open_model(texts.folder, 15, **texts.options)
    scores = source.read(Data("data", str(texts.test)))
    monkeypatch.setattr(FocalTrainer, "collect", broken)
    with pytest.raises(error, match="a bug") as caught:
        scores.collected()
    assert not isinstance(caught.value, InputError)
