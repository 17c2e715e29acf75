import pytest

import hf_focal
from hf_focal.cli import main
from hf_focal.losses import LOSSES


def test_losses_lists_every_loss_with_its_options(capsys):
    assert main(["losses"]) == 0
    printed = capsys.readouterr().out
    for name, spec in LOSSES.items():
        assert f"{name}: " in printed
        assert all(f"    {option}: " in printed for option in spec.options)


def test_gamma_prints_the_gamma_of_a_threshold(capsys):
    assert main(["gamma", "0.25"]) == 0
    assert capsys.readouterr().out == "3.07023\n"


def test_gamma_near_a_half_keeps_its_digits(capsys):
    assert main(["gamma", "0.499999"]) == 0
    assert capsys.readouterr().out == "5.1094e-06\n"


@pytest.mark.parametrize(
    "line",
    [
        "    gamma: γ, at least 0 [3]",
        "    thresholds: probabilities where γ changes, increasing within (0, 1) [0.2]",
        "    gammas: γ below, between and above the thresholds [5/3]",
        "    weighted: the weighted form of the term [false]",
        "    p0: instead of gamma: the probability, in (0, 0.5), where g(p0, γ) = 1",
    ],
)
def test_losses_shows_each_default_as_it_is_written(capsys, line):
    main(["losses"])
    assert line in capsys.readouterr().out.splitlines()


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"hf-focal {hf_focal.__version__}\n"


def test_gamma_outside_its_range_is_an_error(capsys):
    assert main(["gamma", "0.5"]) == 2
    assert "p0 must be within (0, 0.5)" in capsys.readouterr().err


def test_a_command_is_needed():
    with pytest.raises(SystemExit):
        main([])
