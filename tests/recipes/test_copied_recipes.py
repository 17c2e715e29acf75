"""Each recipe copied into an empty folder runs with nothing of this repository but the wheel."""

import os
import shutil
import subprocess
import sys

import pytest
from checkpoints import save_encoder
from documented import ROOT
from running import flags, text_files

RECIPES = sorted(path.name for path in (ROOT / "recipes").glob("*.py"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A folder in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(built)], check=True)
    return folder / "site"


def run_copy(wheel, folder, recipe, *argv):
    shutil.copy(ROOT / "recipes" / recipe, folder)
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", f"import runpy, hf_focal; print(hf_focal.__file__); {RUN}", recipe, *argv]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


RUN = "import sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_copy_lists_its_options(wheel, tmp_path, recipe):
    done = run_copy(wheel, tmp_path, recipe, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
    assert "--losses" in done.stdout and "--model_name_or_path" in done.stdout
    assert "--adam_beta1" not in done.stdout


def test_the_copy_trains(wheel, tmp_path):
    files = text_files(tmp_path)
    encoder = save_encoder(tmp_path / "encoder", "bert")
    options = flags(model_name_or_path=encoder, output_dir="out", losses="cross_entropy,flsd53", **files)
    done = run_copy(wheel, tmp_path, "text_classification.py", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel)) and "flsd53: " in done.stdout
    assert all((tmp_path / "out" / loss / "report.html").is_file() for loss in ("cross_entropy", "flsd53"))


def test_a_mistake_on_the_command_line_is_one_line(wheel, tmp_path):
    (tmp_path / "config.yaml").write_text("lerning_rate: 1e-3\n")
    options = ["--model_name_or_path", "org/encoder", "--config", "config.yaml"]
    done = run_copy(wheel, tmp_path, "text_classification.py", *options)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert "got 'lerning_rate'; did you mean 'learning_rate'?" in line
