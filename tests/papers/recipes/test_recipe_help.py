"""What `--help` of a recipe shows: its own options first, in at most 80 lines of 80 columns."""

import pytest
from papers.runs.yaml_arguments import parse_arguments
from recipe_modules import import_recipe

RECIPES = ("text_classification", "token_classification", "image_classification", "semantic_segmentation")


def help_of(recipe, capsys, option):
    with pytest.raises(SystemExit, match="0"):
        parse_arguments(import_recipe(recipe).ARGUMENTS, [option], "What it does.")
    return capsys.readouterr().out


@pytest.mark.parametrize("recipe", [*RECIPES, "translation"])
def test_help_is_short_and_shows_the_recipes_options_first(recipe, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = help_of(recipe, capsys, "--help")
    assert shown.count("\n") <= 80
    options = [
        "\ndata:\n",
        "--train_file",
        "\nmodel:\n",
        "\ncomparison and temperature:\n",
        "--learning_rate",
        "--loss ",
    ]
    assert sorted(options, key=shown.index) == options
    assert "--adam_beta1" not in shown and "--help-all" in shown


def test_help_all_shows_the_training_arguments(capsys):
    shown = help_of("text_classification", capsys, "--help-all")
    assert all(f"--{name}" in shown for name in ("train_file", "loss", "adam_beta1", "logging_nan_inf_filter"))
