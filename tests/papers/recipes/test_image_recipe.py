"""The image recipe from its command line to its report, on a few digits of 8 × 8 pixels and tiny networks."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from launched_images import BoxesTrainer, recipe
from packaging.version import Version
from PIL import Image as PILImage
from recipe_modules import REPORT, NoTrainer, flags
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ConvNextConfig,
    ConvNextForImageClassification,
    ConvNextImageProcessorPil,
    TrainerCallback,
    pipeline,
)
from transformers.utils import is_torchvision_available

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))
import papers.models  # noqa: F401 - so that the networks are known to plain from_pretrained
from papers.data.image_batches import decode_images, prepare_batch
from papers.data.label_options import label_options
from papers.data.pixel_format import PixelFormat
from papers.pages.records import record_of
from processes import output_of, start

from hf_focal.losses import class_balanced_weights
from hf_focal.metrics import adaptive_calibration_error, expected_calibration_error
from hf_focal.reports import RunResult
from hf_focal.tasks.dataset_loading import load_digits
from hf_focal.trainer.recipe_arguments import parse_arguments

# Networks that have learned next to nothing.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")]

SCRIPT = Path(__file__).with_name("launched_images.py")
# 140 for training and 40 for validation.
NUM_TRAIN, NUM_TEST = 180, 61


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Some of the digits in parquet files; the arguments that name them."""
    folder, splits = tmp_path_factory.mktemp("digits"), load_digits()
    parts = {"train": splits["train"].select(range(NUM_TRAIN)), "test": splits["test"].select(range(NUM_TEST))}
    for name, split in parts.items():
        split.to_parquet(folder / f"{name}.parquet")
    files = {f"{name}_file": folder / f"{name}.parquet" for name in parts}
    return SimpleNamespace(files=files, **parts)


def command_line(folder, **options):
    """The recipe's arguments for a tiny network; an option that is None is left out, a list is several values."""
    values = {
        "output_dir": folder,
        "model_name_or_path": "cifar_resnet8",
        "image_size": 8,
        "validation_size": 40,
        "optim": "sgd",
        "learning_rate": "0.05",
        "num_train_epochs": 2,
        "per_device_train_batch_size": 35,
        "per_device_eval_batch_size": 50,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return flags(values)


def run(folder, **options):
    return recipe.main(command_line(folder, **options))


def parse(argv):
    return parse_arguments(recipe.ARGUMENTS, argv)


def images_of(argv, name):
    """A split as the recipe trains or measures it."""
    data_args, model_args, *_, args = parse(argv)
    splits, _ = recipe.load_data(data_args, args.seed)
    return recipe.decode(data_args, splits, model_args.pixel_format(), args.seed)[name]


class Recording(recipe.ImageClassifierTrainer):
    """Keeps what it trains on and predicts, and each step's learning rate."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches, self.predicted, self.rates = [], [], []
        self.add_callback(Rates(self.rates))
        Recording.trainers.append(self)

    def training_step(self, model, inputs, *args, **kwargs):
        self.batches.append(inputs)
        return super().training_step(model, inputs, *args, **kwargs)

    def predict(self, *args, **kwargs):
        self.predicted.append(super().predict(*args, **kwargs))
        return self.predicted[-1]


class Rates(TrainerCallback):
    def __init__(self, rates):
        self.rates = rates

    def on_step_begin(self, args, state, control, optimizer, **kwargs):
        self.rates.append(optimizer.param_groups[0]["lr"])


def record(patch):
    """The trainers of the runs to come."""
    patch.setattr(recipe, "ImageClassifierTrainer", Recording)
    Recording.trainers = []
    return Recording.trainers


@pytest.fixture
def trainers(monkeypatch):
    return record(monkeypatch)


@pytest.fixture(scope="module")
def compared(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    options = digits.files | {"augmentation": "crop", "losses": "cross_entropy,focal:gamma=3"}
    with pytest.MonkeyPatch.context() as patch:
        trainers = record(patch)
        results = run(folder, **options)
    logits = [torch.from_numpy(trainer.predicted[-1].predictions).double() for trainer in trainers]
    logits = dict(zip(("cross_entropy", "focal_gamma_3"), logits, strict=True))
    return SimpleNamespace(folder=folder, options=options, results=results, logits=logits)


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    """As in the recipe for texts, and with confidences and examples."""
    for result, name in zip(compared.results, compared.logits, strict=True):
        report = compared.folder / name / "report"
        assert {path.name for path in report.iterdir()} >= REPORT | {"confidence.md"}
        assert result.pre["num_samples"] == NUM_TEST
    written = {path.name for path in (compared.folder / "report").iterdir()}
    assert written >= {"table.md", "comparison.png", "confidence.md", "examples.png"}


def test_the_logits_of_a_run_are_kept_for_the_equal_mass_errors(compared):
    """The papers' configurations fit T by ECE; table 1 of Ghosh et al. 2022 needs the T with the lowest AdaECE."""
    for result, name in zip(compared.results, compared.logits, strict=True):
        with np.load(compared.folder / name / "logits.npz") as arrays:
            logits, labels = arrays["test_logits"], arrays["test_labels"]
            assert len(arrays["validation_logits"]) == len(arrays["validation_labels"]) == 40
        np.testing.assert_array_equal(logits, compared.logits[name].float())
        assert expected_calibration_error(logits, labels) == pytest.approx(result.pre["ece"], abs=1e-5)
        measured = record_of(compared.folder / name)["equal_mass"]
        assert measured["before"] == pytest.approx(result.pre["adaece"], abs=1e-5)
        assert measured["after"] == pytest.approx(adaptive_calibration_error(logits / measured["temperature"], labels))


def pil_images(split):
    return [PILImage.fromarray(image.numpy()) for image in decode_images(split, 8)]


def check_saved(folder, logits, split, images=None):
    """The folder gives softmax(logits / T) to everyone who loads it; to four images by a pipeline."""
    result = RunResult.load(folder / "report" / "metrics.json")
    images = pil_images(split) if images is None else images
    expected = (logits / result.temperature.value).softmax(1)
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    with torch.no_grad():
        actual = model(processor(images, return_tensors="pt")["pixel_values"]).logits.double().softmax(1)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    assert model.config.calibration["temperature"] == result.temperature.value
    assert model.config.id2label == {i: str(i) for i in range(10)}
    rows = torch.arange(len(split))
    assert -actual[rows, split["label"][:]].log().mean() == pytest.approx(result.post["nll"], abs=1e-4)
    classify = pipeline("image-classification", model=str(folder), top_k=10, device="cpu")
    for scores, wanted in zip(classify(images[:4]), expected[:4].tolist(), strict=True):
        scores = {score["label"]: score["score"] for score in scores}
        assert [scores[str(i)] for i in range(10)] == pytest.approx(wanted, abs=1e-5)
    return model


def test_the_saved_model_is_calibrated_for_everyone_who_loads_it(compared, digits):
    name = "focal_gamma_3"
    model = check_saved(compared.folder / name, compared.logits[name], digits.test)
    assert type(model).__name__ == "CifarResNetForImageClassification"


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 7:
            raise KeyboardInterrupt


class StoppedTrainer(recipe.ImageClassifierTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.add_callback(Stop())


def test_a_run_that_was_stopped_amid_an_epoch_ends_as_if_it_had_not_been(digits, tmp_path, monkeypatch):
    # Epochs of 4 steps: stopped after step 7, it goes on after step 6.
    options = digits.files | {"augmentation": "crop", "num_train_epochs": 3, "milestones": "1/4,7/8"}
    options |= {"save_strategy": "steps", "save_steps": 3, "loss": "flsd53", "eval_strategy": "no"}
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "ImageClassifierTrainer", BoxesTrainer)
        (whole,) = run(tmp_path / "whole", **options)
        cut = BoxesTrainer.latest.cut
        patch.setattr(recipe, "ImageClassifierTrainer", StoppedTrainer)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped", **options)
        assert not (tmp_path / "stopped" / "report").exists()
        patch.setattr(recipe, "ImageClassifierTrainer", BoxesTrainer)
        (resumed,) = run(tmp_path / "stopped", **options)
    assert {epoch: len(boxes) for epoch, boxes in cut.items()} == {0: 140, 1: 140, 2: 140}
    assert sorted(cut[0]) != sorted(cut[1])
    assert BoxesTrainer.latest.cut == {1: cut[1][70:], 2: cut[2]}
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]
    assert resumed.temperature == whole.temperature
    assert resumed.pre == pytest.approx(whole.pre, rel=0, abs=0, nan_ok=True)
    losses = [result.details["train_metrics"]["train_loss"] for result in (whole, resumed)]
    assert losses[0] == losses[1]


def test_sgd_and_milestones(digits, tmp_path, trainers):
    # 12 steps.
    options = digits.files | {"num_train_epochs": 3, "milestones": "1/2, 3/4", "learning_rate": 0.1}
    options |= {"momentum": 0.8, "weight_decay": 0.01, "max_decoded_gib": 0}
    run(tmp_path, **options)
    assert trainers[0].rates == pytest.approx([0.1] * 6 + [0.01] * 3 + [0.001] * 3)
    optimizer = trainers[0].optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    (group,) = optimizer.param_groups
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.8, 0.01, False)
    assert set(map(id, group["params"])) == set(map(id, trainers[0].model.parameters()))


def test_a_step_on_the_sum_of_losses_with_its_gradient_clipped(digits, tmp_path, trainers):
    options = digits.files | {"loss_reduction": "sum", "max_grad_norm": 2, "max_steps": 1, "weight_decay": 0.5}
    options |= {"per_device_train_batch_size": 70, "gradient_accumulation_steps": 2, "save_strategy": "no"}
    options |= {"eval_strategy": "no", "lr_scheduler_type": "constant", "image_mean": [0.1, 0.2, 0.3]}
    run(tmp_path, **options)
    model_args = parse(command_line(tmp_path / "again", **options))[1]
    torch.manual_seed(42)
    model = model_args.new_model(label_options([str(i) for i in range(10)]))
    loss, model = 0, model.train()
    for batch in trainers[0].batches:
        batch = prepare_batch(batch, model_args.pixel_format())
        logits = model(batch["pixel_values"]).logits
        loss = loss + torch.nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")
    loss.backward()
    assert [len(batch["labels"]) for batch in trainers[0].batches] == [70, 70]
    assert torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0) > 10
    actual = dict(trainers[0].model.named_parameters())
    for name, weight in model.named_parameters():
        expected = weight.detach() - 0.05 * (weight.grad + 0.5 * weight.detach())
        torch.testing.assert_close(actual[name].detach(), expected, rtol=1e-4, atol=2e-5, msg=name)


def test_two_processes(digits, tmp_path):
    folder = tmp_path / "out"
    # 100 rows: two steps of 2 × 24 and one of 4.
    options = digits.files | {"augmentation": "crop", "max_train_samples": 100, "per_device_train_batch_size": 24}
    options |= {"per_device_eval_batch_size": 16, "num_train_epochs": 3, "learning_rate": 0.2}
    argv = command_line(folder, **options)
    output = output_of(start(SCRIPT, 2, tmp_path, 2, json.dumps(argv)))
    assert output.count("Written:") == 1
    result = RunResult.load(folder / "report" / "metrics.json")
    assert result.data.num_processes == 2
    assert result.pre["num_samples"] == NUM_TEST

    # Each of an epoch's boxes is cut once, by the one process or the other.
    images = images_of(command_line(tmp_path / "one", **options), "train")
    cut = [json.loads((tmp_path / f"boxes_{rank}.json").read_text()) for rank in (0, 1)]
    epochs = []
    for epoch, (first, second) in enumerate(zip(*cut, strict=True)):
        images.set_epoch(epoch)
        assert (len(first), len(second)) == (52, 48)  # the last batch of the second fills up
        epochs.append(Counter(map(tuple, first + second)))
        assert epochs[-1] == Counter(map(tuple, images.boxes.tolist()))
    assert len(epochs) == 3
    assert epochs[0] != epochs[1] != epochs[2]

    # Both processes measured the network that was saved.
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    with torch.no_grad():
        logits = model(processor(pil_images(digits.test), return_tensors="pt")["pixel_values"]).logits.double()
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor(digits.test["label"][:]))
    assert nll.item() == pytest.approx(result.post["nll"], abs=1e-5)


def test_a_folder_of_images_decoded_as_needed_in_workers(digits, tmp_path, trainers):
    for name, split in (("train", digits.train), ("test", digits.test)):
        for number, (image, label) in enumerate(zip(pil_images(split), split["label"], strict=True)):
            (tmp_path / "data" / name / f"digit {label}").mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "data" / name / f"digit {label}" / f"{number}.png")
    options = {"dataset_name": tmp_path / "data", "num_train_epochs": 1, "image_size": 9, "crop_pct": 0.75}
    options |= {"per_device_train_batch_size": 140, "max_decoded_gib": 0, "augmentation": "resized_crop"}
    (result,) = run(tmp_path / "out", **options, dataloader_num_workers=1)
    assert result.pre["num_samples"] == NUM_TEST
    assert not isinstance(trainers[0].train_dataset.images, torch.Tensor)
    folder = tmp_path / "out"
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    assert model.config.id2label[3] == "digit 3"
    processor = AutoImageProcessor.from_pretrained(folder)
    assert (processor.size["shortest_edge"], processor.crop_size["height"]) == (12, 9)


def test_a_pretrained_network_is_fine_tuned(digits, tmp_path, trainers):
    other_resize = Version(torch.__version__) < Version("2.9") and torch.backends.cpu.get_cpu_capability() == "AVX512"
    if other_resize and is_torchvision_available():
        pytest.skip("torchvision before 0.24 rounds resized pixels differently from Pillow on CPUs with AVX-512")
    start = ConvNextForImageClassification(ConvNextConfig(hidden_sizes=[8] * 4, depths=[1] * 4, num_labels=3))
    start.config.calibration = {"temperature": 3.0}  # which a training makes void
    start.save_pretrained(tmp_path / "model")
    processor = ConvNextImageProcessorPil(size={"shortest_edge": 32}, image_mean=[0.4] * 3)
    processor.save_pretrained(tmp_path / "model")
    options = digits.files | {"model_name_or_path": tmp_path / "model", "image_size": None, "optim": "adamw_torch"}
    run(tmp_path / "out", **options, num_train_epochs=1, learning_rate=0.01, loss="focal:gamma=2")
    logits = torch.from_numpy(trainers[0].predicted[-1].predictions).double()
    assert type(check_saved(tmp_path / "out", logits, digits.test)) is type(start)


@pytest.mark.full
@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_a_timm_architecture_from_scratch(name, digits, tmp_path, trainers):
    import timm

    options = digits.files | {"model_name_or_path": name, "num_train_epochs": 1, "learning_rate": 0.01}
    size = 96 if name == "test_vit" else 32  # test_vit's own is 160
    options |= {"image_size": size, "crop_pct": 0.9, "image_mean": [0.1, 0.2, 0.3], "max_steps": 2}
    options |= {"per_device_train_batch_size": 16, "max_train_samples": 32}
    torch.manual_seed(42)
    expected = timm.create_model(name, num_classes=10)
    model_args = parse(command_line(tmp_path / "other", **options))[1]
    torch.manual_seed(42)
    model = model_args.new_model(label_options([str(i) for i in range(10)]))
    for key, weight in expected.state_dict().items():
        spread = model.timm_model.state_dict()[key].double().std(correction=0)
        assert spread.item() == pytest.approx(weight.double().std(correction=0).item(), rel=0.35, abs=2e-2), key

    run(tmp_path / "out", **options)
    logits = torch.from_numpy(trainers[0].predicted[-1].predictions).double()
    saved = check_saved(tmp_path / "out", logits, digits.test)
    assert type(saved).__name__ == "TimmWrapperForImageClassification"
    pixels = PixelFormat.from_pretrained(str(tmp_path / "out"))
    assert (pixels.size, pixels.stored_size) == (size, model_args.pixel_format().stored_size)
    assert pixels.mean == (0.1, 0.2, 0.3)


@pytest.fixture
def broken_timm(tmp_path, monkeypatch):
    (tmp_path / "broken" / "timm").mkdir(parents=True)
    (tmp_path / "broken" / "timm" / "__init__.py").write_text("raise RuntimeError('operator does not\\nexist')\n")
    monkeypatch.syspath_prepend(tmp_path / "broken")
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_timm_that_cannot_be_imported_is_in_nobodys_way_but_of_those_who_ask_for_it(broken_timm):
    assert recipe.ImageModelArguments("cifar_resnet8").model_name_or_path == "cifar_resnet8"
    with pytest.raises(ValueError, match="an architecture of timm, if timm can be imported"):
        recipe.ImageModelArguments("resnet18")
    with pytest.raises(ValueError, match=r"got .cifar_resnet_8.; did you mean .cifar_resnet8.\?"):
        recipe.ImageModelArguments("cifar_resnet_8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_name_or_path": "wide_resnet_26_10"}, "did you mean 'cifar_wide_resnet_26_10'?"),
        ({"milestones": "1/0"}, "milestones must be shares such as '150/350,250/350', got '1/0'"),
        ({"milestones": "0.7,0.5"}, "milestones must be ascending shares between 0 and 1, got '0.7,0.5'"),
        ({"momentum": 1}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"crop_pct": 0}, "crop_pct must be above 0 and at most 1, got 0.0"),
        ({"image_mean": [0.5, 0.5]}, "image_mean must be 3 numbers, for red, green and blue, got [0.5, 0.5]"),
        ({"augmentation": "flip"}, "augmentation must be one of none, crop, resized_crop, got 'flip'"),
        ({"test_file": None}, "test_file must be given"),
        ({"max_train_samples": 9}, "max_train_samples must be at least 10, the number of classes, got 9"),
        ({"imbalance": 1.5}, "imbalance must be above 0 and at most 1, got 1.5"),
        ({"label_column": "labels"}, "got 'labels'; did you mean 'label'?"),
    ],
)
def test_errors_come_before_training_and_leave_no_folder(options, message, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "ImageClassifierTrainer", NoTrainer)
    with pytest.raises(ValueError, match=re.escape(message)):
        run(tmp_path / "out", **digits.files | options)
    assert not (tmp_path / "out").exists()


def test_a_long_tail_is_cut_of_the_training_images_alone(digits, tmp_path, trainers):
    options = digits.files | {"imbalance": 0.1, "loss": "class_balanced:beta=0.9", "class_weights_steps": 2}
    (result,) = run(tmp_path, **options, per_device_train_batch_size=10)
    files = {name: str(path) for name, path in digits.files.items()}
    tailed, _ = recipe.load_data(recipe.ImageDataArguments(**files, validation_size=40, imbalance=0.1), seed=42)
    counts = np.bincount(tailed["train"]["labels"][:], minlength=10)
    assert counts[0] > 5 * counts[-1] and len(tailed["validation"]) == 40
    (trainer,) = trainers
    assert trainer.train_dataset.labels.tolist() == tailed["train"]["labels"][:]
    assert result.details["class_counts"] == counts.tolist()
    assert trainer.loss.weights == class_balanced_weights(counts.tolist(), 0.9)

    prediction = trainer.predicted[-1]
    for label, recall in enumerate(result.details["class_recall"]):
        right = prediction.predictions.argmax(1)[prediction.label_ids == label] == label
        assert recall == pytest.approx(right.mean(), abs=1e-12)
    steps = 2 * -(-counts.sum() // 10)
    assert [record["step"] for record in result.details["class_weights"]] == list(range(2, steps + 1, 2))
    assert [epoch for epoch, _ in result.details["training_losses"]] == []  # two epochs are less than 500 steps
    report = {path.name for path in (tmp_path / "report").iterdir()}
    assert report >= REPORT | {"shots.md", "class_weights.png"}
