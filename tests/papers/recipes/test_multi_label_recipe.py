"""The recipes for texts and images with several labels, from command line to report, and the page of their runs."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, List
from papers.data.generated_shapes import SHAPE_NAMES, generate_shapes
from papers.data.generated_topic_sets import generate_topic_sets
from papers.pages import multi_label as page
from papers.pages.records import read_records
from PIL import Image
from recipe_modules import flags, import_recipe
from transformers import (
    AutoConfig,
    AutoTokenizer,
    ConvNextConfig,
    ConvNextForImageClassification,
    ConvNextImageProcessorPil,
    pipeline,
)

from hf_focal import Temperature
from hf_focal.reports import RunResult

recipe = import_recipe("text_classification")
image_recipe = import_recipe("image_classification")
labels_of_groups = import_recipe("label_newsgroups")


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    values = {
        "output_dir": folder,
        "multi_label": "true",
        "num_generated": 120,
        "validation_size": 60,
        "max_length": 40,
        "vocab_size": 300,
        "embedding_size": 8,
        "num_filters": 8,
        "num_layers": 1,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 32,
        "learning_rate": "1e-2",
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return recipe.main(flags(values))


def test_a_run_reports_what_each_temperature_changes(tmp_path, capsys):
    (result,) = run(tmp_path / "out", loss="class_balanced")
    report = tmp_path / "out" / "report"
    assert RunResult.load(report / "metrics.json").temperature == result.temperature
    assert Temperature.load(tmp_path / "out" / "temperature.json") == result.temperature
    assert len(result.temperature.values) == 8 and result.pre["num_entries"] == 960
    before, one, own = result.details["true_errors"]
    assert result.true_calibration_error == (before["ece"], own["ece"])
    assert result.details["one_temperature"]["nll"] != result.post["nll"]
    printed = capsys.readouterr().out
    assert "Before → after one T → after one T per label:" in printed
    shown = " → ".join(f"{100 * errors['macro_ece']:.2f}" for errors in (before, one, own))
    assert f"| {shown} |" in printed and f"| {result.temperature:.2f} |" in printed
    assert "| topic 7 |" in (report / "table.md").read_text(encoding="utf-8")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| topic 7 |" in card and "(report/reliability_labels.png)" in card
    assert "480 labels of the validation split" in card
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert config.problem_type == "multi_label_classification" and config.id2label[7] == "topic 7"


def test_files_with_unknown_labels_and_no_known_posterior(tmp_path):
    for seed, name in enumerate(("train", "test")):
        texts = generate_topic_sets(90, num_topics=2, seed=seed)
        columns = {"text": texts["text"][:]} | {f"t{k}": [row[f"topic {k}"] for row in texts["label"]] for k in (0, 1)}
        columns["t1"][::10] = [None] * 9
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}.parquet")
    files = {f"{name}_file": tmp_path / f"{name}.parquet" for name in ("train", "test")}
    (result,) = run(tmp_path / "out", **files, label_column="t0,t1", temperature_objective="ece", max_length=120)
    assert result.true_calibration_error is None and result.pre["num_entries"] == 90 + 81
    assert result.temperature.objective == "ece" and result.temperature.values == ()
    assert result.parts.labels.name == ["t0", "t1"]
    scores = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)("ba be")[0]
    assert {score["label"] for score in scores} == {"t0", "t1"}
    assert AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 120


def shapes_in_images(folder, as_lists):
    """Files of images of 32 pixels, whose labels are the shapes in them: lists, or columns with an unknown label."""
    files = {}
    for seed, (name, count) in enumerate({"train": 120, "test": 60}.items()):
        samples = generate_shapes(count, size=32, noise=10.0, seed=seed)
        masks = [np.asarray(Image.open(io.BytesIO(mask["bytes"]))) for mask in samples["mask"]]
        sets = [[int(label) - 1 for label in np.unique(mask) if label] for mask in masks]
        samples = samples.remove_columns("mask")
        if as_lists:
            samples = samples.add_column("shapes", sets).cast_column("shapes", List(ClassLabel(names=SHAPE_NAMES[1:])))
        else:
            for label, shape in enumerate(SHAPE_NAMES[1:4]):
                column = [None if row == 0 else int(label in own) for row, own in enumerate(sets)]
                samples = samples.add_column(shape, column)
        files[f"{name}_file"] = folder / f"{name}.parquet"
        samples.to_parquet(files[f"{name}_file"])
    return files


def run_on_images(folder, **options):
    values = {
        "output_dir": folder,
        "multi_label": "true",
        "validation_size": 40,
        "image_size": 32,
        "model_name_or_path": "cifar_resnet8",
        "num_train_epochs": 1,
        "per_device_train_batch_size": 16,
        "learning_rate": "1e-2",
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return image_recipe.main(flags(values))


READ = """
import json, sys
from PIL import Image
from transformers import pipeline
classify = pipeline("image-classification", model=sys.argv[1], top_k=10, device="cpu")
scored = classify([Image.open(path) for path in sys.argv[2:]])
scores = [{score["label"]: score["score"] for score in of_image} for of_image in scored]
assert "hf_focal" not in sys.modules
print(json.dumps(scores))
"""


def test_a_fine_tuned_image_model_is_calibrated_in_a_fresh_process_without_hf_focal(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    sizes = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "num_labels": 3}
    ConvNextForImageClassification(ConvNextConfig(**sizes)).save_pretrained(tmp_path / "model")
    ConvNextImageProcessorPil(size={"shortest_edge": 32}).save_pretrained(tmp_path / "model")
    predicted = []

    class Recording(image_recipe.ImageClassifierTrainer):
        def predict(self, *args, **kwargs):
            predicted.append(super().predict(*args, **kwargs))
            return predicted[-1]

    monkeypatch.setattr(image_recipe, "ImageClassifierTrainer", Recording)
    files = shapes_in_images(tmp_path, as_lists=True)
    options = files | {"model_name_or_path": tmp_path / "model", "image_size": None, "label_column": "shapes"}
    (result,) = run_on_images(tmp_path / "out", **options, max_train_samples=64)
    assert result.pre["num_entries"] == 60 * 5
    assert "Before → after one T → after one T per label:" in capsys.readouterr().out

    logits, labels = torch.from_numpy(predicted[0].predictions), predicted[0].label_ids
    test = Dataset.from_parquet(str(files["test_file"]))
    assert labels.tolist() == [[float(label in own) for label in range(5)] for own in test["shapes"]]
    temperature, folder = result.temperature, tmp_path / "out"
    assert len(temperature.values) == 5 and Temperature.load(folder / "temperature.json") == temperature
    assert "| triangle |" in (folder / "report" / "table.md").read_text(encoding="utf-8")
    paths = []
    for number, image in enumerate(test["image"][:3]):
        paths.append(str(tmp_path / f"{number}.png"))
        Path(paths[-1]).write_bytes(image["bytes"])
    command = [sys.executable, "-c", READ, str(folder), *paths]
    printed = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    found = [[scores[name] for name in SHAPE_NAMES[1:]] for scores in json.loads(printed)]
    torch.testing.assert_close(
        torch.tensor(found), temperature.correction.apply(logits[:3]).sigmoid(), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "multi_label must come with dataset_name or files, got neither: a digit has one label"),
        ({"calibration": "vector"}, "calibration, with multi_label, must be one of temperature, got 'vector'"),
        ({"max_train_samples": 2}, "max_train_samples must be at least 3, the number of classes, got 2"),
    ],
)
def test_what_images_with_several_labels_cannot_have(options, message, tmp_path):
    if options:
        options = options | shapes_in_images(tmp_path, as_lists=False) | {"label_column": "square,disc,triangle"}
    with pytest.raises(ValueError, match=message):
        run_on_images(tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("group", "labels"), [("rec.sport.hockey", ["rec", "sport", "rec or sci"]), ("alt.atheism", ["alt", "atheism"])]
)
def test_the_labels_of_a_newsgroup(group, labels):
    assert labels_of_groups.labels_of(group) == labels


def test_from_posts_to_the_page(tmp_path, monkeypatch):
    groups, rng = ["rec.autos", "rec.sport.hockey", "sci.space", "talk.religion.misc"], np.random.default_rng(0)
    words = np.array(["engine", "goal", "orbit", "faith"])
    for name, count in (("train", 160), ("test", 80)):
        drawn = rng.integers(4, size=count)
        posts = [f"From: me\n\n{words[k]} {words[rng.integers(4)]} {number}\n" for number, k in enumerate(drawn)]
        columns = {"text": posts, "group": [groups[k] for k in drawn]}
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}_posts.parquet")
    files = [str(tmp_path / f"{name}_posts.parquet") for name in ("train", "test")]
    labels_of_groups.main([*files, "--output_dir", str(tmp_path / "labels")])
    options = {f"{name}_file": tmp_path / "labels" / f"{name}.parquet" for name in ("train", "test")}
    for seed in (1, 2):
        run(tmp_path / "runs" / f"s{seed}", **options, label_column="labels", seed=seed, loss="focal:gamma=2")
    monkeypatch.setattr(page, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.PAGE.write_text("By hand.\n<!-- runs -->\n\n<!-- /runs -->\n", encoding="utf-8")
    page.add_runs([tmp_path / "runs"])
    page.write_page()
    records = read_records(page.RUNS)
    assert [(record["loss"], record["seed"]) for record in records] == [("focal:gamma=2", 1), ("focal:gamma=2", 2)]
    assert records[0]["before"]["macro_ece"] > 0 and str(tmp_path) not in json.dumps(records)
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.startswith("By hand.") and "(focal:gamma=2: 2)" in text and "| rec or sci |" in text
    mean = np.mean([100 * record["after"]["macro_ece"] for record in records])
    assert f"{mean:.2f} ± " in text
