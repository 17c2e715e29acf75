"""`hf-focal recipe`: the list, copies that run, and what is refused."""

import os
import subprocess
import sys
import tomllib

import pytest
from documented import ROOT

from hf_focal.cli.main import main
from hf_focal.cli.recipes import recipes


def test_the_list_names_every_recipe_with_its_first_line(capsys):
    assert main(["recipe", "list"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == sorted(path.stem for path in (ROOT / "recipes").glob("*.py"))
    assert all(title.endswith(".") and len(title) > 20 for title in recipes().values())


@pytest.mark.parametrize("name", recipes())
def test_a_copy_is_the_recipe_and_says_how_to_go_on(name, tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main(["recipe", "copy", name, "--output_dir", str(folder)]) == 0
    assert f"python {folder / name}.py --help" in capsys.readouterr().out
    assert (folder / f"{name}.py").read_text() == (ROOT / "recipes" / f"{name}.py").read_text()
    for config in ("own_texts.yaml", "demo.yaml"):
        assert (folder / config).is_file() == (name == "text_classification")


@pytest.mark.slow
@pytest.mark.parametrize("name", recipes())
def test_a_copy_explains_its_options(name, tmp_path):
    assert main(["recipe", "copy", name, "--output_dir", str(tmp_path / "mine")]) == 0
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, f"{name}.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path / "mine", env=environment, capture_output=True, text=True, check=True)
    assert recipes()[name].split(",")[0] in " ".join(done.stdout.split())


def test_nothing_is_overwritten(tmp_path, capsys):
    config = tmp_path / "own_texts.yaml"
    config.write_text("mine")
    assert main(["recipe", "copy", "text_classification", "--output_dir", str(tmp_path)]) == 2
    assert f"must not have the file '{config}'" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [config] and config.read_text() == "mine"


def test_a_missing_action_is_told_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["recipe"])
    assert "required: {list,copy} (see" in capsys.readouterr().err


def test_an_unknown_recipe(capsys):
    assert main(["recipe", "copy", "texts"]) == 2
    assert "recipe must be one of image_classification, " in capsys.readouterr().err


def test_the_wheel_has_every_recipe():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    expected = {"recipes/configs", *(f"recipes/{path.name}" for path in (ROOT / "recipes").glob("*.py"))}
    assert {source: f"hf_focal/{source}" for source in expected} == included


def test_a_copy_without_a_name_says_where_the_names_are(capsys):
    with pytest.raises(SystemExit):
        main(["recipe", "copy"])
    assert "the name of a recipe is required: `hf-focal recipe list` prints them" in capsys.readouterr().err
