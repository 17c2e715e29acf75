"""Publishing to a Hub: what arrives there, and what is said and kept where it does not."""

import ast
import re
from pathlib import Path

import huggingface_hub
import pytest
import transformers
from hub_server import READER, WRITER

from hf_focal.hub.hub_publishing import HubError, create_repository, publish, published_files

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


@pytest.mark.parametrize(
    ("problem", "reason"), [("cut", "cannot be reached or broke the connection"), ("broken", "502|Gateway")]
)
def test_an_upload_that_keeps_breaking_off_ends_in_one_line(hub, folder, problem, reason):
    setattr(hub, problem, 6)
    with pytest.raises(HubError, match=f"the upload to 'me/model' failed: .*({reason})") as caught:
        publish(folder, "model")
    message = str(caught.value)
    assert (
        "\n" not in message and f"hf upload me/model {folder} . --include=README.md --include=config.json" in message
    )
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


@pytest.mark.parametrize("repo_id", ["", "..", "../..", "/tmp/x", "a/b/c", "a b"])
def test_ids_that_the_hub_has_not_are_refused_before_it_is_asked(hub, repo_id):
    with pytest.raises(HubError, match=f"the repository {repo_id!r} could not be created: "):
        create_repository(repo_id)
    assert not hub.repositories


def test_offline_mode_is_no_riddle(folder):
    with pytest.raises(HubError, match=r"could not be created: .*offline"):
        publish(folder, "me/model")


def test_a_folder_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="folder must be an existing folder with a model, got 'nowhere'"):
        publish("nowhere", "me/model")


# What a model is, and what belongs to it.
MODEL = (
    *("README.md", "config.json", "generation_config.json", "temperature.json", "adapter_config.json"),
    "correction.json",
    *("model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt", "chat_template.jinja"),
    *("preprocessor_config.json", "processor_config.json", "additional_chat_templates/tool_use.jinja"),
    *("report/metrics.json", "report/table.md", "report/loss.yaml", "report/reliability_after.png"),
    *("report/dynamics_train.png", "report/shots.md", "report/gamma.png"),
)
# What stays at home, besides each file of a training's state.
PRIVATE = (
    *(".env", "train_texts.csv", "notes.txt", "train.json", "secrets.py", "model.log", "all_results.json"),
    *(".private/config.json", "_push-1/config.json", "runs/Nov22/events.out.tfevents.1", "translations/test_T1.txt"),
    *("report/samples.md", "report/predictions.npz", "report/examples.png", "report/train_texts.csv"),
    *("report/patient_17.png", "checkpoint-6/model.safetensors", "checkpoint-6/config.json"),
)
STATE = ("training_args.bin", "run.json", "trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth")


def test_what_is_not_known_to_belong_to_a_model_stays_at_home(hub, tmp_path):
    others = [f"{folder}/{name}" for folder in ("best", "second/best") for name in MODEL]
    for name in (*MODEL, *PRIVATE, *STATE, *others, *(f"checkpoint-6/{name}" for name in STATE)):
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    publish(tmp_path / "model", "model")
    assert held(hub) == {name: name for name in MODEL}
    assert set(published_files(tmp_path / "model")) == set(held(hub))


def test_no_link_is_followed(tmp_path):
    model, away = tmp_path / "model", tmp_path / "away"
    for folder in (model, away):
        folder.mkdir()
        (folder / "config.json").write_text('{"auto_map": {"AutoModel": "code.Model"}}')
    (away / "table.md").write_text("of another run")
    (away / "code.py").touch()
    (model / "tokenizer.json").symlink_to(away / "config.json")
    (model / "code.py").symlink_to(away / "code.py")
    (model / "report").symlink_to(away)
    assert published_files(model) == ["config.json"]


def test_names_are_no_patterns(hub, folder):
    (folder / "vocab[1].json").write_text("asked for")
    (folder / "vocab1.json").write_text("too")
    (folder / "data1.json").write_text("not this")
    publish(folder, "model")
    assert held(hub) == {**PUBLISHED, "vocab[1].json": "asked for", "vocab1.json": "too"}


def test_a_folder_without_a_model_is_not_published(hub, tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n")
    with pytest.raises(FileNotFoundError, match="folder must be an existing folder with a model, got "):
        publish(tmp_path, "me/model")
    assert hub.requests == []


def test_the_code_of_a_model_goes_with_it(hub, folder):
    code = {
        "config.json": '{"auto_map": {"AutoConfig": "configuration_own.Own", "AutoModel": "other--away.Model"}}',
        "tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["tokenization_own.Slow", null]}}',
        "configuration_own.py": "from ._layers import x\n",
        "tokenization_own.py": "",
        "_layers.py": "x = 1\n",
    }
    for name, content in {**code, "away.py": "", "train.py": "TOKEN = 'hf_writer'"}.items():
        (folder / name).write_text(content)
    publish(folder, "model")
    assert held(hub) == PUBLISHED | code


def test_the_vocabularies_of_all_tokenizers_are_published(tmp_path):
    """What the classes of Transformers call their files."""
    sources = (Path(transformers.__file__).parent / "models").glob("*/tokenization_*.py")
    blocks = [re.search(r"VOCAB_FILES_NAMES = (\{.*?\})", path.read_text("utf-8"), re.DOTALL) for path in sources]
    names = {name for block in blocks if block for name in ast.literal_eval(block[1]).values()}
    assert {"vocab.txt", "spiece.model", "source.spm"} <= names
    for name in names:
        (tmp_path / name).touch()
    assert set(published_files(tmp_path)) == names


def test_what_an_earlier_push_leaked_is_taken_away(hub, folder):
    leaked = ("training_args.bin", "run.json", "best/training_args.bin", "second/run.json", "runs/Nov22/events")
    hub.repositories["me/model"] = dict.fromkeys((*leaked, "LICENSE"), b"")
    publish(folder, "me/model")
    assert held(hub) == {**PUBLISHED, "LICENSE": ""}
