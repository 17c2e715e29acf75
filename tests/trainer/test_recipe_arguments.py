"""Command lines of recipes: files of defaults, several losses, and help."""

from dataclasses import dataclass, field

import pytest

from hf_focal import FocalTrainingArguments, parse_recipe
from hf_focal.trainer.recipe_arguments import parse_arguments, parse_losses


@dataclass
class Recipe:
    model: str = field(metadata={"help": "a model"})
    names: str | None = None


def parse(tmp_path, *argv, config=None):
    argv = ["--output_dir", str(tmp_path / "out"), "--use_cpu", "true", *argv]
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
        argv += ["--config", str(tmp_path / "config.yaml")]
    return parse_recipe(Recipe, FocalTrainingArguments, "What it does.", argv)


def test_the_command_line_wins_over_the_file_whose_values_are_text(tmp_path):
    config = "model: a\nlearning_rate: 5e-5\nsave_strategy: no\nnames: [x, y]\nbf16: auto\nseed: 3\n"
    recipe, (args,) = parse(tmp_path, "--seed=4", config=config)
    assert recipe == Recipe("a", "x,y")
    assert (args.learning_rate, args.save_strategy.value, args.seed, args.bf16) == (5e-5, "no", 4, False)


def test_each_loss_is_a_run_with_a_folder_and_a_repository(tmp_path):
    losses = "cross_entropy,mmce:lam=3,weighted=true,flsd:thresholds=0.2/0.5,gammas=5/3/2"
    _, runs = parse(tmp_path, "--model=a", f"--losses={losses}", "--hub_model_id=team/it")
    assert [run.loss for run in runs] == [
        "cross_entropy",
        "mmce:lam=3,weighted=true",
        "flsd:thresholds=0.2/0.5,gammas=5/3/2",
    ]
    assert len({run.output_dir for run in runs}) == 3
    assert all(run.output_dir.startswith(str(tmp_path / "out")) for run in runs)
    assert runs[0].hub_model_id == "team/it-cross-entropy"


def test_a_loss_that_changes_in_training_gets_its_own_metric(tmp_path):
    argv = ["--model=a", "--losses=cross_entropy,adafocal", "--load_best_model_at_end=true", "--eval_strategy=epoch"]
    _, runs = parse(tmp_path, *argv, "--save_strategy=epoch")
    assert [run.metric_for_best_model for run in runs] == ["loss", "nll"]


def test_a_comma_separates_losses_and_options_of_one():
    text = " mmce:lam=8,weighted=true,brier,, flsd:thresholds=0.2/0.5,gammas=5/3/2,adafocal:bins=10,lam=2"
    losses = parse_losses(text)
    assert [loss.partition(":")[0] for loss in losses] == ["mmce", "brier", "flsd", "adafocal"]
    assert parse_losses(",".join(losses)) == losses


@pytest.mark.parametrize("losses", ["brier,brier", " , ", "flsd53,flsd53"])
def test_losses_must_differ(tmp_path, losses):
    with pytest.raises(ValueError, match="losses must be different losses"):
        parse(tmp_path, "--model=a", f"--losses={losses}")


def test_loss_and_losses_do_not_go_together(tmp_path):
    with pytest.raises(ValueError, match="losses must be given without loss"):
        parse(tmp_path, "--model=a", "--losses=brier", "--loss=flsd53")


@dataclass
class More:
    folder: str
    tables: list[str] = field(default_factory=list)


def test_several_dataclasses_of_which_the_file_holds_what_is_required(tmp_path):
    (tmp_path / "config.yaml").write_text("tables: [a, 2]\nmodel: b\n")
    argv = ["--config", str(tmp_path / "config.yaml"), "--folder", "x"]
    assert parse_arguments((Recipe, More), argv) == (Recipe("b"), More("x", ["a", "2"]))
    recipe, runs = parse_recipe((Recipe, More), FocalTrainingArguments, None, [*argv, f"--output_dir={tmp_path}"])
    assert recipe == (Recipe("b"), More("x", ["a", "2"])) and len(runs) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("modell: a", "got 'modell'; did you mean 'model'?"),
        ("- a", "must hold a mapping of arguments, got list"),
        ("a: [", "must be a YAML file"),
        ("seed: x", "invalid int value"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, config, message, capsys):
    with pytest.raises(SystemExit):
        parse(tmp_path, "--model=a", config=config)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and "config.yaml" in line


def test_help_is_short_unless_all_is_asked_for(tmp_path, capsys):
    for flag, shown in (("--help", False), ("--help-all", True)):
        with pytest.raises(SystemExit):
            parse(tmp_path, flag)
        text = capsys.readouterr().out
        assert "a model" in text and "--losses" in text and ("--adam_beta1" in text) == shown
