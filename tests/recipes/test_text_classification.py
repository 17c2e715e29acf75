"""The text classification recipe from its command line to its report, on tiny networks."""

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    TrainerCallback,
)

from hf_focal import FocalTrainer, LossConfig, Temperature
from hf_focal.data import generate_topics, train_word_tokenizer
from hf_focal.reports import RunResult

PATH = Path(__file__).parents[2] / "recipes" / "text_classification.py"
REPORT = {"metrics.json", "table.md", "loss.yaml", "reliability_before.png", "reliability_after.png"}


def import_recipe():
    spec = importlib.util.spec_from_file_location("text_classification_recipe", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


recipe = import_recipe()


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    values = {
        "output_dir": folder,
        "num_generated": 120,
        "validation_size": 60,
        "max_length": 40,
        "vocab_size": 300,
        "embedding_size": 8,
        "num_filters": 8,
        "num_layers": 1,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 32,
        "learning_rate": "1e-2",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    given = [(name, str(value)) for name, value in values.items() if value is not None]
    return recipe.main([part for name, value in given for part in (f"--{name}", value)])


def strict_json(path):
    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


class NoTrainer:
    def __init__(self, *args, **kwargs):
        raise AssertionError("a finished run was started again")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two losses compared, with what the first run's trainer predicted last: the logits of the test texts."""
    folder, predicted = tmp_path_factory.mktemp("compared"), []

    class Recording(FocalTrainer):
        def predict(self, *args, **kwargs):
            predicted.append(super().predict(*args, **kwargs))
            return predicted[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "FocalTrainer", Recording)
        results = run(folder, compare="cross_entropy,focal:gamma=3")
    logits = {"cross_entropy": predicted[1].predictions, "focal_gamma_3": predicted[3].predictions}
    return SimpleNamespace(folder=folder, results=results, logits=logits)


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    assert [result.loss for result in compared.results] == ["cross_entropy", "focal:gamma=3"]
    for result, name in zip(compared.results, ("cross_entropy", "focal_gamma_3"), strict=True):
        report = compared.folder / name / "report"
        assert {path.name for path in report.iterdir()} == REPORT
        assert strict_json(report / "metrics.json")["pre"]["ece"] == result.pre["ece"]
        assert result.pre["num_samples"] == 120
        assert result.true_calibration_error is not None
        assert LossConfig.parse(str(report / "loss.yaml")) == LossConfig.parse(result.loss)
        assert imread(report / "reliability_before.png").std() > 0.1
        assert Temperature.load(compared.folder / name / "temperature.json") == result.temperature
    rows = (compared.folder / "report" / "table.md").read_text().strip().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| cross_entropy", "| focal:gamma=3"]
    assert imread(compared.folder / "report" / "comparison.png").std() > 0.1


@pytest.mark.parametrize("name", ["cross_entropy", "focal_gamma_3"])
def test_the_saved_model_is_calibrated_for_everyone_who_loads_it(compared, name):
    model = AutoModelForSequenceClassification.from_pretrained(compared.folder / name).eval()
    tokenizer = AutoTokenizer.from_pretrained(compared.folder / name)
    result = RunResult.load(compared.folder / name / "report" / "metrics.json")
    test = recipe.load_data(recipe.DataArguments(num_generated=120, validation_size=60), seed=42)["test"]
    batch = tokenizer(test["text"][:], truncation=True, max_length=40, padding=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**batch).logits.double().softmax(1)
    scaled = torch.from_numpy(compared.logits[name]).double() / result.temperature.value
    torch.testing.assert_close(probabilities, scaled.softmax(1), rtol=0, atol=1e-6)
    nll = -probabilities[torch.arange(120), test["label"][:]].log().mean()
    assert nll.item() == pytest.approx(result.post["nll"], abs=1e-5)
    assert model.config.calibration["temperature"] == result.temperature.value
    assert model.config.id2label[3] == "topic 3"


def test_finished_runs_are_reused_and_others_refused(compared, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    again = run(compared.folder, compare="cross_entropy,focal:gamma=3", logging_steps=7)
    assert [result.pre["ece"] for result in again] == [result.pre["ece"] for result in compared.results]
    assert "| focal:gamma=3 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"other settings \(learning_rate: 0.01 there, 0.1 now\)"):
        run(compared.folder, compare="cross_entropy", learning_rate=0.1)
    with pytest.raises(ValueError, match=r"other settings .*data: .*'num_generated': 120.*'num_generated': 130"):
        run(compared.folder, compare="cross_entropy", num_generated=130)


class Interrupt(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


class InterruptedTrainer(FocalTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs, callbacks=[Interrupt()])


def test_an_interrupted_run_goes_on_where_it_was(compared, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "FocalTrainer", InterruptedTrainer)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, loss="focal:gamma=3")
    saved_at = (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns
    assert not (tmp_path / "report").exists()
    (resumed,) = run(tmp_path, loss="focal:gamma=3")
    assert (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns == saved_at
    whole = compared.results[1]
    assert resumed.pre == pytest.approx(whole.pre, rel=0, abs=0, nan_ok=True)
    assert resumed.temperature == whole.temperature
    steps = [entry["step"] for entry in strict_json(tmp_path / "trainer_state.json")["log_history"]]
    assert steps == sorted(steps)
    assert steps[-1] == 8


def test_a_run_whose_report_is_missing_writes_it_without_training_again(tmp_path, monkeypatch):
    def fail(folder, result):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(recipe, "write_report", fail)
        with pytest.raises(OSError, match="disk full"):
            run(tmp_path, loss="brier")
    before = AutoModelForSequenceClassification.from_pretrained(tmp_path).state_dict()
    trained_at = (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns
    (result,) = run(tmp_path, loss="brier")
    assert (tmp_path / "report" / "metrics.json").exists()
    assert (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns == trained_at
    after = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for name, value in after.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert after.config.calibration["temperature"] == result.temperature.value


def write_csv(path, size, seed, before=""):
    topics = generate_topics(size, seed=seed, num_topics=3)
    names = topics.features["label"].names
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "topic"])
        writer.writerows(
            [before + text, names[label]] for text, label in zip(topics["text"], topics["label"], strict=True)
        )
    return path


def test_files_with_labels_in_words_and_headers_to_strip(tmp_path):
    header = "Organization: secretword\n\n"
    files = {
        "train_file": write_csv(tmp_path / "train.csv", 90, 0, header),
        "test_file": write_csv(tmp_path / "test.csv", 50, 1, header),
    }
    options = files | {"text_column": "body", "label_column": "topic", "validation_size": 30, "num_train_epochs": 1}
    (result,) = run(tmp_path / "stripped", **options, strip="headers")
    assert (result.pre["num_samples"], result.true_calibration_error) == (50, None)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "stripped")
    assert model.config.id2label == {0: "topic 0", 1: "topic 1", 2: "topic 2"}
    assert "secretword" not in AutoTokenizer.from_pretrained(tmp_path / "stripped").get_vocab()
    run(tmp_path / "whole", **options)
    assert "secretword" in AutoTokenizer.from_pretrained(tmp_path / "whole").get_vocab()
    with pytest.raises(ValueError, match="strip must name some of headers, footers, quotes, or be 'none', got 'foot'"):
        run(tmp_path / "error", **options, strip="headers,foot")
    with pytest.raises(ValueError, match="test_file must be given"):
        run(tmp_path / "error", **options | {"test_file": None})
    assert not (tmp_path / "error").exists()


def test_a_local_encoder_is_fine_tuned(tmp_path):
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer(generate_topics(50)["text"][:], 200, 40)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)
    encoder = BertModel(config)  # no head, as most encoders come
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    (result,) = run(tmp_path / "out", model_name_or_path=tmp_path / "encoder", num_train_epochs=1, loss="flsd53")
    tuned = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert isinstance(tuned, BertForSequenceClassification)
    assert tuned.config.num_labels == 10
    assert result.details["num_parameters"] == tuned.num_parameters()
    moved = tuned.bert.embeddings.word_embeddings.weight - encoder.embeddings.word_embeddings.weight
    assert moved.abs().max() > 1e-3


def test_a_config_file_under_the_command_line(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("loss: {name: focal, gamma: 2}\nlearning_rate: 1e-3\nnum_train_epochs: 5\n", encoding="utf-8")
    (result,) = run(tmp_path / "out", config=config, learning_rate=None, num_train_epochs=1)
    settings = strict_json(tmp_path / "out" / "run.json")
    assert (result.loss, settings["loss"]) == ("focal:gamma=2", "focal:gamma=2")
    assert (settings["learning_rate"], settings["num_train_epochs"]) == (0.001, 1)


@pytest.mark.parametrize("name", sorted((PATH.parent / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_holds_arguments_of_the_recipe(name):
    kinds = (recipe.DataArguments, recipe.ModelArguments, recipe.RecipeArguments, recipe.FocalTrainingArguments)
    parsed = recipe.parse_arguments(kinds, ["--config", str(name), "--use_cpu", "true"])
    assert parsed[1].model_name_or_path == "gp_cnn"


def test_real_newsgroups(real_data, tmp_path):
    files = {f"{split}_file": real_data / "newsgroups" / f"{split}.parquet" for split in ("train", "test")}
    sizes = {"max_length": 20, "vocab_size": 500, "embedding_size": 4, "num_filters": 4, "validation_size": 900}
    (result,) = run(tmp_path, **files, **sizes, max_steps=2, eval_strategy="no", save_strategy="no")
    assert result.pre["num_samples"] == 7532
    assert {path.name for path in (tmp_path / "report").iterdir()} == REPORT
    bins = result.pre_bins
    assert bins.count.sum() == 7532
    assert np.nansum(bins.count * bins.accuracy) / 7532 == pytest.approx(result.pre["accuracy"], abs=1e-12)
