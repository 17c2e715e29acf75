import json
import re
import shutil

import numpy as np
import pytest
import torch
from papers.data.gaussian_noise import add_gaussian_noise
from papers.data.image_batches import decode_images, prepare_batch
from papers.data.pixel_format import PixelFormat
from papers.models import cifar_config
from recipe_modules import import_recipe
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForImageClassification, BitImageProcessorPil

from hf_focal import CalibrationMetrics, fold_correction
from hf_focal.tasks.dataset_loading import load_digits

pytestmark = pytest.mark.slow

recipe = import_recipe("ood")

DIGITS = {str(i): i for i in range(10)}
PIXELS = PixelFormat(8, 1.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
TEMPERATURE = 2.0


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The folder of a classifier of digits with a temperature folded in, and its logits before that."""
    torch.manual_seed(0)
    names = {"num_labels": 10, "id2label": {i: name for name, i in DIGITS.items()}, "label2id": DIGITS}
    model = AutoModelForImageClassification.from_config(cifar_config("resnet8", **names)).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)

    def logits(pixels):
        with torch.no_grad():
            return model(prepare_batch({"pixel_values": pixels}, PIXELS)["pixel_values"]).logits

    test = decode_images(load_digits()["test"], 8)
    known, noisy = logits(test), logits(add_gaussian_noise(test, 5, seed=42))
    folder = tmp_path_factory.mktemp("images") / "run"
    fold_correction(model, TEMPERATURE).save_pretrained(folder)
    size = {"height": 8, "width": 8}
    BitImageProcessorPil(
        size={"shortest_edge": 8}, crop_size=size, image_mean=PIXELS.mean, image_std=PIXELS.std
    ).save_pretrained(folder)
    return str(folder), known, noisy


def entropy(logits):
    p = torch.softmax(logits.double(), dim=-1)
    return torch.special.entr(p).sum(-1).numpy()


def run(folder, *models, **arguments):
    argv = ["--models", *models, "--output_dir", str(folder), "--use_cpu", "true", "--disable_tqdm", "true"]
    for name, value in arguments.items():
        argv += [f"--{name}", *value.split()]
    return recipe.main(argv)


def test_images_against_noise_and_by_its_severity(images, tmp_path):
    folder, known, noisy = images
    arguments = {"out": "gaussian_noise:5", "shift": "gaussian_noise", "per_device_eval_batch_size": "100"}
    (result,) = run(tmp_path, folder, dataset_name="digits", **arguments)
    assert (result.loss, result.temperature) == ("run", TEMPERATURE)
    truth = np.repeat([0, 1], len(known))
    labels = torch.tensor(load_digits()["test"]["label"][:])
    for side, temperature in (("pre", 1.0), ("post", TEMPERATURE)):
        scores = np.concatenate([entropy(known / temperature), entropy(noisy / temperature)])
        auroc = result.detection["gaussian_noise:5"][side]["entropy"]["auroc"]
        assert auroc == pytest.approx(roc_auc_score(truth, scores), abs=1e-4)
        for severity, logits in ((0, known), (5, noisy)):
            expected = CalibrationMetrics()
            expected.update(logits / temperature, labels)
            assert result.shift["gaussian_noise"][severity]["severity"] == severity
            actual = result.shift["gaussian_noise"][severity][side]
            assert actual["nll"] == pytest.approx(expected.compute()["nll"], rel=1e-4)
    (saved,) = json.loads((tmp_path / "detection.json").read_text())
    assert saved["detection"] == result.detection
    assert {"table.md", "shift.csv", "shift_gaussian_noise.png"} <= {p.name for p in tmp_path.iterdir()}


def test_a_temperature_that_is_in_no_weight(images, tmp_path):
    """What `save_calibrated` records where it cannot fold: the logits are those before the temperature."""
    folded, known, _ = images
    folder = shutil.copytree(folded, tmp_path / "carried")
    config = json.loads((folder / "config.json").read_text())
    config["calibration"] = {"temperature": 3.0, "folded": False}
    (folder / "config.json").write_text(json.dumps(config))
    (result,) = run(tmp_path / "out", str(folder), dataset_name="digits", out="gaussian_noise:1")
    assert result.temperature == 3
    labels = torch.tensor(load_digits()["test"]["label"][:])
    for side, temperature in (("pre", 1.0), ("post", 3.0)):
        expected = CalibrationMetrics()
        expected.update(known / TEMPERATURE / temperature, labels)
        assert result.in_distribution[side]["nll"] == pytest.approx(expected.compute()["nll"], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "out or shift must be given, got neither"),
        ({"out": "gaussian_noise:6"}, "out must have a severity from 1 to 5, got 'gaussian_noise:6'"),
        ({"out": "gaussian_noise"}, "out must have a severity from 1 to 5, got 'gaussian_noise'"),
        ({"shift": "fog"}, "shift must be one of gaussian_noise"),
        ({"out": "digits digits"}, "out must be datasets of different names, got 'digits' twice"),
        ({"out": "digits", "label_column": "labels"}, "label_column must be one of ['image', 'label']"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, images, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(tmp_path, images[0], dataset_name="digits", **arguments)


def test_models_that_number_the_classes_differently(images, tmp_path):
    shutil.copytree(images[0], tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    config |= {"id2label": {9 - i: str(i) for i in range(10)}, "label2id": {str(i): 9 - i for i in range(10)}}
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"models must number the classes the same way, got .*run, .*other, which do not"
    ):
        run(tmp_path / "out", images[0], str(tmp_path / "other"), dataset_name="digits", out="gaussian_noise:1")
