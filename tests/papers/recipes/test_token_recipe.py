"""The recipe for token classification from its command line to its report, on a few generated sentences."""

import json

import pytest
import torch
from datasets import Dataset
from dense_recipes import command_line
from papers.data.generated_tags import TAG_NAMES, generate_tags
from recipe_modules import REPORT, NoTrainer, import_recipe
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from hf_focal import CalibrationMetrics, LossConfig
from hf_focal.metrics import ConfusionMatrix

recipe = import_recipe("token_classification")

# Networks that have learnt next to nothing.
pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
TINY = {"hidden_size": 16, "num_layers": 1, "per_device_train_batch_size": 20}


def run(folder, **options):
    return recipe.main(command_line(folder, **TINY | options))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    options = {"num_generated": 150, "validation_size": 40, "losses": "cross_entropy,class_balanced"}
    return folder, options, run(folder, **options)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Files with tags as strings; the arguments that name them."""
    folder = tmp_path_factory.mktemp("sentences")
    for number, (name, count) in enumerate((("train", 80), ("test", 30))):
        rows = generate_tags(count, seed=number)
        tags = [["O" if tag == 0 else TAG_NAMES[tag][2:] for tag in tags] for tags in rows["tags"]]
        tags = [["O" if tag in ("PROD", "EVENT") else tag for tag in row] for row in tags]
        Dataset.from_dict({"words": rows["tokens"], "ner": tags}).to_json(folder / f"{name}.jsonl")
    files = {f"{name}_file": folder / f"{name}.jsonl" for name in ("train", "test")}
    return files | {"token_column": "words", "tag_column": "ner", "num_train_epochs": 1}


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    folder, _, results = compared
    assert [result.loss for result in results] == ["cross_entropy", "class_balanced"]
    words = sum(map(len, generate_tags(150, seed=44)["tags"]))  # two seeds behind that of the training data
    for result in results:
        report = folder / LossConfig.parse(result.loss).name / "report"
        assert {path.name for path in report.iterdir()} >= REPORT | {"classes.md"}
        saved = json.loads((report / "metrics.json").read_text())
        assert saved["pre"]["macro_f1"] == result.pre["macro_f1"]
        assert saved["pre"]["num_samples"] == sum(saved["details"]["classes"]["count"]) == words
        assert saved["details"]["classes"]["name"] == list(TAG_NAMES)
    text = (folder / "report" / "classes.md").read_text()
    assert "| Class | share % | cross_entropy | class_balanced |" in text
    balanced, plain = (result.pre["mean_accuracy"] for result in reversed(results))
    assert balanced != plain


def test_the_saved_model_is_calibrated_for_everyone_who_loads_it(compared):
    folder, _, results = compared
    folder /= "cross_entropy"
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    metrics, confusion = CalibrationMetrics(), ConfusionMatrix()
    rows = generate_tags(150, seed=44)
    for words, tags in zip(rows["tokens"], rows["tags"], strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(words, is_split_into_words=True, return_tensors="pt")).logits[0]
        metrics.update(logits, torch.tensor(tags))
        confusion.update(logits, torch.tensor(tags))
    found = metrics.compute()
    for name in ("nll", "ece", "accuracy", "confidence"):
        assert found[name] == pytest.approx(results[0].post[name], abs=1e-5), name
    assert confusion.compute() == pytest.approx({name: results[0].pre[name] for name in confusion.compute()})
    tagged = pipeline("token-classification", model=str(folder), device="cpu")(" ".join(rows[0]["tokens"]))
    assert {word["entity"] for word in tagged} <= set(TAG_NAMES)


def test_a_model_is_fine_tuned_on_files_of_strings(compared, sentences, tmp_path):
    (result,) = run(tmp_path, **sentences, model_name_or_path=compared[0] / "cross_entropy", validation_size=20)
    assert result.details["classes"]["name"] == ["LOC", "O", "ORG", "PER"]
    saved = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert saved.config.calibration["temperature"] == result.temperature.value
    assert saved.config.num_labels == 4


def test_what_is_refused_before_anything_is_trained(sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    problems = [
        ({"test_file": None}, "test_file must be given, got None"),
        ({"model_name_or_path": "encoders"}, "did you mean 'encoder'"),
        ({"hidden_size": 20}, "hidden_size must be a multiple of 16, got 20"),
        ({"loss": "adafocal:bins=100000"}, "must hold at least 100000 words"),
    ]
    for number, (options, message) in enumerate(problems):
        with pytest.raises(ValueError, match=message):
            run(tmp_path / str(number), **sentences | options)
