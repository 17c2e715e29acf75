"""A config file under a command line."""

from dataclasses import dataclass, field
from enum import Enum

import pytest
from papers.runs.yaml_arguments import parse_arguments


class Strategy(Enum):
    NO = "no"
    EPOCH = "epoch"


@dataclass
class First:
    name: str = field(default="default", metadata={"help": "A name."})
    rate: float = field(default=0.1, metadata={"help": "A rate."})


@dataclass
class Second:
    count: int | None = field(default=None, metadata={"help": "A count."})
    flag: bool = field(default=False, metadata={"help": "A flag."})
    loss: dict | str | None = field(default="brier", metadata={"help": "A loss."})
    strategy: Strategy | str = field(default="epoch", metadata={"help": "When."})
    compare: str | None = field(default=None, metadata={"help": "Losses."})
    names: list[str] | None = field(default=None, metadata={"help": "Names."})
    shares: list[float] | None = field(default=None, metadata={"help": "Numbers."})


def parse(*argv):
    return parse_arguments((First, Second), argv)


def config_of(folder, text):
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_command_line_wins_over_the_config(tmp_path):
    config = config_of(tmp_path, "name: config\nrate: 1e-3\ncount: 3\nflag: true\n")
    assert parse("--config", config) == (First("config", 1e-3), Second(3, True))
    changed = parse("--rate", "0.5", "--config", config, "--count", "4", "--flag", "false")
    assert changed == (First("config", 0.5), Second(4, False))


@dataclass
class Required:
    tables: list[str] = field(metadata={"help": "Tables."})
    folder: str = field(metadata={"help": "A folder."})


def test_a_config_may_have_what_is_required(tmp_path, capsys):
    config = config_of(tmp_path, "tables: [a, b]\n")
    found = parse_arguments((Required,), ["--config", config, "--folder", "out"])
    assert found == (Required(["a", "b"], "out"),)
    with pytest.raises(SystemExit):
        parse_arguments((Required,), ["--config", config])
    assert "the following arguments are required: --folder, on the command line or in " in capsys.readouterr().err


def test_values_get_the_type_of_their_argument(tmp_path):
    # YAML reads "5e-5" as text, and "yes" as true.
    config = config_of(tmp_path, "rate: 5e-5\ncount: '7'\nflag: yes\nloss: {name: focal, gamma: 3}\n")
    first, second = parse("--config", config)
    assert (first.rate, type(first.rate)) == (5e-5, float)
    assert second == Second(7, True, '{"name": "focal", "gamma": 3}')  # as `TrainingArguments` takes it
    assert parse("--config", config_of(tmp_path, "flag: 'false'\ncount: null\n")) == (First(), Second())


def test_text_means_what_it_means_on_the_command_line(tmp_path):
    first, second = parse("--config", config_of(tmp_path, "name: no\nstrategy: no\nflag: yes\ncompare: [brier, no]\n"))
    assert first.name == "no"
    assert (second.strategy, second.flag, second.compare) == ("no", True, "brier,no")
    assert parse("--config", config_of(tmp_path, "strategy: epoch\nnames: [a, 2]\n"))[1].names == ["a", "2"]
    assert parse("--config", config_of(tmp_path, "shares: [0.5, 1]\n"))[1].shares == [0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 1\nrait: 2\n", r"config.yaml must hold arguments of .* only, got 'rait'; did you mean 'rate'\?"),
        ("help: true\n", "config.yaml must hold arguments of .* only, got 'help'$"),
        ("- rate\n", "config.yaml must hold a mapping of arguments, got list"),
        ("rate: null\n", "config.yaml: rate must have a value, got null"),
        ("rate: [\n", "config.yaml is not valid YAML"),
        ("names: [a, [b]]", "names must be a value or a flat list, got"),
    ],
)
def test_errors_of_a_config(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse("--config", config_of(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: fast\n", "argument --rate: invalid float value: 'fast'"),
        ("flag: perhaps\n", "argument --flag: "),
        ("count: [3, 4]\n", "argument --count: invalid int value: '3,4'"),
        ("strategy: 3\n", "argument --strategy: invalid choice: '3'"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_line_that_names_the_file(text, message, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse("--config", config_of(tmp_path, text))
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and "config.yaml" in line


def test_errors_of_the_command_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse("--rat", "1")
    line = capsys.readouterr().err
    assert "error: unrecognized arguments: --rat 1 (see " in line
    assert line.count("\n") == 1
    with pytest.raises(FileNotFoundError, match=r"--config must be an existing file, got '.*missing\.yaml'"):
        parse("--config", str(tmp_path / "missing.yaml"))
