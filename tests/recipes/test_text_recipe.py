"""The recipe for texts: the encoders of the Hub, the formats of labels, several losses, and resuming."""

import json

import pytest
from checkpoints import ENCODERS, save_encoder
from running import run, text_files
from transformers import AutoModelForSequenceClassification, pipeline

from hf_focal.cli.main import main

RECIPE = "text_classification"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_as_the_hub_has_them_get_a_head_of_five_classes(monkeypatch, tmp_path, name):
    files = text_files(tmp_path)
    folder = save_encoder(tmp_path / name, name)
    run(monkeypatch, RECIPE, model_name_or_path=folder, output_dir=tmp_path / "out", **files)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {i: f"class {i}" for i in range(5)}
    assert model.dtype.itemsize == 4  # also if the encoder was saved in half precision
    assert "temperature" in model.config.calibration
    answers = pipeline("text-classification", str(tmp_path / "out"))("the new art", top_k=None)
    assert sum(answer["score"] for answer in answers) == pytest.approx(1, abs=1e-5)
    assert (tmp_path / "out" / "report.html").is_file()
    assert "class" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "label_column", "names"),
    [
        ({"label": lambda i: [int(i % 2 == 0), int(i % 3 == 0), 1]}, "label", ["0", "1", "2"]),
        ({"label": lambda i: [[0], [1, 2], []][i % 3]}, "label", ["0", "1", "2"]),
        ({"label": lambda i: [["b"], ["a", "b"], []][i % 3]}, "label", ["a", "b"]),
        ({"rude": lambda i: i % 2, "long": lambda i: [0, 1, None][i % 3]}, "rude,long", ["rude", "long"]),
    ],
    ids=["multi-hot", "numbers", "names", "columns"],
)
def test_texts_may_have_several_labels(monkeypatch, tmp_path, encoder, columns, label_column, names):
    files = text_files(tmp_path, **columns)
    options = {"model_name_or_path": encoder, "output_dir": tmp_path / "out", "label_column": label_column}
    run(monkeypatch, RECIPE, **options, **files)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.problem_type == "multi_label_classification"
    assert list(model.config.id2label.values()) == names
    assert len(json.loads((tmp_path / "out" / "report" / "metrics.json").read_text())["temperature"]["values"]) == len(
        names
    )


@pytest.mark.slow
def test_pairs_a_validation_file_and_other_corrections(monkeypatch, tmp_path, encoder):
    files = text_files(tmp_path, other=lambda i: f"a {i} text")
    files["validation_file"] = str(tmp_path / "validation.jsonl")
    lines = (tmp_path / "test.jsonl").read_text().splitlines()
    (tmp_path / "validation.jsonl").write_text("\n".join(lines[:20]))
    (tmp_path / "test.jsonl").write_text("\n".join(lines[20:]))
    options = {"text_pair_column": "other", "method": "vector", "output_dir": tmp_path / "out"}
    run(monkeypatch, RECIPE, model_name_or_path=encoder, **options, **files)
    assert json.loads((tmp_path / "out" / "correction.json").read_text())["correction"]["method"] == "vector"


def test_each_loss_has_a_folder_and_the_report_compares_them(monkeypatch, tmp_path, encoder, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        "losses: [cross_entropy, 'mmce:lam=2,weighted=true', flsd53]\nmax_steps: 1\nlearning_rate: 5e-5\n"
    )
    options = {"config": config, "output_dir": tmp_path / "out", "num_train_epochs": 1}
    run(monkeypatch, RECIPE, model_name_or_path=encoder, **options, **text_files(tmp_path))
    folders = {"cross_entropy", "mmce_weighted_true", "flsd53"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == folders
    assert main(["report", str(tmp_path / "out"), "--output", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {loss} |" in printed for loss in ("cross_entropy", "mmce:weighted=true", "flsd53"))
    assert "flsd53: " in printed and " says " in printed and " texts; processes: 1" in printed
    assert "flsd" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_resumed_run_ends_like_one_that_was_not_interrupted(monkeypatch, tmp_path, encoder):
    files = text_files(tmp_path)
    options = {"model_name_or_path": encoder, "max_steps": 4, "save_strategy": "steps", "save_steps": 2, **files}
    run(monkeypatch, RECIPE, **options, losses="flsd53,brier", output_dir=tmp_path / "whole")
    cut = {"losses": "flsd53,brier", "output_dir": tmp_path / "cut", "resume_from_checkpoint": "true"}
    (tmp_path / "cut" / "flsd53").mkdir(parents=True)
    (tmp_path / "whole" / "flsd53" / "checkpoint-2").rename(tmp_path / "cut" / "flsd53" / "checkpoint-2")
    run(monkeypatch, RECIPE, **options, **cut)  # the second loss had not started
    for loss in ("flsd53", "brier"):
        whole, cut_metrics = (
            json.loads((tmp_path / name / loss / "report" / "metrics.json").read_text())["post"]
            for name in ("whole", "cut")
        )
        assert cut_metrics == whole


@pytest.mark.slow
def test_runs_are_published_with_their_cards(monkeypatch, tmp_path, encoder, hub):
    options = {"losses": "flsd53,brier", "push_to_hub": "true", "hub_model_id": "team/texts"}
    run(
        monkeypatch, RECIPE, model_name_or_path=encoder, output_dir=tmp_path / "out", **options, **text_files(tmp_path)
    )
    assert set(hub.repositories) == {"team/texts-flsd53", "team/texts-brier"}
    assert {"README.md", "config.json", "report/metrics.json"} <= set(hub.repositories["team/texts-brier"])
