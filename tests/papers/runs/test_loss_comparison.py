from pathlib import Path
from types import SimpleNamespace

from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import RecipeArguments

from hf_focal.trainer import FocalTrainingArguments


def test_next_steps_name_a_folder_with_braces_as_python_and_the_shell_read_it(tmp_path, capsys):
    folder = str(tmp_path / "a {b}")

    def train_one(run, checkpoint):
        Path(run.output_dir, "report").mkdir()
        return SimpleNamespace(post={"nll": 1.0})

    train_each_loss(
        train_one,
        [FocalTrainingArguments(folder, use_cpu=True)],
        RecipeArguments(),
        settings=(),
        calibration_size=1000,
        summary=str,
        next_steps=["load({folder!r})", None, "test {quoted}"],
    )
    steps = capsys.readouterr().out.partition("Next:\n")[2].splitlines()
    page = f"see the figures on one page: hf-focal report '{folder}'"
    assert [step.strip() for step in steps] == [page, f"load('{folder}')", f"test '{folder}'"]
