import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import pytest
import trained_models

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


ERROR = "hf-focal evaluate: error: "


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A text classifier of red, green and blue, with its files."""
    return trained_models.build("texts", tmp_path_factory.mktemp("texts"))


def error_of(capsys, arguments: list[str]) -> str:
    """The one line that a command ends in, with exit code 2."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("hf-focal ")]
    assert len(lines) == 1 and err.endswith(f"{lines[0]}\n") and "Traceback" not in err
    return lines[0]


def test_evaluate_prints_a_table(capsys, texts, tmp_path):
    out = tmp_path / "out"
    line = ["evaluate", str(texts.folder), "--dataset", str(texts.test), "--output", str(out), *texts.arguments]
    assert main(line) == 0
    printed = capsys.readouterr().out
    rows = [cells.split("|")[1].strip() for cells in printed.splitlines() if cells.startswith("| ")]
    assert rows[2:] == ["error %", "NLL", "ECE %", "AdaECE %", "classwise ECE %", "MCE %", "Brier score"]
    assert f"Written to {out}" in printed and (out / "report" / "metrics.json").is_file()


def test_calibrate_prints_before_and_after(capsys, texts, tmp_path):
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments]
    assert main([*line, "--test_dataset", str(texts.test), "--objective", "nll", "--output", str(tmp_path / "m")]) == 0
    printed = capsys.readouterr().out
    assert "(nll): ECE " in printed and "| before" in printed and "after, T = " in printed
    assert (tmp_path / "m" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text_column", "premises"], "text_column must be one of .*, got 'premises'; did you mean 'premise'?"),
        (["--label_column", "hypothesis"], "label_column must hold labels that the model has, 'red', 'green', 'blue'"),
        (["--label_map", "red=pink"], "got 'pink' in 'label'"),
        (["--split", "test"], "dataset must be a dataset with splits where one is named, got the file"),
        (["--task", "image"], "task must be one of text-classification, .*, got 'image'"),
        (["--task", "token-classification"], "tokens_column must be one of"),
        (["--batch_size", "0"], "batch_size must be at least 1, got 0"),
        (["--num_bins", "0"], "calibration_bins must be a whole number of at least 1, got 0"),
        (["--max_samples", "0"], "max_samples must be at least 1, got 0"),
        (["--max_length", "9999"], "max_length must be at most 512"),
        (["--dataset", "digits:x:y:z"], "dataset must be a file, or a dataset"),
        (["--dataset", "none.csv"], "dataset must be an existing file, got 'none.csv'"),
        (["--dataset", "digits", "--split", "dev"], "'digits' has the splits train, validation, test, got 'dev'"),
        (["--dataset", "digits::test", "--split", "train"], "dataset must have the split that is named besides"),
        (["--dataset", "me/none"], "dataset 'me/none' is neither a folder nor in the cache, and the Hub cannot be"),
    ],
)
def test_errors_of_the_data(capsys, texts, options, message):
    line = ["evaluate", texts.folder, "--dataset", texts.test, *texts.arguments, *options]
    assert re.search(message, error_of(capsys, line))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "dataset must be json with rows"),
        ([{"premise": "ba", "hypothesis": "be", "label": -100}], "label_column must hold labels, got none in 'label'"),
        ([{"premise": "ba", "hypothesis": None, "label": 1}], "text_pair_column must"),
        ([{"premise": "ba", "hypothesis": "be", "label": 3}], r"label_column must hold 0 to 2, got \[3\]"),
        ([{"premise": "ba", "hypothesis": "be", "label": "pink"}], "got 'pink' in 'label'"),
    ],
)
def test_errors_of_the_rows(capsys, texts, tmp_path, rows, message):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert re.search(message, error_of(capsys, ["evaluate", texts.folder, "--dataset", file, *texts.arguments]))


def test_errors_of_calibration(capsys, texts, tmp_path):
    line = ["calibrate", texts.folder, "--dataset", texts.validation, *texts.arguments]
    assert "objective must be 'ece' or 'nll', got 'brier'" in error_of(capsys, [*line, "--objective", "brier"])
    same = error_of(capsys, [*line, "--test_dataset", texts.validation])
    assert "test_dataset must hold other rows than dataset" in same
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(texts.validation.read_bytes())
    assert "got only rows that dataset has too" in error_of(capsys, [*line, "--test_dataset", copy])
    assert "got the file" in error_of(capsys, [*line, "--test_split", "test"])
    assert "test_dataset must hold other rows" in error_of(
        capsys, ["calibrate", texts.folder, "--dataset", "digits", "--split", "test", "--test_split", "test"]
    )
    for held in (texts.folder, texts.validation):
        assert "output must be a " in error_of(capsys, [*line, "--output", held])


def test_errors_of_the_model(capsys, texts, tmp_path):
    def model(change, name="m"):
        folder = tmp_path / name
        shutil.copytree(texts.folder, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | change))
        return folder

    data = ["--dataset", texts.test, *texts.arguments]
    missing = error_of(capsys, ["evaluate", tmp_path / "none", *data])
    assert "is neither a folder nor on the Hub" in missing
    unreachable = error_of(capsys, ["evaluate", "me/none", *data])
    assert "model 'me/none' is neither a folder nor in the cache, and the Hub cannot be reached" in unreachable
    masked = model({"architectures": ["BertForMaskedLM"]}, "masked")
    assert "or be a language model, got" in error_of(capsys, ["evaluate", masked, *data])
    several = model({"problem_type": "multi_label_classification"}, "several")
    assert "problem_type must be" in error_of(capsys, ["evaluate", several, *data])
    headless = ["evaluate", texts.folder, "--task", "causal-lm", "--dataset", texts.test, "--text_column", "premise"]
    assert "must have a trained head for causal-lm" in error_of(capsys, headless)
    foreign = ["evaluate", texts.folder, "--task", "seq2seq-lm", "--dataset", texts.test]
    foreign += ["--source_column", "premise", "--target_column", "hypothesis"]
    assert "a BertConfig, has a head for, got 'seq2seq-lm'" in error_of(capsys, foreign)
    bare = model({}, "bare")
    for file in bare.glob("token*"):
        file.unlink()
    assert "tokenizer" in error_of(capsys, ["evaluate", bare, *data])


def test_a_bug_has_its_traceback(texts, monkeypatch):
    monkeypatch.setattr("hf_focal.trained.encode_rows", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["evaluate", str(texts.folder), "--dataset", str(texts.test), *texts.arguments])


class Hub(http.server.BaseHTTPRequestHandler):
    """Has nothing but repositories for which one must ask, whose names say so."""

    def do_GET(self):
        gated = "gated" in self.path
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def errors_at(endpoint: str, asked: list[tuple[str, str]], home) -> list[str]:
    """What `evaluate` says of each (model, dataset) in a process whose Hub is there."""
    lines = [["evaluate", model, "--dataset", data] for model, data in asked]
    patience = "import time\ntime.sleep = lambda seconds: None"  # clients wait between their attempts
    script = f"{patience}\nfrom hf_focal.cli import main\nfor line in {lines}: print(main(line))"
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | own, capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * len(asked), done.stderr
    return done.stderr.splitlines()


def test_errors_of_the_hub(texts, tmp_path):
    asked = [("me/gated", "digits"), ("me/none", "digits"), (str(texts.folder), "me/gated")]
    asked.append((str(texts.folder), "me/none"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        found = errors_at(f"http://127.0.0.1:{server.server_port}", asked, tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    gated, none, gated_data, no_data = found  # a line each
    log_in = "log in with `hf auth login`"
    assert gated == f"{ERROR}model 'me/gated' is gated: ask for access on its page on the Hub, then {log_in}"
    assert none == f"{ERROR}model 'me/none' is neither a folder nor on the Hub, unless it is private: {log_in}"
    assert gated_data.startswith(ERROR) and "'me/gated' is a gated dataset on the Hub" in gated_data
    assert no_data.startswith(ERROR) and "'me/none' doesn't exist on the Hub or cannot be accessed" in no_data


def test_a_hub_that_cannot_be_reached(texts, tmp_path):
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        model, data = errors_at(endpoint, [("me/none", "digits"), (str(texts.folder), "me/none")], tmp_path)
    unreachable = "'me/none' is neither a folder nor in the cache, and the Hub cannot be reached"
    assert model == f"{ERROR}model {unreachable}"
    assert data == f"{ERROR}dataset {unreachable}"


def test_help_needs_nothing_heavy():
    script = "import sys\nfrom hf_focal import cli\ncli._parser()\nprint({'torch', 'transformers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
