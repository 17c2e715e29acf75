import atexit
import gc
import html
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys

import datasets
import huggingface_hub
import pytest
import torch
import trained_models
from hub_server import READER
from trained_models import error_of

import hf_focal
from hf_focal import InputError, Temperature
from hf_focal.calibration.correction_methods import METHODS
from hf_focal.cli import package_commands
from hf_focal.cli.main import command_parser, main
from hf_focal.hub.hub_publishing import how_to_push
from hf_focal.reports import RunResult, write_report


def test_losses_lists_losses_with_their_options(capsys):
    assert main(["losses"]) == 0
    printed = capsys.readouterr().out
    assert "flsd53: " in printed and "    gamma: " in printed


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
        "    p0: instead of gamma: the p in (0, 0.5) below which gradients exceed cross-entropy's",
    ],
)
def test_losses_shows_each_default_as_it_is_written(capsys, line):
    main(["losses"])
    assert line in capsys.readouterr().out.splitlines()


def test_env_prints_what_a_bug_report_needs(capsys):
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    assert f"hf_focal {hf_focal.__version__}, Python {platform.python_version()}, " in printed
    assert f"torch {torch.__version__.partition('+')[0]}" in printed and "GPU: " in printed
    assert printed.count("\n") <= 5


def test_only_a_process_of_its_own_collects_less_garbage(monkeypatch):
    before, atexit_calls = gc.get_threshold(), []
    monkeypatch.setattr(atexit, "register", atexit_calls.append)
    monkeypatch.setattr(sys, "argv", ["hf-focal", "losses"])
    try:
        assert main(["losses"]) == 0 and gc.get_threshold() == before and not atexit_calls
        assert main() == 0 and gc.get_threshold() > before and len(atexit_calls) == 1
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("module, frozen", [("triton", False), ("none_of_these", True)])
def test_garbage_is_collected_at_exit_if_triton_would_report_it(module, frozen):
    code = (
        "import os, sys, types\n"
        "from hf_focal.cli.main import main\n"
        f"sys.modules[{module!r}] = types.ModuleType({module!r})\n"
        "class Cycle:\n"
        "    def __del__(self, write=os.write): write(1, b'collected')\n"
        "cycle = Cycle(); cycle.itself = cycle; del cycle\n"
        "sys.argv = ['hf-focal', 'losses']\n"
        "sys.exit(main())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ("collected" in printed) is not frozen


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


def test_evaluate_prints_a_table(capsys, texts, tmp_path):
    out = tmp_path / "out"
    line = ["evaluate", str(texts.folder), "--dataset", str(texts.test), "--output", str(out), *texts.arguments]
    assert main(line) == 0
    printed = capsys.readouterr().out
    rows = [cells.split("|")[1].strip() for cells in printed.splitlines() if cells.startswith("| ")]
    errors = ["ECE %", "AdaECE %", "smooth ECE %", "classwise ECE %", "MCE %"]
    assert rows[2:] == ["error %", "macro recall %", "NLL", *errors, "Brier score", "AURC %"]
    assert f"Written to {out}" in printed and (out / "report" / "metrics.json").is_file()


def test_an_unknown_option_is_reported_by_its_command(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["calibrate", "model", "--dataset", "a.csv", "--text-columns", "b"])
    line = "hf-focal calibrate: error: unrecognized arguments: --text_columns b (see hf-focal calibrate --help)\n"
    assert capsys.readouterr().err == line


def test_calibrate_prints_before_and_after(capsys, texts, tmp_path):
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments]
    line += ["--method", "temperature"]
    assert main([*line, "--test-dataset", str(texts.test), "--objective=nll", "--output", str(tmp_path / "m")]) == 0
    printed = capsys.readouterr().out
    assert "(lowest NLL): ECE " in printed and "| before" in printed and "after, T = " in printed
    assert (tmp_path / "m" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text_column", "premises"], "text_column must be one of .*, got 'premises'; did you mean 'premise'?"),
        (["--label_column", "hypothesis"], "label_column must hold labels that the model has, 'red', 'green', 'blue'"),
        (["--label_map", "red=pink"], "label_map must map to labels of the model, .*, got 'pink'"),
        (["--label_map", "rot=red", "--label_map", "rot=blue"], "label_map must .* once, got 'rot=red rot=blue'"),
        (["--threshold_split", "dev"], "threshold_split needs precision, .* f1, or cost, got .dev. without them"),
        (["--split", "test"], "dataset must be a dataset with splits if a split is given, got the file"),
        (["--task", "image"], "task must be one of text-classification, .*, got 'image'"),
        (["--task", "token-classification"], "text_column must not be given for .*, of the task token-classification"),
        (["--batch_size", "0"], "batch_size must be at least 1, got 0"),
        (["--num_bins", "0"], "calibration_bins must be a whole number of at least 1, got 0"),
        (["--max_samples", "0"], "max_samples must be at least 1, got 0"),
        (["--max_length", "9999"], "max_length must be at most 512"),
        (["--dataset", "digits:x:y:z"], "dataset must be a file, or a dataset"),
        (["--dataset", "none.csv"], "dataset must be an existing file, got 'none.csv'"),
        (["--dataset", "digits", "--split", "dev"], "'digits' must be one of train, validation, test, got 'dev'"),
        (["--dataset", "digits::test", "--split", "train"], "dataset must name the split that split names"),
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
    assert "test_dataset must hold different samples from dataset" in same
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(texts.validation.read_bytes())
    assert "got only samples that are" in error_of(capsys, [*line, "--test_dataset", copy])
    evaluate = ["evaluate", *line[1:], "--coverage", "0.5", "--threshold_dataset", copy]
    assert "threshold_dataset must hold samples that are not in dataset" in error_of(capsys, evaluate)
    few = tmp_path / "few.csv"
    few.write_text("premise,hypothesis,label\nba,be,red\nbe,ba,blue\n")
    folds = error_of(capsys, [*line, "--dataset", few, "--method", "auto"])
    assert "dataset must have a label for each fold unless method is 'temperature': num_folds" in folds
    assert "got the file" in error_of(capsys, [*line, "--test_split", "test"])
    assert "test_dataset must hold different samples" in error_of(
        capsys, ["calibrate", texts.folder, "--dataset", "digits", "--split", "test", "--test_split", "test"]
    )
    for held in (texts.folder, texts.validation, texts.validation / "out"):
        assert "output must be a " in error_of(capsys, [*line, "--output", held])


def test_errors_of_the_model(capsys, texts, tmp_path):
    def model(change, name="m"):
        return trained_models.copy_with_config(texts.folder, tmp_path / name, **change)

    data = ["--dataset", texts.test, *texts.arguments]
    missing = error_of(capsys, ["evaluate", tmp_path / "none", *data])
    assert "is neither a folder nor on the Hub" in missing
    unreachable = error_of(capsys, ["evaluate", "me/none", *data])
    assert "model 'me/none' is neither a folder nor in the cache, and the Hub cannot be reached" in unreachable
    masked = model({"architectures": ["BertForMaskedLM"]}, "masked")
    assert "or be a language model, got" in error_of(capsys, ["evaluate", masked, *data])
    several = model({"problem_type": "multi_label_classification"}, "several")
    no_lists = error_of(capsys, ["evaluate", several, *data])
    assert "label_column must be a column of lists" in no_lists and "with | between them" in no_lists
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "language_model_classifier.html#a-gguf-file" in error_of(
        capsys, ["evaluate", tmp_path / "model.gguf", *data]
    )
    headless = ["evaluate", texts.folder, "--task", "causal-lm", "--dataset", texts.test, "--text_column", "premise"]
    assert "must have a trained head for causal-lm" in error_of(capsys, headless)
    foreign = ["evaluate", texts.folder, "--task", "seq2seq-lm", "--dataset", texts.test]
    foreign += ["--source_column", "premise", "--target_column", "hypothesis"]
    assert "a BertConfig, has a head for, got 'seq2seq-lm'" in error_of(capsys, foreign)
    bare = model({}, "bare")
    for file in bare.glob("token*"):
        file.unlink()
    assert "tokenizer" in error_of(capsys, ["evaluate", bare, *data])
    wider = model({"intermediate_size": 17}, "wider")
    assert "ignore_mismatched_sizes" in error_of(capsys, ["evaluate", wider, *data])
    half = model({}, "half") / "model.safetensors"
    half.write_bytes(half.read_bytes()[:-100])
    assert "incomplete" in error_of(capsys, ["evaluate", half.parent, *data])


def test_a_dataset_that_is_a_script(capsys, texts, tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "rows.py").write_text("import datasets\n")
    line = ["evaluate", texts.folder, "--dataset", tmp_path / "rows", *texts.arguments]
    assert "Dataset scripts are no longer supported" in error_of(capsys, line)


def test_every_process_says_what_is_wrong_with_its_rows(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    message = error_of(capsys, ["evaluate", tmp_path / "none", "--dataset", "rows.csv"])
    assert message.startswith("hf-focal evaluate: process 1: error: model ")


@pytest.mark.parametrize(("shown", "expected"), [(None, "0"), ("2,3", "2"), ("", ""), ("1", "1")])
def test_a_command_sees_one_gpu(monkeypatch, shown, expected):
    seen = []
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(package_commands, "listed_losses", lambda: seen.append(os.environ.get("CUDA_VISIBLE_DEVICES")))
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert main(["losses"]) == 0
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == shown
    monkeypatch.setenv("LOCAL_RANK", "1")  # the launcher says which
    assert main(["losses"]) == 0
    assert seen == [expected, shown]


def test_a_bug_has_its_traceback(texts, monkeypatch):
    monkeypatch.setattr("hf_focal.sources.model_data.encode_inputs", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["evaluate", str(texts.folder), "--dataset", str(texts.test), *texts.arguments])


@pytest.mark.parametrize(
    ("line", "function"),
    [
        (["demo"], "hf_focal.demo.training.run_demo"),
        (["gamma", "0.2"], "hf_focal.losses.gamma_for_threshold"),
        (["losses"], "hf_focal.cli.package_commands.listed_losses"),
        (["recipe", "list"], "hf_focal.cli.recipes.recipes"),
        (["recommend", "--held_out_samples", "9"], "hf_focal.recommendation.recommend"),
        (["report", "run"], "hf_focal.reports.comparison_page"),
        (["apply", "correction.json", "scores.csv", "--output", "new.csv"], "hf_focal.scores.correct_file"),
    ],
)
def test_a_value_error_that_is_no_error_of_input_is_a_bug(line, function, monkeypatch, tmp_path, capsys):
    def raises(kind):
        def function(*arguments, **options):
            raise kind("argument", "problem")

        return function

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(function, raises(UnicodeError))  # a ValueError
    with pytest.raises(UnicodeError):
        main(line)
    monkeypatch.setattr(function, raises(InputError))
    assert main(line) == 2
    assert capsys.readouterr().err == f"hf-focal {line[0]}: error: argument problem\n"


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(package_commands, "listed_losses", interrupt)
    assert main(["losses"]) == 130
    assert capsys.readouterr() == ("", "hf-focal losses: interrupted\n")


@pytest.fixture
def reached(hub, monkeypatch):
    """Makes downloads, too, ask the Hub at an address, that of `hub` at first; returns what sets another one."""

    def reach(url: str) -> None:
        files = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", url)

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    reach(hub.url)
    return reach


def test_errors_of_the_hub(capsys, texts, hub, reached):
    hub.gated.add("me/gated")
    log_in = "log in with `hf auth login`"
    gated, none = (error_of(capsys, ["evaluate", f"me/{name}", "--dataset", texts.test]) for name in ("gated", "none"))
    assert gated == f"{ERROR}model 'me/gated' is gated: ask for access on its page on the Hub, then {log_in}"
    assert none == f"{ERROR}model 'me/none' is neither a folder nor on the Hub, unless it is private: {log_in}"
    gated, none = (
        error_of(capsys, ["evaluate", texts.folder, "--dataset", f"me/{name}"]) for name in ("gated", "none")
    )
    assert "'me/gated' is a gated dataset on the Hub" in gated
    assert "'me/none' doesn't exist on the Hub or cannot be accessed" in none


def test_a_hub_that_cannot_be_reached(capsys, texts, reached):
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        reached(f"http://127.0.0.1:{closed.getsockname()[1]}")
        model = error_of(capsys, ["evaluate", "me/none", "--dataset", texts.test])
        data = error_of(capsys, ["evaluate", texts.folder, "--dataset", "me/none"])
    unreachable = "'me/none' is neither a folder nor in the cache, and the Hub cannot be reached"
    assert model == f"{ERROR}model {unreachable}"
    assert data == f"{ERROR}dataset {unreachable}"


@pytest.mark.usefixtures("reached")
def test_a_calibrated_model_is_published(capsys, texts, hub, monkeypatch, tmp_path):
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments]
    assert main([*line, "--method", "temperature", "--push_to_hub", "me/calibrated"]) == 0
    assert f"\nPublished: {hub.url}/me/calibrated\n" in capsys.readouterr().out
    held = hub.repositories["me/calibrated"]
    assert {"README.md", "model.safetensors", "temperature.json", "report/metrics.json"} < held.keys()
    assert held["README.md"].decode().count("me/calibrated") >= 2
    assert main(["evaluate", "me/calibrated", "--dataset", str(texts.test), *texts.arguments]) == 0
    assert "the model is already calibrated" in capsys.readouterr().out


@pytest.mark.usefixtures("reached")
def test_a_repository_is_private_where_that_is_asked(capsys, texts, monkeypatch):
    asked, create = [], huggingface_hub.HfApi.create_repo
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "create_repo",
        lambda *args, **options: asked.append(options) or create(*args, **options),
    )
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments, "--private"]
    assert main([*line, "--push_to_hub", "me/secret"]) == 0
    assert asked and all(options["private"] for options in asked)
    assert "push_to_hub must be given if private is" in error_of(capsys, line)


@pytest.mark.usefixtures("reached")
def test_a_card_names_the_whole_id(texts, hub):
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments]
    assert main([*line, "--push_to_hub", "calibrated"]) == 0
    assert 'model="me/calibrated"' in hub.repositories["me/calibrated"]["README.md"].decode()


@pytest.mark.usefixtures("reached")
def test_a_token_that_may_not_write_is_found_before_anything_is_measured(capsys, texts, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", READER)
    monkeypatch.setattr("hf_focal.sources.model.ModelScores.fit", lambda *_: 1 / 0)
    line = ["calibrate", texts.folder, "--dataset", texts.validation, *texts.arguments, "--push_to_hub", "me/other"]
    assert "the token has no permission to write there" in error_of(capsys, line)


@pytest.mark.usefixtures("reached")
def test_a_failed_upload_leaves_the_figures_and_the_command_that_repeats_it(capsys, texts, hub, tmp_path):
    hub.cut = 99
    out = tmp_path / ("long" * 50)
    line = ["calibrate", str(texts.folder), "--dataset", str(texts.validation), *texts.arguments]
    assert main([*line, "--output", str(out), "--push_to_hub", "me/other"]) == 2
    printed, err = capsys.readouterr()
    assert "| ECE % " in printed and "Published" not in printed
    last = err.splitlines()[-1]
    assert last.startswith("hf-focal calibrate: error: the upload to 'me/other' failed")
    assert len(str(out)) > 200 and last.endswith(how_to_push(out, "me/other"))
    assert (out / "model.safetensors").is_file()


def test_report_replaces_no_file_and_says_where_its_page_is(capsys, tmp_path, monkeypatch):
    logits, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    write_report(tmp_path / "run" / "report", RunResult.measure("flsd53", Temperature(1.0), logits, labels))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run"]) == 0
    assert f"Written to {tmp_path / 'report.html'}" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_text("mine")
    message = error_of(capsys, ["report", "run"])
    assert "output must be a new file, got 'report.html': name another, or remove this one" in message
    assert (tmp_path / "report.html").read_text() == "mine"
    assert main(["report", "run", "--output", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text() == page


@pytest.mark.slow
def test_report_puts_runs_on_a_page(capsys, texts, tmp_path):
    """A recipe's run, a model that was calibrated, and one that was only measured."""
    fitted = Temperature(1.3, "ece", 0.1, 0.05, 0.9, 0.8, num_samples=60, num_bins=15)
    logits, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    write_report(tmp_path / "run" / "report", RunResult.measure("flsd53", fitted, logits, labels))
    data = ["--dataset", str(texts.test), *texts.arguments]
    to = ["--method", "temperature", "--output", str(tmp_path / "calibrated")]
    assert main(["calibrate", str(texts.folder), *data, *to]) == 0
    assert main(["evaluate", str(texts.folder), *data, "--output", str(tmp_path / "evaluated")]) == 0
    capsys.readouterr()
    folders = [str(tmp_path / name) for name in ("run", "calibrated", "evaluated")]
    assert main(["report", *folders, "--output", str(tmp_path / "page.html")]) == 0
    *lines, written = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| Model | ") for line in lines) and written == f"Written to {tmp_path / 'page.html'}"
    page = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8").replace("<wbr>", ""))
    names = re.findall(r'<th scope="row">(.*?)</th>', page)
    assert names == ["flsd53", "(majority class)", "model (calibrated)", "model (evaluated)", "(majority class)"]
    captions = re.findall(r"<figcaption>(.*?): ECE", page)
    sides = ["Before temperature scaling", "After temperature scaling"]
    assert captions == [*sides, *sides] and "No temperature was fitted." in page


@pytest.mark.parametrize("output", ["", ".", "..", "/", "run", "run/report/metrics.json"])
def test_a_report_replaces_pages_only(capsys, tmp_path, monkeypatch, output):
    logits, labels = torch.randn(40, 3), torch.arange(40) % 3
    write_report(tmp_path / "run" / "report", RunResult.measure("flsd53", Temperature(1.0), logits, labels))
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.parent.rglob("*") if path.is_file()}
    message = error_of(capsys, ["report", "run", "--output", output])
    assert f"output must be a new file, got {output!r}" in message
    assert {path: path.stat().st_mtime_ns for path in tmp_path.parent.rglob("*") if path.is_file()} == before


def test_a_report_of_several_test_sets_prints_a_table_for_each(capsys, tmp_path):
    for name, size in (("a", 30), ("b", 60)):
        logits, labels = torch.randn(size, 3), torch.arange(size) % 3
        write_report(tmp_path / name / "report", RunResult.measure("flsd53", Temperature(1.0), logits, labels))
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| Loss | ") == 2 and "**" not in printed
    assert "On 30 samples of 3 classes, 10 of each:\n\n" in printed and "On 60 samples of 3" in printed


def test_errors_of_a_report(capsys, tmp_path):
    assert "folder must be the folder of a run, a report or a comparison" in error_of(capsys, ["report", tmp_path])
    (tmp_path / "metrics.json").write_text("[]")
    assert "must be what a report writes" in error_of(capsys, ["report", tmp_path])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["evaluate", "m"], "evaluate: error: the following arguments are required: --dataset"),
        (["evaluate", "m", "--dataset", "d", "--label_map", "red"], "label_map: must hold DATA=MODEL, got 'red'"),
        (["calibrate", "m", "--dataset", "d", "--new_prior", "x"], "new_prior: must be a number, or several like"),
        (["evaluate", "m", "--dataset", "d", "--batch_size", "x"], "argument --batch_size: invalid int value: 'x'"),
        (["calibrat"], "error: argument command: invalid choice: 'calibrat'"),
        (["report"], "report: error: the following arguments are required: DIR"),
    ],
)
def test_errors_of_the_command_line_are_one_line(capsys, line, message):
    with pytest.raises(SystemExit, match="2"):
        main(line)
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_the_examples_of_the_help_are_valid(capsys, command):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    examples = re.findall(f"^  hf-focal ({command} .*)", capsys.readouterr().out, flags=re.MULTILINE)
    parsed = [vars(command_parser().parse_args(shlex.split(example))) for example in examples]
    data = [{"dataset", "scores"} & arguments.keys() for arguments in parsed]
    assert {"dataset"} in data and {"scores"} in data and all(len(names) == 1 for names in data)


def test_the_help_names_every_method(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["calibrate", "--help"])
    listed = re.search(r"METHOD\s+(.*?)\[by", capsys.readouterr().out, flags=re.DOTALL)[1]
    assert {*re.findall(r"\w+", listed)} == {*METHODS, "auto", "or"}


@pytest.mark.slow
def test_help_needs_nothing_heavy():
    script = "import sys; from hf_focal.cli.main import command_parser; command_parser()\n"
    script += "print({'torch', 'transformers'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
