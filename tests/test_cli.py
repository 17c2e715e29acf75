import pytest

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
    assert capsys.readouterr().out == "3.0702\n"


def test_gamma_outside_its_range_is_an_error(capsys):
    assert main(["gamma", "0.5"]) == 2
    assert "p0 must be within (0, 0.5)" in capsys.readouterr().err


def test_a_command_is_needed():
    with pytest.raises(SystemExit):
        main([])
