"""What reports call a model."""

from hf_focal.losses.loss_config import known_loss
from hf_focal.sources.model_names import loss_of, public_name


def test_a_model_without_a_loss_has_its_name():
    assert loss_of("org/name") == "name"
    # Only a report says what a model was trained with.
    assert loss_of("org/brier") == "model brier" and known_loss("model brier") is None
    assert loss_of("org/focal:gamma=3") == "model focal:gamma=3" and known_loss("model focal:gamma=3") is None


def test_a_path_is_published_by_its_last_part(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert public_name(str(tmp_path / "org" / "name")) == "name"
    assert public_name("org/name") == "org/name"
    (tmp_path / "org" / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert public_name("./org/model/") == loss_of("org/model") == "org/model"  # "model" says nothing
    assert public_name(str(tmp_path / "org" / "model")) == "model"
    monkeypatch.chdir(tmp_path / "org" / "name")
    assert public_name(".") == public_name("../name/") == "name"
