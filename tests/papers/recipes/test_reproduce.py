"""The plan, its runs and its pages: with the real tables, with a fake recipe, and once with a real one."""

import importlib.util
import json
import re
import shlex

import pytest
import yaml
from datasets import Dataset
from papers.data.generated_topics import generate_topics
from papers.pages.records import record_of
from recipe_modules import FOLDER, flags, import_recipe

from hf_focal import LossConfig
from hf_focal.trainer.recipe_arguments import parse_arguments

recipe = import_recipe("reproduce")


def argv(folder, **options):
    options = {"table": "mukhoti2020:1", "rows": "cifar10/resnet50", "output_dir": folder} | options
    named = [(name, str(value)) for name, value in options.items() if value is not None]
    return [part for name, value in named for part in (f"--{name}", *value.split())]


def plan(folder, **options):
    return plan_of(argv(folder, **options))


def plan_of(command):
    (arguments,) = parse_arguments((recipe.ReproduceArguments,), command)
    return recipe.plan_runs(arguments)


# The plan


def test_the_plan_has_a_run_for_each_loss_and_seed(tmp_path):
    runs = plan(tmp_path, seeds="4 5")
    losses = ["cross_entropy", "brier", "mmce", "label_smoothing_0.05", "flsd_53"]
    names = [f"cifar10/resnet50 {loss} seed {seed}" for seed in (4, 5) for loss in losses]
    assert [run.name for run in runs] == names
    job = runs[-1]
    assert job.folder == tmp_path / "cifar10" / "resnet50" / "flsd_53" / "seed_5"
    assert job.recipe == FOLDER / "image_classification.py"
    assert job.options == {
        "config": FOLDER / "configs" / "cifar10" / "paper.yaml",
        "dataset_name": "uoft-cs/cifar10",
        "image_column": "img",
        "model_name_or_path": "cifar_resnet50",
        "loss": "flsd53",
        "seed": 5,
    }
    assert next(run for run in runs if " mmce " in run.name).options["loss"] == "published_mmce:lam=2"


def newsgroups_files(folder):
    folder.mkdir()
    for name in ("train.parquet", "validation.parquet", "test.parquet", "glove.6B.100d.txt"):
        (folder / name).write_bytes(b"")
    return folder


def test_data_and_overrides_go_to_the_runs(tmp_path):
    data = newsgroups_files(tmp_path / "news")
    overrides = "num_train_epochs=2 optim=sgd"
    options = {"rows": "20_newsgroups/gp_cnn", "data": f"20_newsgroups={data}", "overrides": overrides, "seeds": "1"}
    run = plan(tmp_path / "out", **options)[0]
    assert run.options["train_file"] == data / "train.parquet"
    assert run.options["embeddings_file"] == data / "glove.6B.100d.txt"
    assert "dataset_name" not in run.options
    assert (run.options["num_train_epochs"], run.options["optim"]) == ("2", "sgd")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "mukoti2020:3"}, r"did you mean 'mukhoti2020:3'\?"),
        ({"rows": "20_newsgroup/gp_cnn"}, r"got '20_newsgroup/gp_cnn'; did you mean '20_newsgroups/gp_cnn'\?"),
        ({"table": "mukhoti2020:1 adafocal2022:1", "losses": "adafocal"}, "must leave a cell of mukhoti2020:1"),
        ({"rows": "sst_binary"}, r"data must have sst_binary=FOLDER, as no copy on the Hub is known, got \[\]"),
        (
            {"rows": "20_newsgroups/gp_cnn", "data": "20_newsgroups=nowhere"},
            r"folder with train.parquet, .*, glove.* for .* got 'nowhere'",
        ),
        ({"overrides": "num_train_epochs"}, r"overrides must be .* =VALUE, got 'num_train_epochs'"),
        ({"overrides": "optim=sgd optim=adam"}, r"overrides must be different names"),
        ({"overrides": "loss=brier"}, r"overrides must not name loss, which is the run's own, got loss=brier"),
        ({"seeds": "1 2 1"}, r"seeds must be different numbers, one at least, got \[1, 2, 1\]"),
    ],
)
def test_what_is_wrong_with_the_command_is_said(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        plan(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_one_process_accumulates_the_batches_of_several(tmp_path):
    data = tmp_path / "wmt"
    data.mkdir()
    for name in ("train", "validation", "test"):
        (data / f"{name}.parquet").touch()
    options = {"table": "mukhoti2020:3", "rows": None, "seeds": "1", "data": f"wmt14_en_de={data}"}
    assert {run.options["gradient_accumulation_steps"] for run in plan(tmp_path, **options)} == {8}
    options["overrides"] = "gradient_accumulation_steps=2"
    assert {run.options["gradient_accumulation_steps"] for run in plan(tmp_path, **options)} == {16}


# The tables and what runs them


def rows_file():
    return yaml.safe_load((FOLDER / "tables" / "rows.yaml").read_text())


def test_every_printed_loss_has_one_here():
    papers = {path.stem: recipe.read_paper_tables(path) for path in (FOLDER / "tables").glob("*.csv")}
    names = {cell.name for tables in papers.values() for cells in tables.values() for cell in cells}
    known = rows_file()
    assert {loss for _, _, loss in names} == set(known["losses"])
    built = {name: str(LossConfig.parse(loss)) for name, loss in known["losses"].items()}
    assert built["focal_2"] == "focal:gamma=2"
    assert len(set(built.values())) == len(built)
    assert all(recipe.row_entry(known, *name[:2])["recipe"].endswith(".py") for name in names)


@pytest.mark.parametrize("name", ["sst_trees", "image_classification", "text_classification", "translation"])
def test_the_recipes_take_the_arguments_of_the_rows(tmp_path, name):
    (tmp_path / "glove.6B.100d.txt").touch()
    script, timm = import_recipe(name), importlib.util.find_spec("timm")
    known = rows_file()
    rows = [(dataset, model) for dataset, entry in known["datasets"].items() for model in entry["models"]]
    entries = {row: recipe.row_entry(known, *row) for row in rows if row[0] != "imagenet" or timm is not None}
    rows = {row: entry for row, entry in entries.items() if entry["recipe"] == f"{name}.py"}
    for row, entry in rows.items():
        fixed = {"config": FOLDER / "configs" / entry["config"], "loss": "brier", "seed": 1, "output_dir": tmp_path}
        files = {key: tmp_path / file for key, file in entry.get("files", {}).items()}
        for data in [*([entry["hub"]] if "hub" in entry else []), files]:
            parsed = parse_arguments(script.ARGUMENTS, flags(fixed | data | entry["model"]))
            assert (parsed[-1].loss, parsed[-1].seed) == ("brier", 1), row
    assert rows


def test_bert_has_a_recipe_and_files_of_its_own(tmp_path):
    names = ("train", "validation", "test", "train_body", "validation_body", "test_body")
    for name in (*(f"{name}.parquet" for name in names), "glove.6B.100d.txt"):
        (tmp_path / name).write_text(name)
    rows = "20_newsgroups/gp_cnn 20_newsgroups/bert"
    data = f"20_newsgroups={tmp_path}"
    runs = plan(tmp_path, table="adafocal2022:1", rows=rows, losses="flsd_53", seeds="1", data=data)
    jobs = {run.folder.parts[-3]: run for run in runs}
    assert {run.recipe.name for run in runs} == {"text_classification.py"} and len(runs) == 2
    assert jobs["bert"].options["train_file"].name == "train_body.parquet"
    assert "embeddings_file" in jobs["gp_cnn"].options and "embeddings_file" not in jobs["bert"].options
    assert "models" not in jobs["bert"].options and "files" not in jobs["bert"].options


# Runs and pages, with a fake recipe

# Dies in the first start of seed 2 of each loss.
FAKE = """
import pathlib, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(options["--output_dir"])
folder.mkdir(parents=True, exist_ok=True)
if options["--seed"] == "2" and not (folder / "checkpoint-1").exists():
    (folder / "checkpoint-1").mkdir()
    raise RuntimeError("out of memory")
(folder / "report").mkdir(exist_ok=True)
(folder / "report" / "metrics.json").touch()
"""
TABLE = """paper,table,dataset,model,loss,metric,stage,value,temperature,note
paper,1,news,cnn,cross_entropy,ece,pre_t,17.92,,
paper,1,news,cnn,focal_3,ece,pre_t,8.67,,
"""
ROWS = {
    "losses": {"cross_entropy": "cross_entropy", "focal_3": "focal:gamma=3"},
    "datasets": {
        "news": {
            "recipe": "fake.py",
            "config": "news/small.yaml",
            "hub": {"dataset_name": "some/news"},
            "models": {"cnn": {}},
        }
    },
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake recipe, with a table of its own."""
    recipes = tmp_path / "recipes"
    for folder in ("tables", "configs/news"):
        (recipes / folder).mkdir(parents=True)
    (recipes / "fake.py").write_text(FAKE)
    (recipes / "tables" / "paper.csv").write_text(TABLE)
    (recipes / "tables" / "rows.yaml").write_text(yaml.safe_dump(ROWS))
    (recipes / "configs" / "news" / "small.yaml").write_text("num_train_epochs: 50\n")
    monkeypatch.setattr(recipe, "RECIPES", recipes)
    monkeypatch.setattr(recipe, "TABLES", recipes / "tables")


def fake_argv(tmp_path, **options):
    return argv(tmp_path / "out", **{"table": "paper:1", "rows": None, "overrides": "num_train_epochs=5"} | options)


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_the_same_command_goes_on(tmp_path, fake, capsys):
    assert recipe.main(fake_argv(tmp_path)) == 1
    printed = capsys.readouterr().out
    assert printed.count(": finished\n") == 4 and "news/cnn focal_3 seed 2: exit code 1\n" in printed
    recipe.main([*fake_argv(tmp_path), "--dry_run"])
    assert "2 of 6 runs to do." in capsys.readouterr().out
    assert recipe.main(fake_argv(tmp_path)) == 0


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path, fake, capsys):
    assert recipe.main([*fake_argv(tmp_path), "--dry_run"]) == 0
    printed = capsys.readouterr().out
    assert "to run     news/cnn focal_3 seed 3" in printed
    assert "6 of 6 runs to do." in printed
    command = shlex.split(printed.strip().splitlines()[-1])
    assert command[command.index("--num_train_epochs") + 1] == "5"
    assert not (tmp_path / "out").exists()


# Once with a real recipe


@pytest.mark.slow
def test_a_real_row_that_dies_and_is_resumed(tmp_path, capfd):
    data = tmp_path / "news"
    data.mkdir()
    for name, size, seed in (("train", 130, 0), ("validation", 40, 1), ("test", 60, 2)):
        topics = generate_topics(size, seed=seed)
        Dataset.from_dict({"text": topics["text"], "label": topics["label"]}).to_parquet(data / f"{name}.parquet")
    (data / "glove.6B.100d.txt").write_text(f"{topics['text'][0].split()[0]} 0 1\n")
    overrides = "num_train_epochs=2 strip=none max_length=30 vocab_size=200 embedding_size=2"
    overrides += " embedding_learning_rate=0.1 num_filters=8 num_layers=1"
    overrides += " save_total_limit=2"  # with 1 only the best checkpoint is left
    options = {"rows": "20_newsgroups/gp_cnn", "data": f"20_newsgroups={data}", "overrides": overrides}
    options |= {"losses": "flsd_53", "seeds": "1"}
    command = argv(tmp_path / "out", **options)
    folder = tmp_path / "out" / "20_newsgroups" / "gp_cnn" / "flsd_53" / "seed_1"
    folder.mkdir(parents=True)
    (folder / "report").touch()  # a file: the run cannot write its report, after all the training

    assert recipe.main(command) == 1
    first = capfd.readouterr()
    assert "gp_cnn flsd_53 seed 1: exit code 1" in first.out and "FileExistsError" in first.err
    (folder / "report").unlink()
    assert recipe.main(command) == 0
    log = "".join([*first, *capfd.readouterr()])
    trained = re.findall(r"^epoch ([\d.]+): training loss", log, re.M)
    assert [float(epoch) for epoch in trained] == [1, 2]  # once: the second start went on from the last checkpoint
    settings = json.loads((folder / "run.json").read_text())
    assert (settings["num_processes"], settings["mixed_precision"]) == (1, "no")
    assert record_of(folder)["loss"] == "flsd53"


def test_tables_share_their_runs(tmp_path):
    runs = plan(tmp_path, table="mukhoti2020:1 mukhoti2020:4 adafocal2022:1", seeds="1")
    losses = [run.folder.parts[-2] for run in runs]
    assert sorted(losses) == sorted(set(losses))
    assert {"focal_3", "flsc_532", "adafocal"} < set(losses)
    runs = plan(tmp_path, table="mukhoti2020:1 adafocal2022:1", losses="flsd_53 adafocal", seeds="1")
    assert [run.folder.parts[-2] for run in runs] == ["flsd_53", "adafocal"]
