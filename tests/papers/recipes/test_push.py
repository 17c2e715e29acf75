"""`--push_to_hub` of the recipes, on the smallest run there is."""

import ast
import json
import re

import pytest
from hub_server import READER
from huggingface_hub import ModelCard
from papers.runs.output_folders import folder_of
from recipe_modules import flags, import_recipe

from hf_focal.hub.hub_publishing import HubError
from hf_focal.losses import LossConfig

TEXTS = {
    "num_generated": 90,
    "validation_size": 40,
    "max_length": 20,
    "vocab_size": 200,
    "embedding_size": 4,
    "num_filters": 4,
    "num_layers": 1,
    "per_device_train_batch_size": 32,
}


@pytest.fixture(scope="module")
def recipe():
    return import_recipe("text_classification")


def line(folder, **options):
    values = TEXTS | {"output_dir": folder, "num_train_epochs": 1, "save_strategy": "epoch", "use_cpu": "true"}
    values |= {"disable_tqdm": "true", "push_to_hub": "true"} | options
    return flags(values)


@pytest.mark.slow
def test_each_run_of_a_comparison_is_published(hub, recipe, tmp_path, capsys, monkeypatch):
    argv = line(tmp_path / "texts", compare="flsd53,focal:gamma=1", hub_model_id="team/texts")
    results = recipe.main(argv)
    printed = capsys.readouterr().out
    assert set(hub.repositories) == {"team/texts-flsd53", "team/texts-focal-gamma-1"}
    for result, name in zip(results, ("texts-flsd53", "texts-focal-gamma-1"), strict=True):
        held = hub.repositories[f"team/{name}"]
        assert {"README.md", "config.json", "report/metrics.json", "report/reliability_after.png"} <= set(held)
        written = (folder_of(LossConfig.parse(result.loss), tmp_path / "texts") / "report").iterdir()
        assert {f"report/{path.name}" for path in written} <= set(held)  # nothing of it shows rows
        assert not [path for path, content in held.items() if str(tmp_path).encode() in content]
        config = json.loads(held["config.json"])
        assert config["calibration"]["temperature"] == result.temperature.value
        card = ModelCard(held["README.md"].decode())
        values = {entry.metric_name: entry.metric_value for entry in card.data.eval_results}
        assert values["ECE"] == pytest.approx(result.post["ece"])
        assert f'pipeline("text-classification", model="team/{name}")' in card.text
        assert "trained on a generated corpus" in card.text and card.data.datasets is None
        assert f"Published: {hub.url}/team/{name}\n" in printed
    # Once more: nothing is trained, and nothing that is there is sent again.
    commits = len(hub.commits)
    monkeypatch.setattr(recipe, "FocalTrainer", None)
    recipe.main(argv)
    assert len(hub.commits) == commits


def test_a_push_that_fails_after_the_training_keeps_the_run(hub, recipe, tmp_path, monkeypatch):
    argv = line(tmp_path / "texts", hub_strategy="end")
    hub.cut = 6
    with pytest.raises(SystemExit) as caught:
        recipe.main(argv)
    assert "the upload to 'me/texts' failed" in str(caught.value.code) and "hf upload me/texts" in caught.value.code
    assert (tmp_path / "texts" / "report" / "metrics.json").is_file() and (tmp_path / "texts" / "README.md").is_file()
    monkeypatch.setattr(recipe, "FocalTrainer", None)
    recipe.main(argv)
    assert "model.safetensors" in hub.repositories["me/texts"]


def test_without_the_flag_the_card_is_there_and_its_code_runs(hub, recipe, tmp_path, monkeypatch, capsys):
    recipe.main(line(tmp_path / "texts", push_to_hub="false"))
    assert hub.requests == []
    card = ModelCard.load(tmp_path / "texts" / "README.md")
    code = re.search(r"## Use\n\n```python\n(.*?)```", card.text, flags=re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec(compile(code.replace("your-username/", ""), "README.md", "exec"), {})
    scores = ast.literal_eval(capsys.readouterr().out)
    assert len(scores) > 1 and sum(score["score"] for score in scores) == pytest.approx(1)
    # Published later, the card names the repository.
    monkeypatch.setattr(recipe, "FocalTrainer", None)
    recipe.main(line(tmp_path / "texts"))
    assert 'model="me/texts"' in hub.repositories["me/texts"]["README.md"].decode()


def test_who_may_not_push_is_told_before_the_training(hub, recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", READER)
    monkeypatch.setattr(recipe, "FocalTrainer", None)
    with pytest.raises(HubError, match=r"no permission to write there.*; without --push_to_hub nothing is published"):
        recipe.main(line(tmp_path / "texts"))
