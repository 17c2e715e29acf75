"""Publishing to a Hub: what arrives there, and what is said and kept where it does not."""

import huggingface_hub
import pytest
from hub_server import READER, WRITER

from hf_focal.hub.hub_publishing import HubError, create_repository, publish

constants = huggingface_hub.constants


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    for name in ("config.json", "README.md", "report/table.md", "run.json", "training_args.bin", "checkpoint-1/x"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return folder


def held(hub, name="me/model"):
    return {path: content.decode() for path, content in hub.repositories[name].items() if path != ".gitattributes"}


PUBLISHED = {name: f"content of {name}" for name in ("config.json", "README.md", "report/table.md")}


def test_a_folder_is_published(hub, folder):
    commit = publish(folder, "model", commit_message="A model")
    assert str(commit.repo_url) == f"{hub.url}/me/model"
    assert held(hub) == PUBLISHED
    assert [commit[:2] for commit in hub.commits] == [("me/model", "A model")]
    (folder / "config.json").write_text("another")
    publish(folder, "me/model")  # what is there
    assert held(hub) == {**PUBLISHED, "config.json": "another"}
    assert hub.commits[1][2] == ["config.json"]


def test_the_token_may_be_given(hub, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    publish(folder, "team/model", token=WRITER)
    assert held(hub, "team/model") == PUBLISHED


@pytest.mark.parametrize("problem", ["cut", "broken"])
def test_an_upload_that_breaks_off_is_tried_again(hub, folder, problem):
    setattr(hub, problem, 2)
    publish(folder, "model")
    assert held(hub) == PUBLISHED and len(hub.commits) == 1
    assert getattr(hub, problem) == 0


@pytest.mark.parametrize(("problem", "reason"), [("cut", "cannot be reached or broke off"), ("broken", "502|Gateway")])
def test_an_upload_that_keeps_breaking_off_ends_in_one_line(hub, folder, problem, reason):
    setattr(hub, problem, 6)
    with pytest.raises(HubError, match=f"the upload to 'me/model' failed: .*({reason})") as caught:
        publish(folder, "model")
    message = str(caught.value)
    assert "\n" not in message and f"hf upload me/model {folder} . '--exclude=_*'" in message
    assert hub.commits == [] and (folder / "config.json").is_file()
    publish(folder, "model")  # and by and by it works
    assert held(hub) == PUBLISHED


@pytest.mark.parametrize(
    ("token", "reason"),
    [(None, "log in with `hf auth login`, or set HF_TOKEN"), (READER, "the token has no permission to write there")],
)
def test_who_may_not_write_is_told_what_to_do(hub, folder, monkeypatch, token, reason):
    monkeypatch.delenv("HF_TOKEN")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError, match=f"'me/model' could not be created: .*{reason}.* the model is in"):
        publish(folder, "me/model")
    assert hub.repositories == {}


def test_a_wrong_id_is_an_error_and_asks_nothing(hub, folder):
    with pytest.raises(HubError, match="the id must be 'name' or 'user/name'"):
        publish(folder, "me/model/x")
    assert hub.commits == []


def test_a_hub_that_is_not_there(folder, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with pytest.raises(HubError, match=r"the Hub, http://127\.0\.0\.1:9, cannot be reached"):
        create_repository("model")


def test_offline_mode_is_no_riddle(folder):
    with pytest.raises(HubError, match=r"could not be created: .*offline"):
        publish(folder, "me/model")


def test_a_folder_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="folder must be an existing folder, got 'nowhere'"):
        publish("nowhere", "me/model")
