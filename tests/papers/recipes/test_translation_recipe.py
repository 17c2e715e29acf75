"""The translation recipe from its command line to its report, on tiny networks."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from files import strict_json
from launched_translation import recipe
from matplotlib.image import imread
from packaging.version import Version
from papers.data.generated_translations import generate_translations
from papers.runs.translation_results import TranslationResult
from processes import output_of, start
from recipe_modules import flags
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq

from hf_focal import FocalSeq2SeqTrainer, LossConfig, Temperature, fold_correction
from hf_focal.trainer.recipe_arguments import parse_arguments

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("launched_translation.py")
DIAGRAMS = {"reliability_before.png", "reliability_after.png"}
REPORT = {"metrics.json", "table.md", "loss.yaml", "curves.png", "curves.csv", *DIAGRAMS}
# Enough for a focal loss to leave the model underconfident, at a temperature that is not 1.
LEARNS = {"num_generated": 800, "d_model": 32, "num_train_epochs": 6, "max_tokens_per_batch": 200, "dropout": 0.05}


def command_line(folder, **options):
    """The recipe's arguments for a tiny network; an option that is None is left out."""
    values = {
        "output_dir": folder,
        "num_generated": 120,
        "validation_size": 20,
        "max_length": 24,
        "vocab_size": 1000,
        "d_model": 16,
        "num_layers": 1,
        "num_heads": 2,
        "ffn_dim": 32,
        "num_train_epochs": 1,
        "max_tokens_per_batch": 300,
        "learning_rate": "1e-2",
        "bleu_temperatures": "1",
        "per_device_eval_batch_size": 8,
        "save_strategy": "epoch",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return flags(values)


def run(folder, **options):
    return recipe.main(command_line(folder, **options))


def parse(argv):
    return parse_arguments(recipe.ARGUMENTS, argv)


def lines_of(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def checkpoints_of(folder):
    return sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))


def last_checkpoint(folder):
    return checkpoints_of(folder)[-1]


def generate(folder, sources, num_beams=4, length_penalty=0.6, max_length=24):
    """Translations by a saved model, a sentence at a time."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    options = {"num_beams": num_beams, "length_penalty": length_penalty, "max_length": max_length}
    rows = (model.generate(**tokenizer(source, return_tensors="pt"), **options) for source in sources)
    return [" ".join(tokenizer.decode(ids[0], skip_special_tokens=True).split()) for ids in rows]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    results = run(folder, **LEARNS, losses="cross_entropy,focal:gamma=5", bleu_temperatures=[0.5, 1])
    test = recipe.load_data(
        recipe.TranslationDataArguments(num_generated=LEARNS["num_generated"], validation_size=20), 42
    )["test"]
    return SimpleNamespace(folder=folder, focal=folder / "focal_gamma_5", results=results, test=test)


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    assert [result.loss for result in compared.results] == ["cross_entropy", "focal:gamma=5"]
    for result, name in zip(compared.results, ("cross_entropy", "focal_gamma_5"), strict=True):
        report = compared.folder / name / "report"
        assert {path.name for path in report.iterdir()} == REPORT
        assert strict_json(report / "metrics.json")["pre"]["ece"] == result.pre["ece"]
        assert result.pre["num_samples"] == sum(len(target.split()) + 1 for target in compared.test["target"])
        assert LossConfig.parse(str(report / "loss.yaml")) == LossConfig.parse(result.loss)
        assert Temperature.load(compared.folder / name / "temperature.json") == result.temperature
        assert result.bleu.keys() == {0.5, 1.0, result.temperature.value}
        assert result.data.num_processes == 1
        assert all(imread(path).std() > 0.05 for path in report.glob("*.png"))
        with (report / "curves.csv").open(newline="") as file:
            bleu = {float(row["temperature"]): float(row["bleu"]) for row in csv.DictReader(file) if row["bleu"]}
        assert bleu == result.bleu
    report = compared.folder / "report"
    assert {path.name for path in report.iterdir()} == {"table.md", "comparison.png", "curves.png", "curves.csv"}
    rows = (report / "table.md").read_text().splitlines()[2:4]
    assert [row.split(" | ")[0] for row in rows] == ["| cross_entropy", "| focal:gamma=5"]


def test_the_saved_model_translates_at_its_temperature(compared):
    result, folder = compared.results[1], compared.focal
    T = result.temperature.value
    assert T < 1
    files = {T: lines_of(folder / "translations" / f"test_T{T}.txt") for T in result.bleu}
    assert files[T] != files[1.0]
    assert generate(folder, compared.test["source"]) == files[T]
    assert generate(last_checkpoint(folder), compared.test["source"]) == files[1.0]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.calibration["temperature"] == T and model.config.calibration["folded"] is True
    saved = model.generation_config
    assert (saved.num_beams, saved.length_penalty, saved.max_length) == (4, 0.6, 24)


def write_files(folder, train=120, test=19):
    pairs = {
        name: generate_translations(size, seed=seed).rename_columns({"source": "en", "target": "de"})
        for seed, (name, size) in enumerate({"train": train, "test": test}.items())
    }
    folder.mkdir(exist_ok=True)
    files = {f"{name}_file": folder / f"{name}.parquet" for name in pairs}
    for name, split in pairs.items():
        split.to_parquet(files[f"{name}_file"])
    return files, pairs


def test_files_and_long_pairs(tmp_path, caplog):
    files, _ = write_files(tmp_path / "data")
    caplog.set_level("INFO")
    run(tmp_path / "out", **files, max_length=10)
    data_args = recipe.TranslationDataArguments(
        **{name: str(file) for name, file in files.items()}, validation_size=20
    )
    training = recipe.load_data(data_args, 42)["train"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    sides = (tokenizer(training[side][:])["input_ids"] for side in ("source", "target"))
    long = sum(max(len(source), len(target)) > 10 for source, target in zip(*sides, strict=True))
    assert 0 < long < 100
    assert f"dropped {long} of 100 training pairs: over max_length" in caplog.messages
    assert len(lines_of(tmp_path / "out" / "translations" / "test_T1.0.txt")) == 19


def test_the_last_checkpoints_are_averaged(tmp_path, caplog):
    caplog.set_level("INFO")
    options = {"num_train_epochs": 3, "save_total_limit": 2}
    options |= {"average_checkpoints": 2, "learning_rate": "1e-3", "generation_num_beams": 1}
    (result,) = run(tmp_path / "out", **options)
    checkpoints = checkpoints_of(tmp_path / "out")
    assert len(checkpoints) == 2
    assert f"averaging {checkpoints[1].name}, {checkpoints[0].name}" in caplog.messages
    states = [load_file(path / "model.safetensors") for path in checkpoints]
    mean = AutoModelForSeq2SeqLM.from_pretrained(checkpoints[0])
    mean.load_state_dict({name: (value + states[1][name]) / 2 for name, value in states[0].items()}, strict=False)
    expected = fold_correction(mean, result.temperature).state_dict()
    actual = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").state_dict()
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match=r"other settings \(save_strategy: 'epoch' there, 'steps' now\)"):
        run(tmp_path / "out", **options | {"save_strategy": "steps"})


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.8"), reason="PyTorch 2.7 cannot load an optimizer's state to 'cpu:0'"
)
def test_two_processes(tmp_path):
    files, pairs = write_files(tmp_path / "data")
    folder = tmp_path / "out"
    options = files | {"loss": "focal:gamma=5", "per_device_eval_batch_size": 4, "num_train_epochs": 2}
    output = output_of(start(SCRIPT, 2, json.dumps(command_line(folder, **options, bleu_temperatures=[1, 2]))))
    assert output.count("translating at temperature 2\n") == 1
    result = TranslationResult.load(folder / "report" / "metrics.json")
    assert result.data.num_processes == 2
    T = result.temperature.value
    assert result.bleu.keys() == {1.0, 2.0, T}

    # The same by this one process, of the model before and after its temperature was folded in.
    data_args, model_args, _, args = parse(command_line(tmp_path / "one", **options))
    splits = recipe.load_data(data_args, args.seed)
    tokenizer = recipe.train_tokenizer(model_args, splits)
    encoded = recipe.encode_pairs(splits["test"], tokenizer, 24, cut=True)
    for path, temperature, metrics in ((last_checkpoint(folder), 1.0, result.pre), (folder, T, result.post)):
        lines = lines_of(folder / "translations" / f"test_T{temperature}.txt")
        assert lines == generate(path, pairs["test"]["en"])
        assert result.bleu[temperature] == recipe.BLEU().corpus_score(lines, [list(pairs["test"]["de"])]).score
        model = AutoModelForSeq2SeqLM.from_pretrained(path)
        trainer = FocalSeq2SeqTrainer(model, args, DataCollatorForSeq2Seq(tokenizer, model=model))
        expected, _ = trainer.measure(encoded)
        for key, value in expected.compute().items():
            assert metrics[key] == pytest.approx(value, rel=0, abs=1e-6, nan_ok=True), key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": "{tmp}/unknown.yaml"}, "unknown.yaml must hold arguments of this recipe only, got 'beams'"),
        ({"bleu_temperatures": [1, "hot"]}, "invalid float value: 'hot'"),
        ({"bleu_temperatures": [1, "nan"]}, "bleu_temperatures must be positive numbers, got [1.0, nan]"),
        ({"train_file": "{data}/train.parquet"}, "test_file must be given"),
        (
            {"average_checkpoints": 3, "save_total_limit": 2},
            "average_checkpoints must be 1 with save_total_limit 2, got 3",
        ),
        ({"average_checkpoints": 2, "save_only_model": "true"}, "must be 1 with save_only_model, got 2"),
        ({"generation_max_length": 9}, "generation_max_length must not be given, got 9: use max_length"),
        ({"max_length": 3}, "max_length must leave training pairs, got 3: all of them are longer"),
        ({"d_model": 18, "num_heads": 2}, "d_model must be a multiple of 2 * num_heads, got 18 for 2"),
    ],
)
def test_errors_come_before_training_and_leave_no_folder(options, message, inputs, tmp_path, capsys):
    def filled(text):
        return str(text).replace("{tmp}", str(inputs)).replace("{data}", str(inputs / "data"))

    options = {name: value if isinstance(value, list) else filled(value) for name, value in options.items()}
    with pytest.raises((ValueError, SystemExit)) as stopped:
        run(tmp_path / "out", **options)
    assert filled(message) in f"{stopped.value} {capsys.readouterr().err}"
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files, good and bad."""
    folder = tmp_path_factory.mktemp("inputs")
    write_files(folder / "data", 40, 10)
    (folder / "unknown.yaml").write_text("beams: 4\n", encoding="utf-8")
    return folder


def test_bleu_is_that_of_the_sacrebleu_command(compared, tmp_path):
    result = compared.results[1]
    T = result.temperature.value
    (tmp_path / "references.txt").write_text("\n".join(compared.test["target"]) + "\n", encoding="utf-8")
    command = [
        "-m",
        "sacrebleu",
        tmp_path / "references.txt",
        "-i",
        compared.focal / "translations" / f"test_T{T}.txt",
    ]
    done = subprocess.run([sys.executable, *command, "-m", "bleu", "-w", "10"], capture_output=True, text=True)
    score = json.loads(done.stdout)
    assert result.bleu[T] == pytest.approx(score["score"], abs=1e-9)
    assert result.bleu[T] > 1
    assert result.signature == score["signature"]
