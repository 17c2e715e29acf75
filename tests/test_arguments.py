"""A config file under a command line, and folders that hold one run each."""

import json
from dataclasses import dataclass, field

import pytest

from hf_focal.arguments import claim_output_dir, parse_arguments


@dataclass
class First:
    name: str = field(default="default", metadata={"help": "A name."})
    rate: float = field(default=0.1, metadata={"help": "A rate."})


@dataclass
class Second:
    count: int | None = field(default=None, metadata={"help": "A count."})
    flag: bool = field(default=False, metadata={"help": "A flag."})
    loss: dict | str | None = field(default="brier", metadata={"help": "A loss."})


def parse(*argv):
    return parse_arguments((First, Second), argv)


def config_of(folder, text):
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_a_config_the_defaults_hold():
    assert parse() == (First(), Second())
    assert parse("--rate", "5e-5", "--flag") == (First(rate=5e-5), Second(flag=True))


def test_the_command_line_wins_over_the_config(tmp_path):
    config = config_of(tmp_path, "name: config\nrate: 1e-3\ncount: 3\nflag: true\n")
    assert parse("--config", config) == (First("config", 1e-3), Second(3, True))
    changed = parse("--rate", "0.5", "--config", config, "--count", "4", "--flag", "false")
    assert changed == (First("config", 0.5), Second(4, False))


def test_values_get_the_type_of_their_argument(tmp_path):
    # YAML reads "5e-5" as text, and "yes" as true.
    config = config_of(tmp_path, "rate: 5e-5\ncount: '7'\nflag: yes\nloss: {name: focal, gamma: 3}\n")
    first, second = parse("--config", config)
    assert (first.rate, type(first.rate)) == (5e-5, float)
    assert second == Second(7, True, {"name": "focal", "gamma": 3})
    assert parse("--config", config_of(tmp_path, "flag: 'false'\ncount: null\n")) == (First(), Second())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 1\nrait: 2\n", "config.yaml has 'rait', which is no argument of this recipe"),
        ("config: other.yaml\n", "config.yaml has 'config', which is no argument of this recipe"),
        ("help: true\n", "config.yaml has 'help', which is no argument of this recipe"),
        ("- rate\n", "config.yaml must hold a mapping of arguments, got list"),
        ("", "config.yaml must hold a mapping of arguments, got NoneType"),
        ("rate: fast\n", "config.yaml: rate must be a float, got 'fast'"),
        ("flag: perhaps\n", "config.yaml: flag must be a bool, got 'perhaps'"),
    ],
)
def test_errors_of_a_config(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse("--config", config_of(tmp_path, text))


def test_errors_of_the_command_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse("--rat", "1")
    assert "unrecognized arguments: --rat 1" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"missing\.yaml"):
        parse("--config", str(tmp_path / "missing.yaml"))


def test_help_shows_every_argument_whatever_the_config(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in ("name", "rate", "count", "flag", "loss", "config"))


def test_a_folder_is_claimed_once_and_by_the_same_settings_again(tmp_path):
    folder, settings = tmp_path / "out" / "run", {"loss": "brier", "data": {"strip": None}, "sizes": (1, 2)}
    claim_output_dir(folder, settings)
    assert json.loads((folder / "run.json").read_text()) == {**settings, "sizes": [1, 2]}
    before = (folder / "run.json").stat().st_mtime_ns
    claim_output_dir(folder, dict(reversed(settings.items())))
    assert (folder / "run.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "focal:gamma=3"}, r"other settings \(loss: 'brier' there, 'focal:gamma=3' now\): choose another"),
        ({"rate": 1}, r"\(rate: None there, 1 now\)"),
        ({"loss": 1, "seed": 2}, r"\(loss: 'brier' there, 1 now; seed: 1 there, 2 now\)"),
    ],
)
def test_a_folder_of_other_settings_is_refused(change, message, tmp_path):
    claim_output_dir(tmp_path, {"loss": "brier", "seed": 1})
    with pytest.raises(ValueError, match=message):
        claim_output_dir(tmp_path, {"loss": "brier", "seed": 1} | change)
    assert json.loads((tmp_path / "run.json").read_text()) == {"loss": "brier", "seed": 1}


def test_other_processes_check_without_writing(tmp_path):
    claim_output_dir(tmp_path / "run", {"loss": "brier"}, write=False)
    assert not (tmp_path / "run").exists()
    claim_output_dir(tmp_path / "run", {"loss": "brier"})
    with pytest.raises(ValueError, match="holds a run with other settings"):
        claim_output_dir(tmp_path / "run", {"loss": "mmce"}, write=False)
