"""The names that users import, and what importing them costs."""

import ast
import inspect
import subprocess
import sys

import pytest

import hf_focal

HEAVY = {"transformers", "accelerate", "datasets"}  # which a table of scores does not need
TABLE = "{'logits': [[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 3.0]] * 9, 'label': [0, 1, 1, 1] * 9}"


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_every_public_name_is_there():
    assert hf_focal.__all__ == sorted(set(hf_focal.__all__))
    for name in hf_focal.__all__:
        assert getattr(hf_focal, name).__name__ == name
        assert name in dir(hf_focal)
    assert {"LossConfig", "build_loss", "loss_func", "FocalTrainer", "FocalTrainingArguments"} < set(hf_focal.__all__)
    assert {"CalibrationMetrics", "reliability_diagram", "gamma_for_threshold"} < set(hf_focal.__all__)
    assert {"Temperature", "fit_temperature", "fold_correction"} < set(hf_focal.__all__)


def test_a_type_checker_finds_every_name_where_it_is_loaded_from():
    nodes = ast.walk(ast.parse(inspect.getsource(hf_focal)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1]
    assert {node.names[0].asname: node.module for node in imports} == hf_focal._MODULES


@pytest.mark.parametrize("package", ["losses", "metrics", "reports", "trainer"])
def test_every_name_of_a_package_is_there(package):
    module = __import__(f"hf_focal.{package}", fromlist=["__all__"])
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'hf_focal' has no attribute 'FocalTrayner'"):
        _ = hf_focal.FocalTrayner


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import hf_focal", {"torch", "transformers", "matplotlib", "datasets", "accelerate"}),
        (
            "import hf_focal.losses, hf_focal.metrics\nfrom hf_focal import build_loss, fit_temperature",
            {"transformers", "matplotlib", "datasets", "accelerate"},
        ),
        *(
            (f"from hf_focal.cli.main import main\nmain({line})", {"torch", "numpy"})
            for line in (
                ["losses"],
                ["recipe", "list"],
                ["recommend", "--task", "causal-lm", "--held_out_samples", "20"],
                ["recipe", "copy", "no_recipe"],  # an error
            )
        ),
        (
            "from hf_focal.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass",
            {"torch", "numpy"},
        ),
        pytest.param("from hf_focal import loss_func", {"matplotlib"}, marks=pytest.mark.slow),
        pytest.param(
            f"import hf_focal\nhf_focal.evaluate_scores({TABLE})\nhf_focal.calibrate_scores({TABLE})",
            HEAVY,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_an_import_leaves_alone(statement, absent):
    loaded = loaded_by(statement)
    assert "hf_focal" in loaded
    assert loaded & absent == set()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_a_command_for_a_table_leaves_alone_what_models_need(command, tmp_path):
    table = tmp_path / "scores.csv"
    table.write_text("prob_a,prob_b,label\n" + "0.9,0.1,a\n0.2,0.8,b\n0.7,0.3,b\n" * 9, encoding="utf-8")
    line = [command, "--scores", str(table), "--output", str(tmp_path / "out")]
    loaded = loaded_by(
        f"import contextlib, io\nfrom hf_focal.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    assert main({line!r}) == 0"
    )
    assert "hf_focal" in loaded and loaded & HEAVY == set()
    assert (tmp_path / "out" / "report.html").exists()
