"""The segmentation recipe from its command line to its report, on a few generated shapes."""

import io
import json
import sys

import numpy as np
import pytest
import torch
from dense_recipes import command_line
from papers.data.generated_shapes import SHAPE_NAMES, generate_shapes
from PIL import Image as PILImage
from recipe_modules import REPORT, NoTrainer, import_recipe
from transformers import (
    AutoImageProcessor,
    AutoModelForSemanticSegmentation,
    MobileViTConfig,
    MobileViTForSemanticSegmentation,
    MobileViTImageProcessorPil,
)

from hf_focal import CalibrationMetrics, LossConfig, Temperature
from hf_focal.metrics import ConfusionMatrix
from hf_focal.reports import RunResult

recipe = import_recipe("semantic_segmentation")

# Networks that have learnt next to nothing.
pytestmark = pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
NAMES = ",".join(SHAPE_NAMES)


def run(folder, **options):
    return recipe.main(command_line(folder, **options))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    options = {"num_generated": 16, "validation_size": 6, "compare": "cross_entropy,recall"}
    return folder, options, run(folder, **options)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Files of 14 and 5 pictures, whose mask is in the column "target"; the arguments that name them."""
    folder = tmp_path_factory.mktemp("shapes")
    for number, (name, count) in enumerate((("train", 14), ("test", 5))):
        split = generate_shapes(count, size=40, seed=number)
        split.rename_column("mask", "target").to_parquet(folder / f"{name}.parquet")
    files = {f"{name}_file": folder / f"{name}.parquet" for name in ("train", "test")}
    return files | {"mask_column": "target", "class_names": NAMES, "validation_size": 4, "num_train_epochs": 1}


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    folder, _, results = compared
    assert [result.loss for result in results] == ["cross_entropy", "recall"]
    for result in results:
        report = folder / LossConfig.parse(result.loss).name / "report"
        assert {path.name for path in report.iterdir()} == REPORT | {"classes.md"}
        saved = json.loads((report / "metrics.json").read_text())
        assert saved["pre"]["mean_iou"] == saved["post"]["mean_iou"] == result.pre["mean_iou"]
        assert saved["pre"]["num_samples"] == sum(saved["details"]["classes"]["count"]) == 16 * 64 * 64
        assert saved["details"]["classes"]["name"] == list(SHAPE_NAMES)
        assert saved["pre_intervals"] == {}
        assert RunResult.load(report / "metrics.json").pre == pytest.approx(result.pre, nan_ok=True)
    text = (folder / "report" / "classes.md").read_text()
    means, accuracies, ious = (part.strip().splitlines() for part in text.split("of each class, %"))
    assert [row.split(" | ")[0] for row in means[2:4]] == ["| cross_entropy", "| recall"]
    by_class = results[0].details["classes"]
    order = np.argsort(by_class["count"])[::-1]
    for table, key in ((accuracies, "accuracy"), (ious, "iou")):
        table = [row for row in table if row.startswith("|")]
        assert table[0] == "| Class | share % | cross_entropy | recall |"
        for row, index in zip(table[2:], order, strict=True):
            name, share, value, _ = (cell.strip(" *") for cell in row.strip("|").split("|"))
            assert (name, share) == (SHAPE_NAMES[index], f"{by_class['count'][index] / 655.36:.2f}")
            assert value == f"{100 * by_class[key][index]:.2f}"


def test_the_saved_model_is_calibrated_for_everyone_who_loads_it(compared):
    folder, _, results = compared
    model = AutoModelForSemanticSegmentation.from_pretrained(folder / "cross_entropy").eval()
    processor = AutoImageProcessor.from_pretrained(folder / "cross_entropy")
    metrics, confusion = CalibrationMetrics(keep_samples=False), ConfusionMatrix()
    for row in generate_shapes(16, seed=44):  # two seeds behind that of the training data
        image, mask = (PILImage.open(io.BytesIO(row[name]["bytes"])) for name in ("image", "mask"))
        inputs = processor(image, mask, return_tensors="pt")
        with torch.no_grad():
            logits = model(pixel_values=inputs["pixel_values"]).logits
        logits = torch.nn.functional.interpolate(logits, (64, 64), mode="bilinear").permute(0, 2, 3, 1)
        metrics.update(logits, inputs["labels"])
        confusion.update(logits, inputs["labels"])
    found = metrics.compute()
    for name in ("nll", "ece", "accuracy", "confidence"):
        assert found[name] == pytest.approx(results[0].post[name], abs=1e-4), name
    assert confusion.compute()["mean_iou"] == pytest.approx(results[0].pre["mean_iou"], abs=1e-4)
    temperature = Temperature.load(folder / "cross_entropy" / "temperature.json")
    assert model.config.calibration["temperature"] == temperature.value == results[0].temperature.value
    assert model.config.id2label == dict(enumerate(SHAPE_NAMES))


def test_a_model_is_fine_tuned_on_files_in_parts_of_the_images(compared, shapes, tmp_path, monkeypatch):
    trainers = []

    class Recording(recipe.ImageTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seen = []
            trainers.append(self)

        def training_step(self, model, inputs, *args, **kwargs):
            self.seen.append((tuple(inputs["pixel_values"].shape[1:]), tuple(inputs["labels"].shape[1:])))
            return super().training_step(model, inputs, *args, **kwargs)

    monkeypatch.setattr(recipe, "ImageTrainer", Recording)
    options = shapes | {"num_train_epochs": 2, "model_name_or_path": compared[0] / "recall"}
    (result,) = run(tmp_path, **options, image_size=[32, 48], crop_size=[24, 32])
    (trainer,) = trainers
    assert set(trainer.seen) == {((3, 24, 32), (24, 32))}
    assert int(trainer.train_dataset.epoch) == 1  # the second, whose parts are others
    assert result.pre["num_samples"] == 5 * 32 * 48
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    assert dict(processor.size) == {"height": 32, "width": 48}
    saved = AutoModelForSemanticSegmentation.from_pretrained(tmp_path)
    # Not the product with the temperature of the model that it began from.
    record = getattr(saved.config, "calibration", {"temperature": 1.0})  # T = 1 is not recorded
    assert record["temperature"] == result.temperature.value


def test_what_is_refused_before_anything_is_trained(shapes, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "ImageTrainer", NoTrainer)
    monkeypatch.setitem(sys.modules, "timm", None)  # cannot be imported
    mobile = tmp_path / "mobile"
    MobileViTForSemanticSegmentation(MobileViTConfig()).save_pretrained(mobile)
    MobileViTImageProcessorPil().save_pretrained(mobile)
    problems = [
        ({"class_names": None}, "class_names must be given for a dataset, got None"),
        ({"class_names": "a,b,b"}, "class_names must be at least two, all different, got 'a,b,b'"),
        ({"class_names": "a,b"}, "mask_column must hold class numbers below 2, or 255"),
        ({"test_file": None}, "test_file must be given, got None"),
        ({"crop_size": [41, 8]}, r"crop_size must be at most \(40, 40\), .* got \[41, 8\]"),
        ({"crop_size": [8]}, r"crop_size must be a height and a width of at least 1, got \[8\]"),
        ({"model_name_or_path": "segformer_b1"}, "did you mean 'segformer_"),
        ({"model_name_or_path": "deeplabv3_resnet18"}, "timm cannot be imported: "),
        ({"model_name_or_path": mobile}, "must be a model of normalized RGB images"),
        ({"loss": "adafocal:bins=100000"}, "must hold at least 100000 pixels"),
    ]
    for number, (options, message) in enumerate(problems):
        with pytest.raises(ValueError, match=message):
            run(tmp_path / str(number), **shapes | options)
    counts = {"train": np.array([5, 0]), "test": np.array([3, 1])}
    with pytest.raises(ValueError, match="mask_column must hold classes that train has, got sky in test"):
        recipe.check_counts(counts, ["road", "sky"])
