"""What `hf-focal` says of models, folders and disks that are not what they should be: one line, and exit code 2."""

import dataclasses
import json
import pickle
import re
import shutil
import subprocess
import sys

import pytest
import torch
import trained_models
from files import files_of_at_most
from safetensors.torch import load_file, save_file
from trained_models import error_of
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

from hf_focal.calibration import CalibrationFit
from hf_focal.cli.main import main
from hf_focal.sources import model as trained
from hf_focal.workflow import run_calibration, run_evaluation


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return trained_models.build("texts", tmp_path_factory.mktemp("texts"))


@pytest.fixture
def broken(texts, tmp_path):
    """Makes a copy of the model, with other fields of its config, and returns the folder."""
    return lambda name="copy", **fields: trained_models.copy_with_config(texts.folder, tmp_path / name, **fields)


def fill(folder, name, value):
    weights = load_file(folder / "model.safetensors")
    weights[name].fill_(value)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class NeedsTree(BertForSequenceClassification):
    """A classifier of texts that no tokenizer encodes whole."""

    def forward(self, input_ids, tree, labels=None, **kwargs):
        return super().forward(input_ids=input_ids, labels=labels)


def line_of(command, case, folder):
    return [command, str(folder), "--dataset", str(case.test), *case.arguments]


@pytest.mark.parametrize(
    ("command", "name"), [("evaluate", "classifier.weight"), ("calibrate", "bert.embeddings.word_embeddings.weight")]
)
def test_nan_weights(capsys, texts, broken, command, name):
    folder = broken()
    fill(folder, name, torch.nan)
    assert f"model '{folder}' is broken, or overflows" in error_of(capsys, line_of(command, texts, folder))


def test_constant_logits(capsys, texts, broken):
    folder = broken()
    fill(folder, "classifier.weight", 0)
    fill(folder, "classifier.bias", 0)
    with pytest.warns(UserWarning, match="the logits are constant"):
        assert main([*line_of("calibrate", texts, folder), "--method", "temperature"]) == 0
    assert "T = 1 (lowest NLL)" in capsys.readouterr().out


def test_a_model_that_ranks_backwards_is_not_called_broken(capsys, texts, broken):
    folder = broken()
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"].neg_()
    weights["classifier.bias"].neg_()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = error_of(capsys, [*line_of("calibrate", texts, folder), "--method", "bias"])
    assert "error: logits must not rank the labels backwards" in message and "check the order" in message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        # Some releases of Transformers check the types of a config, others leave that to us.
        ({"id2label": ["a", "b", "c"]}, "cannot be loaded: (AttributeError|.*'id2label' expected a dict, got list)"),
        ({"id2label": {"0": 1, "1": 2, "2": 3}}, r"id2label must name the labels .* got \{0: 1|'id2label' .*\{'0': 1"),
        ({"id2label": {"0": "a", "5": "b"}}, "its config's id2label must name the labels"),
        ({"use_cache": "x"}, "expected bool"),
        ({"hidden_act": "none such"}, "must describe a model, got one that raises KeyError"),
    ],
    ids=str,
)
def test_configs_of_other_types(capsys, texts, broken, config, message):
    folder = broken(**config)
    assert re.search(message, error_of(capsys, line_of("evaluate", texts, folder)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pad_token": "[NEW]"}, "an embedding for each token, got"),
        *(
            ({"model_input_names": names}, "model_input_names must be names, of which the first is 'input_ids', got")
            for names in ([""], ["attention_mask"], ["input_ids", []])
        ),
        *(
            ({"model_max_length": value}, f"must have a model_max_length of 1 or more tokens, got {value}")
            for value in (0, -1, False, True, 2.5)
        ),
        ({"model_max_length": "long"}, "cannot be loaded: TypeError"),
    ],
    ids=str,
)
def test_tokenizer_settings_that_cannot_be_used(capsys, texts, broken, settings, message):
    path = broken() / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    assert message in error_of(capsys, line_of("evaluate", texts, path.parent))


@pytest.mark.parametrize("content", [pickle.dumps(print), b"x" * 100])
def test_pickled_weights(capsys, texts, broken, content):
    folder = broken()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "cannot be loaded: Weights only load failed" in error_of(capsys, line_of("evaluate", texts, folder))


def test_a_file_of_weights(capsys, texts, tmp_path):
    file = tmp_path / "weights.pth"
    torch.save({}, file)
    message = error_of(capsys, line_of("calibrate", texts, file))
    assert f"got the file '{file}'" in message and "TimmWrapperForImageClassification" in message
    assert "--scores" in message


def test_a_folder_of_timm_with_its_own_arguments(capsys, texts, tmp_path):
    config = {"architecture": "resnet18", "num_classes": 3, "model_args": {"num_classes": 3}, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = error_of(capsys, line_of("calibrate", texts, tmp_path))
    assert f"got '{tmp_path}', which timm saved" in message and "TimmWrapperForImageClassification" in message


@pytest.mark.parametrize("content", ["", "{", "name: focal\ngamma: x", "? [a]\n: b"])
def test_a_report_whose_loss_is_none(capsys, texts, broken, content):
    folder = broken()
    (folder / "report").mkdir()
    (folder / "report" / "loss.yaml").write_text(content)
    message = error_of(capsys, line_of("calibrate", texts, folder))
    assert f"{folder / 'report' / 'loss.yaml'} must hold the loss of a run's report, got " in message


@pytest.mark.parametrize("name", ["x.yaml", "[name]"])
def test_folders_with_names_that_yaml_could_read(capsys, texts, broken, name, tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    (tmp_path / "beside" / "x.yaml").write_text("name: brier\n")  # another one's
    output = tmp_path / "out"
    assert main([*line_of("calibrate", texts, broken(name)), "--output", str(output)]) == 0
    assert json.loads((output / "report" / "metrics.json").read_text())["name"] == name


def test_a_model_that_takes_more_than_its_tokenizer_gives(capsys, texts, broken, monkeypatch):
    folder = broken()
    model = NeedsTree.from_pretrained(folder)
    monkeypatch.setattr(
        AutoModelForSequenceClassification, "from_pretrained", lambda *_, **__: (model, {"missing_keys": []})
    )
    message = f"model must need no more than its AutoTokenizer gives, got '{folder}', which needs tree"
    assert message in error_of(capsys, line_of("evaluate", texts, folder))


@pytest.mark.parametrize("name", ["", " ", ":", "::test"])
def test_a_dataset_without_a_name(capsys, texts, name):
    line = ["evaluate", texts.folder, "--dataset", name]
    assert f"dataset must be a file or a dataset, got {name!r}" in error_of(capsys, line)


def test_folders_that_cannot_be(capsys, texts):
    for name in ("x" * 300, "\0"):
        error_of(capsys, [*line_of("calibrate", texts, texts.folder), "--output", name])


_HOLD = """
import sys, filelock
lock = filelock.FileLock(sys.argv[1])
lock.acquire(timeout=0)
print("held", flush=True)
input()
"""


@pytest.mark.slow
def test_two_commands_at_one_folder(capsys, texts, tmp_path, monkeypatch):
    output = tmp_path / "out"
    line = [*line_of("calibrate", texts, texts.folder), "--output", str(output)]
    hold = [sys.executable, "-c", _HOLD, str(output / "_run.lock")]
    output.mkdir()
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert "output must be a folder that no other run is writing to" in error_of(capsys, line)
        other.kill()

    fit, others = trained.ModelScores.fit, []

    def fit_beside_another(*arguments, **options):
        others.append(subprocess.run(hold, capture_output=True, text=True))
        return fit(*arguments, **options)

    monkeypatch.setattr(trained.ModelScores, "fit", fit_beside_another)
    assert main(line) == 0
    assert others[0].returncode == 1 and others[0].stderr.splitlines()[-1].startswith("filelock.")
    assert (output / "model.safetensors").is_file() and not (output / "_run.lock").exists()
    assert "which is not empty: name another, or remove" in error_of(capsys, line)


@pytest.mark.parametrize(
    ("command", "write", "size", "reason"),
    [
        ("calibrate", "save", 2_000, "os error 27"),  # by safetensors
        ("calibrate", "write_results", 2_000, "File too large"),
        ("evaluate", "write_results", 200, "File too large"),
    ],
)
def test_the_table_is_printed_before_the_disk_is_full(
    capsys, texts, tmp_path, monkeypatch, command, write, size, reason
):
    steps = run_evaluation if command == "evaluate" else run_calibration
    place = trained.ModelSource if write == "save" else steps
    written, printed = getattr(place, write), []

    def on_a_full_disk(*arguments, **named):
        printed.append(capsys.readouterr().out)
        with files_of_at_most(size):
            return written(*arguments, **named)

    monkeypatch.setattr(place, write, on_a_full_disk)
    message = error_of(capsys, [*line_of(command, texts, texts.folder), "--output", tmp_path / "out"])
    assert "output must be a folder with room" in message and reason in message
    assert "| error %" in printed[0]


@pytest.mark.parametrize("kind", ["texts", "causal"])
def test_what_is_saved_is_as_it_was_but_for_the_temperature(kind, tmp_path):
    case = trained_models.build(kind, tmp_path)
    assert (
        main([*line_of("calibrate", case, case.folder), "--output", str(tmp_path / "out"), "--max_length", "4"]) == 0
    )
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (case.folder, tmp_path / "out"))
    assert after.keys() - before.keys() <= {"calibration", "problem_type"} and before.items() <= after.items()
    before, after = ((folder / "tokenizer.json").read_text() for folder in (case.folder, tmp_path / "out"))
    assert after == before


def test_a_temperature_that_the_weights_cannot_take(capsys, texts, broken, tmp_path, monkeypatch):
    folder = broken(dtype="float16")
    weights = {name: value.half() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    given = ["--method", "temperature", "--output", str(tmp_path / "out")]
    line = [*line_of("calibrate", texts, folder), *given]
    assert main(line) == 0
    shutil.rmtree(tmp_path / "out")
    fit = trained.ModelScores.fit

    def tiny(scores, *given, **options):
        temperature = dataclasses.replace(fit(scores, *given, **options).temperature, value=1e-6)
        return CalibrationFit.from_temperature(temperature)

    monkeypatch.setattr(trained.ModelScores, "fit", tiny)
    capsys.readouterr()
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert "| error %" in out and "must keep weights and logits finite in torch.float16" in err
