"""What `hub_strategy` pushes while a model is trained: the model, and never a token, a path or a row of the data."""

import pickle

import pytest
import torch
from hub_server import READER, WRITER
from papers.runs.output_folders import claim_output_dir
from safetensors.torch import load
from tiny_models import rows, settings, tiny_bert

from hf_focal.trainer import FocalTrainer, FocalTrainingArguments
from hf_focal.utils.folder_lock import unlock_all

MODEL = {"config.json", "model.safetensors"}


def trained(folder, **options) -> FocalTrainer:
    """A trainer that has trained two epochs, of which each is saved, in a folder with what is nobody's business."""
    claim_output_dir(folder, {"train_file": str(folder / "train.csv")})
    unlock_all()
    (folder / "train_texts.csv").write_text("text,label\n")
    (folder / ".env").write_text("HF_TOKEN=hf_writer")
    pushes = {"push_to_hub": True, "hub_model_id": "me/model", "hub_token": WRITER, "hub_always_push": True}
    values = settings(folder, num_train_epochs=2, save_strategy="epoch") | pushes | options
    trainer = FocalTrainer(tiny_bert(), FocalTrainingArguments(**values), train_dataset=rows(16))
    trainer.train()
    return trainer


def pushed(hub) -> set[str]:
    """All that was ever committed: what is removed later stays in the history."""
    return {path for _, _, paths in hub.commits for path in paths}


def test_what_is_pushed_is_the_model(hub, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    trainer = trained(tmp_path / "model", hub_strategy="every_save", save_total_limit=1)
    assert pushed(hub) == MODEL
    assert [summary for _, summary, _ in hub.commits] == [f"Training in progress, step {step}" for step in (2, 4)]
    weights = load(hub.repositories["me/model"]["model.safetensors"])
    assert all(torch.equal(weights[name], weight) for name, weight in trainer.model.state_dict().items())
    assert not list((tmp_path / "model").glob("_push-*"))


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_the_state_of_a_training_is_not_pushed(tmp_path, strategy):
    with pytest.raises(ValueError, match=f"hub_strategy must be 'end' or 'every_save', .* got '{strategy}'"):
        FocalTrainingArguments(str(tmp_path), hub_strategy=strategy)


def test_no_file_of_a_run_holds_the_token(hub, tmp_path):
    trainer = trained(tmp_path / "model", hub_strategy="every_save")
    trainer.push_to_hub(test_dataset=rows(12))
    (tmp_path / "model" / ".env").unlink()
    written = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {"training_args.bin", "trainer_state.json", "README.md"} <= {path.name for path in written}
    assert not [path for path in written if WRITER.encode() in path.read_bytes()]
    saved = torch.load(tmp_path / "model" / "training_args.bin", weights_only=False)
    assert saved.hub_token is None and saved.hub_model_id == "me/model"
    assert trainer.args.hub_token == WRITER


def test_arguments_are_pickled_without_a_token(tmp_path):
    args = FocalTrainingArguments(**settings(tmp_path, hub_token=WRITER, learning_rate=0.25))
    content = pickle.dumps(args)
    assert WRITER.encode() not in content
    assert pickle.loads(content).learning_rate == 0.25 and args.hub_token == WRITER


def test_a_push_that_fails_does_not_end_the_training(hub, tmp_path, caplog):
    pushes = {"save_strategy": "epoch", "push_to_hub": True, "hub_strategy": "every_save"}
    args = FocalTrainingArguments(**settings(tmp_path / "model", **pushes))
    trainer = FocalTrainer(tiny_bert(), args, train_dataset=rows(16))
    args.hub_token = READER
    trainer.train()
    assert "the upload to 'me/model' failed: the token has no permission" in caplog.text and hub.commits == []
    assert (tmp_path / "model" / "checkpoint-2" / "model.safetensors").is_file()
