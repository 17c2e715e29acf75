"""`--dynamics` of the recipes: what is measured, where the figures are, and who refuses it."""

import pytest
from recipe_modules import ON_CPU, TINY_TEXTS, flags, import_recipe

from hf_focal.reports import RunResult

FIGURES = {"dynamics.png", "dynamics_train.png", "dynamics_test.png", "dynamics_gradients.png"}


def command_line(folder, **options):
    training = {"num_train_epochs": 2, "save_strategy": "no", "dynamics": "true"}
    return flags({"output_dir": folder} | training | ON_CPU | options)


@pytest.mark.slow
def test_texts_one_figure_a_run_and_one_of_all(tmp_path):
    compare = {"losses": "cross_entropy,focal:gamma=3", "dynamics_samples": 30, "dynamics_epochs": "0, 2"}
    import_recipe("text_classification").main(command_line(tmp_path, **TINY_TEXTS, **compare))
    for run in ("cross_entropy", "focal_gamma_3"):
        assert {path.name for path in (tmp_path / run / "report").iterdir()} >= FIGURES
        history = RunResult.load(tmp_path / run / "report" / "metrics.json").details["dynamics_history"]
        assert [entry["epoch"] for entry in history] == [0, 1, 2]
        assert all({"train_nll", "test_nll", "gradient_norm"} <= set(entry) for entry in history)
        assert ["test_bins" in entry for entry in history] == [True, False, True]
        assert sum(history[-1]["test_bins"]["count"]) == 30
    compared = {"dynamics.png", "dynamics_gaps.png", "dynamics_confidence.png", "dynamics_gradients.png"}
    assert {path.name for path in (tmp_path / "report").iterdir()} >= compared


@pytest.mark.parametrize("name", ["translation"])
def test_recipes_that_do_not_measure_it_do_not_take_it(name, tmp_path, capsys):
    with pytest.raises(SystemExit):
        import_recipe(name).main(command_line(tmp_path))
    assert "--dynamics" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["1,last", "-1", "1,,2"])
def test_bad_epochs_are_refused_before_training(epochs, tmp_path):
    with pytest.raises(ValueError, match=f"dynamics_epochs must be epochs such as '1,10,30', got '{epochs}'"):
        import_recipe("text_classification").main(command_line(tmp_path, dynamics_epochs=epochs))
